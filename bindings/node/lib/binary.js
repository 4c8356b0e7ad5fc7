// Where the addon is: named by HOLDFAST_ADDON, built in this package (a checkout), or in the
// package of this platform, which npm installs beside this one.
'use strict';
const fs = require('fs');
const { createRequire } = require('module');
const path = require('path');

const PLATFORMS = ['linux-x64', 'linux-arm64'];
const ALONE = 'Mutexes of one process (holdfast/mutex) work without';

// Returns the C library that this Node runs on: 'gnu' or 'musl'. The report leaves out the
// network's interfaces, which could take long.
function libc() {
    const { report } = process;
    const had = report.excludeNetwork;
    report.excludeNetwork = true;
    try {
        return report.getReport().header.glibcVersionRuntime ? 'gnu' : 'musl';
    } finally {
        report.excludeNetwork = had;
    }
}

// A bundle that is an ES module has no __dirname: it searches from the program's working directory.
const here = typeof __dirname === 'string' ? __dirname : process.cwd();

function resolve(name, folder) {
    try {
        return createRequire(path.join(folder, 'index.js')).resolve(name);
    } catch {
        return undefined;
    }
}

// Returns the folder of this package; undefined: a bundle contains its JavaScript, and it isn't
// installed.
function home() {
    const folder = typeof __dirname === 'string' ? path.join(here, '..') : here;
    try {
        const { name } = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));
        if (name === 'holdfast') return folder;
    } catch {
        // it is the folder of a bundle
    }
    const installed = resolve('holdfast/package.json', here);
    return installed && path.dirname(installed);
}

// Returns { file, advice }: the addon, or no file; and what to do if it can't be loaded.
function locate() {
    const rebuild = 'Run `npm rebuild holdfast`: it takes gcc, pkg-config, meson and ninja, and ' +
        `with --ignore-scripts npm builds nothing. ${ALONE}`;
    if (process.env.HOLDFAST_ADDON) return { file: process.env.HOLDFAST_ADDON, advice: rebuild };
    const top = home();
    // Only a checkout can build it.
    if (top && fs.existsSync(path.join(top, 'install.js')))
        return { file: path.join(top, 'build', 'holdfast.node'), advice: rebuild };
    const platform = `${process.platform}-${process.arch}`;
    if (!PLATFORMS.includes(platform)) {
        return { why: `there is no binary for ${platform}`,
            advice: `Stores can be opened on ${PLATFORMS.join(' and ')}. ${ALONE}` };
    }
    const name = `holdfast-${platform}-${libc()}`;
    const binary = `${name}/holdfast.node`; // with pnpm, only the package itself sees it
    const file = (top && resolve(binary, top)) ?? resolve(binary, here);
    return { file, why: `the package ${name} isn't installed`,
        advice: 'npm installs it as an optional dependency, but not with --omit=optional, and ' +
            'not into a node_modules that was installed on another system. Run `npm install ' +
            `${name}@${require('../package.json').version}\`. ${ALONE}` };
}

module.exports = { locate };
