// Where the addon is searched, from the package and from a bundle (a copy of lib/binary.js).
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const { tmpdir } = require('node:os');
const { dirname, join } = require('node:path');

delete process.env.HOLDFAST_ADDON;
const folder = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'binary.')));
process.on('exit', () => fs.rmSync(folder, { recursive: true }));

function write(name, text = '') {
    const file = join(folder, name);
    fs.mkdirSync(dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
    return file;
}

function bundle(app) {
    write(`${app}/package.json`, '{ "name": "app", "version": "1.0.0" }');
    const file = write(`${app}/dist/bundle.js`);
    fs.copyFileSync(require.resolve('../lib/binary.js'), file);
    return require(file).locate();
}

test('a program with an install.js and a build of its own is no checkout', () => {
    write('one/install.js');
    write('one/build/holdfast.node');
    const { file, why, advice } = bundle('one');
    assert.equal(file, undefined);
    assert.match(why, /^the package holdfast-.* isn't installed$/);
    assert.match(advice, /npm install holdfast-/);
});

test('a bundle finds the checkout that its program has installed', () => {
    const name = 'two/node_modules/holdfast';
    write(`${name}/package.json`, '{ "name": "holdfast", "version": "1.0.0" }');
    write(`${name}/install.js`);
    assert.equal(bundle('two').file, join(folder, name, 'build', 'holdfast.node'));
});

test('a bundle finds the binaries that only the installed package sees, as with pnpm', () => {
    const there = 'four/node_modules/.pnpm/holdfast/node_modules';
    write(`${there}/holdfast/package.json`, '{ "name": "holdfast", "version": "1.0.0" }');
    for (const libc of ['gnu', 'musl'])
        write(`${there}/holdfast-linux-${process.arch}-${libc}/holdfast.node`);
    fs.symlinkSync('.pnpm/holdfast/node_modules/holdfast',
        join(folder, 'four/node_modules/holdfast'));
    assert.equal(dirname(dirname(bundle('four').file ?? '')), join(folder, there));
});

test('a checkout is found without its build, and says how to build it', () => {
    write('three/package.json', '{ "name": "holdfast", "version": "1.0.0" }');
    write('three/install.js');
    const file = write('three/lib/binary.js');
    fs.copyFileSync(require.resolve('../lib/binary.js'), file);
    const found = require(file).locate();
    assert.equal(found.file, join(folder, 'three', 'build', 'holdfast.node'));
    assert.match(found.advice, /npm rebuild holdfast/);
});
