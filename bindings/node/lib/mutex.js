// Mutexes of one process, in plain JavaScript: no store, no addon. They answer to what async-mutex
// documents. KeyedMutex moves to a store when it is given a URL.
'use strict';
const { releaser } = require('./dispose.js');
const { KeyedMutex } = require('./keyed.js');
const { ERROR, E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Line, State, asked, queue,
    rejectAll, tooLate } = require('./line.js');
const { callable, invalid, isOptions, time } = require('./options.js');

function checkWeight(weight) {
    if (typeof weight !== 'number' || !(weight > 0 && weight < Infinity))
        throw invalid('acquire', undefined, `invalid weight ${String(weight)}: must be positive`);
}

// 0 and less are values, too: those who ask wait until there is enough.
function numeric(doing, value) {
    if (Number.isFinite(value)) return value;
    throw invalid(doing, undefined, 'the value must be a number');
}

// One that counts; a Mutex is one that counts to one.
class Semaphore {
    #value;
    #cancelError;
    #line = new Line();
    #watchers = new Line(); // of waitForUnlock

    constructor(value, cancelError = E_CANCELED) {
        this.#value = numeric('Semaphore', value);
        this.#cancelError = cancelError;
    }

    // Those of waitForUnlock stand before who has a lower priority, behind all others.
    #show() {
        const { first } = this.#line;
        for (let next = this.#watchers.first, after; next; next = after) {
            if (first && next.priority <= first.priority) return;
            after = next.next;
            if (next.weight > this.#value) continue;
            this.#watchers.take(next);
            next.turn();
        }
    }

    #serve() {
        this.#show();
        for (let next; (next = this.#line.first) && next.weight <= this.#value;) {
            this.#line.take(next);
            const had = this.#value;
            this.#value -= next.weight;
            next.turn(had);
            this.#show();
        }
    }

    // The value that there was.
    async #enter(weight, how) {
        const options = asked(how);
        const { signal } = options;
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

    async #acquire(weight, how) {
        const had = await this.#enter(weight, how);
        let held = true;
        return [had, releaser(() => {
            if (held) this.release(weight);
            held = false;
        })];
    }

    // A bad weight is thrown, as by async-mutex; whatever else is wrong is a rejection.
    acquire(weight = 1, how) {
        checkWeight(weight);
        return this.#acquire(weight, how);
    }

    async runExclusive(fn, weight = 1, how) {
        callable(fn, 'runExclusive');
        checkWeight(weight);
        const had = await this.#enter(weight, how);
        try {
            return await fn(had);
        } finally {
            this.release(weight);
        }
    }

    waitForUnlock(weight = 1, how) {
        checkWeight(weight);
        return this.#watch(weight, how);
    }

    async #watch(weight, how) {
        const options = asked(how), { first } = this.#line;
        if (weight <= this.#value && !(first && first.priority >= (options.priority ?? 0))) return;
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
    const weigh = (weight = 1) => checkWeight(weight);
    const later = async (call) => call();
    return {
        acquire: weighted ? (weight, how) => {
            weigh(weight);
            return later(() => sync.acquire(weight, ends(how)));
        } : async (how) => sync.acquire(ends(how)),
        runExclusive: weighted
            ? async (fn, weight, how) => sync.runExclusive(fn, weight, ends(how))
            : async (fn, how) => sync.runExclusive(fn, ends(how)),
        waitForUnlock: weighted ? (weight, how) => {
            weigh(weight);
            return later(() => sync.waitForUnlock(weight, ends(how)));
        } : async (how) => sync.waitForUnlock(ends(how)),
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
