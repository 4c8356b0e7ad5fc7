// The same scripts run on async-mutex and on holdfast/mutex, and what a program sees has to be the
// same: the request that is granted, its value, what each promise comes to, the state after each
// call, and the order of all that, to the microtask.
//
//     node differential.test.js [SEED]
//
// SEED (default: from the commit) is where the generated scripts begin.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { createHash } = require('node:crypto');

const { record } = require('./differential/record.js');
const { random } = require('./differential/random.js');
const { scenarios } = require('./differential/scenarios.js');

const theirs = require('async-mutex');
const ours = require('../lib/mutex.js');
// The second of the differences below, taken out of what is compared.
const woken = { ...theirs, wakesLate: true };

const COUNT = 5000; // generated scripts of each kind

function seedOfCommit() {
    let commit;
    try {
        commit = execFileSync('git', ['rev-parse', 'HEAD'], { cwd: __dirname, encoding: 'utf8',
            stdio: ['ignore', 'pipe', 'ignore'] });
    } catch {
        commit = require('../package.json').version; // no checkout
    }
    return createHash('sha256').update(commit.trim()).digest().readUInt32LE();
}
const seed = process.argv[2] === undefined ? seedOfCommit() : Number(process.argv[2]);

async function same(lock, script) {
    const expected = await record(woken, lock, script);
    const actual = await record(ours, lock, script);
    assert.deepEqual(actual, expected, `${lock}: ${script}\n${expected.map((line, i) =>
        `${line === actual[i] ? ' ' : '!'} ${line.padEnd(40)} ${actual[i]}`).join('\n')}`);
    return actual;
}

for (const [lock, name, script] of scenarios)
    test(`${lock}: ${name}`, () => same(lock, script));

for (const timed of [false, true]) {
    test(`${COUNT} generated scripts${timed ? ', with timeouts' : ''}, from ${seed}`, async () => {
        const seen = new Map();
        for (let i = 0; i < COUNT; i++) {
            const [lock, script] = random(seed + i, timed);
            for (const line of await same(lock, script)) {
                const what = /: (granted|runs|returned|unlocked|rejected with \w+)/.exec(line)?.[1];
                if (what) seen.set(what, (seen.get(what) ?? 0) + 1);
            }
        }
        // They come to all that a request can come to, and not by a chance or two.
        const all = ['granted', 'runs', 'returned', 'unlocked', 'rejected with E_CANCELED',
            'rejected with mine', ...timed ? ['rejected with E_TIMEOUT',
                'rejected with E_ALREADY_LOCKED'] : []];
        for (const what of all)
            assert.ok(seen.get(what) > COUNT / 20, `${what}: ${seen.get(what)}`);
    });
}

// Where they differ, and mean to (README.md). The lines that only the one or the other has.
const DIFFERENCES = [
    ['a request that has timed out leaves the line', 'withTimeout 50 Semaphore 2',
        'acquire a w3 | pass 30 | acquire b | pass 20 | pass 30 |',
        ['b: rejected with E_TIMEOUT'], ['b: granted at 2']],
    ['the same, and waitForUnlock', 'withTimeout 50 Semaphore 2',
        'acquire a w3 p1 | pass 30 | wait w | pass 20 | pass 30 |',
        ['w: rejected with E_TIMEOUT'], ['w: unlocked undefined']],
    ['Semaphore.cancel wakes waitForUnlock', 'Semaphore 2', 'acquire a w3; wait w | cancel |',
        [], ['w: unlocked undefined']],
    ['a hold that release has ended isn\'t ended again', 'Mutex',
        'acquire a; acquire b | release; free a; acquire c |', ['c: granted'], []],
    ['the same with a function', 'Mutex', 'run r; acquire a; release; acquire c |',
        ['c: granted'], []],
    ['waitForUnlock is woken for a fraction of a weight', 'Semaphore 1',
        'acquire a; wait w w0.5 | free a |', [], ['w: unlocked undefined']],
];
const events = (trace) => trace.filter((line) => !line.endsWith(']'));
for (const [name, lock, script, theirEvents, ourEvents] of DIFFERENCES) {
    test(`differs: ${name}`, async () => {
        const expected = events(await record(theirs, lock, script));
        const actual = events(await record(ours, lock, script));
        assert.deepEqual(expected.filter((line) => !actual.includes(line)), theirEvents);
        assert.deepEqual(actual.filter((line) => !expected.includes(line)), ourEvents);
    });
}
