// Mutexes of one process, in plain JavaScript: no store, no addon. They answer to what async-mutex
// documents. KeyedMutex moves to a store when it is given a URL.
'use strict';
const { KeyedMutex } = require('./keyed.js');
const { ERROR, E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Line, State, asked, queue,
    rejectAll, tooLate } = require('./line.js');
const { callable, invalid, isOptions, time } = require('./options.js');

function checkWeight(weight) {
    if (typeof weight !== 'number' || !(weight > 0 && weight < Infinity))
        throw invalid('acquire', undefined, `invalid weight ${String(weight)}: must be positive`);
}

// One that counts; a Mutex is one that counts to one.
class Semaphore {
    #value;
    #cancelError;
    #line = new Line();
    #watchers = new Line(); // of waitForUnlock

    constructor(value, cancelError = E_CANCELED) {
        if (!Number.isInteger(value) || value < 1)
            throw invalid('Semaphore', undefined, 'the value must be an integer from 1 on');
        this.#value = value;
        this.#cancelError = cancelError;
    }

    #serve() {
        for (let next; (next = this.#line.first) && next.weight <= this.#value;) {
            this.#line.take(next);
            const had = this.#value;
            this.#value -= next.weight;
            next.turn(had);
        }
        if (this.#line.first) return;
        for (let next = this.#watchers.first, after; next; next = after) {
            after = next.next;
            if (next.weight > this.#value) continue;
            this.#watchers.take(next);
            next.turn();
        }
    }

    // The value that there was.
    async #enter(weight, how) {
        const options = asked(how);
        const { signal } = options;
        checkWeight(weight);
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
        callable(fn, 'runExclusive');
        const had = await this.#enter(weight, how);
        try {
            return await fn(had);
        } finally {
            this.release(weight);
        }
    }

    async waitForUnlock(weight = 1, how) {
        const options = asked(how);
        checkWeight(weight);
        if (weight <= this.#value && !this.#line.first) return;
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
        if (!Number.isInteger(value))
            throw invalid('setValue', undefined, 'the value must be an integer');
        this.#value = value;
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
        return () => this.#state.giveBack(grant);
    }

    runExclusive(fn, how) {
        try {
            callable(fn, 'runExclusive');
            const options = asked(how);
            return this.#state.run(fn, options, tooLate(options));
        } catch (error) {
            return Promise.reject(error);
        }
    }

    async waitForUnlock(how) {
        const options = asked(how);
        await this.#state.watch(options, tooLate(options));
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

// The same lock, with an end to every wait; who asks for an earlier one has that.
function limited(doing, sync, ms, error) {
    if (!CALLS.every((name) => typeof sync?.[name] === 'function'))
        throw invalid(doing, undefined, 'takes a Mutex or a Semaphore');
    const most = time(ms, 'ms', doing);
    const ends = (how) => {
        const asks = typeof how === 'number' ? { priority: how }
            : how === undefined ? {} : isOptions(how, 'acquire');
        if (asks.wait !== undefined && time(asks.wait, 'wait', 'acquire') <= most) return asks;
        return { ...asks, wait: most, [ERROR]: error };
    };
    const weighted = typeof sync.getValue === 'function';
    return {
        acquire: weighted ? async (weight, how) => sync.acquire(weight, ends(how))
            : async (how) => sync.acquire(ends(how)),
        runExclusive: weighted
            ? async (fn, weight, how) => sync.runExclusive(fn, weight, ends(how))
            : async (fn, how) => sync.runExclusive(fn, ends(how)),
        waitForUnlock: weighted ? async (weight, how) => sync.waitForUnlock(weight, ends(how))
            : async (how) => sync.waitForUnlock(ends(how)),
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
