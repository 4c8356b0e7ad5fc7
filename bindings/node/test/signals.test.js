// Signals: one for many waits, the one of a lock that was lost, the options' own.
//
//     node signals.test.js URL
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { getEventListeners } = require('node:events');
const holdfast = require('../lib/index.js');

const { KeyedMutex, LockLost, Mutex, Semaphore } = holdfast;
const url = process.argv[2];
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0;
const fresh = () => `${prefix}${++n}`;
let store, keyed;
const alive = setInterval(() => {}, 1000);
const soon = () => new Promise((resolve) => setImmediate(resolve));
const listeners = (signal) => getEventListeners(signal, 'abort').length;

async function until(look) {
    while (!await look()) await new Promise((resolve) => setTimeout(resolve, 5));
}

test('open', async () => {
    store = await holdfast.open(url);
    keyed = new KeyedMutex(url);
});

// Burns the processor's time, so that no event can have been delivered meanwhile.
function outlive(lock) {
    while (lock.leftMs > 0);
}

const isLost = ({ aborted, reason }) => aborted && reason instanceof LockLost;

for (const [how, options] of [['its lease', { lease: '200ms', noRenew: true }],
    ['maxHold', { maxHold: 200 }]]) {
    test(`a lock that was lost by ${how}: its signal is aborted when it is read`, async () => {
        const key = fresh();
        const lock = await store.acquire(key, options);
        outlive(lock);
        assert.ok(isLost(lock.signal));
        assert.equal(lock.signal.reason.key, key);
        await lock.release().catch((error) => assert.ok(error instanceof LockLost));
        const heard = await store.acquire(fresh(), options), { signal } = heard;
        const read = new Promise((resolve) => signal.addEventListener('abort', resolve));
        outlive(heard);
        assert.ok(isLost(heard.signal) && heard.signal === signal);
        await read;
        await heard.release().catch((error) => assert.ok(error instanceof LockLost));
        const look = (held) => {
            // The remaining time of a KeyedMutex's hold is tested with the store's own locks.
            assert.ok(held instanceof holdfast.Lock);
            outlive(held);
            assert.ok(isLost(held.signal));
        };
        for (const run of [() => store.run(fresh(), look, options),
            () => store.once(fresh(), look, options),
            () => keyed.runExclusive(fresh(), look, options)])
            await assert.rejects(run, LockLost);
    });
}

test('the signal of what was given back stays as it was', async () => {
    const lock = await store.acquire(fresh());
    await lock.release();
    assert.deepEqual([lock.leftMs, lock.signal.aborted], [0, false]);
});

test('one signal for many waits: no warning, and in the end nobody listens to it', async () => {
    const warnings = [];
    const warn = (warning) => warnings.push(warning);
    process.on('warning', warn);
    const stop = new AbortController(), { signal } = stop;
    const mutex = new Mutex(), semaphore = new Semaphore(1), local = new KeyedMutex();
    const key = fresh();
    const held = [await mutex.acquire(), (await semaphore.acquire())[1], await local.acquire(key)];
    const lock = await store.acquire(key);
    const ways = [() => mutex.acquire({ signal }), () => semaphore.acquire(1, { signal }),
        () => local.acquire(key, { signal }), () => store.acquire(key, { signal }),
        () => keyed.acquire(key, { signal }), () => mutex.waitForUnlock({ signal }),
        () => store.watch(fresh(), { signal }).next(), () => local.waitForUnlock(key, { signal })];
    const waits = ways.flatMap((way) => Array.from({ length: 12 }, way));
    const others = [() => mutex.acquire(), () => store.acquire(key)].map((way) => way());
    await soon();
    assert.equal(listeners(signal), 1);
    const reason = new Error('enough');
    // Handlers are attached at once: one after the other would leave unhandled rejections.
    const rejected = waits.map((wait) => assert.rejects(wait, (error) => error === reason));
    stop.abort(reason);
    await Promise.all(rejected);
    assert.equal(listeners(signal), 0);
    for (const release of held) release();
    await lock.release();
    const [release, next] = await Promise.all(others);
    release();
    await next.release();
    await soon();
    process.removeListener('warning', warn);
    assert.deepEqual(warnings, []);
});

test('a signal that lives for ever keeps nothing of what is over', async () => {
    const { signal } = new AbortController();
    const mutex = new Mutex(), key = fresh();
    for (let i = 0; i < 3; i++) {
        const first = await mutex.acquire();
        const next = mutex.acquire({ signal });
        await assert.rejects(mutex.acquire({ signal, wait: 1 }), { code: 'TIMEOUT' });
        assert.equal(listeners(signal), 1);
        first();
        (await next)();
        const lock = await store.acquire(key, { signal });
        const wait = store.acquire(key, { signal });
        await assert.rejects(store.acquire(key, { signal, wait: 20 }), { code: 'TIMEOUT' });
        assert.equal(lock.signal.aborted, false);
        await lock.release();
        await (await wait).release();
        await keyed.runExclusive(key, (held) => assert.equal(held.signal.aborted, false),
            { signal });
        await store.watch(key, { signal }).return();
        assert.equal(listeners(signal), 0);
    }
    // The lock was dropped, or its store is closed.
    const closed = await holdfast.open(url);
    const orphan = await closed.acquire(fresh(), { signal });
    assert.equal(orphan.signal.aborted, false);
    assert.equal(listeners(signal), 1);
    await closed.close();
    assert.equal(listeners(signal), 0);
    process.once('warning', () => {});
    await (async () => {
        assert.equal((await store.acquire(fresh(), { signal })).signal.aborted, false);
    })();
    await until(() => {
        globalThis.gc();
        return listeners(signal) === 0;
    });
});

test('what an abort leads to is undone: a removed listener isn\'t called', async () => {
    const stop = new AbortController(), { signal } = stop;
    const one = await store.acquire(fresh(), { signal }), two = await store.acquire(fresh(),
        { signal });
    one.signal.addEventListener('abort', () => two.release());
    assert.equal(two.signal.aborted, false);
    stop.abort();
    assert.deepEqual([one.signal.aborted, two.signal.aborted], [true, false]);
    await one.release();
});

test('what runs under a key hears of the options\' signal, with a store and without', async () => {
    for (const mutex of [keyed, new KeyedMutex()]) {
        const stop = new AbortController();
        await assert.rejects(mutex.runExclusive(fresh(), async (held) => {
            assert.equal(held.signal.aborted, false);
            stop.abort(new Error('enough'));
            assert.ok(held.signal.aborted);
            throw held.signal.reason;
        }, { signal: stop.signal }), /enough/);
    }
});

const PATIENCE = { timeout: 300000 };
test('an abort whose event another listener stops ends the wait in the end', PATIENCE, async () => {
    const stop = new AbortController(), key = fresh();
    stop.signal.addEventListener('abort', (event) => event.stopImmediatePropagation());
    const lock = await store.acquire(key);
    const reason = new Error('enough');
    const rejected = assert.rejects(store.acquire(key, { signal: stop.signal }),
        (error) => error === reason);
    stop.abort(reason);
    await lock.release();
    await rejected;
    await (await store.acquire(key)).release();
});

test('KeyedMutex: cancel ends what waits for a key, but not waitForUnlock', async () => {
    for (const mutex of [keyed, new KeyedMutex()]) {
        const key = fresh();
        const release = await mutex.acquire(key);
        let unlocked = false;
        const watch = mutex.waitForUnlock(key).then(() => (unlocked = true));
        for (const all of [false, true]) {
            const wait = mutex.acquire(key);
            await soon();
            mutex.cancel(...(all ? [] : [key]));
            await assert.rejects(wait, { code: 'CANCELED' });
        }
        assert.equal(unlocked, false);
        await release();
        assert.equal(await watch, true);
        assert.equal(mutex.size, 0);
    }
});

test('close', async () => {
    await Promise.all([store.close(), keyed.close()]);
    clearInterval(alive);
});
