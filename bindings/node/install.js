// Builds the addon, and the C library with those of its drivers whose own libraries are there.
//
//   HOLDFAST_FROM=checkout   from the checkout that this package lies in (the default there)
//   HOLDFAST_FROM=system     against the installed library, as pkg-config finds it
//   node install.js --tests BUILD OUT [FLAG...]   for the tests: against a build, with more flags
'use strict';
const { execFileSync } = require('child_process');
const fs = require('fs');
const path = require('path');

const here = __dirname;
const top = path.resolve(here, '..', '..');
const out = path.join(here, 'build');

function die(text) {
    console.error(`holdfast: ${text}`);
    process.exit(1);
}

// A command whose output is shown when it fails.
function run(command, args, options = {}) {
    try {
        return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'],
            maxBuffer: 1 << 26, ...options });
    } catch (error) {
        console.error(`${error.stdout ?? ''}${error.stderr ?? ''}`.trim());
        if (error.code === 'ENOENT')
            die(`${command} is missing: it takes gcc, pkg-config, meson and ninja to build this ` +
                '(tools/setup build)');
        return die(`${[command, ...args].join(' ')} failed`);
    }
}

// Finds Node-API's headers. With `npm link` npm leaves it to the folder to install its
// dependencies.
function headers() {
    try {
        return require('node-api-headers').include_dir;
    } catch {
        const npm = process.env.npm_execpath;
        const args = ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'];
        const { npm_config_global: _, ...env } = process.env;
        run(npm ? process.execPath : 'npm', npm ? [npm, ...args] : args, { cwd: here, env });
        return require('node-api-headers').include_dir;
    }
}

// Builds the addon itself. It is put into place whole, or not at all.
function addon(target, flags) {
    const include = headers();
    const sources = fs.readdirSync(path.join(here, 'src')).filter((name) => name.endsWith('.c'))
        .map((name) => path.join(here, 'src', name));
    const part = `${target}.${process.pid}`;
    const [cc, ...words] = (process.env.CC || 'cc').trim().split(/\s+/); // `ccache cc` is two
    run(cc, [...words, '-std=c11', '-D_GNU_SOURCE', '-DNAPI_VERSION=8', '-O2', '-g',
        '-Wall', '-Wextra', '-fPIC', '-fvisibility=hidden', '-pthread', '-shared',
        `-I${include}`, '-o', part, ...sources, ...flags, '-ldl']);
    fs.renameSync(part, target);
}

// Builds the library and its drivers, side by side, where the library looks for them.
function fromCheckout() {
    const build = path.join(out, 'c');
    if (!fs.existsSync(path.join(build, 'build.ninja'))) {
        fs.rmSync(build, { recursive: true, force: true });
        run('meson', ['setup', build, top, '-Dtests=false', '-Db_ndebug=true']);
    }
    const files = JSON.parse(run('meson', ['introspect', build, '--targets']))
        .filter((target) => /^shared/.test(target.type) && /^holdfast(-|$)/.test(target.name))
        .map((target) => target.filename[0]);
    run('ninja', ['-C', build, ...files.map((file) => path.relative(build, file))]);
    for (const file of files) {
        const name = path.basename(file).replace(/(\.so\.\d+)\..*/, '$1'); // as its users name it
        fs.copyFileSync(file, path.join(out, `${name}.${process.pid}`));
        fs.renameSync(path.join(out, `${name}.${process.pid}`), path.join(out, name));
    }
    addon(path.join(out, 'holdfast.node'), [`-I${path.join(top, 'include')}`,
        path.join(out, 'libholdfast.so.0'), '-Wl,-rpath,$ORIGIN']);
    const drivers = files.map((file) => /holdfast-(.*)\.so/.exec(file)?.[1]).filter(Boolean);
    console.log(`holdfast: built with the stores ${['mem', 'file', ...drivers].join(' ')}`);
}

function fromSystem() {
    const flags = run('pkg-config', ['--cflags', '--libs', 'holdfast']).trim().split(/\s+/);
    const lib = run('pkg-config', ['--variable=libdir', 'holdfast']).trim();
    addon(path.join(out, 'holdfast.node'), [...flags, `-Wl,-rpath,${lib}`]);
}

const [mode, build, to, ...flags] = process.argv.slice(2);
const from = process.env.HOLDFAST_FROM ||
    (fs.existsSync(path.join(top, 'include', 'holdfast.h')) ? 'checkout' : 'system');
if (mode === '--tests') {
    addon(to, [`-I${path.join(top, 'include')}`, path.join(build, 'libholdfast.so'),
        `-Wl,-rpath,${build}`, '-Wconversion', '-Wshadow', '-Werror', ...flags]);
} else {
    fs.mkdirSync(out, { recursive: true });
    if (from === 'checkout') fromCheckout();
    else if (from === 'system') fromSystem();
    else die(`HOLDFAST_FROM is '${from}': must be checkout or system`);
}
