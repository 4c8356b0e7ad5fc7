// A store is closed soon although it doesn't answer, and an event is being marked as done: another
// process keeps the database of a `sqlite:` store locked.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { mkdtempSync, rmSync } = require('node:fs');
const { once } = require('node:events');
const { spawn } = require('node:child_process');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { open } = require('../lib/index.js');

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
