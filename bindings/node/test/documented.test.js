// What the README and the types of async-mutex 0.5 promise, call by call, of each kind of lock and
// of the same in a decorator. The same cases run on async-mutex itself, too.
//
//     node documented.test.js [ours | async-mutex]
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');

const theirs = process.argv[2] === 'async-mutex';
const library = theirs ? require('async-mutex') : require('../lib/mutex.js');
const { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Mutex, Semaphore, tryAcquire, withTimeout } =
    library;

const HOUR = 3600000;
// A timer that still runs at the end doesn't keep the process alive.
const { setTimeout: timer } = globalThis;
globalThis.setTimeout = (...args) => timer(...args).unref();
const alive = setInterval(() => {}, 1000);

const turns = async (n = 40) => {
    for (let i = 0; i < n; i++) await null;
};
const is = (error) => (got) => got === error;
const releaserOf = (got) => (Array.isArray(got) ? got[1] : got);

// Each kind of lock that admits one.
const locks = [['Mutex', (error) => new Mutex(error)],
    ['Semaphore', (error) => new Semaphore(1, error)],
    ['withTimeout(Mutex)', (error) => withTimeout(new Mutex(error), HOUR)],
    ['withTimeout(Semaphore)', (error) => withTimeout(new Semaphore(1, error), HOUR)]];
const semaphores = [['Semaphore', (n) => new Semaphore(n)],
    ['withTimeout(Semaphore)', (n) => withTimeout(new Semaphore(n), HOUR)]];
// With a priority, which a semaphore takes behind the weight.
const first = (name, lock, call, priority, ...args) => (name.includes('Semaphore')
    ? lock[call](...args, 1, priority) : lock[call](...args, priority));

test('the names, also by import', async () => {
    const names = ['E_ALREADY_LOCKED', 'E_CANCELED', 'E_TIMEOUT', 'Mutex', 'Semaphore',
        'tryAcquire', 'withTimeout'];
    const imported = await import(theirs ? require.resolve('async-mutex').replace(
        'lib/index.js', 'index.mjs') : '../lib/mutex.mjs');
    for (const from of [library, imported])
        for (const name of names) assert.ok(name in from, name);
    const errors = [E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT];
    assert.ok(errors.every((error) => error instanceof Error && error.message));
    assert.equal(new Set(errors.map((error) => error.message)).size, 3);
});

for (const [name, make] of locks) {
    test(`${name}: runExclusive adopts what the function gives`, async () => {
        const lock = make(), why = new Error('why');
        assert.equal(await lock.runExclusive(() => undefined), undefined);
        assert.equal(await lock.runExclusive(() => Promise.resolve(1)), 1);
        assert.equal(await lock.runExclusive(() => ({ then: (done) => done(2) })), 2);
        for (const fails of [() => Promise.reject(why), () => {
            throw why;
        }, () => ({ then: (_, no) => no(why) })]) {
            await assert.rejects(lock.runExclusive(fails), is(why));
            assert.equal(lock.isLocked(), false);
        }
    });

    test(`${name}: released when the promise is settled, not before`, async () => {
        const lock = make();
        let settle;
        const run = lock.runExclusive(() => new Promise((resolve) => (settle = resolve)));
        await turns();
        assert.equal(lock.isLocked(), true);
        settle('done');
        assert.equal(await run, 'done');
        assert.equal(lock.isLocked(), false);
    });

    test(`${name}: isLocked while it is held, and as long as others take over`, async () => {
        const lock = make();
        assert.equal(lock.isLocked(), false);
        const release = releaserOf(await lock.acquire());
        const next = lock.acquire();
        const inside = lock.runExclusive(() => lock.isLocked());
        assert.equal(lock.isLocked(), true);
        release();
        assert.equal(lock.isLocked(), true);
        releaserOf(await next)();
        assert.equal(await inside, true);
        assert.equal(lock.isLocked(), false);
    });

    test(`${name}: a releaser works once, whatever call holds the lock then`, async () => {
        const lock = make();
        const release = releaserOf(await lock.acquire());
        const next = lock.acquire();
        release();
        const second = releaserOf(await next);
        let third = false;
        const last = lock.acquire().then((got) => {
            third = true;
            return got;
        });
        release();
        release();
        await turns();
        assert.deepEqual([lock.isLocked(), third], [true, false]);
        second();
        releaserOf(await last)();
        second();
        assert.equal(lock.isLocked(), false);
    });

    test(`${name}: release without a releaser serves the next`, async () => {
        const lock = make();
        await lock.acquire();
        const next = lock.runExclusive(() => 'next');
        lock.release();
        assert.equal(await next, 'next');
        assert.equal(lock.isLocked(), false);
    });

    test(`${name}: cancel rejects all that wait, and revokes nothing`, async () => {
        const lock = make();
        lock.cancel(); // nobody waits
        const release = releaserOf(await lock.acquire());
        let ran = false, seen = false;
        const waits = [lock.acquire(), lock.runExclusive(() => (ran = true)), lock.acquire()];
        const unlocked = lock.waitForUnlock().then(() => (seen = true));
        lock.cancel();
        lock.cancel();
        for (const wait of waits) await assert.rejects(wait, is(E_CANCELED));
        await turns();
        assert.deepEqual([lock.isLocked(), ran, seen], [true, false, false]);
        // A request after that waits as ever.
        const next = lock.acquire();
        release();
        releaserOf(await next)();
        await unlocked;
        assert.deepEqual([lock.isLocked(), ran], [false, false]);
    });

    test(`${name}: cancel with the error that the constructor was given`, async () => {
        const why = new Error('why'), lock = make(why);
        await lock.acquire();
        const waits = [lock.acquire(), lock.runExclusive(() => assert.fail())];
        lock.cancel();
        for (const wait of waits) await assert.rejects(wait, is(why));
    });

    test(`${name}: waitForUnlock wakes all, and locks nothing`, async () => {
        const lock = make();
        await Promise.all([lock.waitForUnlock(), lock.waitForUnlock()]);
        assert.equal(lock.isLocked(), false);
        const release = releaserOf(await lock.acquire());
        const seen = [];
        const waits = [1, 2, 3].map((n) => lock.waitForUnlock().then(() => seen.push(n)));
        await turns();
        assert.deepEqual(seen, []);
        release();
        await Promise.all(waits);
        assert.deepEqual([seen, lock.isLocked()], [[1, 2, 3], false]);
    });

    test(`${name}: priorities are any real numbers, zero if there is none`, async () => {
        const lock = make(), seen = [];
        const release = releaserOf(await lock.acquire());
        const all = [-0.5, 0, 0.25, 1e9, -1e9, -Infinity, 1].map((priority) =>
            first(name, lock, 'runExclusive', priority, () => seen.push(priority)));
        all.push(lock.runExclusive(() => seen.push('none')));
        all.push(first(name, lock, 'acquire', 2).then((got) => {
            seen.push('acquired');
            releaserOf(got)();
        }));
        release();
        await Promise.all(all);
        assert.deepEqual(seen,
            [1e9, 'acquired', 1, 0.25, 0, 'none', -0.5, -1e9, -Infinity]);
    });
}

for (const [name, make] of semaphores) {
    test(`${name}: the weight is taken, passed, and given back`, async () => {
        const semaphore = make(5);
        for (const [weight, left] of [[undefined, 4], [1, 4], [3, 2], [5, 0]]) {
            await semaphore.runExclusive(async (value) => {
                assert.deepEqual([value, semaphore.getValue()], [5, left]);
                assert.equal(semaphore.isLocked(), left === 0);
                await turns();
            }, weight);
            const [value, release] = await semaphore.acquire(weight);
            assert.deepEqual([value, semaphore.getValue()], [5, left]);
            release();
            release();
            assert.equal(semaphore.getValue(), 5);
        }
        await assert.rejects(semaphore.runExclusive(() => Promise.reject(new Error('x')), 4), /x/);
        assert.equal(semaphore.getValue(), 5);
    });

    test(`${name}: runExclusive waits for its weight`, async () => {
        const semaphore = make(3), seen = [];
        const [, release] = await semaphore.acquire(2);
        const heavy = semaphore.runExclusive((value) => seen.push(['heavy', value]), 3);
        const light = semaphore.runExclusive((value) => seen.push(['light', value]), 1, 1);
        await light;
        await turns();
        assert.deepEqual(seen, [['light', 1]]);
        release();
        await heavy;
        assert.deepEqual([seen[1], semaphore.getValue()], [['heavy', 3], 3]);
    });

    test(`${name}: release adds its weight, to more than there was`, async () => {
        const semaphore = make(1);
        await semaphore.acquire();
        const waits = [semaphore.acquire(2), semaphore.acquire(1)];
        semaphore.release(3);
        await Promise.all(waits);
        assert.equal(semaphore.getValue(), 0);
        semaphore.release();
        semaphore.release(4);
        assert.equal(semaphore.getValue(), 5);
    });

    test(`${name}: setValue locks, and serves waiters in order`, async () => {
        const semaphore = make(2), seen = [];
        semaphore.setValue(-1);
        assert.deepEqual([semaphore.isLocked(), semaphore.getValue()], [true, -1]);
        const waits = [1, 2, 1].map((weight, n) =>
            semaphore.acquire(weight).then(() => seen.push(n)));
        const unlocked = semaphore.waitForUnlock(4);
        semaphore.setValue(0);
        await turns();
        assert.deepEqual([semaphore.isLocked(), seen], [true, []]);
        semaphore.setValue(3);
        await turns();
        assert.deepEqual([seen, semaphore.getValue()], [[0, 1], 0]);
        semaphore.setValue(5);
        await Promise.all([...waits, unlocked]);
        assert.deepEqual([seen, semaphore.getValue()], [[0, 1, 2], 4]);
    });
}

// The decorators: a time that is over at once, or 20 ms; their errors.
for (const [name, decorate, usual] of [
    ['withTimeout', (lock, error) => withTimeout(lock, 20, error), E_TIMEOUT],
    ['tryAcquire', (lock, error) => tryAcquire(lock, error), E_ALREADY_LOCKED]])
    for (const [kind, make] of [['Mutex', () => new Mutex()],
        ['Semaphore', () => new Semaphore(1)]]) {
        test(`${name}(${kind}): rejects what waits too long, leaves the rest`, async () => {
            const why = new Error('why');
            for (const [error, expected] of [[undefined, usual], [why, why]]) {
                const inner = make(), lock = decorate(inner, error);
                const release = releaserOf(await lock.acquire());
                assert.deepEqual([lock.isLocked(), inner.isLocked()], [true, true]);
                let ran = false;
                await assert.rejects(lock.acquire(), is(expected));
                await assert.rejects(lock.runExclusive(() => (ran = true)), is(expected));
                await assert.rejects(lock.waitForUnlock(), is(expected));
                const next = inner.acquire();
                release();
                releaserOf(await next)();
                await turns();
                assert.deepEqual([ran, lock.isLocked()], [false, false]);
                await lock.waitForUnlock();
                assert.equal(await lock.runExclusive(() => 'free'), 'free');
            }
        });

        test(`${name}(${kind}): the time is that of the wait, not of the function`, async () => {
            const lock = decorate(make());
            const late = () => new Promise((resolve) => timer(() => resolve('late'), 60));
            assert.equal(await lock.runExclusive(late), 'late');
        });

        test(`${name}(${kind}): the decorated lock is the same one`, async () => {
            const inner = make(), lock = decorate(inner);
            await lock.acquire();
            inner.release();
            assert.equal(lock.isLocked(), false);
            await inner.acquire();
            lock.release();
            assert.equal(inner.isLocked(), false);
            const outer = withTimeout(inner, HOUR);
            await inner.acquire();
            const wait = outer.acquire();
            lock.cancel();
            await assert.rejects(wait, is(E_CANCELED));
            if (kind === 'Mutex') return;
            lock.setValue(3);
            assert.deepEqual([inner.getValue(), lock.getValue()], [3, 3]);
            assert.equal((await lock.acquire(2))[0], 3);
            lock.release(2);
            assert.equal(inner.getValue(), 3);
            await assert.rejects(lock.runExclusive(() => assert.fail(), 4), is(usual));
        });
    }

test('end', () => clearInterval(alive));
