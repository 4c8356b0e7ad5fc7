// The errors: one class for each code of the C library that a caller can act on.
'use strict';

class HoldfastError extends Error {
    constructor(code, text, key) {
        super(text);
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

// The library names options as C does, and takes -1 for Infinity. What a key says isn't touched: it
// stands before that.
function asHere(text) {
    const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
    return text.replace(/: (\w+)_ms: must be (?:-1 (?:\(for ever\) )?or )?([^']*?)(\d?)$/,
        (_, name, limits, last) => `: ${camel(name)}: must be ${limits}${last && `${last} ms`}`)
        .replace(/\b(\w+)_ms( allows)?$/, (_, name, more = '') => camel(name) + more);
}

function makeError(code, text, key) {
    const said = code === 'INVALID' || code === 'LOST' ? asHere(text) : text;
    return new (byCode[code] ?? HoldfastError)(code, said, key);
}

const classes = { HoldfastError };
for (const made of Object.values(byCode)) classes[made.prototype.name] = made;

module.exports = { ...classes, byCode, makeError };
