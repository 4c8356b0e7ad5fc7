// Behaviour of async-mutex 0.5 that its README doesn't mention, but programs rely on: sizes of 0
// and less, weights that are thrown, waits only until a lock is free. The same cases run on it,
// too.
//
//     node alike.test.js [ours | async-mutex]
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');

const { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Mutex, Semaphore, tryAcquire, withTimeout } =
    process.argv[2] === 'async-mutex' ? require('async-mutex') : require('../lib/mutex.js');

// A wait that is left at the end doesn't keep the process alive.
const { setTimeout: timer } = globalThis;
globalThis.setTimeout = (...args) => timer(...args).unref();
const alive = setInterval(() => {}, 1000);

const turns = async (n = 40) => {
    for (let i = 0; i < n; i++) await null;
};

// Writes down the names of the requests that are served, in order.
function book() {
    const seen = [], releases = [];
    const note = (name, promise) => promise.then((got) => {
        seen.push(name);
        if (got) releases.push(Array.isArray(got) ? got[1] : got);
    }, (error) => assert.equal(error, E_CANCELED));
    return { seen, note, free: async () => {
        await turns();
        releases.shift()();
        await turns();
    } };
}

const semaphores = [['Semaphore', (n, error) => new Semaphore(n, error)],
    ['withTimeout(Semaphore)', (n, error) => withTimeout(new Semaphore(n, error), 3600000)]];
const mutexes = [['Mutex', () => new Mutex()],
    ['withTimeout(Mutex)', () => withTimeout(new Mutex(), 3600000)]];

for (const [name, make] of semaphores) {
    test(`${name}: of 0, and of less`, async () => {
        const none = make(0), { seen, note } = book();
        assert.deepEqual([none.isLocked(), none.getValue()], [true, 0]);
        note('one', none.acquire(1));
        note('two', none.acquire(2));
        note('four', none.acquire(4));
        none.setValue(3);
        await turns();
        assert.deepEqual([seen, none.getValue()], [['one', 'two'], 0]);
        none.setValue(-7);
        assert.equal(none.getValue(), -7);
        none.cancel();

        const less = make(-2);
        let value;
        less.acquire().then(([had]) => (value = had));
        less.release(2);
        await turns();
        assert.deepEqual([value, less.isLocked()], [undefined, true]);
        less.release(2);
        await turns();
        assert.deepEqual([value, less.getValue()], [2, 1]);
    });

    test(`${name}: a weight that is none is thrown; runExclusive rejects`, async () => {
        const semaphore = make(2);
        for (const call of ['acquire', 'release', 'waitForUnlock'])
            for (const weight of [-1, 0])
                assert.throws(() => semaphore[call](weight),
                    /invalid weight -?\d: must be positive/);
        const rejected = semaphore.runExclusive(() => assert.fail(), -1);
        await assert.rejects(rejected, /invalid weight -1: must be positive/);
        assert.equal(semaphore.getValue(), 2);
    });

    test(`${name}: the value is taken before acquire and runExclusive return`, async () => {
        const semaphore = make(2);
        const one = semaphore.acquire();
        assert.equal(semaphore.getValue(), 1);
        (await one)[1]();
        const all = semaphore.runExclusive(() => 7, 2);
        assert.equal(semaphore.getValue(), 0);
        assert.deepEqual([await all, semaphore.getValue()], [7, 2]);
    });

    test(`${name}: priorities; a heavy one of a higher priority goes first`, async () => {
        const semaphore = make(2), { seen, note, free } = book();
        note('first', semaphore.acquire(1));
        note('second', semaphore.acquire(1));
        note('low', semaphore.acquire(1, -1));
        note('heavy', semaphore.acquire(2, 1));
        await free();
        assert.deepEqual(seen, ['first', 'second']);
        await free();
        await free();
        assert.deepEqual(seen, ['first', 'second', 'heavy', 'low']);
    });

    test(`${name}: a light one of a higher priority passes a heavy one`, async () => {
        const semaphore = make(2), { seen, note } = book();
        note('heavy', semaphore.acquire(3, 0));
        note('light', semaphore.acquire(1, 1));
        note('behind', semaphore.acquire(1, 0));
        await turns();
        assert.deepEqual(seen, ['light']);
        semaphore.cancel();
    });

    test(`${name}: waitForUnlock goes before a request of a lower priority`, async () => {
        const semaphore = make(2), { seen, note } = book();
        note('heavy', semaphore.acquire(3, 1));
        note('low', semaphore.waitForUnlock(1, 0));
        note('high', semaphore.waitForUnlock(1, 2)); // at once: it would be served
        note('same', semaphore.waitForUnlock(1, 1));
        await turns();
        assert.deepEqual(seen, ['high']);
        semaphore.cancel();

        const other = make(2), next = book();
        next.note('holder', other.acquire(2, 2));
        next.note('task', other.acquire(2, 0));
        next.note('sees', other.waitForUnlock(2, 1));
        next.note('same', other.waitForUnlock(2, 0));
        await turns();
        assert.deepEqual(next.seen, ['holder']);
        await next.free();
        assert.deepEqual(next.seen, ['holder', 'sees', 'task']);
        await next.free();
        assert.deepEqual(next.seen, ['holder', 'sees', 'task', 'same']);
    });

    test(`${name}: waitForUnlock asks for a weight`, async () => {
        const semaphore = make(2), { seen, note } = book();
        await semaphore.acquire(2);
        note('one', semaphore.waitForUnlock(1));
        note('two', semaphore.waitForUnlock(2));
        semaphore.release(1);
        await turns();
        assert.deepEqual(seen, ['one']);
        semaphore.release(1);
        await turns();
        assert.deepEqual(seen, ['one', 'two']);
    });

    test(`${name}: cancel, with the error that was given, even of what is too heavy`, async () => {
        const why = new Error('why'), semaphore = make(2, why), plain = make(2);
        const heavy = semaphore.acquire(3), usual = plain.acquire(3);
        semaphore.cancel();
        plain.cancel();
        await assert.rejects(heavy, (error) => error === why);
        await assert.rejects(usual, (error) => error === E_CANCELED);
        semaphore.release(); // of one that is free
        assert.equal(semaphore.getValue(), 3);
    });
}

for (const [name, make] of mutexes) {
    test(`${name}: waitForUnlock goes before a request of a lower priority`, async () => {
        const mutex = make(), { seen, note, free } = book();
        note('holder', mutex.acquire());
        note('low', mutex.acquire(-1));
        note('sees', mutex.waitForUnlock(0));
        note('same', mutex.waitForUnlock(-1));
        note('high', mutex.acquire(1));
        await free();
        assert.deepEqual(seen, ['holder', 'high']);
        await free();
        assert.deepEqual(seen, ['holder', 'high', 'sees', 'low']);
        await free();
        assert.deepEqual(seen, ['holder', 'high', 'sees', 'low', 'same']);
        assert.equal(mutex.isLocked(), false);
        mutex.release();
    });
}

test('withTimeout of 0, and tryAcquire: with their own errors', async () => {
    const semaphore = withTimeout(new Semaphore(1), 0);
    const [, release] = await semaphore.acquire();
    await assert.rejects(semaphore.runExclusive(() => assert.fail()), (e) => e === E_TIMEOUT);
    await assert.rejects(semaphore.acquire(), (error) => error === E_TIMEOUT);
    release();
    const mutex = tryAcquire(new Mutex());
    (await mutex.acquire());
    await assert.rejects(mutex.acquire(), (error) => error === E_ALREADY_LOCKED);
    const why = new Error('why'), named = tryAcquire(new Semaphore(0), why);
    await assert.rejects(named.acquire(), (error) => error === why);
});

test('end', () => clearInterval(alive));
