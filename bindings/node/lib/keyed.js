// A mutex for each key: of this process, or of a store.
'use strict';
const { asyncDispose, releaser, warns } = require('./dispose.js');
const { HoldfastError, copyOf, framesAbove, makeError, withFrames } = require('./errors.js');
const { NONE, State, asked } = require('./line.js');
const { callable, checkKey, invalid, isOptions, signalOf, text, time } = require('./options.js');
const { offAbort, onAbort } = require('./signals.js');

// The library's limits: HF_OWNER_CAP and HF_NOTE_CAP without the NUL, HF_OWNER_ENDED.
const OWNER_CAP = 127, NOTE_CAP = 255, ENDED = '(ended)';
const LOCAL = new Set(['wait', 'signal', 'priority', 'lease', 'owner', 'note']);

// Checks the key, too, and the options that only a store uses, so that a program that moves to a
// store has them right.
function wanted(key, options) {
    checkKey('acquire', key);
    const how = asked(options, key, LOCAL, ' without a store');
    if (how === NONE) return how;
    const { lease, owner, note } = options;
    if (lease !== undefined) time(lease, 'lease', 'acquire', key);
    if (text(owner, 'owner', OWNER_CAP, 'acquire', key) === '')
        throw invalid('acquire', key, `owner: must have 1 to ${OWNER_CAP} bytes`);
    if (owner === ENDED)
        throw invalid('acquire', key,
            `owner: '${ENDED}' is what rows show for a hold that has ended`);
    text(note, 'note', NOTE_CAP, 'acquire', key);
    return how;
}

// Makes the error of a timeout. It isn't called for a wait without a limit.
const lateFor = (key, how) => (how === NONE ? undefined
    : (now, at) => (now ? makeError('BUSY', `acquire '${key}': held by another`, key)
        : withFrames(makeError('TIMEOUT', `acquire '${key}': not obtained within ${how.wait} ms`,
            key), at)));

const closed = (key) => makeError('CANCELED', `acquire '${key}': the mutex is closed`, key);

// A lock for each key, within this process.
class Local {
    #keys = new Map();
    #idle; // the lock that became idle last: its key is often wanted again next
    #closed = false;
    #leave = (state) => {
        if (this.#idle && this.#idle !== state && !this.#idle.held)
            this.#keys.delete(this.#idle.key);
        this.#idle = state;
    };

    get size() {
        return this.#keys.size - (this.#idle && !this.#idle.held ? 1 : 0);
    }

    #state(key) {
        let state = this.#keys.get(key);
        if (this.#closed) throw closed(key);
        if (!state) this.#keys.set(key, state = new State(this.#leave, key));
        return state;
    }

    async acquire(key, options) {
        const how = wanted(key, options);
        if (how.signal?.aborted) throw how.signal.reason;
        const state = this.#state(key);
        const grant = await state.enter(how, lateFor(key, how));
        return () => state.giveBack(grant);
    }

    runExclusive(key, fn, options) {
        try {
            callable(fn, 'runExclusive', key);
            const how = wanted(key, options);
            if (how.signal?.aborted) throw how.signal.reason;
            return this.#state(key).run(fn, how, lateFor(key, how));
        } catch (error) {
            return Promise.reject(error);
        }
    }

    async waitForUnlock(key, options) {
        const how = wanted(key, options);
        if (this.#closed) throw closed(key);
        await this.#keys.get(key)?.watch(how, lateFor(key, how));
    }

    isLocked(key) {
        return this.#keys.get(key)?.held ?? false;
    }

    async release(key) {
        const state = this.#keys.get(key);
        if (state?.held) state.pass();
    }

    cancel(key) {
        const why = (name) => makeError('CANCELED', `acquire '${name}': given up by the caller`,
            name);
        for (const state of key === undefined ? [...this.#keys.values()] : [this.#keys.get(key)])
            state?.cancel(why);
    }

    async close() {
        this.#closed = true;
        for (const state of [...this.#keys.values()]) state.end(closed);
    }
}

// Settles as the promise does, or rejects when the signal aborts.
function unlessAborted(promise, signal) {
    return new Promise((resolve, reject) => {
        const abort = () => reject(signal.reason);
        onAbort(signal, abort);
        promise.then(resolve, reject).finally(() => offAbort(signal, abort));
    });
}

// A lock for each key, by the locks of a store, which is opened at the first request.
class Stored {
    #open;
    #closed; // a promise, once close was called
    #store; // a promise
    #opened; // the store, once the promise is resolved
    #locks = new Map(); // key -> the locks of that key that this object holds
    #waits = new Map(); // key -> the requests for it that are under way

    constructor(url, options) {
        this.#open = () => require('./store.js').open(url, options);
    }

    get size() {
        return new Set([...this.#locks.keys(), ...this.#waits.keys()]).size;
    }

    #of() {
        if (this.#store) return this.#store;
        const store = this.#store = this.#open();
        store.then((opened) => {
            this.#opened = opened;
        }, () => {
            if (this.#store === store) this.#store = undefined; // the next one tries again
        });
        return store;
    }

    // `watches`: it waits only until the key is free (waitForUnlock), and cancel leaves it alone.
    async #acquire(key, options, watches = false) {
        checkKey('acquire', key);
        const { priority, ...how } = isOptions(options, 'acquire', key);
        if (this.#closed) throw closed(key);
        const wait = { stop: new AbortController(), watches };
        const signal = signalOf(how.signal, 'acquire', key);
        const abort = () => wait.stop.abort(signal.reason);
        if (priority)
            throw invalid('acquire', key, 'a store has no priorities');
        if (signal?.aborted) throw signal.reason;
        if (signal) onAbort(signal, abort);
        add(this.#waits, key, wait);
        const at = framesAbove(this.#acquire);
        try {
            const store = this.#opened ?? await unlessAborted(this.#of(), wait.stop.signal);
            const more = watches ? { shared: true } : {};
            const lock = await store.acquire(key, { ...how, ...more, signal: wait.stop.signal });
            return lock.follows(signal); // from here on cancel doesn't end it
        } catch (error) {
            // An error of opening the store rejects each request that waits for it, with a copy.
            throw error instanceof HoldfastError && error !== wait.stop.signal.reason
                ? withFrames(copyOf(error), at) : error;
        } finally {
            if (signal) offAbort(signal, abort);
            remove(this.#waits, key, wait);
        }
    }

    async #enter(key, options = NONE) {
        const lock = await this.#acquire(key, options);
        add(this.#locks, key, lock);
        return lock;
    }

    async acquire(key, options) {
        const lock = await this.#enter(key, options);
        return () => {
            remove(this.#locks, key, lock);
            return lock.release();
        };
    }

    async runExclusive(key, fn, options) {
        callable(fn, 'runExclusive', key);
        const lock = await this.#enter(key, options);
        return require('./store.js').around(lock, fn, () => {
            remove(this.#locks, key, lock);
            return lock.leave();
        });
    }

    async waitForUnlock(key, options = NONE) {
        await (await this.#acquire(key, options, true)).release();
    }

    isLocked(key) {
        return this.#locks.has(key);
    }

    async release(key) {
        const [lock] = this.#locks.get(key) ?? [];
        if (!lock) return;
        remove(this.#locks, key, lock);
        await lock.release();
    }

    cancel(key) {
        for (const name of key === undefined ? [...this.#waits.keys()] : [key]) {
            const why = makeError('CANCELED', `acquire '${name}': given up by the caller`, name);
            for (const { stop, watches } of this.#waits.get(name) ?? [])
                if (!watches) stop.abort(why);
        }
    }

    // If the store is being opened, closes it when that is done.
    close() {
        return this.#closed ??= this.#end();
    }

    async #end() {
        const store = this.#store;
        for (const [key, waits] of this.#waits)
            for (const { stop } of waits) stop.abort(closed(key));
        this.#locks.clear();
        await (await store?.catch(() => {}))?.close();
    }
}

function add(map, key, value) {
    const all = map.get(key);
    if (all) all.add(value);
    else map.set(key, new Set([value]));
}

function remove(map, key, value) {
    const all = map.get(key);
    if (all?.delete(value) && !all.size) map.delete(key);
}

class KeyedMutex {
    #keys;

    constructor(url, options) {
        this.#keys = url === undefined ? new Local() : new Stored(url, options);
    }

    // How many keys are held or waited for here.
    get size() {
        return this.#keys.size;
    }

    // Makes a function that releases the key; with a store it returns a promise.
    async acquire(key, options) {
        const release = await this.#keys.acquire(key, options);
        let done, called = false;
        return releaser(() => {
            if (called) return done;
            called = true;
            done = release();
            if (done) warns(done); // without it an unhandled rejection would end the process
            return done;
        });
    }

    // Returns null if the key isn't free.
    async tryAcquire(key, options = NONE) {
        if (isOptions(options, 'acquire', key).wait)
            throw invalid('acquire', key, 'wait: tryAcquire never waits');
        try {
            return await this.acquire(key, { ...options, wait: 0 });
        } catch (error) {
            if (error instanceof HoldfastError && error.code === 'BUSY') return null;
            throw error;
        }
    }

    runExclusive(key, fn, options) {
        return this.#keys.runExclusive(key, fn, options);
    }

    waitForUnlock(key, options) {
        return this.#keys.waitForUnlock(key, options);
    }

    // Returns whether this object holds the key, so not another process.
    isLocked(key) {
        return this.#keys.isLocked(key);
    }

    release(key) {
        return this.#keys.release(key);
    }

    // Ends the waits for a key, or for all keys, except those of waitForUnlock.
    cancel(key) {
        this.#keys.cancel(key);
    }

    close() {
        return this.#keys.close();
    }

    [asyncDispose]() {
        return this.close();
    }
}

module.exports = { KeyedMutex };
