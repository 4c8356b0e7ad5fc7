// The declared types: programs that use them are checked by tsc, and then run, as modules of both
// kinds; what is declared is what is there.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const package_ = path.join(__dirname, '..');
const modules = process.env.NODE_PATH;
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'holdfast-types.'));
test.after(() => fs.rmSync(dir, { recursive: true }));

function run(...args) {
    const done = spawnSync(process.execPath, args, { cwd: dir, encoding: 'utf8' });
    return { status: done.status, said: done.stdout + done.stderr };
}

test('tsc has nothing to say', () => {
    fs.mkdirSync(path.join(dir, 'node_modules'));
    fs.symlinkSync(package_, path.join(dir, 'node_modules', 'holdfast'));
    for (const name of ['use.cts', 'use.mts'])
        fs.copyFileSync(path.join(__dirname, 'types', name), path.join(dir, name));
    const { status, said } = run(path.join(modules, 'typescript', 'bin', 'tsc'), '--strict',
        '--target', 'es2022', '--lib', 'es2022,esnext.disposable', '--module', 'node16',
        '--typeRoots', path.join(modules, '@types'), '--types', 'node', '--preserveSymlinks',
        '--exactOptionalPropertyTypes', 'use.cts', 'use.mts');
    assert.equal(status, 0, said);
});

for (const resolution of ['node', 'node16']) {
    test(`TypeScript 4.7, the oldest, resolving as ${resolution}: nothing either`, () => {
        fs.copyFileSync(path.join(__dirname, 'types', 'oldest.ts'), path.join(dir, 'oldest.ts'));
        fs.writeFileSync(path.join(dir, 'tsconfig.json'), JSON.stringify({ files: ['oldest.ts'],
            compilerOptions: { noEmit: true, strict: true, preserveSymlinks: true,
                target: 'es2020', lib: ['es2020', 'dom'], types: [],
                module: resolution === 'node' ? 'commonjs' : 'node16',
                moduleResolution: resolution } }));
        const tsc = path.join(modules, 'typescript-oldest');
        assert.match(require(path.join(tsc, 'package.json')).version, /^4\.7\./);
        const { status, said } = run(path.join(tsc, 'bin', 'tsc'), '-p', dir);
        assert.equal(status, 0, said);
    });
}

// The declared types of async-mutex; and ours, for a program that has replaced it.
const peers = { 'async-mutex': path.join(modules, 'async-mutex'),
    'holdfast/mutex': path.join(package_, 'mutex.d.ts') };
for (const [peer, place] of Object.entries(peers)) {
    for (const compiler of ['typescript', 'typescript-oldest']) {
        test(`a program for the types of async-mutex: those of ${peer}, ${compiler}`, () => {
            fs.copyFileSync(path.join(__dirname, 'types', 'drop_in.ts'),
                path.join(dir, 'drop_in.ts'));
            fs.writeFileSync(path.join(dir, 'tsconfig.json'), JSON.stringify({
                files: ['drop_in.ts'], compilerOptions: { noEmit: true, strict: true,
                    noImplicitOverride: true, noUncheckedIndexedAccess: true, target: 'es2021',
                    lib: ['es2021', 'dom'], types: [], module: 'commonjs',
                    moduleResolution: 'node', paths: { 'async-mutex': [place] } } }));
            const { status, said } = run(path.join(modules, compiler, 'bin', 'tsc'), '-p', dir);
            assert.equal(status, 0, said);
        });
    }
}

for (const name of ['use.cjs', 'use.mjs']) {
    test(`${name} runs`, () => {
        const { status, said } = run('--preserve-symlinks', name);
        assert.equal(status, 0, said);
        assert.match(said, /done\n$/);
    });
}

test('what is declared is exported, by both kinds of module, and nothing else', async () => {
    for (const [declared, cjs, esm] of [['index.d.ts', '../lib/index.js', '../lib/index.mjs'],
        ['mutex.d.ts', '../lib/mutex.js', '../lib/mutex.mjs']]) {
        const text = fs.readFileSync(path.join(package_, declared), 'utf8') +
            (declared === 'index.d.ts' ? fs.readFileSync(path.join(package_, 'mutex.d.ts'), 'utf8')
                : '');
        const names = [...text.matchAll(/^export (?:class|function|const) (\w+)/gm)]
            .map((match) => match[1]);
        const sorted = [...new Set(names)].sort();
        assert.deepEqual(Object.keys(require(cjs)).sort(), sorted);
        const { default: all, ...named } = await import(esm);
        assert.deepEqual(Object.keys(named).sort(), sorted);
        assert.equal(all, require(cjs));
    }
});

// The codes are read from the C header, which the packages follow.
const header = fs.readFileSync(path.join(package_, '..', '..', 'include', 'holdfast.h'), 'utf8');
const camel = (name) => name.toLowerCase().replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const types = fs.readFileSync(path.join(package_, 'index.d.ts'), 'utf8');
const interfaceOf = (name) => [...new RegExp(`interface ${name}[^{]*{([^}]*)}`).exec(types)[1]
    .matchAll(/^ {4}(\w+)\??:/gm)].map((match) => match[1]);

test('the codes are those of holdfast.h', () => {
    const { byCode } = require('../lib/errors.js');
    const codes = [...header.matchAll(/^ {4}X\((\w+), +-\d/gm)].map((match) => match[1]);
    assert.deepEqual(Object.keys(byCode).sort(), [...codes].sort());
    const declared = /export type Code =([^;]*);/.exec(types)[1].match(/\w+/g);
    assert.deepEqual(declared.sort(), codes.sort());
});

const FIELDS = ['token', 'key', 'code', 'url', 'version'];
test('each function of holdfast.h has a name here, or a reason why not', () => {
    const holdfast = require('../lib/index.js');
    const { about, ...names } = require('../../names.json');
    const functions = [...header.matchAll(/^HF_API [^;]*?\b(hf_\w+)\(/gm)].map((match) => match[1]);
    assert.ok(functions.length > 30 && about);
    assert.deepEqual(Object.keys(names), functions);
    const declared = (name) => new RegExp(`class ${name} [^{]*{(.*?)^}`, 'ms').exec(types)[1];
    for (const [name] of Object.values(names)) {
        const [, owner, member] = /^(?:([A-Z]\w+)\.)?(\w+)$/.exec(name) ?? [];
        if (!member) continue;
        if (!owner) assert.ok(member in holdfast, name);
        else assert.match(declared(owner), new RegExp(`^ {4}(readonly )?${member}[(<:]`, 'm'));
        if (owner && !FIELDS.includes(member)) // fields of an object
            assert.ok(member in holdfast[owner].prototype, name);
    }
});

test('the flags are those of holdfast.h', () => {
    const { FLAGS } = require('../lib/options.js');
    const flags = Object.fromEntries([...header.matchAll(/^ {4}HF_(\w+) = (\d+),?$/gm)]
        .filter(([line]) => !/EXCLUSIVE|SHARED|LIMITED|OPEN/.test(line))
        .map(([, name, value]) => [camel(name.replace('ALLOW_', '')), Number(value)]));
    assert.equal(Object.keys(flags).length, 5);
    assert.deepEqual(FLAGS, flags);
});

test('the options are those of holdfast.h', () => {
    const { ACQUIRE, FLAGS, ONCE } = require('../lib/options.js');
    const fields = (name) => [...new RegExp(`typedef struct ${name} {([^}]*)}`).exec(header)[1]
        .matchAll(/^ {4}\w[\w ]*?\*?(\w+);/gm)].map((match) => match[1].replace(/_ms$/, ''));
    const options = fields('hf_options').filter((name) => !['size', 'flags'].includes(name))
        .map((name) => (name === 'mode' ? 'shared' : camel(name)));
    const expected = [...options, 'signal',
        ...Object.keys(FLAGS).filter((name) => name !== 'atMostOnce')].sort();
    assert.deepEqual([...ACQUIRE].sort(), expected);
    assert.deepEqual(interfaceOf('AcquireOptions').sort(), expected);
    assert.deepEqual([...ONCE].sort(), [...expected, 'atMostOnce', 'keep'].sort());
    assert.deepEqual(interfaceOf('OpenOptions').sort(), fields('hf_open_options')
        .filter((name) => name !== 'size').map(camel).concat('onSignals')
        .map((name) => (name === 'flags' ? 'existing' : name)).sort());
});

test('the counts are those of holdfast.h', async () => {
    const store = await require('../lib/index.js').open('mem:types');
    const fields = /typedef struct hf_stats {([^}]*)}/.exec(header)[1].replace(/\/\*.*?\*\//gs, '')
        .split(';').slice(1)
        .flatMap((line) => line.replace(/^\s*uint\d+_t/, '').match(/\w+/g) ?? [])
        .map((name) => (name === 'wait_us_total' ? 'waitMs' : camel(name)));
    assert.deepEqual(Object.keys(store.stats()).sort(), fields.sort());
    assert.deepEqual(interfaceOf('Stats').sort(), fields.sort());
    await store.close();
});
