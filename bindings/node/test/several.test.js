// Several keys at once; what an event came to, as a value; tries that come to null; `using`.
//
//     node several.test.js URL
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { execFileSync } = require('node:child_process');
const { once: event } = require('node:events');
const { InvalidArgument, KeyedMutex, LockLost, LockUnavailable, Mutex, Semaphore,
    open } = require('../lib/index.js');

const url = process.argv[2];
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0, one, two;
const fresh = () => `${prefix}${++n}`;
const alive = setInterval(() => {}, 1000);
async function until(look) {
    while (!await look()) await new Promise((resolve) => setTimeout(resolve, 5));
}
const isHeld = async (key) => (await two.peek(key)).held;

test('open', async () => {
    [one, two] = [await open(url), await open(url)];
});

const control = process.env.HOLDFAST_TEST_CONTROL;
if (control && url.startsWith('redis:')) {
    test('acquireAll: a signal ends the wait at once, although the server does not answer',
        { timeout: 60000 }, async () => {
            const slow = await open(url, { ioTimeout: '10m' }), [first, busy] = [fresh(), fresh()];
            const held = await two.acquire(busy), stop = new AbortController();
            const wait = slow.acquireAll([first, busy], { signal: stop.signal });
            await until(async () => (await two.peek(busy)).waiting);
            execFileSync(control, ['pause']);
            try {
                stop.abort(new Error('enough'));
                await assert.rejects(wait, /enough/);
            } finally {
                execFileSync(control, ['resume']);
            }
            await (await two.acquire(first)).release(); // given back all the same
            await Promise.all([held.release(), slow.close()]);
        });
}

test('acquireAll: the locks in the order that was asked for; release gives all back', async () => {
    const keys = ['1', 'é', '\u{1f512}', '\uff5e', 'z'].map((name) => fresh() + name).reverse();
    const locks = await one.acquireAll(keys, { lease: '1m', note: 'all' });
    assert.deepEqual(locks.map(({ key }) => key), keys);
    assert.ok(Array.isArray(locks) && !locks.signal.aborted);
    for (const key of keys) assert.equal(await isHeld(key), 1);
    await locks.release();
    await locks.release();
    for (const key of keys) assert.equal(await isHeld(key), 0);
    await (await one.acquireAll(keys))[Symbol.asyncDispose]();
    (await one.acquireAll(keys))[Symbol.dispose]();
    await (await two.acquireAll(keys)).release();
});

test('acquireAll: all or none, one time for all', async () => {
    const keys = [fresh(), fresh(), fresh()], [first, busy, last] = keys;
    const held = await two.acquire(busy);
    for (const [wait, code] of [[0, 'BUSY'], ['50ms', 'TIMEOUT']]) {
        await assert.rejects(one.acquireAll(keys, { wait }),
            (error) => error instanceof LockUnavailable && error.code === code &&
                error.key === busy);
        assert.deepEqual([await isHeld(first), await isHeld(last)], [0, 0]);
    }
    const stop = new AbortController();
    const wait = assert.rejects(one.acquireAll(keys, { signal: stop.signal }), /enough/);
    await until(async () => (await two.peek(busy)).waiting);
    stop.abort(new Error('enough'));
    await wait;
    await until(async () => !await isHeld(first));
    const waits = one.acquireAll(keys);
    await until(async () => (await two.peek(busy)).waiting);
    await held.release();
    await (await waits).release();
});

test('acquireAll: what the first key took of the time the next one hasn\'t', { timeout: 60000 },
    async () => {
        const key = fresh(), keys = [`${key}a`, `${key}b`];
        const [first, second] = [await two.acquire(keys[0]), await two.acquire(keys[1])];
        const wait = assert.rejects(one.acquireAll(keys, { wait: '1h' }),
            (error) => error.code === 'TIMEOUT' && error.key === keys[1]);
        await until(async () => (await two.peek(keys[0])).waiting);
        const real = Object.getOwnPropertyDescriptor(globalThis, 'performance');
        const later = performance.now() + 3600000;
        Object.defineProperty(globalThis, 'performance', { configurable: true,
            value: { now: () => later } });
        try {
            await first.release();
            await wait;
        } finally {
            Object.defineProperty(globalThis, 'performance', real);
        }
        await second.release();
        assert.equal(await isHeld(keys[0]), 0);
    });

test('acquireAll: one that is lost while the others are waited for', async () => {
    const key = fresh(), keys = [`${key}a`, `${key}b`], held = await two.acquire(keys[1]);
    const wait = one.acquireAll(keys, { lease: '1m' });
    await until(async () => (await two.peek(keys[1])).waiting);
    const { holders: [{ token }] } = await two.peek(keys[0]);
    await two.break(keys[0], token);
    // On a server the loss is found at the next renewal. On mem: and file: it is found at once.
    const lost = /^(mem|file):/.test(url);
    await held.release();
    if (lost) await assert.rejects(wait, (error) => error instanceof LockLost);
    else await (await wait).release().catch((error) => assert.ok(error instanceof LockLost));
    await until(async () => !await isHeld(keys[1]));
});

test('acquireAll: what is refused', async () => {
    const key = fresh();
    for (const [keys, options, why] of [[[], {}, /1 to 64/], ['abc', {}, /array/],
        [Array.from({ length: 65 }, fresh), {}, /1 to 64/],
        [[key, fresh(), key], {}, /named twice/],
        [[key, 5], {}, /key: must be a string/], [[key, ''], {}, /key: is empty/],
        [[key, fresh()], { atLeast: '1s' }, /atLeast: of one key/], [[key], { wayt: 1 }, /wayt/],
        [[key], { wait: '10' }, /no unit/], [[key], null, /options/]])
        for (const call of [() => one.acquireAll(keys, options),
            () => one.run(typeof keys === 'string' ? [keys, keys] : keys, () => assert.fail(),
                options)])
            await assert.rejects(call(), (error) => error instanceof InvalidArgument &&
                (why.test(error.message) || typeof keys === 'string'));
    assert.equal(await isHeld(key), 0);
});

test('run with several keys: nobody waits in a circle; what is lost aborts', async () => {
    const keys = [fresh(), fresh()];
    let inside = 0, runs = 0;
    await Promise.all(Array.from({ length: 8 }, (_, i) => (i % 2 ? one : two)
        .run(i & 2 ? keys : [...keys].reverse(), async (locks) => {
            assert.deepEqual([++inside, locks.length], [1, 2]);
            await new Promise((resolve) => setImmediate(resolve));
            inside--;
            return ++runs;
        })));
    assert.equal(runs, 8);
    assert.equal(await one.run(keys, () => 'value', { wait: 0 }), 'value');
    await assert.rejects(one.run(keys, async (locks) => {
        const { signal } = locks;
        await two.break(keys[1], locks[1].token);
        await locks[1].confirm().catch(() => {});
        if (!signal.aborted) await event(signal, 'abort');
        assert.ok(locks.signal.aborted && locks.signal.reason instanceof LockLost);
    }), LockLost);
    assert.deepEqual([await isHeld(keys[0]), await isHeld(keys[1])], [0, 0]);
});

test('once: a later call gets the same value', async () => {
    for (const value of ['text', '', '17', 'true', '"quoted"', '{"a":1}', '[', 'null', '\ufffd', 0,
        -1.5, true, false, null, [], {}, [1, { a: 'é' }], { a: { b: [null] } }, undefined]) {
        const key = fresh();
        const ran = await one.once(key, () => value);
        const later = await two.once(key, () => assert.fail());
        assert.deepEqual([ran.ran, ran.value, later.ran, later.value, later.result],
            [true, value, false, value, ran.result]);
    }
    const plain = fresh(); // as the command writes it
    const { result, value } = await one.once(plain, () => 'exit 0');
    assert.deepEqual([result, value], ['exit 0', 'exit 0']);
    for (const [long, kept] of [['7'.repeat(300), '7'.repeat(253)],
        ['"'.repeat(300), '"'.repeat(255)], ['é'.repeat(300), 'é'.repeat(127)]]) {
        const key = fresh();
        await one.once(key, () => long);
        assert.equal((await two.once(key, () => assert.fail())).value, kept);
    }
});

test('once: what is too much, or no JSON, is not remembered; a warning says so', async () => {
    const warned = event(process, 'warning');
    const circle = {};
    circle.circle = circle;
    for (const value of [{ a: 'x'.repeat(300) }, circle, 5n, () => {}]) {
        const key = fresh();
        assert.equal((await one.once(key, () => value)).value, value);
        const later = await two.once(key, () => assert.fail());
        assert.deepEqual([later.ran, later.value, later.result], [false, undefined, '']);
    }
    const [warning] = await warned;
    assert.equal(warning.code, 'HOLDFAST_RESULT');
});

test('forget: the event may run again', async () => {
    const key = fresh();
    const { owner } = await one.once(key, () => 1);
    assert.equal((await two.peek(key)).doneBy, owner);
    await two.forget(key);
    assert.equal((await two.peek(key)).doneBy, null);
    assert.equal((await two.once(key, () => 2)).value, 2);
    await assert.rejects(one.forget(fresh()), LockLost);
});

test('open: existing, only what is there', async () => {
    await assert.rejects(open('file:/tmp/there/is/none', { existing: true }),
        (error) => error.code === 'UNAVAILABLE' && error.cause.code === 'ENOENT');
    await assert.rejects(open(url, { existing: 1 }), InvalidArgument);
    await (await open(url, { existing: true })).close();
});

test('tryAcquire: a lock, or null', async () => {
    const key = fresh(), lock = await one.tryAcquire(key, { lease: '1m' });
    assert.equal(await two.tryAcquire(key), null);
    await lock.release();
    await (await two.tryAcquire(key)).release();
    await assert.rejects(one.tryAcquire(key, { wait: '1s' }), InvalidArgument);
    await assert.rejects(one.tryAcquire('\n'), InvalidArgument);
});

test('using: each releaser has both ways', async () => {
    const key = fresh();
    const local = new KeyedMutex(), stored = new KeyedMutex(url);
    const makers = [() => one.acquire(key), () => one.acquireAll([key]), () => stored.acquire(key),
        () => local.acquire(key), () => new Mutex().acquire(),
        async () => (await new Semaphore(1).acquire())[1]];
    for (const make of makers) {
        assert.equal((await make())[Symbol.dispose](), undefined);
        assert.equal(await (await make())[Symbol.asyncDispose](), undefined);
    }
    await until(async () => !await isHeld(key));
    assert.equal(local.isLocked(key), false);
    await stored.close();
});

test('a releaser that nobody waits for: its failure is a warning', async () => {
    const keyed = new KeyedMutex(url), key = fresh();
    const release = await keyed.acquire(key);
    const { holders: [{ token }] } = await two.peek(key);
    await two.break(key, token);
    const warned = event(process, 'warning');
    release();
    const [warning] = await warned;
    assert.equal(warning.code, 'HOLDFAST_RELEASE');
    await assert.rejects(release(), LockLost); // the awaited promise is rejected, too
    await keyed.close();
});

test('close', async () => {
    await Promise.all([one.close(), two.close()]);
    clearInterval(alive);
});
