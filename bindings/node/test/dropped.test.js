// What becomes of locks, stores and watches that a program drops without ending them.
//
//     node --expose-gc dropped.test.js URL
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { execFileSync } = require('node:child_process');
const holdfast = require('../lib/index.js');
const native = require('../lib/native.js');

const [, , url] = process.argv;
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0;
const fresh = () => `${prefix}${++n}`;
let store;
const alive = setInterval(() => {}, 1000);
const PATIENCE = { timeout: 300000 };

const control = (what) => execFileSync(process.env.HOLDFAST_TEST_CONTROL, [what]);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Collects garbage until the look succeeds.
async function collected(look) {
    for (globalThis.gc(); !await look(); globalThis.gc()) await pause(5);
}

// Resolves with the warnings that are emitted while fn runs.
async function warnings(fn) {
    const warned = [];
    // one comes from the opening: Node has its own SQLite
    const hear = (warning) => warning.code !== 'HOLDFAST_STORE' && warned.push(warning);
    process.on('warning', hear);
    try {
        await fn(warned);
    } finally {
        process.removeListener('warning', hear);
    }
    return warned;
}

// Calls fn with the promises of dropped stores that they will be closed.
async function closings(fn) {
    const { closeIdle } = native, all = [];
    native.closeIdle = (id) => {
        const closed = closeIdle(id);
        all.push(closed);
        return closed;
    };
    try {
        await fn(all);
    } finally {
        native.closeIdle = closeIdle;
    }
}

test('open', async () => {
    store = await holdfast.open(url);
});

test('a lock that is dropped is given back, with a warning', async () => {
    const key = fresh();
    let token;
    const [{ code, message }] = await warnings(async (warned) => {
        ({ token } = await store.acquire(key));
        await collected(async () => warned.length && (await store.peek(key)).held === 0);
    });
    assert.equal(code, 'HOLDFAST_DROPPED');
    assert.ok(message.includes(key) && message.includes(token));
});

test('locks that were given back, or are detached, are dropped without a word', async () => {
    const warned = await warnings(async () => {
        for (let i = 0; i < 100; i++) await (await store.acquire(fresh())).release();
        const key = fresh();
        await store.acquire(key, { detached: true, lease: '60s' });
        for (let i = 0; i < 10; i++) {
            globalThis.gc();
            await pause(1);
        }
        assert.equal((await store.peek(key)).held, 1);
    });
    assert.deepEqual(warned, []);
});

// Uses eight stores of which it keeps what they gave, but not the stores.
async function useDropped(isDropped) {
    const waited = fresh();
    const held = await store.acquire(waited, { lease: '1h' }); // isn't renewed
    const use = async (how) => how(await holdfast.open(url));
    const lock = await use((one) => one.acquire(fresh()));
    const detached = await use((one) => one.acquire(fresh(), { detached: true, lease: '1m' }));
    const wait = use((one) => one.acquire(waited)), shows = await use((one) => one.watch(waited));
    const running = use((one) => one.run(fresh(), async (its) => {
        await wait;
        await its.confirm();
    }));
    await use((one) => one.stats());
    const { signal } = new AbortController(); // of a whole program
    await use((one) => one.watch(waited, { signal }).next());
    const later = fresh(), watching = use(async (one) => {
        for await (const { key } of one.watch(later)) return key;
    });
    await collected(isDropped);
    for (const one of [lock, detached]) await one.confirm();
    assert.equal((await shows.next()).value.key, waited);
    await held.release();
    for (const one of [await wait, lock, detached]) await one.release();
    await running;
    await shows.return();
    const seen = await store.acquire(later);
    assert.equal(await watching, later);
    await seen.release();
    assert.equal(signal.aborted, false);
}

test('a store that is dropped is closed, when nothing uses it', PATIENCE, async () => {
    if (url.startsWith('mem:')) return;
    const [{ code, message }] = await warnings((warned) => closings(async (closing) => {
        await useDropped(() => warned.length);
        await collected(() => closing.length === 8);
        await Promise.all(closing);
    }));
    assert.equal(code, 'HOLDFAST_DROPPED');
    assert.match(message, /^the store '[^']*' was dropped without close/);
});

if (process.env.HOLDFAST_TEST_CONTROL && url.startsWith('redis:')) {
    test('a store that is dropped while a request is under way is closed after it', PATIENCE,
        () => closings(async (closing) => {
            try {
                await (async () => {
                    const used = await holdfast.open(url, { ioTimeout: '1h' });
                    const stop = new AbortController();
                    control('pause');
                    const wait = used.acquire(fresh(), { signal: stop.signal });
                    stop.abort(new Error('enough'));
                    await assert.rejects(wait, /enough/);
                })();
                await collected(() => closing.length);
            } finally {
                control('resume');
            }
            assert.ok(closing[0], 'the store stays open');
            await closing[0];
        }));
}

test('a lock whose signal is kept is dropped all the same, and its signal aborts', async () => {
    const key = fresh();
    const { signal } = await store.acquire(key);
    let held;
    signal.addEventListener('abort', () => (held = store.stats().held));
    const before = store.stats().held;
    await collected(async () => (await store.peek(key)).held === 0);
    assert.ok(signal.aborted && signal.reason instanceof holdfast.LockLost);
    assert.equal(signal.reason.key, key);
    assert.equal(held, before); // the signal was aborted before the key was released
});

test('a lock that maxHold has ended is given back when it is dropped', PATIENCE, async () => {
    const key = fresh();
    await (async () => {
        const lock = await store.acquire(key, { maxHold: 100, lease: '1d' });
        while (lock.leftMs > 0);
    })();
    await collected(async () => (await store.peek(key)).held === 0);
});

test('close', async () => {
    await store.close();
    clearInterval(alive);
});
