// The addon, loaded when the first store is opened: what needs no store works without it.
'use strict';
const { locate } = require('./binary.js');
const { framesAbove, fromAddon, makeError } = require('./errors.js');

// The addon's functions, once it is loaded.
const native = {};

async function settled(promise, at) {
    try {
        return await promise;
    } catch (failure) {
        throw fromAddon(failure, at);
    }
}

// The functions that a holder calls over and over. Capturing stack frames takes half as long as a
// wait, so an error of these functions has the frames of the code that awaits it.
const OFTEN = new Set(['release', 'renew', 'confirm', 'enter', 'finish']);

// Wraps a function of the addon: its failures become errors of this copy of the module, with the
// frames of the call. The promise of `start` is left to its caller (lib/store.js), because there
// may be very many.
function wrapped(call, name) {
    const captures = !OFTEN.has(name), raw = name === 'start';
    return function ask(...args) {
        let got;
        try {
            got = call(...args);
        } catch (failure) {
            throw fromAddon(failure);
        }
        if (raw || typeof got?.then !== 'function') return got;
        return settled(got, captures ? framesAbove(ask) : undefined);
    };
}

function unavailable({ file, why, advice }, error) {
    if (!file)
        return makeError('UNSUPPORTED', `open: the addon is missing: ${why}. ${advice}`);
    const missing = error.code === 'MODULE_NOT_FOUND';
    const said = missing ? 'it was not built when the package was installed'
        : error.message.split('\n')[0];
    return makeError('UNSUPPORTED', `open: the addon cannot be loaded from ${file}: ${said}. ` +
        advice, undefined, error);
}

// Loads the addon. Does nothing after that has succeeded.
function load() {
    if (native.open) return;
    const found = locate();
    if (!found.file) throw unavailable(found);
    let addon;
    try {
        addon = require(found.file);
    } catch (error) {
        throw unavailable(found, error);
    }
    for (const [name, value] of Object.entries(addon))
        native[name] = typeof value === 'function' ? wrapped(value, name) : value;
}

module.exports = Object.defineProperty(native, 'load', { value: load });
