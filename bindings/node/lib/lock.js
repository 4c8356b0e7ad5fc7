// A lock of a store, and what it needs to know of that store. Calls that may take a request are
// made by threads of the store's own (src/jobs.c).
'use strict';
const { asyncDispose, dispose, warns } = require('./dispose.js');
const dropped = require('./dropped.js');
const { HoldfastError, fromAddon, makeError } = require('./errors.js');
const { FLAGS, invalid, time } = require('./options.js');
const { offAbort, onAbort } = require('./signals.js');
const native = require('./native.js');

// What locks need to know of their store. It keeps no reference to the locks.
class Life {
    closed = false;
    store; // so a store isn't dropped before its locks are
    // On `mem:` and `file:` only its holder, or the end of the process, ends a hold without a
    // lease.
    near;
    #signals = new Map(); // a lock's id -> the AbortController of its signal, and what ends it

    constructor(store) {
        this.store = store;
        this.near = /^(mem|file):/.test(store.url);
    }

    // The signal `until` aborts it, too.
    register(id, key, controller, until) {
        const abort = until && (() => controller.abort(until.reason));
        this.#signals.set(id, { key, controller, until, abort });
        if (until) onAbort(until, abort);
    }

    forget(id) {
        if (!this.#signals.size) return;
        const { until, abort } = this.#signals.get(id) ?? {};
        if (until) offAbort(until, abort);
        this.#signals.delete(id);
    }

    // Code that kept the signal of a dropped lock mustn't go on believing in the lock.
    dropped(id, token) {
        const { key, controller } = this.#signals.get(id) ?? {};
        this.forget(id);
        controller?.abort(makeError('LOST', `hold '${key}': token ${token} was dropped without ` +
            'release()', key));
    }

    close() {
        this.closed = true;
        for (const [id, { key, controller }] of this.#signals) {
            this.forget(id);
            controller.abort(makeError('LOST', `hold '${key}': its store was closed`, key));
        }
    }
}

class Lock {
    #id;
    #life;
    #owner;
    #controller;
    #until; // the signal in the options
    #want; // the options, as the addon takes them
    #released; // the state of the release: a promise, or true
    #watched = false; // by the collector
    #orphan = false; // its store was closed before it was released

    constructor(id, key, life, owner, until, want) {
        this.#id = id;
        this.#life = life;
        this.key = key;
        this.token = native.token(id);
        this.#owner = owner;
        this.#until = until;
        this.#want = want;
    }

    get owner() {
        return this.#owner ??= this.#released ? undefined : native.owner(this.#id);
    }

    // For how many milliseconds the holder may believe in it; 0: no longer; Infinity: as long as
    // this process lives.
    get leftMs() {
        return this.#released ? 0 : Math.max(0, native.leftMs(this.#id));
    }

    // Aborts when the lock is lost (the reason is a LockLost), or with the signal in the options.
    get signal() {
        const controller = this.#controller ??= this.#listen();
        // If its lease is over, the signal is aborted here, before the library reports the loss.
        if (!controller.signal.aborted && !this.#released && this.leftMs === 0)
            controller.abort(this.#life.closed ? this.#gone('hold')
                : lost(this.key, this.token));
        return controller.signal;
    }

    #listen() {
        const controller = new AbortController();
        const until = this.#until;
        if (until?.aborted) controller.abort(until.reason);
        if (this.#released || this.#life.closed) return controller;
        this.#life.register(this.#id, this.key, controller, until?.aborted ? undefined : until);
        const { key, token } = this;
        native.onLost(this.#id, (why) => controller.abort(why ? fromAddon(why) : lost(key, token)));
        return controller;
    }

    // The signal for the function that runs under the lock; it differs from the signal of the wait.
    follows(until) {
        this.#until = until;
        return this;
    }

    // Releases once; a second call does nothing more.
    release() {
        this.#released ??= this.#end(() => native.release(this.#id));
        return this.#released === true ? Promise.resolve() : this.#released;
    }

    async #end(how) {
        this.#ends();
        await this.#named(how);
    }

    #ends() {
        if (this.#watched) dropped.locks.unregister(this);
        this.#life.forget(this.#id);
        this.#orphan = this.#life.closed;
        // kept now, because it can't be asked later
        if (!this.#orphan) this.#owner ??= native.owner(this.#id);
    }

    async #named(how) {
        try {
            await how();
        } catch (error) {
            throw named(error, this.key);
        }
    }

    // Releases after a function has run under the lock. A lock of a store that was closed meanwhile
    // wasn't held to the end. Returns a promise, or undefined if no request was needed, because a
    // promise is a good part of the cost of a run on a local store.
    leave() {
        if (this.#released || this.#life.closed) return this.#leaves();
        this.#ends();
        let going;
        try {
            going = native.release(this.#id);
        } catch (error) {
            going = Promise.reject(error);
        }
        this.#released = going ? this.#named(() => going) : true;
        return going && this.#released;
    }

    async #leaves() {
        await this.release();
        if (this.#orphan) throw this.#gone('release');
    }

    // Ends an event: turns the hold into the event's mark. If that can't even be tried, releases
    // the key.
    async finish(result, keep) {
        if (this.#released || this.#life.closed) throw this.#gone('once');
        await (this.#released = this.#end(async () => {
            try {
                await native.finish(this.#id, result, keep);
            } catch (error) {
                await dropped.giveBack(this.#id).catch(() => {});
                throw error;
            }
        }));
    }

    #gone(doing) {
        const why = this.#released && !this.#orphan ? 'the lock was released'
            : 'its store was closed';
        return makeError('LOST', `${doing} '${this.key}': ${why}`, this.key);
    }

    async renew(lease) {
        await this.#use('renew', () => native.renew(this.#id,
            lease === undefined ? 0 : time(lease, 'lease', 'renew', this.key)));
    }

    async confirm() {
        await this.#use('confirm', () => native.confirm(this.#id));
    }

    // Shows the token to the guard of the data. Call it before the data are read.
    async enter(where) {
        if (where !== undefined && (typeof where !== 'string' || /[\0\p{Cs}]/u.test(where)))
            throw invalid('enter', this.key, 'where: must be a string without NUL');
        await this.#use('enter', () => native.enter(this.#id, where));
    }

    async #use(doing, how) {
        if (this.#released || this.#life.closed) throw this.#gone(doing);
        try {
            await how();
        } catch (error) {
            throw named(error, this.key);
        }
    }

    // Returns [mode, limit] if this lock holds the key of that store until its holder ends it.
    lasts(life, key) {
        if (this.key !== key || this.#life !== life || !this.leftMs) return undefined;
        const [, lease, maxHold, , mode, limit, flags] = plain(this.#want);
        const ends = maxHold || flags & (FLAGS.noRenew | FLAGS.detached);
        return ends && !(life.near && !lease) ? undefined : [mode, limit];
    }

    // From here on a callback uses it, and may lose it.
    handedOut(detached) {
        this.#watched = true;
        dropped.locks.register(this, { id: this.#id, key: this.key, token: this.token, detached,
            life: this.#life }, this);
        return this;
    }

    [asyncDispose]() {
        return this.release();
    }

    [dispose]() {
        warns(this.release());
    }
}

const plain = (want) => (Array.isArray(want) ? want : [want, 0, 0, 0, 0, 0, 0]);
const lost = (key, token) => makeError('LOST', `hold '${key}': token ${token} was lost`, key);

function named(error, key) {
    if (error instanceof HoldfastError) error.key ??= key;
    return error;
}

module.exports = { Life, Lock, plain };
