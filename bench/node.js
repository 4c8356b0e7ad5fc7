// What the Node package costs beside async-mutex, in turns with it: medians of processor time.
//
//     bindings/node/test/run BUILD "$PWD/bench/node.js" [--smoke]      prints a table, as TAP
'use strict';
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const theirs = require('async-mutex');
const { KeyedMutex, Mutex, open } = require('../bindings/node/lib/index.js');

const smoke = process.argv.includes('--smoke');
const rounds = smoke ? 3 : 15;

async function alone(run, n) {
    for (let i = 0; i < n; i++) await run(() => {});
}

// So many stand in line all the time: each that is served puts another one behind the last.
function lined(run, length, n) {
    return new Promise((resolve) => {
        let put = 0, served = 0;
        const serve = () => {
            if (++served === n) resolve();
            else if (put < n) more();
        };
        const more = () => {
            put++;
            run(serve);
        };
        while (put < length) more();
    });
}

// name -> the median of microseconds for each operation, measured in turns.
async function measure(ways, n) {
    const took = {};
    for (let round = 0; round <= rounds; round++) {
        for (const [name, way] of Object.entries(ways)) {
            globalThis.gc?.();
            const start = process.cpuUsage();
            await way(n);
            const { user, system } = process.cpuUsage(start);
            if (round) (took[name] ??= []).push((user + system) / n);
        }
    }
    return Object.fromEntries(Object.entries(took).map(([name, all]) =>
        [name, all.sort((a, b) => a - b)[all.length >> 1]]));
}

function show(what, us, base) {
    for (const [name, value] of Object.entries(us))
        console.log(`# ${what.padEnd(18)} ${name.padEnd(14)} ${value.toFixed(2).padStart(9)} us` +
            (us[base] && name !== base ? `  ${(value / us[base]).toFixed(2)}` : ''));
}

async function main() {
    const peer = new theirs.Mutex(), mutex = new Mutex(), keyed = new KeyedMutex();
    const runs = {
        'async-mutex': (fn) => peer.runExclusive(fn),
        Mutex: (fn) => mutex.runExclusive(fn),
        KeyedMutex: (fn) => keyed.runExclusive('key', fn),
    };
    const ways = (how) => Object.fromEntries(Object.entries(runs).map(([name, run]) =>
        [name, (n) => how(run, n)]));
    const all = smoke ? 2000 : 20000;
    const uncontended = await measure(ways(alone), all);
    show('alone', uncontended, 'async-mutex');
    const few = await measure(ways((run, n) => lined(run, 1, n)), all);
    show('1 in line', few, 'async-mutex');
    // The peer's queue is the slower the longer it is: once is enough.
    const length = smoke ? 20000 : 100000;
    const { 'async-mutex': slow, ...fast } = ways((run, n) => lined(run, length, n));
    const long = await measure(fast, 2 * length);
    const start = process.cpuUsage();
    await slow(length);
    const { user, system } = process.cpuUsage(start);
    long['async-mutex'] = (user + system) / length;
    show(`${length} in line`, long, 'async-mutex');
    const file = path.join(os.tmpdir(), `holdfast-bench.${process.pid}`);
    for (const url of ['mem:', `file:${file}`]) {
        const store = await open(url);
        show(url.slice(0, 5), await measure({
            run: (n) => alone((fn) => store.run('key', fn), n),
            'and acquire': async (n) => {
                for (let i = 0; i < n; i++) await (await store.acquire('key')).release();
            },
        }, all / 2));
        await store.close();
        if (url !== 'mem:') fs.unlinkSync(file);
    }
    // The queue of async-mutex grows slower with its length. Nothing is asserted tightly.
    const flat = Math.max(...['Mutex', 'KeyedMutex'].map((name) => long[name] / few[name]));
    console.log(`${flat < 20 ? 'ok' : 'not ok'} 1 - a long line costs no more ` +
        `(${flat.toFixed(1)} times as much)`);
    console.log(`${uncontended.Mutex < uncontended['async-mutex'] ? 'ok' : 'not ok'} 2 - ` +
        'a Mutex costs less than its peer');
    console.log('1..2');
}

main();
