// Several keys at once: all or none, in one order, within one time.
'use strict';
const { asyncDispose, dispose, warns } = require('./dispose.js');
const { HoldfastError, LockLost, framesAbove, makeError, withFrames } = require('./errors.js');
const { checkKey, invalid, isOptions, time } = require('./options.js');
const { onAbort } = require('./signals.js');

const KEYS_CAP = 64; // that of hf_acquire_all

// The locks, in the order in which their keys were asked for.
class Locks extends Array {
    #controller;

    static get [Symbol.species]() {
        return Array;
    }

    // Aborts when one of the locks is lost, or with the signal in the options.
    get signal() {
        const fresh = !this.#controller;
        const controller = this.#controller ??= new AbortController();
        for (const { signal } of this) {
            if (signal.aborted) controller.abort(signal.reason);
            else if (fresh) onAbort(signal, () => controller.abort(signal.reason));
        }
        return controller.signal;
    }

    async #each(end) {
        const ends = await Promise.allSettled([...this].reverse().map(end));
        const errors = ends.filter(({ reason }) => reason).map(({ reason }) => reason);
        if (errors.length) throw errors.find((error) => error instanceof LockLost) ?? errors[0];
    }

    // Releases all of them, even if one fails. Rejects with the first loss.
    release() {
        return this.#each((lock) => lock.release());
    }

    leave() {
        return this.#each((lock) => lock.leave());
    }

    [asyncDispose]() {
        return this.release();
    }

    [dispose]() {
        warns(this.release());
    }
}

// Every caller acquires several keys in the order of their bytes, so that no two wait for each
// other in a circle.
function inOrder(keys, doing) {
    if (!Array.isArray(keys) || keys.length < 1 || keys.length > KEYS_CAP)
        throw invalid(doing, undefined, `the keys: must be an array of 1 to ${KEYS_CAP}`);
    for (const key of keys) checkKey(doing, key);
    const order = keys.map((key) => ({ key, bytes: Buffer.from(key) }))
        .sort((a, b) => Buffer.compare(a.bytes, b.bytes)).map(({ key }) => key);
    const twice = order.find((key, i) => key === order[i - 1]);
    if (twice !== undefined) throw invalid(doing, twice, 'named twice');
    return order;
}

// One limit for all keys. At least 1 ms is left for each, so that a free key is obtained.
function ending(wait, doing) {
    const ms = wait === undefined ? Infinity : time(wait, 'wait', doing);
    const end = performance.now() + ms;
    return () => (ms === 0 || ms === Infinity ? ms
        : Math.max(1, Math.ceil(end - performance.now())));
}

async function acquireAll(store, keys, options = {}, doing = 'acquire') {
    const { atLeast, wait, ...how } = isOptions(options, doing);
    // at_least is refused: a key that is released because a later one wasn't obtained would stay
    // taken.
    if (atLeast !== undefined) throw invalid(doing, undefined, 'atLeast: of one key only');
    const order = inOrder(keys, doing), left = ending(wait, doing);
    const at = framesAbove(acquireAll), got = new Map();
    try {
        for (const key of order) got.set(key, await store.acquire(key, { ...how, wait: left() }));
        // If the other keys took long, the first lock may be lost by now.
        const lost = [...got.values()].find((lock) => order.length > 1 && lock.leftMs === 0);
        if (lost)
            throw makeError('LOST', `${doing} '${lost.key}': it was lost while the others were ` +
                'waited for', lost.key);
    } catch (error) {
        const released = new Locks(...got.values()).release().catch(() => {});
        if (how.signal?.aborted && error === how.signal.reason) throw error; // at once
        await released;
        throw error instanceof HoldfastError ? withFrames(error, at) : error;
    }
    return Locks.from(keys, (key) => got.get(key));
}

module.exports = { Locks, acquireAll };
