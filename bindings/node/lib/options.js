// Options as people write them, made into what the addon takes (src/values.c).
'use strict';
const { makeError } = require('./errors.js');

const FLAGS = { detached: 1, unqueued: 2, recursive: 4, atMostOnce: 8, noRenew: 16 };
const ACQUIRE = new Set(['wait', 'lease', 'maxHold', 'atLeast', 'shared', 'limit', 'owner', 'note',
    'requestId', 'signal', 'detached', 'unqueued', 'recursive', 'noRenew']);
const ONCE = new Set([...ACQUIRE, 'keep', 'atMostOnce']);
const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000, '': 1000 };

function invalid(text) {
    return makeError('INVALID', text);
}

// Milliseconds: a number of them, or a text as the command takes it: '500ms', '10s', '1.5h',
// '7d'; there a number alone is seconds.
function time(value, name) {
    if (typeof value === 'number' && value >= 0) return Math.ceil(value);
    const match = typeof value === 'string' && /^(\d+\.?\d*|\.\d+)(ms|s|m|h|d|)$/.exec(value);
    // What is a thousandth too much by the way in which fractions are kept isn't meant.
    if (match) return Math.ceil(Number((match[1] * UNITS[match[2]]).toFixed(3)));
    throw invalid(`${name} '${String(value)}': not a time: milliseconds, or a text such as ` +
        "'500ms', '10s', '5m', '1.5h' or '7d'");
}

function known(options, names, doing) {
    if (typeof options !== 'object' || options === null)
        throw invalid(`${doing}: the options are no object`);
    for (const name of Object.keys(options))
        if (!names.has(name)) throw invalid(`${doing}: no option '${name}'`);
}

function requestId(value) {
    if (value === undefined) return undefined;
    if (typeof value === 'string' && /^[0-9a-f]{32}$/i.test(value))
        return new Uint8Array(Buffer.from(value, 'hex'));
    if (value instanceof Uint8Array && value.length === 16)
        return new Uint8Array(value); // a Buffer is one of another class
    throw invalid('requestId: must be 16 bytes, or 32 hexadecimal digits');
}

// The wait alone where there is nothing else (the fast way), or an array.
function wanted(options, doing = 'acquire', names = ACQUIRE) {
    if (options === undefined) return Infinity;
    known(options, names, doing);
    const { wait, lease, maxHold, atLeast, shared, limit, owner, note } = options;
    const ms = wait === undefined ? Infinity : time(wait, 'wait');
    let flags = 0;
    for (const name in FLAGS) if (options[name]) flags |= FLAGS[name];
    if (shared && limit !== undefined) throw invalid(`${doing}: both shared and limit`);
    if (limit !== undefined && !(Number.isInteger(limit) && limit > 0 && limit <= 1000))
        throw invalid(`${doing}: limit: must be 1 to 1,000`);
    const id = requestId(options.requestId);
    if (!flags && lease === undefined && maxHold === undefined && atLeast === undefined &&
        !shared && limit === undefined && owner === undefined && note === undefined && !id)
        return ms;
    const mode = shared ? 1 : limit !== undefined ? 2 : 0;
    return [ms, lease === undefined ? 0 : time(lease, 'lease'),
        maxHold === undefined ? 0 : time(maxHold, 'maxHold'),
        atLeast === undefined ? 0 : time(atLeast, 'atLeast'), mode, limit ?? 0, flags, owner, note,
        id];
}

module.exports = { ACQUIRE, FLAGS, ONCE, invalid, known, time, wanted };
