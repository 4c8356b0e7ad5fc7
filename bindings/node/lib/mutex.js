// Mutexes of one process, in plain JavaScript: no store, no addon. KeyedMutex moves to a store when
// it is given a URL. Mutex and Semaphore answer to what async-mutex documents.
'use strict';
const { byCode, makeError } = require('./errors.js');

const E_TIMEOUT = new byCode.TIMEOUT('TIMEOUT', 'timeout while waiting for the lock');
const E_CANCELED = new byCode.CANCELED('CANCELED', 'the request for the lock was canceled');
const E_ALREADY_LOCKED = new byCode.BUSY('BUSY', 'already locked');
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');
const NONE = Object.freeze({});

// Who waits, in order: by priority, and within one as they came. Putting in and taking out don't
// depend on how many there are (with other priorities behind, on how many those are).
class Line {
    first = null;
    last = null;

    put(entry) {
        let before = this.last;
        while (before && before.priority < entry.priority) before = before.prev;
        entry.prev = before;
        entry.next = before ? before.next : this.first;
        if (entry.next) entry.next.prev = entry;
        else this.last = entry;
        if (before) before.next = entry;
        else this.first = entry;
        entry.line = this;
    }

    take(entry) {
        if (entry.prev) entry.prev.next = entry.next;
        else this.first = entry.next;
        if (entry.next) entry.next.prev = entry.prev;
        else this.last = entry.prev;
        entry.prev = entry.next = entry.line = null;
        clearTimeout(entry.timer);
        entry.signal?.removeEventListener('abort', entry.abort);
    }
}

// How one request is made: a number is a priority, as in async-mutex.
function asked(options) {
    if (options === undefined) return NONE;
    return typeof options === 'number' ? { priority: options } : options;
}

// Milliseconds; text as the stores take it.
function wait(value) {
    return value === undefined || typeof value === 'number' ? value
        : require('./options.js').time(value, 'wait');
}

// A promise that is resolved when the entry's turn has come. `late` makes the error of a timeout,
// `left` is called when somebody has given up.
function queue(line, options, weight, late, left) {
    const { priority = 0, signal } = options;
    const ms = wait(options.wait);
    if (ms === 0) throw late(true);
    return new Promise((resolve, reject) => {
        const entry = { priority, weight, resolve, reject, signal, prev: null, next: null,
            line: null, timer: undefined, abort: undefined };
        const give = (why) => {
            line.take(entry);
            reject(why);
            left?.();
        };
        if (ms < 2 ** 31) entry.timer = setTimeout(() => give(late(false)), Math.ceil(ms));
        if (signal) {
            entry.abort = () => give(signal.reason);
            signal.addEventListener('abort', entry.abort, { once: true });
        }
        line.put(entry);
    });
}

const tooLate = (options) => (now) => options.error ?? (now ? E_ALREADY_LOCKED : E_TIMEOUT);

// One that counts; a Mutex is one that counts to one.
class Semaphore {
    #value;
    #cancelError;
    #line = new Line();
    #watchers = new Line(); // of waitForUnlock

    constructor(value, cancelError = E_CANCELED) {
        this.#value = value;
        this.#cancelError = cancelError;
    }

    #serve() {
        for (let next; (next = this.#line.first) && next.weight <= this.#value;) {
            this.#line.take(next);
            const had = this.#value;
            this.#value -= next.weight;
            next.resolve(had);
        }
        for (let next = this.#watchers.first, after; next; next = after) {
            after = next.next;
            if (this.#line.first || next.weight > this.#value) continue;
            this.#watchers.take(next);
            next.resolve();
        }
    }

    // The value that there was.
    async #enter(weight, how) {
        const options = asked(how);
        const { signal } = options;
        if (!(weight > 0)) throw new Error(`invalid weight ${weight}: must be positive`);
        if (signal?.aborted) throw signal.reason;
        if (weight <= this.#value &&
            !(this.#line.first && this.#line.first.priority >= (options.priority ?? 0))) {
            const had = this.#value;
            this.#value -= weight;
            return had;
        }
        const had = await queue(this.#line, options, weight, tooLate(options),
            () => this.#serve());
        if (!signal?.aborted) return had;
        this.release(weight);
        throw signal.reason;
    }

    async acquire(weight = 1, how) {
        const had = await this.#enter(weight, how);
        let held = true;
        return [had, () => {
            if (held) this.release(weight);
            held = false;
        }];
    }

    async runExclusive(fn, weight = 1, how) {
        const had = await this.#enter(weight, how);
        try {
            return await fn(had);
        } finally {
            this.release(weight);
        }
    }

    async waitForUnlock(weight = 1, how) {
        if (!(weight > 0)) throw new Error(`invalid weight ${weight}: must be positive`);
        if (weight <= this.#value && !this.#line.first) return;
        const options = asked(how);
        if (options.signal?.aborted) throw options.signal.reason;
        await queue(this.#watchers, options, weight, tooLate(options));
    }

    isLocked() {
        return this.#value <= 0;
    }

    getValue() {
        return this.#value;
    }

    setValue(value) {
        this.#value = value;
        this.#serve();
    }

    release(weight = 1) {
        if (!(weight > 0)) throw new Error(`invalid weight ${weight}: must be positive`);
        this.#value += weight;
        this.#serve();
    }

    cancel() {
        for (let next; (next = this.#line.first);) {
            this.#line.take(next);
            next.reject(this.#cancelError);
        }
        this.#serve();
    }
}

// The state of one lock, without what makes errors.
class State extends Line {
    held = false;
    watchers = null; // of waitForUnlock

    // To the next one, or to nobody: then it is free (true).
    pass() {
        const next = this.first;
        if (next) {
            this.take(next);
            next.resolve();
            return false;
        }
        this.held = false;
        for (let watcher; (watcher = this.watchers?.first);) {
            this.watchers.take(watcher);
            watcher.resolve();
        }
        return true;
    }
}

class Mutex {
    #state = new State();
    #cancelError;

    constructor(cancelError = E_CANCELED) {
        this.#cancelError = cancelError;
    }

    async #enter(how) {
        const state = this.#state;
        const options = asked(how);
        const { signal } = options;
        if (signal?.aborted) throw signal.reason;
        if (!state.held) {
            state.held = true;
            return;
        }
        await queue(state, options, 1, tooLate(options));
        if (!signal?.aborted) return;
        state.pass();
        throw signal.reason;
    }

    async acquire(how) {
        await this.#enter(how);
        let held = true;
        return () => {
            if (held) this.#state.pass();
            held = false;
        };
    }

    async runExclusive(fn, how) {
        const state = this.#state;
        if (state.held || how !== undefined) await this.#enter(how);
        else await (state.held = true); // fn never runs before this has returned
        try {
            return await fn();
        } finally {
            state.pass();
        }
    }

    async waitForUnlock(how) {
        if (!this.#state.held) return;
        const options = asked(how);
        if (options.signal?.aborted) throw options.signal.reason;
        await queue(this.#state.watchers ??= new Line(), options, 1, tooLate(options));
    }

    isLocked() {
        return this.#state.held;
    }

    release() {
        if (this.#state.held) this.#state.pass();
    }

    cancel() {
        for (let next; (next = this.#state.first);) {
            this.#state.take(next);
            next.reject(this.#cancelError);
        }
    }
}

// The same lock, with an end to every wait.
function withTimeout(sync, ms, error = E_TIMEOUT) {
    const limited = (how) => ({ ...asked(how), wait: ms, error });
    const weighted = sync instanceof Semaphore;
    return {
        acquire: weighted ? (weight, how) => sync.acquire(weight, limited(how))
            : (how) => sync.acquire(limited(how)),
        runExclusive: weighted ? (fn, weight, how) => sync.runExclusive(fn, weight, limited(how))
            : (fn, how) => sync.runExclusive(fn, limited(how)),
        waitForUnlock: weighted ? (weight, how) => sync.waitForUnlock(weight, limited(how))
            : (how) => sync.waitForUnlock(limited(how)),
        isLocked: () => sync.isLocked(),
        release: (weight) => sync.release(weight),
        cancel: () => sync.cancel(),
        ...(weighted && { getValue: () => sync.getValue(), setValue: (n) => sync.setValue(n) }),
    };
}

function tryAcquire(sync, error = E_ALREADY_LOCKED) {
    return withTimeout(sync, 0, error);
}

const never = new AbortController().signal;
let token = 0;

// What runs under a key of this process gets this, as what runs under a store's lock does.
class Held {
    constructor(key, signal) {
        this.key = key;
        this.token = ++token;
        this.signal = signal ?? never;
    }
}

const LOCAL = new Set(['wait', 'signal', 'priority', 'lease', 'owner', 'note']);

// One lock for each key, of this process.
class Local {
    #keys = new Map();

    get size() {
        return this.#keys.size;
    }

    #state(key) {
        let state = this.#keys.get(key);
        if (!state) this.#keys.set(key, state = new State());
        return state;
    }

    #pass(key, state) {
        if (state.pass()) this.#keys.delete(key);
    }

    async #wait(key, line, options) {
        const late = (now) => now
            ? makeError('BUSY', `acquire '${key}': held by another`, key)
            : makeError('TIMEOUT', `acquire '${key}': not obtained within ${options.wait} ms`, key);
        for (const name in options)
            if (!LOCAL.has(name))
                throw makeError('INVALID', `acquire '${key}': no option '${name}' without a store`);
        await queue(line, options, 1, late);
    }

    // Its state, held.
    async #enter(key, options) {
        const { signal } = options;
        if (signal?.aborted) throw signal.reason;
        const state = this.#state(key);
        if (!state.held) {
            state.held = true;
            return state;
        }
        await this.#wait(key, state, options);
        if (!signal?.aborted) return state;
        this.#pass(key, state);
        throw signal.reason;
    }

    async acquire(key, options = NONE) {
        const state = await this.#enter(key, options);
        return () => this.#pass(key, state);
    }

    async runExclusive(key, fn, options) {
        let state = this.#keys.get(key);
        if (state || options) {
            state = await this.#enter(key, options ?? NONE);
        } else {
            this.#keys.set(key, state = new State());
            await (state.held = true);
        }
        try {
            return await fn(new Held(key, options?.signal));
        } finally {
            this.#pass(key, state);
        }
    }

    async waitForUnlock(key, options = NONE) {
        const state = this.#keys.get(key);
        if (state) await this.#wait(key, state.watchers ??= new Line(), options);
    }

    isLocked(key) {
        return this.#keys.has(key);
    }

    async release(key) {
        const state = this.#keys.get(key);
        if (state) this.#pass(key, state);
    }

    cancel(key) {
        for (const name of key === undefined ? [...this.#keys.keys()] : [key])
            for (let next, state = this.#keys.get(name); (next = state?.first);) {
                state.take(next);
                next.reject(makeError('CANCELED', `acquire '${name}': given up by the caller`,
                    name));
            }
    }

    async close() {
        this.cancel();
    }
}

// The same with the locks of a store, which is opened when the first one is asked for.
class Stored {
    #open;
    #store;
    #locks = new Map(); // key -> those of its locks that this object holds
    #waits = new Map(); // key -> AbortControllers

    constructor(url, options) {
        this.#open = () => require('./store.js').open(url, options);
    }

    get size() {
        return new Set([...this.#locks.keys(), ...this.#waits.keys()]).size;
    }

    #of() {
        if (this.#store) return this.#store;
        const store = this.#store = this.#open();
        store.catch(() => {
            if (this.#store === store) this.#store = undefined; // the next one tries again
        });
        return store;
    }

    async #acquire(key, { priority, ...options }) {
        const stop = new AbortController();
        const { signal } = options;
        const abort = () => stop.abort(signal.reason);
        if (priority)
            throw makeError('INVALID', `acquire '${key}': a store has no priorities`, key);
        if (signal?.aborted) throw signal.reason;
        signal?.addEventListener('abort', abort, { once: true });
        add(this.#waits, key, stop);
        try {
            const store = await this.#of();
            return await store.acquire(key, { ...options, signal: stop.signal });
        } finally {
            signal?.removeEventListener('abort', abort);
            remove(this.#waits, key, stop);
        }
    }

    // The lock, and what gives it back.
    async #enter(key, options = NONE) {
        const lock = await this.#acquire(key, options);
        add(this.#locks, key, lock);
        return [lock, () => {
            remove(this.#locks, key, lock);
            return lock.release();
        }];
    }

    async acquire(key, options) {
        return (await this.#enter(key, options))[1];
    }

    async runExclusive(key, fn, options) {
        const [lock, release] = await this.#enter(key, options);
        return require('./store.js').around(lock, fn, release);
    }

    async waitForUnlock(key, options) {
        await (await this.#acquire(key, { ...options, shared: true })).release();
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
        for (const name of key === undefined ? [...this.#waits.keys()] : [key])
            for (const stop of this.#waits.get(name) ?? [])
                stop.abort(makeError('CANCELED', `acquire '${name}': given up by the caller`,
                    name));
    }

    async close() {
        this.cancel();
        const store = this.#store;
        this.#open = async () => {
            throw makeError('CANCELED', 'the store is closed');
        };
        this.#store = undefined;
        this.#locks.clear();
        await (await store)?.close();
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

    // A function that gives the key back; with a store it returns a promise.
    async acquire(key, options) {
        const release = await this.#keys.acquire(key, options);
        let done;
        const once = () => done ??= release() ?? true;
        once[asyncDispose] = async () => {
            await once();
        };
        return once;
    }

    tryAcquire(key, options) {
        return this.acquire(key, { ...options, wait: 0 });
    }

    runExclusive(key, fn, options) {
        return this.#keys.runExclusive(key, fn, options);
    }

    waitForUnlock(key, options) {
        return this.#keys.waitForUnlock(key, options);
    }

    // Held by this very object, that is: by this process.
    isLocked(key) {
        return this.#keys.isLocked(key);
    }

    release(key) {
        return this.#keys.release(key);
    }

    // Ends the waits for a key, or for all.
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

module.exports = { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, KeyedMutex, Mutex, Semaphore,
    tryAcquire, withTimeout };
