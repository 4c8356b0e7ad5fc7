// What in this process may break a store's locks is a warning of open, once.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { mkdtempSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { open } = require('../lib/index.js');

const folder = mkdtempSync(join(tmpdir(), 'warning.'));
process.on('exit', () => rmSync(folder, { recursive: true }));

test('a second copy of SQLite: Node brings one', async () => {
    const warnings = [];
    process.on('warning', (warning) => warnings.push(warning));
    for (const url of ['mem:warning', `file:${folder}/locks`]) await (await open(url)).close();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(warnings.filter(({ code }) => code === 'HOLDFAST_STORE'), []);
    for (let i = 0; i < 2; i++) await (await open(`sqlite:${folder}/locks.db`)).close();
    await new Promise((resolve) => setImmediate(resolve));
    const ours = warnings.filter(({ code }) => code === 'HOLDFAST_STORE');
    // Older ones have none.
    assert.equal(ours.length, process.versions.sqlite ? 1 : 0);
    for (const warning of ours) {
        assert.match(warning.message, /second copy of SQLite \(\/.*\): it must not open/);
        assert.equal(warning.name, 'HoldfastWarning');
    }
});
