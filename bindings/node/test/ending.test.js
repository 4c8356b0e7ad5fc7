// What INT, TERM and HUP do to a process that holds keys.
//
//     node ending.test.js URL
//     node ending.test.js --part NAME URL KEY      what runs in a process of its own
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { execFileSync, fork, spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const { constants } = require('node:os');
const path = require('node:path');
const { Worker, isMainThread, parentPort } = require('node:worker_threads');
const { open } = require('../lib/index.js');

const LEASE = '10m'; // longer than any test
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];
const held = () => process.send('held');
const stay = () => setInterval(() => {}, 60000);

const parts = {
    async releases(url, key) {
        const store = await open(url, { onSignals: 'release' });
        const other = await open(url); // what another store holds is given back, too
        await other.acquire(`${key}/other`, { lease: LEASE });
        await store.run(key, () => {
            held();
            return new Promise(stay);
        }, { lease: LEASE });
    },
    async plain(url, key) {
        await (await open(url)).acquire(key, { lease: LEASE });
        stay();
        held();
    },
    // The program's own handler decides, and its locks are still held when it runs.
    async handles(url, key) {
        const store = await open(url, { onSignals: 'release' });
        const lock = await store.acquire(key, { lease: LEASE });
        process.on('SIGTERM', async () => {
            await lock.confirm();
            await store.close();
            process.exit(9);
        });
        stay();
        held();
    },
    // A handler that ends the process only if it is the only one, as that of signal-exit does.
    async alone(url, key) {
        const last = () => {
            if (process.listenerCount('SIGTERM') > 1) return;
            process.removeListener('SIGTERM', last);
            process.kill(process.pid, 'SIGTERM');
        };
        if (key.endsWith('before')) process.on('SIGTERM', last);
        const store = await open(url, { onSignals: 'release' });
        if (!key.endsWith('before')) process.on('SIGTERM', last);
        globalThis.kept = await store.acquire(key, { lease: LEASE });
        stay();
        held();
    },
    // A handler that lets the process go on; the next signal finds no handler.
    async first(url, key) {
        const store = await open(url, { onSignals: 'release' });
        globalThis.kept = await store.acquire(key, { lease: LEASE });
        process.once('SIGTERM', () => setImmediate(held));
        stay();
        held();
    },
    // A program may have the package twice: in two versions, or evaluated anew.
    async copies(url, key) {
        for (const name of Object.keys(require.cache))
            if (name.startsWith(path.join(__dirname, '..', 'lib'))) delete require.cache[name];
        const copy = require('../lib/index.js');
        assert.notEqual(copy.open, open);
        const how = { onSignals: 'release' }, one = await open(url, how);
        const two = await copy.open(url, how);
        globalThis.kept = [await one.acquire(key, { lease: LEASE }),
            await two.acquire(`${key}/copy`, { lease: LEASE })];
        stay();
        held();
    },
    // When the store is closed, it is as without the option.
    async closed(url) {
        const one = await open(url, { onSignals: 'release' });
        const two = await open(url, { onSignals: 'release' });
        const counts = () => SIGNALS.map((signal) => process.listenerCount(signal)).join();
        const seen = [counts()];
        await one.close();
        seen.push(counts());
        await two.close();
        seen.push(counts());
        process.send(seen);
        process.disconnect();
    },
    // To a server that doesn't answer.
    async away(url, key) {
        const store = await open(url, { onSignals: 'release', ioTimeout: LEASE });
        await store.acquire(key, { lease: LEASE });
        stay();
        held();
    },
};

// Ends of a process that keep the addon's own listener for 'exit' from running; the status of each.
const fails = () => {
    throw new Error('ends here');
};
const exits = {
    'a listener that exits': [5, () => process.on('exit', () => process.exit(5))],
    'a listener that throws': [1, () => process.on('exit', fails)],
    'no listeners any more': [0, undefined, () => {
        process.removeAllListeners();
        process.exit(0);
    }],
    'process.reallyExit': [3, undefined, () => process.reallyExit(3)],
    'a handler of exceptions that throws': [7, () => process.on('uncaughtException', fails),
        () => setImmediate(fails)],
};
for (const [name, [, first, last]] of Object.entries(exits)) {
    parts[name] = async (url, key) => {
        first?.();
        const store = await open(url);
        globalThis.kept = await store.acquire(key, { lease: LEASE });
        process.send('held', () => {
            process.disconnect();
            last?.();
        });
    };
}

if (!isMainThread) {
    open('mem:ending', { onSignals: 'release' })
        .catch((error) => parentPort.postMessage(error.message));
    return;
}
if (process.argv[2] === '--part') {
    const [name, url, key] = process.argv.slice(3);
    parts[name](url, key);
    return;
}

const url = process.argv[2];
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0, store;
const fresh = () => `${prefix}${++n}`;
test('open', async () => {
    store = await open(url);
});

// `through`: a program and its arguments that start the process.
function begin(name, key, ...through) {
    const words = [process.execPath, __filename, '--part', name, url, key];
    const child = through.length
        ? spawn(through[0], [...through.slice(1), ...words], { stdio: [0, 1, 2, 'ipc'] })
        : fork(__filename, words.slice(2), { execArgv: [] });
    const said = new Promise((resolve) => child.once('message', resolve));
    const end = new Promise((resolve) =>
        child.once('exit', (code, signal) => resolve(signal ?? code)));
    return { child, said, end };
}

for (const signal of SIGNALS) {
    test(`onSignals: ${signal} gives back everything, and the process dies of it`, async () => {
        const key = fresh(), { child, said, end } = begin('releases', key);
        await said;
        child.kill(signal);
        assert.equal(await end, signal);
        for (const name of [key, `${key}/other`])
            await (await store.acquire(name, { wait: 0 })).release();
    });
}

// As in a container whose first process is the program: the kernel doesn't kill it by its own
// signal.
const alone = ['unshare', '--pid', '--fork', '--kill-child'];
test('onSignals: the first process of a PID namespace ends, too', {
    skip: spawnSync(alone[0], [...alone.slice(1), 'true']).status ? 'root may do it' : false,
}, async () => {
    const key = fresh(), { child, said, end } = begin('releases', key, ...alone);
    await said;
    const children = fs.readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8');
    process.kill(Number(children), 'SIGTERM');
    assert.equal(await end, 128 + constants.signals.SIGTERM);
    for (const name of [key, `${key}/other`])
        await (await store.acquire(name, { wait: 0 })).release();
});

test('without it the process dies of the signal all the same; a lease goes on', async () => {
    const key = fresh(), { child, said, end } = begin('plain', key);
    await said;
    child.kill('SIGTERM');
    assert.equal(await end, 'SIGTERM');
    const { held: still } = await store.peek(key);
    if (url.startsWith('redis')) assert.equal(still, 1);
});

test('onSignals: a handler of the program\'s own decides', async () => {
    const key = fresh(), { child, said, end } = begin('handles', key);
    await said;
    child.kill('SIGTERM');
    assert.equal(await end, 9);
    await (await store.acquire(key, { wait: 0 })).release();
});

for (const when of ['before', 'after']) {
    test(`onSignals: a handler that ends the process only if it is alone, added ${when}`,
        async () => {
            const { child, said, end } = begin('alone', `${fresh()}/${when}`);
            await said;
            child.kill('SIGTERM');
            assert.equal(await end, 'SIGTERM');
        });
}

test('onSignals: a handler lets the process go on, and the next signal ends it', async () => {
    const key = fresh(), { child, said, end } = begin('first', key);
    await said;
    const handled = new Promise((resolve) => child.once('message', resolve));
    child.kill('SIGTERM');
    await handled;
    child.kill('SIGTERM');
    assert.equal(await end, 'SIGTERM');
    await (await store.acquire(key, { wait: 0 })).release();
});

test('onSignals: two copies of the package in one process', async () => {
    const key = fresh(), { child, said, end } = begin('copies', key);
    await said;
    child.kill('SIGTERM');
    assert.equal(await end, 'SIGTERM');
    for (const name of [key, `${key}/copy`])
        await (await store.acquire(name, { wait: 0 })).release();
});

test('onSignals: nobody listens when the stores that asked for it are closed', async () => {
    const { said, end } = begin('closed', fresh());
    assert.deepEqual(await said, ['1,1,1', '1,1,1', '0,0,0']);
    assert.equal(await end, 0);
});

for (const [name, [status]] of Object.entries(exits)) {
    test(`an orderly end gives back what is held: ${name}`, async () => {
        const key = fresh(), { said, end } = begin(name, key);
        await said;
        assert.equal(await end, status);
        await (await store.acquire(key, { wait: 0 })).release();
    });
}

test('onSignals: what is not known is refused, and workers, which get no signals', async () => {
    await assert.rejects(open(url, { onSignals: true }), { code: 'INVALID' });
    const worker = new Worker(__filename);
    assert.match(await new Promise((resolve) => worker.once('message', resolve)), /worker/);
    await worker.terminate();
});

const control = process.env.HOLDFAST_TEST_CONTROL;
if (control && url.startsWith('redis')) {
    test('onSignals: a second signal ends it, if the server does not answer', async () => {
        const key = fresh(), { child, said, end } = begin('away', key);
        await said;
        execFileSync(control, ['pause']);
        try {
            child.kill('SIGTERM');
            // Sends signals until the process no longer handles them: the first one is at work.
            const caught = () => BigInt(`0x${/^SigCgt:\s*(\S+)/m
                .exec(fs.readFileSync(`/proc/${child.pid}/status`, 'utf8'))[1]}`);
            while (caught() & (1n << 14n)) await new Promise((resolve) => setTimeout(resolve, 5));
            child.kill('SIGTERM');
            assert.equal(await end, 'SIGTERM');
        } finally {
            execFileSync(control, ['resume']);
        }
    });
}

test('close', async () => {
    await store.close();
});
