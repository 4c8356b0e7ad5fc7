// What `using` and `await using` call. Older Nodes have no such symbols (asyncDispose: before
// 18.18), and code that TypeScript made looks for them here.
'use strict';
for (const name of ['dispose', 'asyncDispose'])
    if (!Symbol[name])
        Object.defineProperty(Symbol, name, { value: Symbol(`Symbol.${name}`) });
const { dispose, asyncDispose } = Symbol;

// No code awaits the result, so a failure is a warning.
function warns(promise) {
    promise.catch((error) => process.emitWarning(error.message,
        { type: 'HoldfastWarning', code: 'HOLDFAST_RELEASE' }));
}

function now() {
    this();
}

async function later() {
    await this();
}

// Makes a releaser: a function that releases, which `using` and `await using` call, too.
function releaser(release) {
    release[dispose] = now;
    release[asyncDispose] = later;
    return release;
}

module.exports = { asyncDispose, dispose, releaser, warns };
