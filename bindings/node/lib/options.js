// Turns the options of the API into what the addon takes (src/values.c).
'use strict';
const { makeError } = require('./errors.js');
const { hint } = require('./hints.js');

const FLAGS = { detached: 1, unqueued: 2, recursive: 4, atMostOnce: 8, noRenew: 16 };
const ACQUIRE = new Set(['wait', 'lease', 'maxHold', 'atLeast', 'shared', 'limit', 'owner', 'note',
    'requestId', 'signal', 'detached', 'unqueued', 'recursive', 'noRenew']);
const ONCE = new Set([...ACQUIRE, 'keep', 'atMostOnce']);
const KEY_CAP = 513; // HF_KEY_CAP
const DAY = 86400000;
const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000, d: DAY, '': 0 };

// A text of the caller's in a message: short, and always one line.
const UNSHOWN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const line = (value, most) => value.slice(0, most).replace(UNSHOWN, '?');

// Returns "acquire 'key'": what was attempted on which key, as in the library's errors.
function who(doing, key) {
    if (typeof key !== 'string' || !key) return doing;
    return `${doing} '${line(key, 100)}'`;
}

function invalid(doing, key, why) {
    return makeError('INVALID', `${who(doing, key)}: ${why}`,
        typeof key === 'string' && key ? key : undefined);
}

// Checks what a store takes as a key, so that a program that moves to a store can keep its keys.
let fine = ''; // the key that was checked last
function checkKey(doing, key) {
    if (key === fine && key) return;
    if (typeof key !== 'string') throw invalid(doing, undefined, 'key: must be a string');
    if (!key) throw invalid(doing, undefined, 'key: is empty');
    if (key.length * 3 >= KEY_CAP && Buffer.byteLength(key) >= KEY_CAP)
        throw invalid(doing, key, `key: longer than ${KEY_CAP - 1} bytes`);
    if (/\p{Cc}/u.test(key)) throw invalid(doing, key, 'key: control character');
    if (/\p{Cs}/u.test(key)) throw invalid(doing, key, 'key: half of a surrogate pair');
    fine = key;
}

const shown = (value) => (value !== null && /^(object|function)$/.test(typeof value)
    ? typeof value : line(String(value), 40));

// Returns milliseconds, from a number of them, or from a text with a unit: '500ms', '10s', '1.5h',
// '7d'. A text without a unit is refused: the command takes it for seconds, and a number is
// milliseconds here.
function milliseconds(value, name, doing, key) {
    if (typeof value === 'number' && value >= 0) return Math.ceil(value);
    const match = typeof value === 'string' && /^(\d+\.?\d*|\.\d+)(ms|s|m|h|d|)$/.exec(value);
    const some = match && /[1-9]/.test(match[1]);
    if (some && !match[2])
        throw invalid(doing, key, `${name}: '${shown(value)}' has no unit: write ` +
            `'${shown(value)}s' or '${shown(value)}ms', or a number of milliseconds`);
    // Takes off a thousandth that comes only from how fractions are stored.
    if (match) return Math.ceil((match[1] * UNITS[match[2]]).toFixed(3)) || (some ? 1 : 0);
    throw invalid(doing, key, `${name}: '${shown(value)}' is not a time: ` +
        "milliseconds, or a text such as '500ms', '10s', '5m', '1.5h' or '7d'");
}

// The ranges are those of the command, and for ioTimeout that of hf_open. For lease, maxHold and
// ioTimeout the library takes 0 for "not given", so there a caller's 0 is refused. Only the number
// Infinity means "for ever", where that is allowed.
const LIMITS = {
    wait: [0, 365 * DAY, '0s to 365d, or not given', Infinity],
    lease: [100, DAY, '100ms to 1d, or not given'],
    maxHold: [1, 365 * DAY, '1ms to 365d, or not given'],
    atLeast: [0, DAY, '0s to 1d'],
    keep: [1, 36500 * DAY, '1ms to 36500d, or Infinity', Infinity],
    ioTimeout: [100, 3600000, '100ms to 1h, or not given'],
    idle: [60000, 36500 * DAY, '60s to 36500d'],
};

// Does the same for one of these options.
function time(value, name, doing, key) {
    const [least, most, range, endless = NaN] = LIMITS[name];
    if (value === endless) return value;
    const ms = milliseconds(value, name, doing, key);
    if (ms >= least && ms <= most) return ms;
    const unit = typeof value === 'number' ? ' ms' : '';
    throw invalid(doing, key,
        `${name}: '${shown(value)}${unit}' is out of range: it must be ${range}`);
}

// Refuses an array, a Map, a promise or an AbortSignal as options: they have none of the members,
// so all options would silently have their defaults.
function isOptions(options, doing, key) {
    if (Object.prototype.toString.call(options) === '[object Object]') return options;
    throw invalid(doing, key, 'the options are no plain object');
}

function known(options, names, doing, key, where = '') {
    isOptions(options, doing, key);
    for (const name of Object.keys(options)) {
        if (names.has(name)) continue;
        const right = hint(name, names, doing);
        throw invalid(doing, key, `no option '${line(name, 40)}'${where}` +
            (right ? `: write ${right}` : ''));
    }
}

// Checks all options before anything is requested, so that no mistake is found in the middle.
function signalOf(signal, doing, key) {
    if (signal === undefined) return undefined;
    // It isn't recognized by its class, because an object of another realm has another class.
    if (signal?.[Symbol.toStringTag] === 'AbortSignal' && typeof signal.aborted === 'boolean' &&
        typeof signal.addEventListener === 'function' &&
        typeof signal.removeEventListener === 'function')
        return signal;
    throw invalid(doing, key, 'signal: must be an AbortSignal');
}

// Refuses a generator function: its body would run when its values are asked for, after the key was
// released.
function callable(fn, doing, key) {
    if (typeof fn !== 'function') throw invalid(doing, key, 'fn: must be a function');
    const tag = fn[Symbol.toStringTag];
    if (tag === 'GeneratorFunction' || tag === 'AsyncGeneratorFunction')
        throw invalid(doing, key, 'fn: a generator function would run after the key is given back');
}

function tokenOf(token, doing, key) {
    if (!Number.isSafeInteger(token) || token < 1)
        throw invalid(doing, key, 'token: must be an integer from 1 on');
    return token;
}

function flag(options, name, doing, key) {
    const value = options[name];
    if (value !== undefined && typeof value !== 'boolean')
        throw invalid(doing, key, `${name}: must be true or false`);
    return value;
}

function requestId(value, doing, key) {
    if (value === undefined) return undefined;
    if (typeof value === 'string' && /^[0-9a-f]{32}$/i.test(value))
        return new Uint8Array(Buffer.from(value, 'hex'));
    // It isn't recognized by its class, because an object of another realm has another class.
    if (ArrayBuffer.isView(value) && value.length === 16 &&
        /^\[object Uint8Array\]$/.test(Object.prototype.toString.call(value)))
        return new Uint8Array(value); // a Buffer is an Uint8Array of another class
    throw invalid(doing, key, 'requestId: must be 16 bytes, or 32 hexadecimal digits');
}

// Checks a text that the store shows; the library checks it, too.
function text(value, name, most, doing, key) {
    if (value === undefined) return undefined;
    if (typeof value !== 'string') throw invalid(doing, key, `${name}: must be a string`);
    if (/[\0\p{Cs}]/u.test(value))
        throw invalid(doing, key, `${name}: contains a NUL, or half of a surrogate pair`);
    if (Buffer.byteLength(value) > most)
        throw invalid(doing, key, `${name}: longer than ${most} bytes`);
    return value;
}

// Returns the wait alone if there are no other options (the fast path), otherwise an array.
function wanted(options, doing, key, names = ACQUIRE) {
    if (options === undefined) return Infinity;
    known(options, names, doing, key);
    const { wait, lease, maxHold, atLeast, limit, owner, note } = options;
    const inMs = (value, name) => (value === undefined ? 0 : time(value, name, doing, key));
    signalOf(options.signal, doing, key);
    const shared = flag(options, 'shared', doing, key);
    const ms = wait === undefined ? Infinity : inMs(wait, 'wait');
    let flags = 0;
    for (const name in FLAGS) if (flag(options, name, doing, key)) flags |= FLAGS[name];
    if (shared && limit !== undefined) throw invalid(doing, key, 'both shared and limit');
    if (limit !== undefined && !(Number.isInteger(limit) && limit > 0 && limit <= 1000))
        throw invalid(doing, key, 'limit: must be 1 to 1,000');
    const id = requestId(options.requestId, doing, key);
    if (!flags && lease === undefined && maxHold === undefined && atLeast === undefined &&
        !shared && limit === undefined && owner === undefined && note === undefined && !id)
        return ms;
    const mode = shared ? 1 : limit !== undefined ? 2 : 0;
    return [ms, inMs(lease, 'lease'), inMs(maxHold, 'maxHold'), inMs(atLeast, 'atLeast'), mode,
        limit ?? 0, flags, owner, note, id];
}

module.exports = { ACQUIRE, FLAGS, ONCE, callable, checkKey, invalid, isOptions, known, signalOf,
    milliseconds, shown, text, time, tokenOf, wanted, who };
