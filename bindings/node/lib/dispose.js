// What `using` and `await using` call. Older Nodes have no such symbols (asyncDispose: before
// 18.18), and code that TypeScript made looks for them here.
'use strict';
for (const name of ['dispose', 'asyncDispose'])
    if (!Symbol[name])
        Object.defineProperty(Symbol, name, { value: Symbol(`Symbol.${name}`) });
const { dispose, asyncDispose } = Symbol;

// Nobody waits for it: what goes wrong is a warning.
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

// A function that gives back, which `using` and `await using` call, too.
function releaser(release) {
    release[dispose] = now;
    release[asyncDispose] = later;
    return release;
}

module.exports = { asyncDispose, dispose, releaser, warns };
