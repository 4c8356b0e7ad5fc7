// What the Node package costs beside async-mutex, in turns with it: medians of processor time. And
// beside the least that a line of waiters can be: promises in an array, with neither keys, ends,
// priorities nor errors. Each in a process of its own: what one has made of the heap, or of the
// code that they share, isn't the other's.
//
//     bindings/node/test/run BUILD "$PWD/bench/node.js" [--smoke]          prints a table, as TAP
//     bindings/node/test/run BUILD "$PWD/bench/node.js" --json [--smoke]   a JSON object a line
'use strict';
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const v8 = require('node:v8');
const theirs = require('async-mutex');
const { KeyedMutex, Mutex, open } = require('../bindings/node/lib/index.js');
const series = require('./series.js');

const smoke = process.argv.includes('--smoke'), json = process.argv.includes('--json');
const rounds = smoke ? 3 : 15;
// What a server has on its heap besides. The smaller a heap the more often V8 goes through all of
// it, so that with nothing else there as many waits would cost less where each has a lock, too.
let besides;

async function alone(run, n) {
    for (let i = 0; i < n; i++) await run(() => {}, 0);
}

// So many stand in line all the time, or, with so many locks, one at each: each that is served puts
// another one behind the last.
function lined(run, length, n, locks) {
    return new Promise((resolve) => {
        let put = 0, served = 0;
        const serves = Array.from({ length: locks }, (_, at) => () => {
            if (++served === n) resolve();
            else if (put < n) more(at);
        });
        const more = (at) => {
            put++;
            run(serves[at], at);
        };
        while (put < length) more(put % locks);
    });
}

class Bare {
    #line = [];
    #at = 0;
    #held = false;

    runExclusive(fn) {
        return new Promise((resolve) => {
            if (this.#held) this.#line.push(resolve, fn);
            else this.#turn(resolve, fn);
        });
    }

    async #turn(resolve, fn) {
        this.#held = true;
        await null;
        resolve(await fn());
        this.#held = false;
        if (this.#at === this.#line.length) return;
        const next = this.#line[this.#at], run = this.#line[this.#at + 1];
        this.#line[this.#at] = this.#line[this.#at + 1] = undefined;
        this.#at += 2;
        if (this.#at >= 4096) {
            this.#line.splice(0, this.#at);
            this.#at = 0;
        }
        this.#turn(next, run);
    }
}

const locks = {
    'async-mutex': (n) => many(n, theirs.Mutex),
    Mutex: (n) => many(n, Mutex),
    KeyedMutex: (n) => {
        const lock = new KeyedMutex(), keys = Array.from({ length: n }, (_, at) => `key ${at}`);
        return (fn, at) => lock.runExclusive(keys[at], fn);
    },
    'bare line': (n) => many(n, Bare),
};

function many(n, Lock) {
    const all = Array.from({ length: n }, () => new Lock());
    return (fn, at) => all[at].runExclusive(fn);
}

const median = (all) => [...all].sort((a, b) => a - b)[all.length >> 1];

async function took(way, n) {
    globalThis.gc?.();
    const start = process.cpuUsage();
    await way(n);
    const { user, system } = process.cpuUsage(start);
    return (user + system) / n;
}

// Without the time in which the collector stops everything else: what the lock does itself.
async function worked(way, n) {
    globalThis.gc();
    const profiler = new v8.GCProfiler();
    profiler.start();
    const start = process.hrtime.bigint();
    await way(n);
    const us = Number(process.hrtime.bigint() - start) / 1e3;
    return profiler.stop().statistics.reduce((left, { cost }) => left - cost, us) / n;
}

// In a process of its own: microseconds for each of n operations, the first time left out.
async function single(how, name, length, n, times, many) {
    besides = Array.from({ length: 1e6 }, (_, at) => ({ at }));
    const run = locks[name](many), all = [];
    for (let i = 0; i <= times; i++)
        all.push(await how((m) => (length ? lined(run, length, m, many) : alone(run, m)), n));
    console.log(median(times ? all.slice(1) : all));
    besides.length = 0; // it lived until here
}

// name -> what each of such processes has found, in turns. That of the work alone has the
// collector's in one thread, where it is counted.
function apart(length, n, turns, times,
    { names = Object.keys(locks), how = 'took', many = 1 } = {}) {
    const all = {};
    for (let turn = 0; turn < turns; turn++) {
        for (const name of names) {
            const args = ['--expose-gc', ...(how === 'worked' ? ['--single-threaded-gc'] : []),
                __filename, '--one', how, name, length, n, times, many].map(String);
            (all[name] ??= []).push(Number(execFileSync(process.execPath, args)));
        }
    }
    return all;
}

// name -> microseconds for each operation, measured in turns.
async function measure(ways, n) {
    const all = {};
    for (let round = 0; round <= rounds; round++) {
        for (const [name, way] of Object.entries(ways)) {
            const us = await took(way, n);
            if (round) (all[name] ??= []).push(us);
        }
    }
    return all;
}

// Prints what was found; name -> the median.
function show(what, all, base) {
    const us = Object.fromEntries(Object.entries(all).map(([name, some]) => [name, median(some)]));
    for (const [name, value] of Object.entries(us)) {
        if (json) {
            series.show(`${what}: ${name}`, all[name]);
            // Of each turn; what is measured less often has none.
            if (/Mutex$/.test(name))
                for (const other of Object.keys(all))
                    if (other !== name && all[other].length === all[name].length)
                        series.ratio(`${what}: ${name} / ${other}`, all[name], all[other]);
        }
        if (!json) console.log(`# ${what.padEnd(20)} ${name.padEnd(14)} ` +
            `${value.toFixed(2).padStart(9)} us` +
            (us[base] && name !== base ? `  ${(value / us[base]).toFixed(2)}` : ''));
    }
    return us;
}

// The package's stores, alone.
async function stores(n) {
    const file = path.join(os.tmpdir(), `holdfast-bench.${process.pid}`);
    for (const url of ['mem:', `file:${file}`]) {
        const store = await open(url);
        show(`store ${url.split(':')[0]}`, await measure({
            run: (n) => alone((fn) => store.run('key', fn), n),
            'and acquire': async (n) => {
                for (let i = 0; i < n; i++) await (await store.acquire('key')).release();
            },
        }, n));
        await store.close();
        if (url !== 'mem:') fs.unlinkSync(file);
    }
}

async function main() {
    const all = smoke ? 2000 : 20000, turns = smoke ? 1 : 7, times = smoke ? 2 : 7;
    show('alone', apart(0, all, turns, times), 'async-mutex');
    const few = show('1 in line', apart(1, all, turns, times), 'async-mutex');
    // The peer's queue is the slower the longer it is: once is enough.
    const length = smoke ? 20000 : 100000;
    const [slow, ...fast] = Object.keys(locks);
    const lines = [1, length].map((many) => apart(length, length, 1, 0, { names: [slow], many }));
    // As many wait, for the collector as for the processor's caches, but in lines of one: in turns.
    for (let turn = 0; turn < turns; turn++) {
        [1, length].forEach((many, i) => {
            const found = apart(length, 2 * length, 1, Math.min(times, 3), { names: fast, many });
            for (const name of fast) (lines[i][name] ??= []).push(...found[name]);
        });
    }
    const what = [`${length} in line`, `1 at each of ${length}`];
    const [long, wide] = lines.map((found, i) => show(what[i], found, 'async-mutex'));
    for (const name of json ? fast : [])
        series.ratio(what.map((which) => `${which}: ${name}`).join(' / '),
            ...lines.map((found) => found[name]));
    if (json) return stores(all / 2);
    for (const name of Object.keys(locks))
        console.log(`# ${name.padEnd(14)} one line / lines of 1: ` +
            `${(long[name] / wide[name]).toFixed(2)}`);
    for (const name of Object.keys(locks))
        console.log(`# ${name.padEnd(14)} long / 1: ${(long[name] / few[name]).toFixed(1)}`);
    const [fewWork, longWork] = [1, length].map((n) => apart(n, 2 * length, turns,
        Math.min(times, 3), { names: ['Mutex', 'KeyedMutex'], how: 'worked' }))
        .map((found, i) => show(`its work, ${i ? length : 1}`, found));
    const flat = Object.keys(fewWork).map((name) => longWork[name] / fewWork[name]);
    console.log(`# its work, long / 1: ${flat.map((x) => x.toFixed(2)).join(', ')}`);
    await stores(all / 2);
    // Nothing is asserted but that no cost grows with the line: times as many would tell, whatever
    // else the machine does. bench/run compares the costs. A waiter that lives long costs the
    // collector's work on it, which one that is served at once doesn't; so the bare line isn't flat
    // either.
    const ours = Math.max(long.Mutex, long.KeyedMutex) / long['bare line'];
    console.log(`${ours < 8 ? 'ok' : 'not ok'} 1 - a long line costs about as much as a bare one ` +
        `(${ours.toFixed(1)} times)`);
    const more = Math.max(...['Mutex', 'KeyedMutex'].map((name) => long[name] / few[name]));
    console.log(`${more < 20 ? 'ok' : 'not ok'} 2 - a long line costs no more ` +
        `(${more.toFixed(1)} times as much; its work ${Math.max(...flat).toFixed(1)} times)`);
    const deep = Math.max(...['Mutex', 'KeyedMutex'].map((name) => long[name] / wide[name]));
    console.log(`${deep < 8 ? 'ok' : 'not ok'} 3 - it costs what as many in lines of one do ` +
        `(${deep.toFixed(2)} times)`);
    console.log('1..3');
}

const at = process.argv.indexOf('--one');
if (at < 0) main();
else {
    const [how, name, ...numbers] = process.argv.slice(at + 1);
    single({ took, worked }[how], name, ...numbers.map(Number));
}
