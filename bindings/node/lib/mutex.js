// Mutexes of one process, in plain JavaScript: no store, no addon. They answer to what async-mutex
// documents. KeyedMutex moves to a store when it is given a URL.
'use strict';
const { KeyedMutex } = require('./keyed.js');
const { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Line, State, asked, queue,
    tooLate } = require('./line.js');
const { callable, invalid } = require('./options.js');

function checkWeight(weight) {
    if (typeof weight !== 'number' || !(weight > 0 && weight < Infinity))
        throw new Error(`acquire: invalid weight ${String(weight)}: must be positive`);
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
        for (let next = this.#watchers.first, after; next; next = after) {
            after = next.next;
            if (this.#line.first || next.weight > this.#value) continue;
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
        for (let next; (next = this.#line.first);) {
            this.#line.take(next);
            next.reject(this.#cancelError);
        }
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
        await this.#state.enter(options, tooLate(options));
        let held = true;
        return () => {
            if (held) this.#state.pass();
            held = false;
        };
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

// The same lock, with an end to every wait.
function withTimeout(sync, ms, error = E_TIMEOUT) {
    const limited = (how) => ({ ...(typeof how === 'number' ? { priority: how } : how), wait: ms,
        error });
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

module.exports = { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, KeyedMutex, Mutex, Semaphore,
    tryAcquire, withTimeout };
