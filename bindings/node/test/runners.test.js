// The package under Jest and Vitest, which evaluate its modules anew for each test file, each time
// in another context, around one addon; and in a program that clears require.cache.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const package_ = path.join(__dirname, '..');
const tool = (name, arg) => execFileSync(path.join(package_, '../../tools', name), [arg],
    { encoding: 'utf8' }).trim();
const modules = tool('node-packages', path.join(__dirname, 'runners'));
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'holdfast-runners.'));
const { NODE_PATH: _, NODE_TEST_CONTEXT: __, ...env } = process.env;
test.after(() => fs.rmSync(dir, { recursive: true }));

const write = (name, text) => fs.writeFileSync(path.join(dir, name), text);
function runBy(node, ...args) {
    const done = spawnSync(node, args, { cwd: dir, encoding: 'utf8',
        env: { ...env, NO_COLOR: '1' } }); // runners color what they say where CI is set
    return { status: done.status, said: done.stdout + done.stderr };
}
const run = (...args) => runBy(process.execPath, ...args);
const bin = (name, file) => path.join(modules, name, file);

// Installed as from a registry: a link would count as a part of the project.
const installed = path.join(dir, 'node_modules', 'holdfast');
fs.mkdirSync(installed, { recursive: true });
fs.cpSync(path.join(package_, 'lib'), path.join(installed, 'lib'), { recursive: true });
for (const name of fs.readdirSync(package_).filter((file) => /^package\.json$|\.d\.m?ts$/
    .test(file)))
    fs.copyFileSync(path.join(package_, name), path.join(installed, name));
fs.symlinkSync(path.join(modules, 'vitest'), path.join(dir, 'node_modules', 'vitest'));
fs.copyFileSync(path.join(__dirname, 'runners', 'classes.js'), path.join(dir, 'classes.js'));
write('package.json', '{ "private": true }');

const FILES = ['one', 'two', 'three'];
// By the runners' own limit, 5 s, a test would be given up on a busy machine; what it holds then is
// a leak to them.
const PATIENCE_MS = 600000;
write('jest.config.js', `module.exports = { testMatch: ['**/*.jest.*js'], transform: {},
    moduleFileExtensions: ['js', 'mjs', 'json', 'node'], testTimeout: ${PATIENCE_MS} };\n`);
write('vitest.config.mjs', `export default { test: { include: ['**/*.vitest.mjs'],
    testTimeout: ${PATIENCE_MS} } };\n`);
for (const name of FILES) {
    write(`${name}.jest.js`, `
        const classes = require('./classes.js');
        test('${name}', () => classes(expect, require('holdfast'), require('crypto').randomBytes));
    `);
    fs.mkdirSync(path.join(dir, 'esm'), { recursive: true });
    write(`esm/${name}.jest.mjs`, `
        import * as holdfast from 'holdfast';
        import { randomBytes } from 'node:crypto';
        import classes from '../classes.js';
        test('${name}', () => classes(expect, holdfast, randomBytes));
    `);
    write(`${name}.vitest.mjs`, `
        import { expect, test } from 'vitest';
        import { randomBytes } from 'node:crypto';
        import * as holdfast from 'holdfast';
        import classes from './classes.js';
        test('${name}', () => classes(expect, holdfast, randomBytes));
    `);
}

function jest(...args) {
    const { status, said } = run(bin('jest', 'bin/jest.js'), '--ci', '--no-cache', ...args,
        '.jest.js');
    assert.equal(status, 0, said);
    assert.match(said, /3 passed, 3 total/, said);
    assert.doesNotMatch(said, /open handle|did not exit|Warning/i, said);
}

const SERIAL = '--runInBand';
test('Jest: in each test file the errors are of its own classes', () => jest(SERIAL));
test('Jest: in files that run side by side, too', () => jest('--workerThreads', '--maxWorkers=2'));
test('Jest: nothing is open when all is closed', () => jest(SERIAL, '--detectOpenHandles'));
test('Jest: nothing keeps the context of a test file', () => jest(SERIAL, '--detectLeaks'));
test('Jest: in files that are ES modules, too', () => {
    const { status, said } = run('--experimental-vm-modules', bin('jest', 'bin/jest.js'), SERIAL,
        '--ci', '--no-cache', 'esm/');
    assert.equal(status, 0, said);
    assert.match(said, /3 passed, 3 total/, said);
});

test('Jest: modules that are reset, or isolated, within one file', () => {
    write('reset.jest.js', `
        const classes = require('./classes.js');
        const { randomBytes } = require('crypto');
        test('reset', async () => {
            const before = require('holdfast');
            jest.resetModules();
            expect(require('holdfast').LockLost).not.toBe(before.LockLost);
            await classes(expect, require('holdfast'), randomBytes);
            let isolated;
            jest.isolateModules(() => (isolated = require('holdfast')));
            await classes(expect, isolated, randomBytes);
            await classes(expect, before, randomBytes); // it goes on as it was
        });
    `);
    const { status, said } = run(bin('jest', 'bin/jest.js'), SERIAL, '--ci', '--no-cache',
        'reset.jest.js');
    fs.rmSync(path.join(dir, 'reset.jest.js'));
    assert.equal(status, 0, said);
});

test('Jest: a wait that goes on is an open handle', () => {
    write('open.jest.js', `
        const { open } = require('holdfast');
        test('waits', async () => {
            const store = await open('mem:open');
            await store.acquire('k');
            store.acquire('k', { wait: '3s' }).catch(() => {});
        });
    `);
    const { said } = run(bin('jest', 'bin/jest.js'), '--runInBand', '--ci', '--no-cache',
        '--detectOpenHandles', 'open.jest.js');
    fs.rmSync(path.join(dir, 'open.jest.js'));
    assert.match(said, /1 open handle .*holdfast/s, said);
});

// By the newest Node: under vmThreads that of 20 crashes in its own vm modules, without any addon.
const newest = tool('node-versions', 'newest');
for (const pool of ['vmThreads', 'vmForks', 'threads', 'forks']) {
    test(`Vitest, ${pool}: in each test file the errors are of its own classes`, () => {
        const { status, said } = runBy(newest, bin('vitest', 'vitest.mjs'), 'run', `--pool=${pool}`,
            `--poolOptions.${pool}.single${/forks/i.test(pool) ? 'Fork' : 'Thread'}`);
        assert.equal(status, 0, said);
        assert.match(said, /Tests +3 passed/, said);
    });
}

for (const what of ['all of it', 'but not the addon']) {
    test(`loaded anew thirty times, ${what}: its own classes, and no warning`, () => {
        write('again.js', `
            const classes = require('./classes.js');
            const assert = require('assert/strict');
            const warnings = [];
            process.on('warning', (warning) => warnings.push(warning.stack));
            let before;
            (async () => {
                for (let i = 0; i < 30; i++) {
                    for (const name of Object.keys(require.cache))
                        if (/holdfast/.test(name) && !name.startsWith(__filename) &&
                            (${what === 'all of it'} || !name.endsWith('.node')))
                            delete require.cache[name];
                    const { LockUnavailable, open } = require('holdfast');
                    assert.notEqual(LockUnavailable, before);
                    before = LockUnavailable;
                    const store = await open('mem:again');
                    const lock = await store.acquire('k');
                    await assert.rejects(store.acquire('k', { wait: 0 }), LockUnavailable);
                    await assert.rejects(store.acquire('k', { wait: 1 }), LockUnavailable);
                    await lock.release();
                    await store.close();
                }
                await new Promise(setImmediate);
                assert.deepEqual(warnings, []);
                assert.equal(process.listenerCount('exit'), 1);
                console.log('done');
            })();
        `);
        const { status, said } = run('again.js');
        assert.equal(status, 0, said);
        assert.match(said, /done\n$/);
    });
}

test('what AsyncLocalStorage had when the addon was loaded is not kept for ever', () => {
    write('context.js', `
        const { AsyncLocalStorage } = require('async_hooks');
        const storage = new AsyncLocalStorage();
        const request = () => {
            const context = {};
            storage.run(context,
                async () => (await require('holdfast').open('mem:context')).close());
            return new WeakRef(context);
        };
        (async () => {
            const context = request();
            for (let i = 0; context.deref() && i < 200; i++) {
                await new Promise((resolve) => setTimeout(resolve, 5));
                gc();
            }
            console.log(context.deref() ? 'kept' : 'done');
        })();
    `);
    const { status, said } = run('--expose-gc', 'context.js');
    assert.equal(status, 0, said);
    assert.match(said, /done\n$/);
});

test('typescript-eslint: a releaser may be awaited, or not; a lock\'s release has to be', () => {
    write('eslint.config.mjs', `
        import { createRequire } from 'node:module';
        const { parser, plugin } = createRequire('${modules}/')('typescript-eslint');
        const rules = ['no-floating-promises', 'await-thenable', 'no-misused-promises'];
        export default [{ files: ['lint/*.ts'], plugins: { ts: plugin },
            languageOptions: { parser, parserOptions: { project: './lint/tsconfig.json' } },
            rules: Object.fromEntries(rules.map((name) => ['ts/' + name, 'error'])) }];
    `);
    fs.mkdirSync(path.join(dir, 'lint'));
    write('lint/tsconfig.json', JSON.stringify({ files: ['fine.ts', 'wrong.ts'],
        compilerOptions: { strict: true, target: 'es2022', lib: ['es2022', 'dom',
            'esnext.disposable'], module: 'node16', types: [] } }));
    write('lint/fine.ts', `
        import { open } from 'holdfast';
        import { KeyedMutex, Mutex, Semaphore } from 'holdfast/mutex';
        export async function use(url: string): Promise<void> {
            for (const keyed of [new KeyedMutex(), new KeyedMutex(url)]) {
                (await keyed.acquire('a'))();
                await (await keyed.acquire('b'))();
                const cleanup: (() => void)[] = [await keyed.acquire('c')];
                for (const call of cleanup) call();
            }
            (await new Mutex().acquire())();
            const [, release] = await new Semaphore(2).acquire();
            release();
            using lock = await (await open(url)).acquire(url);
            await lock.release();
        }
    `);
    write('lint/wrong.ts', `
        import type { Lock } from 'holdfast';
        export function use(lock: Lock): void {
            lock.release();
        }
    `);
    const { status, said } = run(bin('eslint', 'bin/eslint.js'), '--format', 'json', 'lint');
    assert.equal(status, 1, said);
    const found = JSON.parse(said).map(({ filePath, messages }) =>
        [path.basename(filePath), messages.map(({ ruleId, message }) => ruleId ?? message)]);
    assert.deepEqual(Object.fromEntries(found), { 'fine.ts': [],
        'wrong.ts': ['ts/no-floating-promises'] });
});
