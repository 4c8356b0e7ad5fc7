// What becomes of locks when their processes, workers and stores end.
//
//     node --expose-gc life.test.js URL [ACQUISITIONS]
//     node life.test.js --part NAME URL KEY      what runs in a process of its own
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { execFileSync, fork } = require('node:child_process');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const holdfast = require('../lib/index.js');
const native = require('../lib/native.js');

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(look) {
    while (!await look()) await pause(5);
}

const parts = {
    // Ends by itself: a held lock keeps no process alive.
    async holds(store, key) {
        await store.acquire(key);
    },
    async exits(store, key) {
        await store.acquire(key);
        process.exit(3);
    },
    async throws(store, key) {
        await store.acquire(key);
        setImmediate(() => {
            throw new Error('nobody catches this');
        });
    },
    async rejects(store, key) {
        await store.run(key, () => {
            Promise.reject(new Error('nobody catches this'));
            return pause(60000);
        });
    },
    // Waits, holds, waits for a renewal, watches, all at once when it ends.
    async busy(store, key) {
        const lock = await store.acquire(key, { lease: '60s' });
        lock.signal;
        for (let i = 0; i < 50; i++) store.acquire(key).catch(() => {});
        for (let i = 0; i < 50; i++) lock.renew().catch(() => {});
        store.watch('').next().catch(() => {});
        store.close().catch(() => {});
        setImmediate(() => process.exit(4));
    },
    // A wait keeps it alive, until it is served.
    async waits(store, key) {
        const wait = store.acquire(key);
        await store.peek(key);
        process.send('waits');
        process.disconnect();
        await wait;
        process.exitCode = 5;
    },
    // Holds much that has to be released at a server that doesn't answer, through many stores.
    async away(_, key) {
        const how = { ioTimeout: '1s' }, store = await holdfast.open(url, how);
        globalThis.kept = await Promise.all(Array.from({ length: 40 }, async (_unused, i) =>
            (await holdfast.open(url, how)).acquire(`${key}/its/${i}`)));
        const locks = await Promise.all(Array.from({ length: 40 },
            (_unused, i) => store.acquire(`${key}/${i}`)));
        execFileSync(process.env.HOLDFAST_TEST_CONTROL, ['pause']);
        for (const lock of locks.slice(20)) lock.release().catch(() => {});
        store.acquire(`${key}/1`).catch(() => {});
        const stop = new AbortController();
        const wait = store.acquire(`${key}/2`, { signal: stop.signal });
        setTimeout(() => stop.abort(new Error('enough')), 50);
        await assert.rejects(wait, /enough/); // at once
        process.exit(7);
    },
    // Gives up a wait and a watch after everything has been closed.
    async aborts(store, key) {
        await store.acquire(key);
        const stop = new AbortController(), { signal } = stop;
        store.acquire(key, { signal }).catch(() => {});
        store.watch('', { signal }).next().catch(() => {});
        process.on('exit', () => {
            stop.abort();
            process.exitCode = 8;
        });
        setImmediate(() => process.exit());
    },
    // An execution that is killed within its event.
    async killed(store, key) {
        await store.once(key, () => process.kill(process.pid, 'SIGKILL'),
            { owner: 'execution-7', lease: '2s' });
    },
    // It has a handle of its own.
    async forked(store, key) {
        await assert.rejects(store.acquire(key, { wait: 0 }), { code: 'BUSY' });
        process.exitCode = 6;
    },
};

async function part(name, key) {
    await parts[name](await holdfast.open(url), key);
}

const url = process.argv[process.argv[2] === '--part' ? 4 : 2];
if (!isMainThread) {
    (async () => {
        const { key, others } = workerData;
        const store = await holdfast.open(workerData.url);
        await store.acquire(key);
        for (let i = 0; i < others; i++) store.acquire(key).catch(() => {});
        parentPort.postMessage('held');
        parentPort.on('message', () => process.exit());
    })();
    return;
}
if (process.argv[2] === '--part') {
    part(process.argv[3], process.argv[5]);
    return;
}

const acquisitions = process.argv[3] ?? '1000000';
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0;
const fresh = () => `${prefix}${++n}`;
let store;
const alive = setInterval(() => {}, 1000);
const PATIENCE = { timeout: 300000 };
const shared = !url.startsWith('mem:'); // with other processes

// How a process with this part ends; `when` is called with what it sends.
function child(name, key, when) {
    const process = fork(__filename, ['--part', name, url, key], { stdio: ['ignore', 'inherit',
        'pipe', 'ipc'] });
    let said = '';
    process.stderr.on('data', (text) => (said += text));
    process.on('message', (message) => when?.(message));
    return new Promise((resolve) => process.on('close', (code, signal) =>
        resolve({ code, signal, said })));
}

// Free at once: long before a lease would end.
async function free(key) {
    await (await store.acquire(key, { wait: '10s' })).release();
}

test('open', async () => {
    store = await holdfast.open(url);
});

test('what a detached wait brings while its store is closed is given back', PATIENCE, async () => {
    for (const call of ['acquire', 'once']) {
        const closes = await holdfast.open(url);
        const key = fresh();
        const args = call === 'once' ? [() => assert.fail()] : [];
        const first = await store.acquire(key);
        const wait = closes[call](key, ...args, { detached: true, lease: '1d' });
        const canceled = assert.rejects(wait, { code: 'CANCELED' });
        await until(async () => (await store.peek(key)).waiting === 1);
        const released = first.release();
        // the loss was reported, but the event loop hasn't delivered it
        while (!closes.stats().acquired);
        await Promise.all([closes.close(), canceled, released]);
        await free(key);
    }
});

test('the release of a lost lock rejects, also if its store is closed', PATIENCE, async () => {
    for (const lost of [true, false]) {
        const closes = await holdfast.open(url);
        const lock = await closes.acquire(fresh(), { lease: lost ? 100 : '1d', noRenew: true });
        while (lost && lock.leftMs > 0);
        lock.confirm().catch(() => {}); // the release stands behind it
        const ends = lock.release(), closed = closes.close();
        if (lost) await assert.rejects(ends, holdfast.LockLost);
        else await ends;
        await closed;
    }
});

test('what is pending may be given up when the process ends', PATIENCE, async () => {
    const end = await child('aborts', fresh());
    assert.deepEqual([end.code, end.signal], [8, null], end.said);
});

if (shared) {
    for (const [name, code] of [['holds', 0], ['exits', 3], ['throws', 1], ['rejects', 1],
        ['busy', 4]]) {
        test(`a process that ${name === 'busy' ? 'is busy' : name} ends, and gives back`,
            async () => {
                const key = fresh();
                const end = await child(name, key);
                assert.deepEqual([end.code, end.signal], [code, null], end.said);
                if (code === 1) assert.match(end.said, /nobody catches this/);
                await free(key);
            });
    }

    test('a wait keeps its process alive', async () => {
        const key = fresh();
        const lock = await store.acquire(key);
        let waits;
        const waiting = new Promise((resolve) => (waits = resolve));
        const ended = child('waits', key, waits);
        await waiting;
        await lock.release();
        assert.equal((await ended).code, 5);
        await free(key);
    });

    test('once: a retry by the same owner waits for its own dead run', PATIENCE, async () => {
        const key = fresh();
        assert.equal((await child('killed', key)).signal, 'SIGKILL');
        const how = { owner: 'execution-7', lease: '2s' };
        const { ran, owner, value } = await store.once(key, () => 'again', how);
        assert.deepEqual([ran, owner, value], [true, 'execution-7', 'again']);
        assert.equal((await store.once(key, () => assert.fail(), how)).value, 'again');
    });

    test('a forked process has a handle of its own', async () => {
        const key = fresh();
        const lock = await store.acquire(key);
        assert.equal((await child('forked', key)).code, 6);
        await lock.confirm();
        await lock.release();
    });
}

for (const how of ['terminated', 'left']) {
    test(`a worker that is ${how} gives back; others don't notice`, async () => {
        const mine = await store.acquire(fresh());
        const keys = [fresh(), fresh(), fresh()];
        const workers = keys.map((key, i) => new Worker(__filename,
            { workerData: { url, key, others: i * 20 } }));
        await Promise.all(workers.map((worker) => new Promise((resolve, reject) => {
            worker.on('message', resolve);
            worker.on('error', reject);
        })));
        await assert.rejects(store.acquire(keys[0], { wait: 0 }), { code: 'BUSY' });
        await Promise.all(workers.map((worker) => {
            const exited = new Promise((resolve) => worker.on('exit', resolve));
            if (how === 'left') worker.postMessage('leave');
            else worker.terminate();
            return exited;
        }));
        for (const key of keys) await free(key);
        await mine.confirm();
        await mine.release();
    });
}

test('a worker that is terminated at any moment', async () => {
    const key = fresh();
    for (let i = 0; i < 8; i++) {
        const worker = new Worker(__filename, { workerData: { url, key: `${key}/${i}`,
            others: 5 } });
        await pause(i * 15);
        await worker.terminate();
        await free(`${key}/${i}`);
    }
});

test(`${acquisitions} acquisitions: no leak`, async () => {
    const key = fresh();
    // Without what V8 keeps for later.
    const used = async () => {
        for (let i = 0; i < 5; i++) {
            globalThis.gc();
            await pause(10);
        }
        const { rss, heapTotal, heapUsed } = process.memoryUsage();
        return rss - heapTotal + heapUsed;
    };
    const round = async (times) => {
        for (let i = 0; i < times; i += 20) {
            for (let j = 0; j < 16; j++) await store.run(key, () => {});
            await (await store.acquire(key)).release();
            // Three holders wait for each other, and one of them gives up.
            const stop = new AbortController();
            const first = await store.acquire(key);
            const second = store.run(key, () => {});
            const third = store.run(key, () => {}, { signal: stop.signal }).catch(() => {});
            stop.abort();
            await first.release();
            await Promise.all([second, third]);
        }
    };
    const all = Number(acquisitions);
    await round(all / 5);
    const { held } = store.stats();
    // A leak grows in both halves. What the collector is late with doesn't, and has an end.
    const grown = [];
    for (let before = await used(), half = 0; half < 2; half++) {
        await round(all * 2 / 5);
        const after = await used();
        grown.push(after - before);
        before = after;
    }
    const least = Math.min(...grown), total = grown[0] + grown[1];
    console.log(`# memory has grown by ${grown.map((n) => (n / 2 ** 20).toFixed(1))} MB`);
    // The address sanitizer keeps what was freed.
    if (!process.env.HOLDFAST_PRELOAD)
        assert.ok(least < 8 * 2 ** 20 && total < 64 * 2 ** 20, `grown by ${grown} bytes`);
    await until(() => native.pending() === 0);
    assert.equal(store.stats().held, held);
});

if (process.env.HOLDFAST_TEST_CONTROL && url.startsWith('redis:')) {
    test('a lock that is lost while its release waits behind others: the release rejects', PATIENCE,
        async () => {
            const closes = await holdfast.open(url, { ioTimeout: '1h' });
            const busy = [];
            for (let i = 0; i < 4; i++) busy.push(await closes.acquire(fresh()));
            const lock = await closes.acquire(fresh(), { lease: '1s', noRenew: true });
            execFileSync(process.env.HOLDFAST_TEST_CONTROL, ['pause']);
            try {
                for (const one of busy) one.confirm().catch(() => {});
                const released = assert.rejects(lock.release(), holdfast.LockLost);
                await pause(1100); // its lease
                const closed = closes.close();
                execFileSync(process.env.HOLDFAST_TEST_CONTROL, ['resume']);
                await Promise.all([released, closed]);
            } finally {
                execFileSync(process.env.HOLDFAST_TEST_CONTROL, ['resume']);
            }
        });

    test('a process whose server doesn\'t answer ends all the same', async () => {
        const began = Date.now();
        try {
            assert.equal((await child('away', fresh())).code, 7);
        } finally {
            execFileSync(process.env.HOLDFAST_TEST_CONTROL, ['resume']);
        }
        // Closing must not take a second or two for each of the forty locks or stores.
        assert.ok(Date.now() - began < 20000, `${Date.now() - began} ms`);
    });
}

test('close', async () => {
    await store.close();
    clearInterval(alive);
});
