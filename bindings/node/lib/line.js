// The waiters for a lock of this process, in their order, and the lock itself.
'use strict';
const { byCode, framesAbove, withFrames } = require('./errors.js');
const { Levels } = require('./levels.js');
const { invalid, known, milliseconds, signalOf, time } = require('./options.js');
const { offAbort, onAbort } = require('./signals.js');

const E_TIMEOUT = new byCode.TIMEOUT('TIMEOUT', 'timeout while waiting for the lock');
const E_CANCELED = new byCode.CANCELED('CANCELED', 'the request for the lock was canceled');
const E_ALREADY_LOCKED = new byCode.BUSY('BUSY', 'already locked');
const LONGEST_MS = 2 ** 31 - 1; // of a timer
const NONE = Object.freeze({});

// The waiters in order: by priority, and within a priority by the time of their call. Adding and
// removing a waiter costs the same however many wait, and little more if there are many priorities.
class Line {
    first = null;
    last = null;
    levels = null; // where each priority begins, while there are several

    put(entry) {
        const { last } = this;
        const next = !last || last.priority === entry.priority ? null : this.#next(entry);
        const before = next ? next.prev : last;
        entry.prev = before;
        entry.next = next;
        if (next) next.prev = entry;
        else this.last = entry;
        if (before) before.next = entry;
        else this.first = entry;
        entry.line = this;
    }

    #next(entry) {
        this.levels ??= new Levels(this.first);
        return this.levels.put(entry);
    }

    take(entry) {
        if (this.levels && entry.prev?.priority !== entry.priority && !this.levels.take(entry))
            this.levels = null;
        if (entry.prev) entry.prev.next = entry.next;
        else this.first = entry.next;
        if (entry.next) entry.next.prev = entry.prev;
        else this.last = entry.prev;
        entry.prev = entry.next = entry.line = null;
        if (entry.ends) forget(entry.ends);
    }
}

function forget({ timer, signal, abort }) {
    clearTimeout(timer);
    if (signal) offAbort(signal, abort);
}

const ERROR = Symbol('error'); // the option of withTimeout: the error of a timeout
const QUEUE = new Set(['priority', 'wait', 'signal']);

// Checks the options of a request before anything is done. A number is a priority, as in
// async-mutex. A wait is in milliseconds, or a text such as '2s', as the stores take it.
function asked(options, key, names = QUEUE, where = '') {
    if (options === undefined || options === NONE) return NONE;
    if (typeof options === 'number' && names === QUEUE) return asked({ priority: options });
    known(options, names, 'acquire', key, where);
    const { priority = 0, wait, signal, [ERROR]: error } = options;
    const read = names === QUEUE ? milliseconds : time; // a key may move to a store
    if (typeof priority !== 'number' || Number.isNaN(priority))
        throw invalid('acquire', key, 'priority: must be a number');
    return { priority, wait: wait === undefined ? undefined : read(wait, 'wait', 'acquire', key),
        signal: signalOf(signal, 'acquire', key), error };
}

// A waiter. The cost of a long line is mostly garbage collection, so little is kept for each
// waiter: this object, a promise and its `resolve`, but no function of its own.
class Waiter {
    prev = null;
    next = null;
    line = null;
    ends = null; // most waiters have neither a time limit nor a signal

    constructor(resolve, priority) {
        this.resolve = resolve;
        this.priority = priority;
    }
}

class Entry extends Waiter {
    constructor(resolve, reject, priority, weight) {
        super(resolve, priority);
        this.reject = reject;
        this.weight = weight;
    }

    turn(value) {
        this.resolve(value);
    }
}

let resolves, rejects;
const keep = (resolve, reject) => {
    resolves = resolve;
    rejects = reject;
};

// A waiter whose function runs when its turn has come. Its promise starts the function. So the code
// that has released the lock goes on first, and the function runs in the asynchronous context of
// its caller.
class Job extends Waiter {
    constructor(resolve, priority, fn, state) {
        super(resolve, priority);
        this.fn = fn;
        this.state = state;
        this.grant = 0;
    }

    turn(grant) {
        this.grant = grant;
        this.resolve(this);
    }

    reject(why) {
        this.resolve(Promise.reject(why));
    }

    // Runs the function. Returns its result, or a promise if the function returns one.
    start() {
        const { state, grant } = this;
        const signal = this.ends?.signal;
        let value;
        try {
            if (signal?.aborted) throw signal.reason;
            value = this.fn(state.argument(signal));
        } catch (error) {
            state.giveBack(grant);
            throw error;
        }
        if (value !== null && (typeof value === 'object' || typeof value === 'function'))
            return settled(state, grant, value);
        state.giveBack(grant);
        return value;
    }
}

const start = (job) => job.start();

async function settled(state, grant, value) {
    try {
        return await value;
    } finally {
        state.giveBack(grant);
    }
}

// Returns a promise that is resolved when the waiter's turn has come. `late` makes the error of a
// timeout; `left` is called when a waiter has given up.
function queue(line, options, weight, late, left) {
    const { priority = 0, signal, wait: ms } = options;
    if (ms === 0 && !options.error) throw late(true);
    const promise = new Promise(keep), entry = new Entry(resolves, rejects, priority, weight);
    if (signal || ms < Infinity) limit(entry, ms, signal, late, left);
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
    if (signal) onAbort(signal, abort);
    entry.ends = { timer: undefined, signal, abort };
    if (ms < Infinity) {
        const at = late.length > 1 ? framesAbove(limit) : undefined; // it makes an error
        after(entry.ends, ms, () => give(late(false, at)));
    }
}

// Sets a timer, again and again if the time is longer than Node's timers can be.
function after(ends, ms, call) {
    const now = Math.min(ms, LONGEST_MS);
    ends.timer = setTimeout(() => (ms > now ? after(ends, ms - now, call) : call()), now);
}

const late = (now, at) => (now ? new byCode.BUSY('BUSY', E_ALREADY_LOCKED.message)
    : withFrames(new byCode.TIMEOUT('TIMEOUT', E_TIMEOUT.message), at));
const tooLate = (options) => (options.error ? () => options.error : late);

const never = new AbortController().signal;
let token = 0;

// The argument of a function that runs under a key of this process; it is like the lock that a
// store passes.
class Held {
    constructor(key, signal) {
        this.key = key;
        this.token = ++token;
        this.signal = signal ?? never;
    }
}

// One lock. If it is the lock of a key, it calls `leave` when it is idle.
class State extends Line {
    held = false;
    grant = 0; // the present hold's number
    watchers = null; // of waitForUnlock

    constructor(leave, key) {
        super();
        this.leave = leave;
        this.key = key;
    }

    // Returns the argument for a function that runs under this lock.
    argument(signal) {
        return this.leave ? new Held(this.key, signal) : undefined;
    }

    // Releases the hold with this number. If that hold was released already, the lock belongs to
    // another caller, and nothing is done.
    giveBack(grant) {
        if (grant === this.grant && this.held) this.pass();
    }

    // Gives the lock to the next waiter, if there is one.
    pass() {
        const next = this.first;
        this.grant++;
        if (next) {
            // Watchers (waitForUnlock) with a higher priority than the next waiter go first.
            for (let watcher; (watcher = this.watchers?.first) &&
                watcher.priority > next.priority;) {
                this.watchers.take(watcher);
                watcher.turn();
            }
            this.take(next);
            next.turn(this.grant);
            return;
        }
        this.held = false;
        this.leave?.(this);
        for (let watcher; (watcher = this.watchers?.first);) {
            this.watchers.take(watcher);
            watcher.turn();
        }
    }

    // Acquires the lock. Returns the number of the hold, or a promise of it. `late` makes the error
    // of a timeout.
    enter(options, late) {
        const { signal } = options;
        if (signal?.aborted) throw signal.reason;
        if (!this.held) {
            this.held = true;
            return this.grant;
        }
        const turn = queue(this, options, 1, late);
        return signal ? turn.then((grant) => {
            if (!signal.aborted) return grant;
            this.giveBack(grant);
            throw signal.reason;
        }) : turn;
    }

    // Runs a function under this lock, for the keys of a KeyedMutex. It needs the least memory for
    // a waiter.
    run(fn, options, late) {
        const { priority = 0, signal, wait: ms } = options;
        if (signal?.aborted) return Promise.reject(signal.reason);
        if (!this.held) {
            this.held = true;
            return this.#alone(fn, signal);
        }
        if (ms === 0) return Promise.reject(late(true));
        const turn = new Promise(keep), job = new Job(resolves, priority, fn, this);
        if (signal || ms < Infinity) limit(job, ms, signal, late);
        this.put(job);
        return turn.then(start);
    }

    async #alone(fn, signal) {
        const { grant } = this;
        try {
            await null; // fn never runs before this has returned
            return await fn(this.argument(signal));
        } finally {
            this.giveBack(grant);
        }
    }

    watch(options, late) {
        if (!this.held) return Promise.resolve();
        const { signal } = options;
        if (signal?.aborted) throw signal.reason;
        return queue(this.watchers ??= new Line(), options, 1, late);
    }

    cancel(why) {
        rejectAll(this, why(this.key));
    }

    // Rejects all waiters, and all watchers (waitForUnlock).
    end(why) {
        this.cancel(why);
        if (this.watchers) rejectAll(this.watchers, why(this.key));
    }
}

function rejectAll(line, error) {
    for (let next; (next = line.first);) {
        line.take(next);
        next.reject(error);
    }
}

module.exports = { ERROR, E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Line, NONE, State, asked, queue,
    rejectAll, tooLate };
