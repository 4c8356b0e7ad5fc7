// Lines of many priorities: they stay in order whatever is added and removed, without a walk along
// them; and a releaser releases only its own hold.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { Line } = require('../lib/line.js');
const { KeyedMutex, Mutex, Semaphore, withTimeout } = require('../lib/mutex.js');

const PATIENCE = { timeout: 300000 };
const soon = () => new Promise((resolve) => setImmediate(resolve));

// A generator of numbers below n, the same in every run.
function numbers(seed) {
    return (n) => {
        seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
        return Math.floor(seed / 2 ** 32 * n);
    };
}

// One in line that counts how often its priority was looked at.
let looks = 0;
class Entry {
    prev = null;
    next = null;
    line = null;
    ends = null;
    #priority;
    constructor(priority) {
        this.#priority = priority;
    }
    get priority() {
        looks++;
        return this.#priority;
    }
}

function whole(line) {
    const all = [];
    let prev = null;
    for (let at = line.first; at; prev = at, at = at.next) {
        assert.equal(at.prev, prev);
        assert.equal(at.line, line);
        all.push(at);
    }
    assert.equal(line.last, prev);
    return all;
}

for (const kinds of [1, 2, 3, 10, 1000]) {
    test(`as in a sorted array, ${kinds} priorities`, () => {
        const random = numbers(kinds), line = new Line();
        let model = [];
        for (let round = 0; round < 20000; round++) {
            // It grows and shrinks, and is empty now and then.
            if (random(100) < (Math.floor(round / 300) % 2 ? 35 : 60)) {
                const entry = new Entry(random(kinds) - (kinds >> 1));
                line.put(entry);
                const at = model.findIndex(({ priority }) => priority < entry.priority);
                model.splice(at < 0 ? model.length : at, 0, entry);
            } else if (model.length) {
                const [entry] = model.splice(random(3) ? 0 : random(model.length), 1);
                line.take(entry);
                assert.deepEqual([entry.prev, entry.next, entry.line], [null, null, null]);
            }
            assert.equal(line.first, model[0] ?? null);
            if (round % 100 === 0) {
                const all = whole(line);
                assert.ok(all.length === model.length && all.every((one, i) => one === model[i]));
            }
        }
        for (const entry of model) line.take(entry);
        assert.deepEqual([line.first, line.last, line.levels], [null, null, null]);
    });
}

test('putting in and taking out looks at few of many', () => {
    const n = 100000;
    for (const priority of [(i) => i, (i) => -i, (i) => (i * 7919) % n, (i) => i % 3]) {
        const line = new Line(), all = Array.from({ length: n }, (_, i) => new Entry(priority(i)));
        looks = 0;
        for (const entry of all) line.put(entry);
        for (let i = 0; i < n; i += 2) line.take(all[i]);
        while (line.first) line.take(line.first);
        assert.ok(looks < 200 * n, `${looks / n} a put and a take`);
    }
});

test('one priority is in order without more than being in line', () => {
    const line = new Line(), all = Array.from({ length: 1000 }, () => new Entry(7));
    for (const entry of all) line.put(entry);
    assert.equal(line.levels, null);
    const other = new Entry(8);
    line.put(other);
    assert.ok(line.levels && line.first === other);
    line.take(other);
    assert.equal(line.levels, null);
    assert.deepEqual(whole(line), all);
});

for (const [name, lock, acquire, run] of [
    ['Mutex', new Mutex(), (m) => m.acquire(), (m, fn, how) => m.runExclusive(fn, how)],
    ['Semaphore', new Semaphore(1), async (m) => (await m.acquire())[1],
        (m, fn, how) => m.runExclusive(fn, 1, how)],
    ['KeyedMutex', new KeyedMutex(), (m) => m.acquire('a'),
        (m, fn, how) => m.runExclusive('a', fn, how)],
]) {
    test(`${name}: two hundred thousand priorities`, PATIENCE, async () => {
        const release = await acquire(lock);
        const stop = new AbortController(), seen = [], all = [];
        let given = 0;
        for (let priority = 0; priority < 200000; priority++) {
            all.push(run(lock, () => seen.push(priority),
                priority % 10 ? { priority } : { priority, signal: stop.signal })
                .catch(() => given++));
            if (priority % 10000 === 0) await soon(); // the limit's timer is heard
        }
        stop.abort();
        release();
        await Promise.all(all);
        assert.deepEqual([seen.length, given], [180000, 20000]);
        assert.ok(seen.every((priority, i) => !i || priority < seen[i - 1]));
    });
}

const turns = async (n = 20) => {
    for (let i = 0; i < n; i++) await null;
};

// A hold that was released without its releaser is over: its releaser doesn't release the next
// hold.
for (const [name, acquire, run, release] of [
    ['Mutex', (m) => m.acquire(), (m, fn) => m.runExclusive(fn), (m) => m.release()],
    ['KeyedMutex', (m) => m.acquire('k'), (m, fn) => m.runExclusive('k', fn),
        (m) => m.release('k')],
])
    test(`${name}: a holder that another call released releases no later one`, async () => {
        const mutex = name === 'Mutex' ? new Mutex() : new KeyedMutex();
        const first = await acquire(mutex);
        await release(mutex);
        const second = await acquire(mutex);
        let third;
        acquire(mutex).then((give) => (third = give));
        first();
        await turns();
        assert.equal(third, undefined);
        second();
        await turns();
        third();
        let inside = 0, most = 0;
        const job = async () => {
            most = Math.max(most, ++inside);
            await soon();
            inside--;
        };
        const left = run(mutex, async () => {
            await release(mutex);
            await soon();
        });
        await Promise.all([left, run(mutex, job), run(mutex, () => job()), run(mutex, job)]);
        assert.equal(most, 1);
        await Promise.all([run(mutex, () => release(mutex)), run(mutex, job), run(mutex, job)]);
        assert.equal(most, 1);
    });

test('KeyedMutex: closing ends every wait, with a store or without', async () => {
    for (const url of [undefined, 'mem:']) {
        const mutex = new KeyedMutex(url);
        const release = await mutex.acquire('k');
        const waits = [mutex.acquire('k'), mutex.runExclusive('k', () => {}),
            mutex.waitForUnlock('k')];
        const ended = Promise.allSettled(waits);
        await soon();
        await mutex.close();
        assert.deepEqual((await ended).map(({ reason }) => reason?.code),
            ['CANCELED', 'CANCELED', 'CANCELED']);
        await assert.rejects(mutex.waitForUnlock('k'), { code: 'CANCELED' });
        await Promise.resolve(release()).catch(() => {});
        assert.equal(mutex.size, 0);
    }
});

// Node's timers take 2^31 - 1 ms; longer ones fire at once.
test('a wait of months ends when its time is over', async () => {
    const { setTimeout, clearTimeout } = globalThis, timers = new Map();
    let n = 0, passed = 0;
    globalThis.setTimeout = (call, ms) => timers.set(++n, { call, ms }) && n;
    globalThis.clearTimeout = (id) => timers.delete(id);
    try {
        const wait = 60 * 86400000, keyed = new KeyedMutex(), semaphore = new Semaphore(1);
        const mutex = new Mutex(), late = { code: 'TIMEOUT' };
        for (const lock of [mutex, semaphore]) await lock.acquire();
        await keyed.acquire('key');
        const ends = Promise.all([keyed.acquire('key', { wait: '60d' }), mutex.acquire({ wait }),
            keyed.runExclusive('key', assert.fail, { wait }), semaphore.waitForUnlock(1, { wait }),
            withTimeout(mutex, wait).acquire()].map((one) => assert.rejects(one, late)));
        await soon();
        assert.equal(timers.size, 5);
        while (timers.size) {
            const all = [...timers.values()];
            timers.clear();
            for (const { ms } of all) assert.ok(ms === all[0].ms && ms < 2 ** 31, `${ms} ms`);
            passed += all[0].ms;
            for (const { call } of all) call();
        }
        assert.equal(passed, wait);
        await ends;
        // A wait that is over for another reason leaves no timer.
        const stop = new AbortController(), { signal } = stop;
        const given = assert.rejects(mutex.acquire({ wait, signal }));
        const [{ call }] = timers.values();
        timers.clear();
        call();
        stop.abort();
        await given;
        assert.equal(timers.size, 0);
    } finally {
        Object.assign(globalThis, { setTimeout, clearTimeout });
    }
});
