// Mutexes of one process, in plain JavaScript: no store, no addon. Mutex and Semaphore do what
// those of async-mutex do, and settle each promise in the same microtask: a program may see that by
// the order in which its promises are settled. KeyedMutex moves to a store when it is given a URL.
'use strict';
const { releaser } = require('./dispose.js');
const { KeyedMutex } = require('./keyed.js');
const { ERROR, E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Line, State, asked, queue,
    rejectAll, tooLate } = require('./line.js');
const { callable, invalid, isOptions, milliseconds, shown } = require('./options.js');

function checkWeight(weight) {
    if (typeof weight !== 'number' || !(weight > 0 && weight < Infinity))
        throw invalid('acquire', undefined, `invalid weight ${shown(weight)}: must be positive`);
}

// Values of 0 and less are allowed: requests wait until the value is large enough.
function numeric(doing, value) {
    if (Number.isFinite(value)) return value;
    throw invalid(doing, undefined, 'the value must be a number');
}

// Turns an exception into a rejected promise.
function promised(call) {
    try {
        return call();
    } catch (error) {
        return Promise.reject(error);
    }
}

// A counting lock; a Mutex is a Semaphore that counts to one.
class Semaphore {
    #value;
    #cancelError;
    #line = new Line();
    #watchers = new Line(); // of waitForUnlock

    constructor(value, cancelError = E_CANCELED) {
        this.#value = numeric('Semaphore', value);
        this.#cancelError = cancelError;
    }

    // Wakes waits of waitForUnlock: each goes before requests of a lower priority, and behind all
    // others. Of those that are woken together the heaviest is the first, as in async-mutex.
    #show() {
        const { first } = this.#line, woken = [];
        for (let next = this.#watchers.first; next; next = next.next) {
            if (first && next.priority <= first.priority) break;
            if (next.weight <= this.#value) woken.push(next);
        }
        if (woken.length > 1) woken.sort((one, other) => other.weight - one.weight);
        for (const next of woken) {
            this.#watchers.take(next);
            next.turn();
        }
    }

    #serve() {
        this.#show();
        for (let next; (next = this.#line.first) && next.weight <= this.#value;) {
            this.#line.take(next);
            next.turn(this.#grant(next.weight));
            this.#show();
        }
    }

    // Resolves with the value before, and a releaser.
    #grant(weight) {
        const had = this.#value;
        let held = true;
        this.#value -= weight;
        return [had, releaser(() => {
            if (held) this.release(weight);
            held = false;
        })];
    }

    #enter(weight, how) {
        const options = asked(how);
        const { signal } = options;
        if (signal?.aborted) throw signal.reason;
        if (weight <= this.#value &&
            !(this.#line.first && this.#line.first.priority >= (options.priority ?? 0)))
            return Promise.resolve(this.#grant(weight));
        const turn = queue(this.#line, options, weight, tooLate(options), () => this.#serve());
        return signal ? turn.then((got) => {
            if (!signal.aborted) return got;
            got[1]();
            throw signal.reason;
        }) : turn;
    }

    // A bad weight is thrown, as by async-mutex; any other mistake is a rejection.
    acquire(weight = 1, how) {
        checkWeight(weight);
        return promised(() => this.#enter(weight, how));
    }

    async runExclusive(fn, weight = 1, how) {
        callable(fn, 'runExclusive');
        const [had, release] = await this.acquire(weight, how);
        try {
            return await fn(had);
        } finally {
            release();
        }
    }

    waitForUnlock(weight = 1, how) {
        checkWeight(weight);
        return promised(() => this.#watch(weight, how));
    }

    #watch(weight, how) {
        const options = asked(how), { first } = this.#line;
        if (weight <= this.#value && !(first && first.priority >= (options.priority ?? 0)))
            return Promise.resolve();
        if (options.signal?.aborted) throw options.signal.reason;
        return queue(this.#watchers, options, weight, tooLate(options));
    }

    isLocked() {
        return this.#value <= 0;
    }

    getValue() {
        return this.#value;
    }

    setValue(value) {
        this.#value = numeric('setValue', value);
        this.#serve();
    }

    release(weight = 1) {
        checkWeight(weight);
        this.#value += weight;
        this.#serve();
    }

    cancel() {
        rejectAll(this.#line, this.#cancelError);
        this.#serve();
    }
}

class Mutex {
    #state = new State();
    #cancelError;

    constructor(cancelError = E_CANCELED) {
        this.#cancelError = cancelError;
    }

    async acquire(how) {
        const options = asked(how);
        const grant = await this.#state.enter(options, tooLate(options));
        return releaser(() => this.#state.giveBack(grant));
    }

    async runExclusive(fn, how) {
        callable(fn, 'runExclusive');
        const options = asked(how), state = this.#state;
        const grant = await state.enter(options, tooLate(options));
        try {
            return await fn();
        } finally {
            state.giveBack(grant);
        }
    }

    waitForUnlock(how) {
        return promised(() => {
            const options = asked(how);
            return this.#state.watch(options, tooLate(options));
        });
    }

    isLocked() {
        return this.#state.held;
    }

    release() {
        if (this.#state.held) this.#state.pass();
    }

    cancel() {
        this.#state.cancel(() => this.#cancelError);
    }
}

const CALLS = ['acquire', 'runExclusive', 'waitForUnlock', 'isLocked', 'release', 'cancel'];

// The same lock, with a limit for every wait. A call that has an earlier limit keeps its own.
function limited(doing, sync, ms, error) {
    if (!CALLS.every((name) => typeof sync?.[name] === 'function'))
        throw invalid(doing, undefined, 'takes a Mutex or a Semaphore');
    const most = milliseconds(ms, 'ms', doing);
    const ends = (how) => {
        const asks = typeof how === 'number' ? { priority: how }
            : how === undefined ? {} : isOptions(how, 'acquire');
        const own = asks.wait === undefined ? Infinity
            : milliseconds(asks.wait, 'wait', 'acquire');
        if (own <= most) return asks;
        return { ...asks, wait: most, [ERROR]: error };
    };
    const weighted = typeof sync.getValue === 'function';
    const weigh = (weight = 1) => checkWeight(weight);
    // It takes one microtask more than the lock itself, as in async-mutex.
    const later = async (call) => await call();
    const acquire = weighted ? (weight, how) => {
        weigh(weight);
        return later(() => sync.acquire(weight, ends(how)));
    } : (how) => later(() => sync.acquire(ends(how)));
    return {
        acquire,
        async runExclusive(fn, ...how) {
            callable(fn, 'runExclusive');
            const got = await acquire(...how);
            try {
                return await (weighted ? fn(got[0]) : fn());
            } finally {
                (weighted ? got[1] : got)();
            }
        },
        waitForUnlock: weighted ? (weight, how) => {
            weigh(weight);
            return later(() => sync.waitForUnlock(weight, ends(how)));
        } : (how) => later(() => sync.waitForUnlock(ends(how))),
        isLocked: () => sync.isLocked(),
        release: (weight) => sync.release(weight),
        cancel: () => sync.cancel(),
        ...(weighted && { getValue: () => sync.getValue(), setValue: (n) => sync.setValue(n) }),
    };
}

function withTimeout(sync, ms, error = E_TIMEOUT) {
    return limited('withTimeout', sync, ms, error);
}

function tryAcquire(sync, error = E_ALREADY_LOCKED) {
    return limited('tryAcquire', sync, 0, error);
}

module.exports = { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, KeyedMutex, Mutex, Semaphore,
    tryAcquire, withTimeout };
