// What ends soon although a store doesn't answer: closing it while an event is being marked, and
// waits for it while it is being opened.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { mkdtempSync, rmSync } = require('node:fs');
const { once } = require('node:events');
const { spawn } = require('node:child_process');
const net = require('node:net');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { KeyedMutex, open } = require('../lib/index.js');

const SOON_MS = 20000; // a mark is tried for a minute
const LOCKER = `
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
`;
const folder = mkdtempSync(join(tmpdir(), 'close.'));
process.on('exit', () => rmSync(folder, { recursive: true }));
process.on('warning', () => {}); // Node brings a second copy of SQLite

// Another process keeps the database of the store locked.
test('a mark that is under way holds up no close', async () => {
    const store = await open(`sqlite:${folder}/locks.db`, { ioTimeout: '1s' });
    let locker;
    const ended = assert.rejects(store.once('event', async () => {
        locker = spawn('python3', ['-c', LOCKER, `${folder}/locks.db`],
            { stdio: ['pipe', 'pipe', 'inherit'] });
        await once(locker.stdout, 'data');
    }, { lease: '5m' }));
    while (!locker) await new Promise(setImmediate);
    await once(locker.stdout, 'data');
    const asked = store.stats().storeOps;
    while (store.stats().storeOps === asked) await new Promise(setImmediate);
    const began = performance.now();
    await store.close();
    const took = performance.now() - began;
    locker.stdin.end();
    await ended;
    assert.ok(took < SOON_MS, `${took} ms`);
});

test('a store that is being opened: a signal, cancel and close end the waits at once', async () => {
    const mute = net.createServer(), sockets = new Set();
    mute.on('connection', (socket) => sockets.add(socket));
    await once(mute.listen(`${folder}/mute`), 'listening');
    const url = `redis:?socket=${folder}/mute`, mutex = new KeyedMutex(url, { ioTimeout: '1h' });
    const stop = new AbortController(), { signal } = stop, enough = new Error('enough');
    const waits = [mutex.acquire('a', { signal }), mutex.runExclusive('a', () => {}, { signal }),
        mutex.waitForUnlock('a', { signal }), mutex.acquire('b'), mutex.acquire('c'),
        mutex.waitForUnlock('c')];
    const ends = Promise.allSettled(waits);
    await once(mute, 'connection');
    stop.abort(enough);
    for (const wait of waits.slice(0, 3))
        await assert.rejects(wait, (error) => error === enough);
    mutex.cancel('b');
    await assert.rejects(waits[3], { code: 'CANCELED', key: 'b' });
    assert.equal(mutex.size, 1);
    const order = [];
    const closed = mutex.close().then(() => order.push('first'));
    const again = mutex.close().then(() => order.push('second'));
    const message = "acquire 'c': the mutex is closed";
    await assert.rejects(waits[4], { code: 'CANCELED', key: 'c', message });
    await assert.rejects(waits[5], { code: 'CANCELED', key: 'c', message });
    await ends;
    // Now opening fails, which is no failure of close.
    mute.close();
    for (const socket of sockets) socket.destroy();
    await Promise.all([closed, again]);
    assert.deepEqual(order, ['first', 'second']);
});
