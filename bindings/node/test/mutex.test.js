// What async-mutex documents of its Mutex and Semaphore, and what KeyedMutex adds.
//
//     node mutex.test.js [ours | async-mutex]    the latter proves that the first part is true
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { AsyncLocalStorage } = require('node:async_hooks');

const theirs = process.argv[2] === 'async-mutex';
const { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Mutex, Semaphore, tryAcquire, withTimeout } =
    theirs ? require('async-mutex') : require('../lib/mutex.js');

const turns = async (n = 20) => {
    for (let i = 0; i < n; i++) await null;
};
const soon = () => new Promise((resolve) => setImmediate(resolve));

// A gate that a test opens when it wants to.
function gate() {
    let open;
    const opened = new Promise((resolve) => (open = resolve));
    return { opened, open };
}

test('acquire: one at a time, in order', async () => {
    const mutex = new Mutex();
    const seen = [];
    const all = [1, 2, 3, 4].map(async (n) => {
        const release = await mutex.acquire();
        seen.push(`+${n}`);
        await soon();
        seen.push(`-${n}`);
        release();
    });
    await Promise.all(all);
    assert.deepEqual(seen, ['+1', '-1', '+2', '-2', '+3', '-3', '+4', '-4']);
});

test('acquire: the releaser works once', async () => {
    const mutex = new Mutex();
    const release = await mutex.acquire();
    const second = mutex.acquire();
    release();
    release();
    await second;
    release();
    assert.equal(mutex.isLocked(), true);
});

test('runExclusive: the value of a function, of an async one', async () => {
    const mutex = new Mutex();
    assert.equal(await mutex.runExclusive(() => 42), 42);
    assert.equal(await mutex.runExclusive(async () => 43), 43);
    assert.equal(mutex.isLocked(), false);
});

test('runExclusive: the function never runs before the call has returned', async () => {
    const mutex = new Mutex();
    let ran = false;
    const done = mutex.runExclusive(() => (ran = true));
    assert.equal(ran, false);
    assert.equal(mutex.isLocked(), true);
    await done;
    assert.equal(ran, true);
});

test('runExclusive: one at a time, in order, also with acquire', async () => {
    const mutex = new Mutex();
    const seen = [];
    const { opened, open } = gate();
    const first = mutex.runExclusive(async () => {
        seen.push(1);
        await opened;
    });
    const second = mutex.acquire().then((release) => {
        seen.push(2);
        release();
    });
    const third = mutex.runExclusive(() => seen.push(3));
    await turns();
    assert.deepEqual(seen, [1]);
    open();
    await Promise.all([first, second, third]);
    assert.deepEqual(seen, [1, 2, 3]);
});

for (const [how, thrower] of [['throws', () => {
    throw new Error('broken');
}], ['rejects', async () => {
    throw new Error('broken');
}]]) {
    test(`runExclusive: released when the function ${how}`, async () => {
        const mutex = new Mutex();
        const broken = mutex.runExclusive(thrower);
        const next = mutex.runExclusive(() => 'next');
        await assert.rejects(broken, /broken/);
        assert.equal(await next, 'next');
        assert.equal(mutex.isLocked(), false);
    });
}

test('runExclusive: in the asynchronous context of its caller', async () => {
    const context = new AsyncLocalStorage();
    for (const mutex of [new Mutex(), new Semaphore(1)]) {
        const seen = [];
        const see = async () => {
            seen.push(context.getStore());
            await soon();
            seen.push(context.getStore());
        };
        const asked = [1, 2, 3].map((n) => context.run(n, () => mutex.runExclusive(see)));
        await Promise.all(asked);
        assert.deepEqual(seen, [1, 1, 2, 2, 3, 3]);
    }
});

test('isLocked: from the call on until the last release', async () => {
    const mutex = new Mutex();
    assert.equal(mutex.isLocked(), false);
    const first = mutex.acquire();
    assert.equal(mutex.isLocked(), true);
    const second = mutex.acquire();
    (await first)();
    assert.equal(mutex.isLocked(), true);
    (await second)();
    assert.equal(mutex.isLocked(), false);
});

test('release: without a releaser; nothing when it is free', async () => {
    const mutex = new Mutex();
    mutex.release();
    await mutex.acquire();
    const second = mutex.acquire();
    mutex.release();
    await second;
    assert.equal(mutex.isLocked(), true);
    mutex.release();
    assert.equal(mutex.isLocked(), false);
    mutex.release();
    assert.equal(mutex.isLocked(), false);
    await mutex.acquire();
    assert.equal(mutex.isLocked(), true);
});

test('waitForUnlock: at once when it is free', async () => {
    await new Mutex().waitForUnlock();
});

test('waitForUnlock: when it is free, without taking it', async () => {
    const mutex = new Mutex();
    const release = await mutex.acquire();
    const seen = [];
    const waits = [1, 2].map((n) => mutex.waitForUnlock().then(() => seen.push(n)));
    await turns();
    assert.deepEqual(seen, []);
    release();
    await Promise.all(waits);
    assert.deepEqual(seen, [1, 2]);
    assert.equal(mutex.isLocked(), false);
});

test('waitForUnlock: not while another takes over', async () => {
    const mutex = new Mutex();
    const first = await mutex.acquire();
    let unlocked = false;
    const wait = mutex.waitForUnlock().then(() => (unlocked = true));
    const second = mutex.acquire();
    first();
    const release = await second;
    await turns();
    assert.equal(unlocked, false);
    release();
    await wait;
});

test('cancel: waiters are rejected, in order; the holder is left alone', async () => {
    const mutex = new Mutex();
    const release = await mutex.acquire();
    const seen = [];
    const waits = [1, 2].map((n) => mutex.acquire().catch((error) => {
        assert.equal(error, E_CANCELED);
        seen.push(n);
    }));
    mutex.cancel();
    await Promise.all(waits);
    assert.deepEqual(seen, [1, 2]);
    assert.equal(mutex.isLocked(), true);
    release();
    assert.equal(mutex.isLocked(), false);
    await mutex.acquire();
});

test('cancel: runExclusive is rejected, and its function never runs', async () => {
    const mutex = new Mutex();
    const release = await mutex.acquire();
    let ran = false;
    const wait = mutex.runExclusive(() => (ran = true));
    mutex.cancel();
    await assert.rejects(wait, (error) => error === E_CANCELED);
    release();
    await turns();
    assert.equal(ran, false);
});

test('cancel: with an error of one\'s own', async () => {
    const mine = new Error('mine');
    const mutex = new Mutex(mine);
    await mutex.acquire();
    const wait = mutex.acquire();
    mutex.cancel();
    await assert.rejects(wait, (error) => error === mine);
});

test('priorities: higher ones first, equal ones in order', async () => {
    const mutex = new Mutex();
    const release = await mutex.acquire();
    const seen = [];
    const all = [[1, 0], [2, 5], [3, 0], [4, 5], [5, -1]].map(([n, priority]) =>
        mutex.runExclusive(() => seen.push(n), priority));
    release();
    await Promise.all(all);
    assert.deepEqual(seen, [2, 4, 1, 3, 5]);
});

test('withTimeout: acquire in time, and too late', async () => {
    const mutex = withTimeout(new Mutex(), 30);
    const release = await mutex.acquire();
    await assert.rejects(mutex.acquire(), (error) => error === E_TIMEOUT);
    release();
    await turns();
    assert.equal(mutex.isLocked(), false);
    (await mutex.acquire())();
});

test('withTimeout: runExclusive too late never runs; the next request does', async () => {
    const inner = new Mutex();
    const mine = new Error('mine');
    const mutex = withTimeout(inner, 30, mine);
    const release = await inner.acquire();
    let ran = false;
    await assert.rejects(mutex.runExclusive(() => (ran = true)), (error) => error === mine);
    const next = inner.runExclusive(() => 'next');
    release();
    assert.equal(await next, 'next');
    assert.equal(ran, false);
});

test('withTimeout: waitForUnlock too late', async () => {
    const mutex = withTimeout(new Mutex(), 20);
    await mutex.acquire();
    await assert.rejects(mutex.waitForUnlock(), (error) => error === E_TIMEOUT);
    mutex.release();
    await mutex.waitForUnlock();
});

test('withTimeout: cancel', async () => {
    const mutex = withTimeout(new Mutex(), 60000);
    await mutex.acquire();
    const wait = mutex.acquire();
    mutex.cancel();
    await assert.rejects(wait, (error) => error === E_CANCELED);
});

test('tryAcquire: at once, or not at all', async () => {
    const mutex = new Mutex();
    const release = await tryAcquire(mutex).acquire();
    await assert.rejects(tryAcquire(mutex).acquire(), (error) => error === E_ALREADY_LOCKED);
    release();
    assert.equal(await tryAcquire(mutex).runExclusive(() => 1), 1);
});

test('Semaphore: so many at a time, values, releases', async () => {
    const semaphore = new Semaphore(2);
    let most = 0, now = 0;
    await Promise.all(Array.from({ length: 6 }, () => semaphore.runExclusive(async (value) => {
        assert.ok(value > 0);
        most = Math.max(most, ++now);
        await soon();
        now--;
    })));
    assert.equal(most, 2);
    const [value, release] = await semaphore.acquire();
    assert.equal(value, 2);
    assert.equal(semaphore.getValue(), 1);
    release();
    release();
    assert.equal(semaphore.getValue(), 2);
    assert.equal(semaphore.isLocked(), false);
});

test('Semaphore: weights; a heavy one isn\'t overtaken', async () => {
    const semaphore = new Semaphore(3);
    const [, release] = await semaphore.acquire(2);
    const seen = [];
    const heavy = semaphore.acquire(3).then(([, done]) => {
        seen.push('heavy');
        done();
    });
    const light = semaphore.acquire(1).then(([, done]) => {
        seen.push('light');
        done();
    });
    await turns();
    assert.deepEqual(seen, []);
    release();
    await Promise.all([heavy, light]);
    assert.deepEqual(seen, ['heavy', 'light']);
    await assert.rejects(async () => semaphore.acquire(0), /weight/);
});

test('Semaphore: setValue wakes, cancel rejects', async () => {
    const semaphore = new Semaphore(1);
    semaphore.setValue(0);
    assert.equal(semaphore.isLocked(), true);
    const first = semaphore.acquire(), second = semaphore.acquire();
    semaphore.setValue(1);
    await first;
    semaphore.cancel();
    await assert.rejects(second, (error) => error === E_CANCELED);
});

if (theirs) return;

const { KeyedMutex, LockUnavailable, LockCanceled, InvalidArgument } = {
    ...require('../lib/errors.js'), ...require('../lib/mutex.js') };

test('AbortSignal: a wait is given up, with its reason; the next one is served', async () => {
    const mutex = new Mutex();
    const release = await mutex.acquire();
    const stop = new AbortController();
    const wait = mutex.acquire({ signal: stop.signal });
    const next = mutex.acquire();
    stop.abort(new Error('enough'));
    await assert.rejects(wait, /enough/);
    await assert.rejects(mutex.acquire({ signal: stop.signal }), /enough/);
    release();
    await next;
});

test('AbortSignal between the grant and its news: given back', async () => {
    for (const make of [() => new Mutex(), () => new Semaphore(1)]) {
        const lock = make();
        const stop = new AbortController();
        let release = await lock.acquire();
        release = Array.isArray(release) ? release[1] : release;
        const wait = lock instanceof Mutex ? lock.acquire({ signal: stop.signal })
            : lock.acquire(1, { signal: stop.signal });
        release();
        stop.abort(new Error('enough'));
        await assert.rejects(wait, /enough/);
        assert.equal(lock.isLocked(), false);
    }
});

// Each kind of lock, with how it is asked for.
const kinds = [
    ['Mutex', () => new Mutex(), (lock, how) => lock.acquire(how),
        (lock, fn, how) => lock.runExclusive(fn, how), (lock, how) => lock.waitForUnlock(how)],
    ['Semaphore', () => new Semaphore(1), async (lock, how) => (await lock.acquire(1, how))[1],
        (lock, fn, how) => lock.runExclusive(fn, 1, how),
        (lock, how) => lock.waitForUnlock(1, how)],
    ['KeyedMutex', () => new KeyedMutex(), (lock, how) => lock.acquire('a', how),
        (lock, fn, how) => lock.runExclusive('a', fn, how),
        (lock, how) => lock.waitForUnlock('a', how)],
];
for (const [name, make, acquire, run, wait] of kinds) {
    test(`${name}: wrong signals, waits, priorities are refused, free or held`, async () => {
        const lock = make();
        const check = async () => {
            for (const way of [acquire, (l, how) => run(l, () => assert.fail(), how), wait]) {
                for (const signal of [new AbortController(), {}, { aborted: false }, 'x', 5, null])
                    await assert.rejects(async () => way(lock, { signal }),
                        { name: 'InvalidArgument', message: name === 'KeyedMutex'
                            ? "acquire 'a': signal: must be an AbortSignal"
                            : 'acquire: signal: must be an AbortSignal' });
                for (const how of [{ wait: -1 }, { wait: NaN }, { wait: 'soon' }, { wait: null },
                    { wait: {} }, { wait: Object.create(null) }, { priority: '1' },
                    { priority: Symbol('high') }, { prio: 3 }, 'x', null])
                    await assert.rejects(async () => way(lock, how), InvalidArgument);
            }
        };
        await check();
        const release = await acquire(lock);
        await check();
        release();
        (await acquire(lock, { wait: '1s' }))();
    });

    test(`${name}: generator functions and what is no function are refused`, async () => {
        const lock = make();
        for (const fn of [function* () {}, async function* () {}, 5, undefined])
            await assert.rejects(async () => run(lock, fn), InvalidArgument);
        (await acquire(lock, { wait: 0 }))();
    });

    test(`${name}: a waiter's signal that throws doesn't stop the releaser`, async () => {
        const lock = make();
        const release = await acquire(lock);
        const { signal } = new AbortController();
        signal.removeEventListener = () => {
            throw new Error('broken');
        };
        const next = acquire(lock, { signal });
        const last = acquire(lock);
        release();
        (await next)();
        (await last)();
        (await acquire(lock, { wait: 0 }))();
    });
}

test('Semaphore: its size and weights are numbers', async () => {
    for (const size of [NaN, Infinity, '2', undefined])
        assert.throws(() => new Semaphore(size), InvalidArgument);
    const semaphore = new Semaphore(1);
    for (const value of [NaN, '1'])
        assert.throws(() => semaphore.setValue(value), InvalidArgument);
    const [, release] = await semaphore.acquire();
    for (const weight of ['1', 1n, 0, NaN, Infinity]) {
        for (const call of [() => semaphore.acquire(weight), () => semaphore.release(weight)])
            await assert.rejects(async () => call(), (error) => /invalid weight/.test(error) &&
                error instanceof InvalidArgument);
    }
    release();
    assert.equal(semaphore.getValue(), 1);
});

test('withTimeout, tryAcquire: of a mutex or a semaphore, with a time', async () => {
    for (const [call, why] of [[() => withTimeout(new Mutex(), 'x'), /ms: 'x' is not a time/],
        [() => withTimeout(new Mutex(), -1), /ms/], [() => withTimeout(new Mutex()), /ms/],
        [() => withTimeout(5, 5), /a Mutex or a Semaphore/],
        [() => tryAcquire(null), /a Mutex or a Semaphore/],
        [() => tryAcquire({ acquire() {} }), /a Mutex or a Semaphore/]])
        assert.throws(call, (error) => error instanceof InvalidArgument && why.test(error.message));
    const inner = new Mutex(), mutex = withTimeout(inner, '1h');
    for (const how of [null, 'x', { prio: 3 }, { wait: 'soon' }])
        await assert.rejects(mutex.acquire(how), InvalidArgument);
    const release = await mutex.acquire({ priority: 1 });
    await assert.rejects(tryAcquire(mutex).acquire(), (error) => error === E_ALREADY_LOCKED);
    await assert.rejects(withTimeout(tryAcquire(inner), 60000).acquire(),
        (error) => error === E_ALREADY_LOCKED);
    release();
    const two = tryAcquire(withTimeout(new Semaphore(2), 60000));
    assert.equal((await two.acquire(2))[0], 2);
    await assert.rejects(two.runExclusive(() => assert.fail(), 1),
        (error) => error === E_ALREADY_LOCKED);
});

test('KeyedMutex: keys are what stores take: 1 to 512 bytes, nothing unseen', async () => {
    const mutex = new KeyedMutex();
    for (const key of ['x'.repeat(512), '\u{1f511}'.repeat(128), '\ufffd', '__proto__'])
        await mutex.runExclusive(key, () => assert.ok(mutex.isLocked(key)));
    for (const key of ['', 5, undefined, null, {}, 'x'.repeat(513), '\u20ac'.repeat(171), 'a\nb',
        'a\x9fb', '\ud800', 'a\udc00b']) {
        await assert.rejects(mutex.acquire(key), InvalidArgument);
        await assert.rejects(mutex.runExclusive(key, () => assert.fail()), InvalidArgument);
        await assert.rejects(mutex.waitForUnlock(key), InvalidArgument);
    }
    assert.equal(mutex.size, 0);
});

test('KeyedMutex: one at a time for a key, keys side by side, idle ones forgotten', async () => {
    const mutex = new KeyedMutex();
    const { opened, open } = gate();
    const seen = [];
    const a = mutex.runExclusive('a', () => opened);
    const behind = mutex.runExclusive('a', () => seen.push('a'));
    await mutex.runExclusive('b', () => seen.push('b'));
    assert.equal(mutex.isLocked('a'), true);
    assert.equal(mutex.isLocked('b'), false);
    assert.equal(mutex.size, 1);
    open();
    await Promise.all([a, behind]);
    assert.deepEqual(seen, ['b', 'a']);
    assert.equal(mutex.size, 0);
});

test('KeyedMutex: acquire, release, waitForUnlock, tryAcquire', async () => {
    const mutex = new KeyedMutex();
    const release = await mutex.acquire('a');
    assert.equal(await mutex.tryAcquire('a'), null);
    await assert.rejects(mutex.tryAcquire('a', { wait: 5 }), InvalidArgument);
    (await mutex.tryAcquire('b', { wait: 0 }))();
    const unlocked = mutex.waitForUnlock('a');
    release();
    release();
    await unlocked;
    assert.equal(mutex.size, 0);
    await mutex.acquire('a');
    await mutex.release('a');
    assert.equal(mutex.isLocked('a'), false);
    await mutex.waitForUnlock('a');
});

test('KeyedMutex: timeouts, signals, cancel, unknown options', async () => {
    const mutex = new KeyedMutex();
    const release = await mutex.acquire('a');
    await assert.rejects(mutex.acquire('a', { wait: '20ms' }),
        (error) => error instanceof LockUnavailable && error.code === 'TIMEOUT');
    const stop = new AbortController();
    const given = mutex.runExclusive('a', () => assert.fail(), { signal: stop.signal });
    stop.abort(new Error('enough'));
    await assert.rejects(given, /enough/);
    const canceled = mutex.acquire('a');
    mutex.cancel();
    await assert.rejects(canceled, (error) => error instanceof LockCanceled);
    await assert.rejects(mutex.acquire('a', { limit: 2 }), { name: 'InvalidArgument',
        message: "acquire 'a': no option 'limit' without a store" });
    release();
    assert.equal(mutex.size, 0);
});

test('KeyedMutex: the function gets its key, a growing token, a signal', async () => {
    const mutex = new KeyedMutex();
    const first = await mutex.runExclusive('a', (held) => held);
    const second = await mutex.runExclusive('a', (held) => held);
    assert.equal(first.key, 'a');
    assert.ok(second.token > first.token);
    assert.equal(first.signal.aborted, false);
});

test('KeyedMutex: released when the function throws', async () => {
    const mutex = new KeyedMutex();
    await assert.rejects(mutex.runExclusive('a', () => {
        throw new Error('broken');
    }), /broken/);
    assert.equal(mutex.size, 0);
});

test('KeyedMutex: a hundred thousand in line, given up from the middle', async () => {
    const mutex = new KeyedMutex();
    const release = await mutex.acquire('a');
    let served = 0, given = 0;
    const stop = new AbortController();
    const all = Array.from({ length: 100000 }, (_, i) => mutex.runExclusive('a', () => served++,
        i % 100 === 50 ? { signal: stop.signal } : undefined).catch(() => given++));
    stop.abort();
    release();
    await Promise.all(all);
    assert.deepEqual([served, given, mutex.size], [99000, 1000, 0]);
});

test('KeyedMutex with a URL: the same calls, a store\'s locks', async () => {
    const one = new KeyedMutex('mem:keyed'), two = new KeyedMutex('mem:keyed');
    const seen = [];
    await Promise.all([one, two, one, two].map((mutex, n) => mutex.runExclusive('a',
        async ({ key, token, signal }) => {
            seen.push(`+${n}`);
            assert.equal(key, 'a');
            assert.ok(token > 1e12 && !signal.aborted);
            await soon();
            seen.push(`-${n}`);
        })));
    for (let i = 0; i < 8; i += 2) assert.equal(seen[i].slice(1), seen[i + 1].slice(1));
    const release = await one.acquire('a');
    assert.deepEqual([one.isLocked('a'), two.isLocked('a')], [true, false]);
    assert.equal(await two.tryAcquire('a'), null);
    await assert.rejects(two.acquire('a', { wait: 20 }), (error) => error.code === 'TIMEOUT');
    const canceled = two.acquire('a');
    await soon();
    two.cancel('a');
    await assert.rejects(canceled, (error) => error.code === 'CANCELED');
    const unlocked = two.waitForUnlock('a');
    await release();
    await unlocked;
    await assert.rejects(one.runExclusive('a', () => {
        throw new Error('broken');
    }), /broken/);
    await assert.rejects(one.acquire('a', { signal: new AbortController() }), InvalidArgument);
    await assert.rejects(one.runExclusive('a', function* () {}), InvalidArgument);
    await assert.rejects(two.runExclusive('a', () => two.close()), { name: 'LockLost' });
    assert.deepEqual([one.size, two.size], [0, 0]);
    await Promise.all([one.close(), two.close()]);
    await assert.rejects(one.acquire('a'), (error) => error.code === 'CANCELED');
});
