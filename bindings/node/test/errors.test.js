// What errors say of where they come from: the caller's frames, and a cause; and what is said when
// the addon isn't there.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { HoldfastError, KeyedMutex, LockLost, LockUnavailable, Mutex, Semaphore,
    StoreUnavailable, open } = require('../lib/index.js');

const url = process.argv[2] ?? 'mem:errors';
const lib = path.join(__dirname, '..', 'lib');
const LOCKER = `
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
`;
let keys = 0;
const fresh = () => `errors-${process.pid}-${++keys}`;

// No code here awaits it, so the frames are those of the call, or none.
function theCaller(call) {
    return call();
}

// The error of a holder's call has the frames of the code that awaits it.
async function theCallerAwaits(call) {
    return await call();
}

async function failure(call, kind, caller = theCaller) {
    const error = await caller(call).then(() => assert.fail('no error'), (why) => why);
    assert.ok(error instanceof kind, error.stack);
    assert.match(error.stack, /theCaller/, error.stack);
    assert.ok(error.stack.startsWith(`${error.name}: ${error.message}\n    at `), error.stack);
    return error;
}

test('the frames of the caller: waits, at once and later', async () => {
    const store = await open(url), other = await open(url), key = fresh();
    const lock = await other.acquire(key);
    for (const wait of [0, 20]) {
        await failure(() => store.acquire(key, { wait }), LockUnavailable);
        await failure(() => store.run(key, () => {}, { wait }), LockUnavailable);
        await failure(() => store.once(key, () => {}, { wait }), LockUnavailable);
    }
    await failure(() => store.acquire('\n'), HoldfastError, theCallerAwaits);
    await failure(() => store.acquire(key, { wait: -1 }), HoldfastError);
    await failure(() => store.once(key, () => {}, { keep: 0 }), HoldfastError);
    const waits = failure(() => store.acquire(key), HoldfastError, theCallerAwaits);
    await store.close();
    assert.equal((await waits).code, 'CANCELED');
    await failure(() => store.acquire(key), HoldfastError);
    await lock.release();
    await other.close();
});

test('the frames of the caller: a lock that is lost, and what operators ask', async () => {
    const store = await open(url), key = fresh();
    const lock = await store.acquire(key);
    await store.break(key, lock.token);
    await failure(() => lock.confirm(), LockLost, theCallerAwaits);
    await failure(() => lock.renew(), LockLost, theCallerAwaits);
    await failure(() => lock.enter(), HoldfastError, theCallerAwaits);
    await failure(() => lock.release(), LockLost, theCallerAwaits);
    await failure(() => store.adopt(key, 1), LockLost);
    await failure(() => store.break(key, 1), LockLost);
    await failure(() => store.peek('\n'), HoldfastError);
    await failure(() => store.prune(-1), HoldfastError);
    await failure(() => store.once(fresh(), async (held) => {
        await store.break(held.key, held.token);
    }), LockLost, theCallerAwaits);
    await failure(() => store.run(fresh(), async (held) => {
        await store.break(held.key, held.token);
    }), LockLost, theCallerAwaits);
    await store.close();
});

test('the frames of the caller: mutexes, of this process and of a store', async () => {
    for (const keyed of [new KeyedMutex(), new KeyedMutex(url)]) {
        const key = fresh(), release = await keyed.acquire(key);
        for (const wait of [0, 20]) {
            await failure(() => keyed.acquire(key, { wait }), LockUnavailable);
            await failure(() => keyed.runExclusive(key, () => {}, { wait }), LockUnavailable);
        }
        await failure(() => keyed.waitForUnlock(key, { wait: 20 }), LockUnavailable);
        await release();
        await keyed.close();
    }
    for (const lock of [new Mutex(), new Semaphore(1)]) {
        await lock.acquire();
        const how = (wait) => (lock instanceof Mutex ? [{ wait }] : [1, { wait }]);
        for (const wait of [0, 20]) {
            await failure(() => lock.acquire(...how(wait)), LockUnavailable);
            await failure(() => lock.runExclusive(() => {}, ...how(wait)), LockUnavailable);
        }
        await failure(() => lock.waitForUnlock(...how(20)), LockUnavailable);
    }
});

test('a store that cannot be opened: the frames, and the error of the system', async () => {
    const error = await failure(() => open('file:/proc/version/none'), HoldfastError);
    assert.equal(error.cause.code, 'ENOTDIR', error.stack);
    // The failure of one attempt rejects each request for it, with the frames of that request.
    const keyed = new KeyedMutex('file:/proc/version/none');
    const [one, two] = await Promise.all([failure(() => keyed.acquire('a'), HoldfastError),
        failure(() => keyed.acquire('b'), HoldfastError)]);
    assert.notEqual(one, two);
    assert.equal(two.cause, one.cause);
});

// What another program has locked isn't an error of the system.
test('a database that is locked: no cause', async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'holdfast-locked.'));
    const store = await open(`sqlite:${folder}/locks.db`, { ioTimeout: '100ms' });
    const locker = spawn('python3', ['-c', LOCKER, `${folder}/locks.db`],
        { stdio: ['pipe', 'pipe', 'inherit'] });
    await once(locker.stdout, 'data');
    const error = await failure(() => store.acquire(fresh(), { wait: 0 }), StoreUnavailable);
    assert.match(error.message, /locked/);
    assert.equal(error.cause, undefined);
    locker.stdin.end();
    await once(locker, 'exit');
    await store.close();
    fs.rmSync(folder, { recursive: true });
});

// ---- without the addon ----

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'holdfast-errors.'));
fs.writeFileSync(path.join(dir, 'broken.node'), 'not a library');

const USE = `
    const opened = async (addon) => {
        process.env.HOLDFAST_ADDON = addon;
        return open('mem:').then((store) => store.close(), (error) => error);
    };
    (async () => {
        const mutex = new KeyedMutex();
        await mutex.runExclusive('k', () => {});
        await new Mutex().runExclusive(() => {});
        const missing = await opened(process.argv[2] + '/none.node');
        const again = await new KeyedMutex('mem:').acquire('k').catch((error) => error);
        const broken = await opened(process.argv[2] + '/broken.node');
        for (const error of [missing, again, broken]) {
            if (!(error instanceof Unsupported)) throw error ?? new Error('no error');
            console.log(error.cause.code, error.message);
        }
        console.log(version, await opened(process.argv[3]));
    })();
`;
const NAMES = '{ KeyedMutex, Mutex, Unsupported, open, version }';
for (const [name, load] of [['use.cjs', `const ${NAMES} = require('${lib}/index.js');`],
    ['use.mjs', `import ${NAMES} from '${lib}/index.mjs';`]]) {
    test(`${name}: without the addon there are mutexes; a store says what to do`, () => {
        fs.writeFileSync(path.join(dir, name), load + USE);
        const { HOLDFAST_ADDON: addon, ...env } = process.env;
        const done = spawnSync(process.execPath, [path.join(dir, name), dir, addon],
            { encoding: 'utf8', env });
        assert.equal(done.status, 0, done.stderr);
        const [missing, again, broken, last] = done.stdout.split('\n');
        assert.match(missing, /^MODULE_NOT_FOUND open: .*none\.node: it was not built /);
        assert.match(missing, /Run `npm rebuild holdfast`/);
        assert.equal(again, missing);
        assert.match(broken, /^ERR_DLOPEN_FAILED open: .*broken\.node: .*`npm rebuild holdfast`/);
        // after the cause was removed the addon is found
        assert.match(last, /^0\.\d+\.\d+ undefined$/);
    });
}

test('end', () => fs.rmSync(dir, { recursive: true }));
