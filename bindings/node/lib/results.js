// The result of an event, as the store keeps it: a short text. A string is kept as it is, any other
// value as JSON. A string that would be read as JSON is kept as JSON, too, in quotes.
'use strict';

const RESULT_CAP = 256; // HF_RESULT_CAP

// As hf_once_finish makes it: an event that ran must not run again for its text.
function cut(value) {
    const clean = value.slice(0, RESULT_CAP).replace(/\0|\p{Surrogate}/gu, '?');
    const bytes = Buffer.from(clean);
    if (bytes.length < RESULT_CAP) return clean;
    let end = RESULT_CAP - 1;
    while ((bytes[end] & 0xc0) === 0x80) end--;
    return bytes.toString('utf8', 0, end);
}

const fits = (text) => Buffer.byteLength(text) < RESULT_CAP;

function isJson(text) {
    try {
        JSON.parse(text);
        return true;
    } catch {
        return false;
    }
}

function quoted(value) {
    let text = cut(value);
    while (!fits(JSON.stringify(text))) text = text.slice(0, -1).replace(/\p{Surrogate}$/u, '');
    return JSON.stringify(text);
}

function json(value) {
    try {
        return JSON.stringify(value);
    } catch {
        return undefined; // a circle, a BigInt
    }
}

let warned = false;

// Returns the value of a stored text; undefined: only that the event ran was kept.
function textOf(value) {
    if (typeof value === 'string') {
        const text = cut(value);
        return value === '' || isJson(text) ? quoted(value) : text;
    }
    const text = json(value);
    if (text !== undefined && fits(text)) return text;
    if (value !== undefined && !warned) {
        warned = true;
        const why = text === undefined ? 'it is no JSON'
            : `its JSON is longer than ${RESULT_CAP - 1} bytes`;
        process.emitWarning(`what a function under once() returned is not remembered: ${why}`,
            { type: 'HoldfastWarning', code: 'HOLDFAST_RESULT' });
    }
    return undefined;
}

function valueOf(text) {
    if (text === '') return undefined;
    try {
        return JSON.parse(text);
    } catch {
        return text;
    }
}

module.exports = { textOf, valueOf };
