// The errors: one class for each code of the C library that a caller can act on.
'use strict';

class HoldfastError extends Error {
    constructor(code, text, key, cause) {
        super(text, cause && { cause });
        this.code = code;
        this.key = key;
    }
    get text() {
        return this.message;
    }
}
Object.defineProperty(HoldfastError.prototype, 'name', { value: 'HoldfastError' });

function kind(name) {
    const made = { [name]: class extends HoldfastError {} }[name];
    Object.defineProperty(made.prototype, 'name', { value: name });
    return made;
}

const LockUnavailable = kind('LockUnavailable');
const byCode = {
    BUSY: LockUnavailable,
    TIMEOUT: LockUnavailable,
    CANCELED: kind('LockCanceled'),
    LOST: kind('LockLost'),
    UNKNOWN: kind('OutcomeUnknown'),
    UNAVAILABLE: kind('StoreUnavailable'),
    DENIED: kind('PermissionDenied'),
    INVALID: kind('InvalidArgument'),
    RECURSIVE: kind('RecursiveAcquire'),
    UNSUPPORTED: kind('Unsupported'),
    CORRUPT: kind('StoreCorrupt'),
    FULL: kind('StoreFull'),
    NOMEM: HoldfastError,
};

// The library's texts name functions and options as C does; this writes them as JavaScript does
// (wait_ms: wait). The key stands before the last "': " and is left as it is.
function asHere(text) {
    const key = text.lastIndexOf("': ") + 1;
    return text.slice(0, key) + text.slice(key).replace(
        /\b(wait|lease|max_hold|at_least|keep|io_timeout|idle)_ms\b|\bhf_(?=open\b)/g,
        (_, name = '') => name.replace(/_(.)/, (__, letter) => letter.toUpperCase()));
}

function makeError(code, text, key, cause) {
    const said = code === 'INVALID' || code === 'LOST' ? asHere(text) : text;
    return new (byCode[code] ?? HoldfastError)(code, said, key, cause);
}

function copyOf({ code, text, key, cause }) {
    return new (byCode[code] ?? HoldfastError)(code, text, key, cause);
}

// Returns the stack frames above the running function `below`, for an error that is made later,
// when they are gone.
function framesAbove(below) {
    const at = {};
    Error.captureStackTrace(at, below);
    return at;
}

// Gives the error these frames instead of its own, which are those of a timer or of an event.
function withFrames(error, at) {
    const { stack } = at;
    const from = typeof stack === 'string' ? stack.indexOf('\n    at ') : -1;
    if (from < 0) return error;
    const value = `${error.name}: ${error.message}${stack.slice(from)}`;
    Object.defineProperty(error, 'stack', { value, writable: true, configurable: true });
    return error;
}

// Two codes aren't errors of the system: ETIME of LOST says that maxHold has ended the hold, and
// EBUSY of UNAVAILABLE that the store is there, but has no room for the client, or is locked.
const MARKS = ['ETIME', 'EBUSY'];

function systemError(errno) {
    const { errno: numbers } = require('os').constants;
    const code = Object.keys(numbers).find((name) => numbers[name] === errno) ?? `errno ${errno}`;
    if (MARKS.includes(code)) return undefined;
    return Object.assign(new Error(code), { errno: -errno, code });
}

// Makes an error of the plain object that the addon throws (`failure` in src/values.c). The addon
// serves several copies of this module, and the class of an error must be that of the copy that has
// called.
function fromAddon(failure, at) {
    if (typeof failure?.failed !== 'string') return failure;
    const { failed, text, sys, key } = failure;
    const cause = sys > 0 ? systemError(sys) : undefined;
    const said = text || (failed === 'NOMEM' ? 'out of memory' : failed);
    const error = makeError(failed, said, key, cause);
    return at ? withFrames(error, at) : error;
}

const classes = { HoldfastError };
for (const made of Object.values(byCode)) classes[made.prototype.name] = made;

module.exports = { ...classes, byCode, classes, copyOf, framesAbove, fromAddon, makeError,
    withFrames };
