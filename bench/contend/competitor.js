// A competitor that is written in JavaScript: see competitor.h.
'use strict';
const fs = require('fs');
const { createInterface } = require('readline');

const LAST = 128, NAP_MS = 1, AWAKE_NS = 2000000n;
const now = () => process.hrtime.bigint();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// The file in which they see each other.
class Turns {
    constructor(me, path) {
        this.me = me;
        this.file = path === '-' ? null : fs.openSync(path, 'r+');
        this.seen = Buffer.alloc(LAST + 1);
    }
    mark(at, value) {
        if (this.file !== null) fs.writeSync(this.file, Buffer.from([value]), 0, 1, at);
    }
    look() {
        fs.readSync(this.file, this.seen, 0, LAST + 1, 0);
        return this.seen;
    }
    wanted() {
        return this.look().subarray(0, LAST).some((wants, i) => wants && i !== this.me);
    }
    passedOn() {
        return this.look()[LAST] !== this.me;
    }
    async wait(until, end) {
        while (this.file !== null && !until.call(this) && now() < end) await pause(NAP_MS);
    }
}

// A timer may be a millisecond late.
async function keep(ns) {
    const until = now() + BigInt(ns);
    if (BigInt(ns) > AWAKE_NS) await pause(Number(BigInt(ns) - AWAKE_NS) / 1e6);
    while (now() < until) continue;
    return now();
}

async function loop(take, give, key, start, end, hold, spread, me, path) {
    const turns = new Turns(Number(me), path), holds = [];
    end = BigInt(end);
    await pause(Math.max(0, Number(BigInt(start) - now()) / 1e6));
    for (let asked; (asked = now()) < end;) {
        turns.mark(turns.me, 1);
        const held = await take(key);
        const had = now();
        turns.mark(LAST, turns.me);
        turns.mark(turns.me, 0);
        await turns.wait(turns.wanted, end);
        const gave = await keep(Number(hold) + Math.floor(Math.random() * Number(spread)));
        await give(held);
        holds.push(`${asked} ${had} ${gave}\n`);
        await turns.wait(turns.passedOn, end);
    }
    return holds.join('');
}

// take(key) waits and resolves to what give(it) gives back.
exports.compete = async (take, give) => {
    let held;
    console.log('ready');
    for await (const line of createInterface({ input: process.stdin })) {
        const [what, ...words] = line.split(' ');
        if (what === 'take') {
            held = await take(words[0]);
            console.log(`had ${now()}`);
        } else if (what === 'loop') {
            process.stdout.write(await loop(take, give, ...words) + 'end\n');
        } else {
            console.log(`gave ${now()}`);
            await give(held);
        }
    }
};
