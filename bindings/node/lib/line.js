// Who waits for a lock of this process, in which order, and the lock itself.
'use strict';
const { byCode } = require('./errors.js');
const { invalid, signalOf, time } = require('./options.js');

const E_TIMEOUT = new byCode.TIMEOUT('TIMEOUT', 'timeout while waiting for the lock');
const E_CANCELED = new byCode.CANCELED('CANCELED', 'the request for the lock was canceled');
const E_ALREADY_LOCKED = new byCode.BUSY('BUSY', 'already locked');
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
        if (entry.ends) forget(entry.ends);
    }
}

// This runs where the holder gives the lock back: whatever a waiter's signal is mustn't stop it.
function forget({ timer, signal, abort }) {
    clearTimeout(timer);
    try {
        signal?.removeEventListener('abort', abort);
    } catch {
        // It is called no more than once, and finds that nobody waits.
    }
}

// How one request is made, looked at before anything is done; a number is a priority, as in
// async-mutex. A wait is in milliseconds, or a text as the stores take it.
function asked(options, key) {
    if (options === undefined || options === NONE) return NONE;
    if (typeof options === 'number') return asked({ priority: options });
    if (typeof options !== 'object' || options === null)
        throw invalid('acquire', key, 'the options are no object');
    const { priority = 0, wait, signal, error } = options;
    if (typeof priority !== 'number' || Number.isNaN(priority))
        throw invalid('acquire', key, 'priority: must be a number');
    return { priority, wait: wait === undefined ? undefined : time(wait, 'wait', 'acquire', key),
        signal: signalOf(signal, 'acquire', key), error };
}

// One that waits. A long line costs mostly the collector's work on what is kept for each: this, a
// promise and its `resolve` (which can also reject), but no function of its own.
class Waiter {
    prev = null;
    next = null;
    line = null;
    ends = null; // most have neither an end nor a signal

    constructor(resolve, priority) {
        this.resolve = resolve;
        this.priority = priority;
    }

    turn(value) {
        this.resolve(value);
    }

    reject(why) {
        this.resolve(Promise.reject(why));
    }
}

class Entry extends Waiter {
    constructor(resolve, priority, weight) {
        super(resolve, priority);
        this.weight = weight;
    }
}

let resolves;
const keep = (resolve) => {
    resolves = resolve;
};

// One whose function runs when its turn has come, which it hears of by its promise: so who gives
// the lock back goes on first, and the function runs in the asynchronous context of who asked.
class Job extends Waiter {
    constructor(resolve, priority, fn, state) {
        super(resolve, priority);
        this.fn = fn;
        this.state = state;
    }

    turn() {
        this.resolve(this);
    }

    // What comes of it; without a promise there is nothing to wait for.
    start() {
        const { state } = this;
        const signal = this.ends?.signal;
        let value;
        try {
            if (signal?.aborted) throw signal.reason;
            value = this.fn(state.told(signal));
        } catch (error) {
            state.pass();
            throw error;
        }
        if (value !== null && (typeof value === 'object' || typeof value === 'function'))
            return settled(state, value);
        state.pass();
        return value;
    }
}

const start = (job) => job.start();

async function settled(state, value) {
    try {
        return await value;
    } finally {
        state.pass();
    }
}

// A promise that is resolved when the entry's turn has come. `late` makes the error of a timeout,
// `left` is called when somebody has given up.
function queue(line, options, weight, late, left) {
    const { priority = 0, signal, wait: ms } = options;
    if (ms === 0) throw late(true);
    const promise = new Promise(keep), entry = new Entry(resolves, priority, weight);
    if (signal || ms < 2 ** 31) limit(entry, ms, signal, late, left);
    line.put(entry);
    return promise;
}

function limit(entry, ms, signal, late, left) {
    const give = (why) => {
        if (!entry.line) return;
        entry.line.take(entry);
        entry.reject(why);
        left?.();
    };
    const abort = signal && (() => give(signal.reason));
    signal?.addEventListener('abort', abort, { once: true });
    const timer = ms < 2 ** 31 ? setTimeout(() => give(late(false)), ms) : undefined;
    entry.ends = { timer, signal, abort };
}

const late = (now) => (now ? E_ALREADY_LOCKED : E_TIMEOUT);
const tooLate = (options) => (options.error ? () => options.error : late);

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

// One lock. That of a key tells when it is idle.
class State extends Line {
    held = false;
    watchers = null; // of waitForUnlock

    constructor(leave, key) {
        super();
        this.leave = leave;
        this.key = key;
    }

    // What a function that runs under it is called with.
    told(signal) {
        return this.leave ? new Held(this.key, signal) : undefined;
    }

    // To the next one, or to nobody.
    pass() {
        const next = this.first;
        if (next) {
            this.take(next);
            next.turn(this); // to a Job it tells whose turn that is
            return;
        }
        this.held = false;
        this.leave?.(this);
        for (let watcher; (watcher = this.watchers?.first);) {
            this.watchers.take(watcher);
            watcher.turn();
        }
    }

    // When it is held. `late` makes the error of a timeout.
    async enter(options, late) {
        const { signal } = options;
        if (signal?.aborted) throw signal.reason;
        if (!this.held) {
            this.held = true;
            return;
        }
        await queue(this, options, 1, late);
        if (!signal?.aborted) return;
        this.pass();
        throw signal.reason;
    }

    run(fn, options, late) {
        const { priority = 0, signal, wait: ms } = options;
        if (signal?.aborted) return Promise.reject(signal.reason);
        if (!this.held) {
            this.held = true;
            return this.#alone(fn, signal);
        }
        if (ms === 0) return Promise.reject(late(true));
        const turn = new Promise(keep), job = new Job(resolves, priority, fn, this);
        if (signal || ms < 2 ** 31) limit(job, ms, signal, late);
        this.put(job);
        return turn.then(start);
    }

    async #alone(fn, signal) {
        try {
            await null; // fn never runs before this has returned
            return await fn(this.told(signal));
        } finally {
            this.pass();
        }
    }

    async watch(options, late) {
        if (!this.held) return;
        const { signal } = options;
        if (signal?.aborted) throw signal.reason;
        await queue(this.watchers ??= new Line(), options, 1, late);
    }

    cancel(why) {
        for (let next; (next = this.first);) {
            this.take(next);
            next.reject(why(this.key));
        }
    }
}

module.exports = { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Line, NONE, State, asked, queue,
    tooLate };
