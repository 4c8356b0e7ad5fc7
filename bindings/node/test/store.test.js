// The API on one store.
//
//     node store.test.js URL
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const fs = require('node:fs');
const holdfast = require('../lib/index.js');
const native = require('../lib/native.js');

const { LockCanceled, LockLost, LockUnavailable, InvalidArgument, RecursiveAcquire } = holdfast;
const url = process.argv[2];
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0;
const fresh = () => `${prefix}${++n}`;
const near = /^(mem|file):/.test(url);
let one, two;
// Keeps the process alive, which a pending promise or a listener alone doesn't.
const alive = setInterval(() => {}, 1000);

function gate() {
    let open;
    const opened = new Promise((resolve) => (open = resolve));
    return { opened, open };
}

// Looks again until it is so; ends with the test's own time.
async function until(look) {
    while (!await look()) await new Promise((resolve) => setTimeout(resolve, 5));
}

const idle = () => until(() => native.pending() === 0);

test('open: two handles', async () => {
    one = await holdfast.open(url, { owner: 'one', note: 'the first' });
    two = await holdfast.open(url);
    assert.equal(typeof one.url, 'string');
});

test('open: refusals', async () => {
    await assert.rejects(holdfast.open('nonsense:'), InvalidArgument);
    await assert.rejects(holdfast.open(url, { oner: 'x' }), InvalidArgument);
    await assert.rejects(holdfast.open(url, { owner: 'x'.repeat(200) }), InvalidArgument);
    await assert.rejects(holdfast.open(url, { ioTimeout: '10x' }), InvalidArgument);
    await assert.rejects(holdfast.open(''), InvalidArgument);
    await assert.rejects(holdfast.open('mem:a\0b'), InvalidArgument);
    await idle();
});

test('a key that is too long is no other one', async () => {
    for (const key of ['a'.repeat(512) + '\u{1f600}', '\u{1f600}'.repeat(129), 'a'.repeat(600)]) {
        await assert.rejects(one.acquire(key, { wait: 0 }), { code: 'INVALID',
            message: /longer than 512 bytes/ });
    }
    const longest = '\u{1f600}'.repeat(128);
    await one.run(longest, (lock) => assert.equal(lock.key, longest));
});

test('run: the value; its argument; given back', async () => {
    const key = fresh();
    let held;
    assert.equal(await one.run(key, async (lock) => {
        held = lock;
        const { token, owner, signal, leftMs } = lock;
        assert.ok(Number.isSafeInteger(token) && token > 0);
        assert.deepEqual([lock.key, owner, signal.aborted], [key, 'one', false]);
        assert.ok(leftMs > 0);
        assert.equal((await two.peek(key)).held, 1);
        return 'value';
    }), 'value');
    assert.deepEqual([held.owner, held.leftMs], ['one', 0]);
    const free = await two.peek(key);
    assert.deepEqual([free.held, free.waiting], [0, 0]);
});

test('run: given back when the function throws, or rejects', async () => {
    const key = fresh();
    await assert.rejects(one.run(key, () => {
        throw new Error('broken');
    }), /broken/);
    await assert.rejects(one.run(key, () => Promise.reject(new Error('broken'))), /broken/);
    assert.equal((await one.peek(key)).held, 0);
});

test('run: tasks of one process take turns, in order', async () => {
    const key = fresh();
    const seen = [];
    let inside = 0;
    await Promise.all(Array.from({ length: 20 }, (_, i) => one.run(key, async () => {
        assert.equal(++inside, 1);
        await new Promise((resolve) => setImmediate(resolve));
        inside--;
        seen.push(i);
    })));
    assert.deepEqual(seen, [...seen].sort((a, b) => a - b));
});

test('acquire: tokens grow; another waits, and is served', async () => {
    const key = fresh();
    const first = await one.acquire(key);
    const wait = two.acquire(key);
    await until(async () => (await one.peek(key)).waiting === 1);
    await first.release();
    const second = await wait;
    assert.ok(second.token > first.token);
    await second.release();
    await second.release();
});

test('acquire: BUSY, TIMEOUT, bad keys, bad options', async () => {
    const key = fresh();
    const lock = await one.acquire(key);
    for (const store of [one, two]) {
        await assert.rejects(store.acquire(key, { wait: 0 }), (error) => {
            assert.ok(error instanceof LockUnavailable && error instanceof Error);
            assert.deepEqual([error.name, error.code, error.key], ['LockUnavailable', 'BUSY', key]);
            assert.match(error.message, /^acquire '/);
            return true;
        });
        await assert.rejects(store.acquire(key, { wait: '30ms' }), { code: 'TIMEOUT' });
    }
    await lock.release();
    for (const bad of ['', 'x'.repeat(513), 'a\nb', 'a\0b', 'a\ud800', '\udc00b', 5, undefined])
        await assert.rejects(one.acquire(bad), InvalidArgument, JSON.stringify(bad));
    for (const options of [{ wait: -1 }, { wait: '5x' }, { wait: 'soon' }, { lease: 5 },
        { lease: '2d' }, { limit: 0 }, { limit: 2, shared: true }, { wayt: 5 }, { requestId: 'ab' },
        { detached: true }, { owner: '' }, { owner: 'a\0b' }, { wait: NaN }, 7, null])
        await assert.rejects(one.acquire(fresh(), options), InvalidArgument,
            JSON.stringify(options));
    await (await one.acquire(`${prefix}\u{1f511}\ufffd`)).release();
});

test('enter: on redis there is a fence of any name; else there is none', async () => {
    const lock = await one.acquire(fresh());
    for (const where of [undefined, `${prefix}fence`])
        await lock.enter(where).then(() => assert.match(url, /^redis/),
            (error) => assert.ok(['UNSUPPORTED', 'INVALID'].includes(error.code), error.message));
    await lock.confirm();
    await lock.release();
    await assert.rejects(lock.enter(), LockLost);
});

test('tokens are integers from 1 on', async () => {
    const lock = await one.acquire(fresh());
    for (const token of [0, -1, 1.5, NaN, Infinity, 2 ** 53, String(lock.token), undefined, null])
        for (const call of ['break', 'adopt'])
            await assert.rejects(two[call](lock.key, token), InvalidArgument);
    await lock.confirm();
    await lock.release();
});

test('acquire: shared, limit, owner, requestId', async () => {
    const key = fresh();
    const shared = await Promise.all([one, two].map((s) => s.acquire(key, { shared: true })));
    await assert.rejects(one.acquire(key, { wait: 0 }), { code: 'BUSY' });
    await Promise.all(shared.map((lock) => lock.release()));
    const three = await Promise.all([1, 2, 3].map(() => one.acquire(key, { limit: 3 })));
    await assert.rejects(two.acquire(key, { limit: 3, wait: 0 }), { code: 'BUSY' });
    await Promise.all(three.map((lock) => lock.release()));
    const owned = await one.acquire(key, { owner: 'execution-7', note: 'me' });
    assert.equal(owned.owner, 'execution-7');
    assert.equal((await two.peek(key)).holders[0].note, 'me');
    await assert.rejects(one.acquire(key, { owner: 'execution-7' }), RecursiveAcquire);
    await assert.rejects(two.acquire(key, { owner: 'execution-7', wait: 0 }), { code: 'BUSY' });
    await owned.release();
    const requestId = crypto.randomBytes(16);
    const asked = await one.acquire(key, { requestId, lease: '20s', wait: 0 });
    const again = await one.acquire(key, { requestId: requestId.toString('hex'), lease: '20s' });
    assert.equal(again.token, asked.token);
    await again.release();
    await asked.release().catch((error) => assert.equal(error.code, 'LOST'));
});

test('renew, confirm, and after the release', async () => {
    const lock = await one.acquire(fresh(), { lease: '20s', noRenew: true });
    await lock.renew('60s');
    assert.ok(lock.leftMs > 20000);
    await lock.confirm();
    const both = [lock.confirm(), lock.renew(30000), lock.release()];
    await Promise.all(both);
    for (const call of [() => lock.renew(), () => lock.confirm()])
        await assert.rejects(call(), (error) => error instanceof LockLost &&
            error.key === lock.key);
});

test('lost: the signal aborts, run is rejected, and so is a release after it', async () => {
    const key = fresh();
    let was;
    await assert.rejects(one.run(key, async (lock) => {
        const { signal } = was = lock;
        await two.break(key, lock.token);
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        assert.ok(signal.reason instanceof LockLost);
        assert.match(signal.reason.message, /the grant \d+ is over/);
        assert.equal(signal.reason.key, key);
        assert.equal(lock.leftMs, 0);
    }), LockLost);
    await assert.rejects(was.release(), LockLost);
    await one.run(key, (lock) => (was = lock));
    assert.equal(await was.release(), undefined);
    await assert.rejects(one.break(key, 1), LockLost);
});

test('lost: without a listener; the release rejects', async () => {
    const lock = await one.acquire(fresh());
    await two.break(lock.key, lock.token);
    await assert.rejects(lock.release(), (error) => error instanceof LockLost &&
        error.key === lock.key);
});

test('lost: nobody listens; what is left is nothing, when it is asked for', async () => {
    const lock = await one.acquire(fresh());
    await two.break(lock.key, lock.token);
    if (!near) await assert.rejects(lock.confirm(), LockLost);
    assert.equal(lock.leftMs, 0);
    assert.ok(lock.signal.aborted && lock.signal.reason instanceof LockLost);
    await lock.release().catch(() => {});
});

test('maxHold: lost after it', async () => {
    const lock = await one.acquire(fresh(), { maxHold: 200 });
    const { signal } = lock;
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    await lock.release().catch(() => {});
});

test('AbortSignal: a wait is given up, with its reason, and nobody stands in line', async () => {
    const key = fresh();
    const lock = await one.acquire(key);
    const stop = new AbortController();
    const waits = [one, two].map((store) => store.acquire(key, { signal: stop.signal }));
    await until(async () => (await one.peek(key)).waiting > 0);
    const reason = new Error('enough');
    const rejected = waits.map((wait) => assert.rejects(wait, (error) => error === reason));
    stop.abort(reason);
    await Promise.all(rejected);
    await assert.rejects(one.run(fresh(), () => assert.fail(), { signal: stop.signal }), /enough/);
    await idle();
    assert.equal((await one.peek(key)).waiting, 0);
    await lock.release();
});

test('AbortSignal at any moment: nothing stays held', async () => {
    const key = fresh();
    const rounds = near ? 300 : 40;
    let held = 0, given = 0;
    for (let i = 0; i < rounds; i++) {
        const stop = new AbortController();
        const first = await one.acquire(key);
        const wait = (i % 2 ? one : two).acquire(key, { signal: stop.signal });
        wait.then((lock) => (held++, lock.release()), (error) => {
            given++;
            assert.equal(error.name, 'AbortError');
        });
        const release = i % 3 ? first.release() : null;
        if (i % 5) await new Promise((resolve) => setImmediate(resolve));
        if (i % 7 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
        stop.abort();
        await (release ?? first.release());
    }
    await idle();
    const info = await one.peek(key);
    assert.deepEqual([info.held, info.waiting, held + given], [0, 0, rounds]);
});

test('AbortSignal in run: the inner signal aborts with it', async () => {
    const stop = new AbortController();
    await assert.rejects(one.run(fresh(), async ({ signal }) => {
        setImmediate(() => stop.abort(new Error('enough')));
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        throw signal.reason;
    }, { signal: stop.signal }), /enough/);
});

test('once: run, done, failing, concurrent', async () => {
    const key = fresh();
    await assert.rejects(one.once(key, () => {
        throw new Error('broken');
    }), /broken/);
    let ran = 0;
    const all = await Promise.all([one, two, one].map((store) => store.once(key, (lock) => {
        ran++;
        assert.ok(lock.token);
        return 'all sent';
    })));
    assert.equal(ran, 1);
    assert.deepEqual(all.map((o) => o.result), ['all sent', 'all sent', 'all sent']);
    assert.equal(all.filter((o) => o.ran).length, 1);
    const done = await two.once(key, () => assert.fail());
    assert.ok(!done.ran && Math.abs(done.at - Date.now()) < 3600e3);
    const info = await one.peek(key);
    assert.deepEqual([info.result, info.done !== null], ['all sent', true]);
    const most = fresh();
    await assert.rejects(one.once(most, () => {
        throw new Error('broken');
    }, { atMostOnce: true, keep: '1h' }), /broken/);
    assert.equal((await one.once(most, () => assert.fail())).ran, false);
});

test('once: a result is cleaned and cut, and the event is done', async () => {
    const pairs = '\u{1f511}'.repeat(300);
    for (const [value, result] of [['a\0b\ud800c\udc00', 'a?b?c?'], ['\ufffd', '\ufffd'],
        ['x'.repeat(5000), 'x'.repeat(255)], [`\ufffd${pairs}`, `\ufffd${pairs.slice(0, 126)}`],
        [`x${'\u00e9'.repeat(200)}`, `x${'\u00e9'.repeat(127)}`], ['x'.repeat(256) + '\ud83d',
            'x'.repeat(255)], ['', '""'], [7, '7']]) {
        const key = fresh();
        const ran = await one.once(key, () => value);
        assert.deepEqual([ran.ran, ran.value, ran.result], [true, value, result]);
        const info = await two.peek(key);
        assert.deepEqual([info.held, info.done !== null, info.result], [0, true, result]);
    }
});

test('once: if the event can\'t be marked, the hold is given back', async () => {
    const key = fresh();
    const { finish } = native;
    native.finish = () => {
        throw new Error('broken');
    };
    try {
        await assert.rejects(one.once(key, () => 'x'), /broken/);
    } finally {
        native.finish = finish;
    }
    const info = await two.peek(key);
    assert.deepEqual([info.held, info.done], [0, null]);
});

test('once: whose function gives the lock back hasn\'t run as an event', async () => {
    const key = fresh();
    await assert.rejects(one.once(key, (lock) => lock.release()), (error) =>
        error instanceof LockLost && error.key === key && /was released/.test(error.message));
    assert.equal((await two.peek(key)).done, null);
    assert.equal(await one.run(key, (lock) => lock.release().then(() => 'run')), 'run');
});

test('close under run and once: the signals abort, they reject', async () => {
    const store = await holdfast.open(url);
    const closed = (error) => error instanceof LockLost &&
        /its store was closed/.test(error.message);
    const keys = [fresh(), fresh(), fresh()];
    const { opened, open } = gate();
    let begun = 0;
    const fn = async (lock) => {
        const { signal } = lock;
        if (++begun === 2) open();
        if (!signal.aborted) await new Promise((resolve) => (signal.onabort = resolve));
        assert.ok(closed(signal.reason) && signal.reason.key === lock.key);
        assert.equal(lock.leftMs, 0);
        await assert.rejects(lock.confirm(), closed);
        return 'late';
    };
    const all = ['run', 'once'].map((call, i) => assert.rejects(store[call](keys[i], fn), closed));
    await opened;
    const held = await store.acquire(keys[2]);
    const closing = store.close();
    assert.ok(closed(held.signal.reason)); // also if no listener was added before
    await Promise.all([closing, ...all]);
    await held.release();
    for (const key of keys) {
        const info = await two.peek(key);
        assert.deepEqual([info.held, info.done], [0, null]);
    }
    // A lock that was released before was held as long as it was needed.
    const other = await holdfast.open(url);
    assert.equal(await other.run(keys[0], async (lock) => {
        await lock.release();
        await other.close();
        return 'value';
    }), 'value');
});

test('detached, adopt', async () => {
    const key = fresh();
    const lock = await one.acquire(key, { detached: true, lease: '60s' });
    const same = await two.adopt(key, lock.token);
    await same.renew('120s');
    await same.release();
    await assert.rejects(two.adopt(key, lock.token), LockLost);
    await assert.rejects(lock.release(), LockLost);
});

test('list: by prefix, as an iterator, left early', async () => {
    const mine = `${prefix}list/`;
    const locks = await Promise.all(['a', 'b', 'c'].map((k) => one.acquire(mine + k)));
    const seen = [];
    for await (const info of two.list(mine)) {
        assert.equal(info.held, 1);
        assert.deepEqual([info.holders[0].owner, info.holders[0].mode], ['one', 'exclusive']);
        seen.push(info.key);
    }
    assert.deepEqual(seen.sort(), ['a', 'b', 'c'].map((k) => mine + k));
    for await (const info of two.list(mine)) {
        assert.ok(info);
        break;
    }
    await Promise.all(locks.map((lock) => lock.release()));
});

test('watch: what is held, then changes, until left or aborted', async () => {
    const mine = `${prefix}watch/`;
    const held = await one.acquire(`${mine}held`);
    const stop = new AbortController();
    const changes = two.watch(mine, { signal: stop.signal });
    assert.equal((await changes.next()).value.key, held.key);
    const lock = await one.acquire(`${mine}more`);
    assert.equal((await changes.next()).value.key, lock.key);
    await lock.release();
    await held.release();
    const next = (async () => {
        for await (const info of changes) assert.ok(info);
    })();
    stop.abort(new Error('enough'));
    await assert.rejects(next, /enough/);
    await idle();
});

test('prune, stats', async () => {
    assert.equal(typeof await one.prune('1d'), 'number');
    await assert.rejects(one.prune(5), InvalidArgument);
    const stats = one.stats();
    assert.ok(stats.acquired > 20 && stats.held === 0 && stats.waiting === 0);
});

test('the event loop goes on while others wait', async () => {
    const key = fresh();
    const lock = await one.acquire(key);
    const threads = () => fs.readdirSync('/proc/self/task').length;
    await assert.rejects(two.acquire(key, { wait: 1 }), { code: 'TIMEOUT' });
    const before = threads();
    const waits = Array.from({ length: 1000 }, () => two.run(key, () => {}));
    let ticks = 0;
    const timer = setInterval(() => ticks++, 1);
    // libuv's threads are free, too: this takes all four of them.
    await Promise.all([1, 2, 3, 4].map(() => new Promise((resolve, reject) =>
        crypto.randomBytes(16, (error) => (error ? reject(error) : resolve())))));
    await until(() => ticks >= 20);
    clearInterval(timer);
    assert.ok(threads() <= before + 4, `${threads() - before} threads more`); // libuv's
    await lock.release();
    await Promise.all(waits);
});

// The code of a program that needn't know where its locks are.
async function shop(mutex) {
    const key = fresh(), seen = [];
    await Promise.all([0, 1, 2, 3].map((i) => mutex.runExclusive(key, async (held) => {
        seen.push(i, held.key === key && held.token > 0 && !held.signal.aborted);
        await new Promise((resolve) => setImmediate(resolve));
        seen.push(i);
    })));
    const release = await mutex.acquire(key);
    seen.push(mutex.isLocked(key), mutex.size);
    seen.push(await mutex.tryAcquire(key));
    for (const [call, code] of [
        [() => mutex.acquire(key, { wait: '30ms' }), 'TIMEOUT'],
        [() => mutex.acquire('a\nb'), 'INVALID'], [() => mutex.acquire('x'.repeat(513)), 'INVALID'],
        [() => mutex.acquire('\ud800'), 'INVALID'], [() => mutex.acquire(''), 'INVALID']])
        await assert.rejects(call, { code });
    const canceled = assert.rejects(mutex.runExclusive(key, () => assert.fail()),
        { code: 'CANCELED' });
    await new Promise((resolve) => setTimeout(resolve, 1));
    mutex.cancel(key);
    await canceled;
    const unlocked = mutex.waitForUnlock(key);
    await release();
    await unlocked;
    await assert.rejects(mutex.runExclusive(key, () => {
        throw new Error('broken');
    }), /broken/);
    seen.push(mutex.isLocked(key), mutex.size);
    for (const options of [null, 'x', 5])
        for (const call of ['acquire', 'tryAcquire', 'waitForUnlock'])
            await assert.rejects(async () => mutex[call](key, options), { code: 'INVALID', key });
    await mutex.close();
    for (const call of [() => mutex.acquire(key), () => mutex.runExclusive(key, () => 1)])
        await assert.rejects(call, { code: 'CANCELED', key });
    return seen;
}

test('a KeyedMutex moves to this store when it is given its URL', async () => {
    const { KeyedMutex } = holdfast;
    assert.deepEqual(await shop(new KeyedMutex(url)), await shop(new KeyedMutex()));
});

test('close: waits are canceled, locks given back, calls refused; twice is once', async () => {
    const key = fresh();
    const lock = await one.acquire(key);
    const wait = one.acquire(key);
    const caught = assert.rejects(wait, LockCanceled);
    const watching = assert.rejects((async () => {
        for await (const info of one.watch(prefix)) assert.ok(info);
        throw new LockCanceled('CANCELED', 'over');
    })());
    await Promise.all([one.close(), one.close()]);
    await caught;
    await watching;
    await lock.release();
    await assert.rejects(lock.confirm(), LockLost);
    assert.equal(lock.leftMs, 0);
    await assert.rejects(one.acquire(key), LockCanceled);
    assert.throws(() => one.stats(), LockCanceled);
    await two.run(key, () => {});
    await two[Symbol.asyncDispose]();
    assert.equal(native.pending(), 0);
    clearInterval(alive);
});
