// A wait on a key costs what it costs alone beside many waits on other keys.
//
//     growth.test.js URL MANY
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const holdfast = require('../lib/index.js');

const url = process.argv[2];
const FEW = 300, MANY = Number(process.argv[3]), TIMES = 5;
const prefix = crypto.randomBytes(6).toString('hex');
let n = 0;

// Starts so many waits, each on a key that `other` holds. Returns the processor time of one start.
async function start(store, other, count, waits, held) {
    const keys = Array.from({ length: count }, () => `${prefix}/${++n}`);
    for (const key of keys) held.push(await other.acquire(key));
    const begun = process.cpuUsage();
    for (const key of keys) waits.push(store.acquire(key, { wait: '1h' }));
    const { user, system } = process.cpuUsage(begun);
    return (user + system) / count;
}

// With 30,000 a walk of what waits would make it a hundred times as much.
test(`${FEW} waits beside ${MANY} cost what they cost alone; all are granted`, async () => {
    const store = await holdfast.open(url), other = await holdfast.open(url);
    const alive = setInterval(() => {}, 1000);
    try {
        const waits = [], held = [], few = [], many = [];
        for (let i = 0; i < TIMES; i++) few.push(await start(store, other, FEW, waits, held));
        await start(store, other, MANY, waits, held);
        for (let i = 0; i < TIMES; i++) many.push(await start(store, other, FEW, waits, held));
        const before = store.stats();
        assert.equal(waits.length, MANY + 2 * TIMES * FEW);
        for (const lock of held) await lock.release();
        for (const lock of await Promise.all(waits)) await lock.release();
        const after = store.stats();
        assert.equal(Number(after.acquired) - Number(before.acquired), waits.length);
        assert.equal(Number(after.timeouts), 0);
        console.log(`# microseconds: ${few} alone, ${many} beside ${MANY}`);
        assert.ok(Math.min(...many) < 8 * Math.min(...few), `${few} alone, ${many} beside ${MANY}`);
    } finally {
        clearInterval(alive); // what has failed isn't waited for
        await store.close();
        await other.close();
    }
});
