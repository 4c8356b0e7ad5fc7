// A store. Waiting takes neither a thread nor the event loop; calls that may take a request are
// made by threads of the store's own (src/jobs.c).
'use strict';
const { asyncDispose } = require('./dispose.js');
const dropped = require('./dropped.js');
const ending = require('./ending.js');
const { HoldfastError, LockLost, framesAbove, fromAddon, makeError } = require('./errors.js');
const { FLAGS, ONCE, callable, invalid, isOptions, known, signalOf, time, tokenOf, wanted,
    who } = require('./options.js');
const { textOf, valueOf } = require('./results.js');
const { acquireAll } = require('./several.js');
const { offAbort, onAbort } = require('./signals.js');
const { Life, Lock, plain } = require('./lock.js');
const native = require('./native.js');
const { Stream, shown } = require('./stream.js');
const { begin, end, within } = require('./within.js');
const { isMainThread } = require('worker_threads');

const WEEK_MS = 7 * 86400000;

class Store {
    #id;
    #owner; // used by locks that have no other
    #closed;
    #onSignals;
    #life;

    constructor(id, onSignals) {
        this.#id = id;
        this.#onSignals = onSignals;
        this.url = native.url(id);
        if (onSignals) ending.begin();
        // A store with onSignals serves the other stores, too, and closing `mem:` ends its data.
        else if (!this.url.startsWith('mem:')) dropped.stores.register(this, { id, url: this.url });
        this.#life = new Life(this);
        this.version = native.version;
    }

    // Returns the store's id, or throws the error.
    #open(doing, key) {
        if (!this.#closed) return this.#id;
        const at = typeof key === 'string' && key ? key : undefined;
        throw makeError('CANCELED', `${who(doing, at)}: the store is closed`, at);
    }

    // Returns a lock's id at once, if the store is on this machine and the key is free; otherwise a
    // promise of it.
    #get(key, want, signal) {
        if (typeof key !== 'string') throw invalid('acquire', undefined, 'key: must be a string');
        if (signal?.aborted) throw signal.reason;
        return native.try(this.#open('acquire', key), key, want) || this.#ask(key, want, signal);
    }

    // Does what #start does. A request that would wait for a callback around it is only tried: the
    // store decides whether it has to wait at all.
    #ask(key, want, signal, keep) {
        const [wait, , , , mode, limit, flags] = plain(want);
        if (wait < Infinity || flags & FLAGS.recursive || !this.#excluded(key, mode, limit))
            return this.#start(key, want, signal, keep);
        return this.#only(key, [0, ...plain(want).slice(1)], signal, keep);
    }

    // Returns whether callbacks around this call exclude the request. Shared holds don't exclude
    // each other, and limited ones do when there are as many as the smallest of their limits.
    #excluded(key, mode, limit) {
        let n = 0;
        return within((lock) => {
            const [own, most] = lock.lasts(this.#life, key) ?? [];
            if (own === undefined || mode === 0 || mode !== own) return own !== undefined;
            limit = Math.min(limit, most);
            return mode === 2 && ++n >= limit;
        });
    }

    async #only(key, want, signal, keep) {
        try {
            return await this.#start(key, want, signal, keep);
        } catch (failure) {
            if (failure?.failed !== 'BUSY') throw failure;
            throw makeError('RECURSIVE', `${who(keep === undefined ? 'acquire' : 'once', key)}: ` +
                'this call is made within the callback that holds the key, and would wait for ' +
                'ever: release the key first, or give the wait a limit (if the callback does not ' +
                'wait for this call: recursive: true)', key);
        }
    }

    // Returns the promise of a lock's id (or of the result of an event). A grant to a request that
    // was given up is released.
    #start(key, want, signal, keep) {
        const id = this.#open(keep === undefined ? 'acquire' : 'once', key);
        const asked = native.start(id, key, want, keep);
        if (!signal) return asked;
        const wait = native.lastWait();
        return new Promise((resolve, reject) => {
            const abort = () => {
                native.cancel(wait);
                reject(signal.reason);
            };
            onAbort(signal, abort);
            asked.then((got) => {
                offAbort(signal, abort);
                if (!signal.aborted) {
                    resolve(got);
                    return;
                }
                reject(signal.reason); // a listener may have stopped the event before it came here
                if (typeof got === 'number') dropped.giveBack(got).catch(() => {});
            }, (error) => {
                offAbort(signal, abort);
                reject(error);
            });
        });
    }

    #lock(id, key, want, signal) {
        if (typeof want !== 'number' && want[7] !== undefined)
            return new Lock(id, key, this.#life, want[7], signal, want);
        return new Lock(id, key, this.#life, this.#owner ??= native.owner(id), signal, want);
    }

    async acquire(key, options) {
        const want = wanted(options, 'acquire', key);
        const signal = options?.signal;
        const got = this.#get(key, want, signal);
        let id = got;
        if (typeof got !== 'number') {
            const at = callOf(want, asks.acquire);
            try {
                id = await got;
            } catch (failure) {
                throw fromAddon(failure, at);
            }
        }
        const lock = this.#lock(id, key, want, signal);
        if (typeof got !== 'number' && signal?.aborted) {
            lock.release().catch(() => {}); // it was given up between the grant and this moment
            throw signal.reason;
        }
        return lock.handedOut(options?.detached);
    }

    // Not now is null.
    async tryAcquire(key, options = {}) {
        if (isOptions(options, 'acquire', key).wait)
            throw invalid('acquire', key, 'wait: tryAcquire never waits');
        try {
            return await this.acquire(key, { ...options, wait: 0 });
        } catch (error) {
            if (error instanceof HoldfastError && error.code === 'BUSY') return null;
            throw error;
        }
    }

    // Several keys: all or none.
    acquireAll(keys, options) {
        return acquireAll(this, keys, options);
    }
    async #runAll(keys, fn, options) {
        return around(await acquireAll(this, keys, options, 'run'), fn);
    }

    run(key, fn, options) {
        try {
            callable(fn, 'run', key);
            if (Array.isArray(key)) return this.#runAll(key, fn, options);
            const want = wanted(options, 'run', key);
            const got = this.#get(key, want, options?.signal);
            if (typeof got !== 'number') return this.#runLater(got, key, fn, want, options?.signal);
            return around(this.#lock(got, key, want, options?.signal), fn);
        } catch (error) {
            return Promise.reject(error);
        }
    }

    async #runLater(got, key, fn, want, signal) {
        const at = callOf(want, asks.run);
        let id;
        try {
            id = await got;
        } catch (failure) {
            throw fromAddon(failure, at);
        }
        const lock = this.#lock(id, key, want, signal);
        if (signal?.aborted) {
            lock.release().catch(() => {});
            throw signal.reason;
        }
        return around(lock, fn);
    }

    async once(key, fn, options = {}) {
        callable(fn, 'once', key);
        const want = wanted(options, 'once', key, ONCE);
        const { keep = WEEK_MS, signal } = options;
        const keepMs = time(keep, 'keep', 'once', key);
        if (typeof key !== 'string') throw invalid('once', undefined, 'key: must be a string');
        if (signal?.aborted) throw signal.reason;
        const at = framesAbove(asks.once);
        let got;
        try {
            got = await this.#ask(key, want, signal, keepMs);
        } catch (failure) {
            throw fromAddon(failure, at);
        }
        if (typeof got !== 'number') return { ran: false, ...got, value: valueOf(got.result) };
        const lock = this.#lock(got, key, want, signal);
        let value;
        if (signal?.aborted) {
            lock.release().catch(() => {});
            throw signal.reason;
        }
        const entry = { held: lock };
        try {
            value = await begin(entry, fn);
        } catch (error) {
            // The event is left undone, except if it was marked before it ran.
            await lock.release().catch(() => {});
            throw error;
        } finally {
            end(entry);
        }
        const result = textOf(value);
        await lock.finish(result, keepMs);
        return { ran: true, owner: lock.owner, result: result ?? '', value };
    }

    // Takes charge of a grant that was made elsewhere.
    async adopt(key, token) {
        const id = await native.adopt(this.#open('adopt', key), key,
            tokenOf(token, 'adopt', key));
        if (id === undefined)
            throw makeError('CANCELED', `adopt '${key}': the store is closed`, key);
        return new Lock(id, key, this.#life).handedOut(true);
    }

    async peek(key) {
        return shown(await native.peek(this.#open('peek', key), key));
    }

    list(prefix = '', options = {}) {
        return this.#show('list', prefix, options);
    }

    watch(prefix = '', options = {}) {
        return this.#show('watch', prefix, options);
    }

    #show(doing, prefix, options) {
        known(options, SHOW, doing, prefix);
        return new Stream(this, this.#open(doing, prefix), prefix, doing === 'watch',
            signalOf(options.signal, doing, prefix));
    }

    async break(key, token) {
        await native.break(this.#open('break', key), key, tokenOf(token, 'break', key));
    }

    // The event of this key may run again.
    async forget(key) {
        await native.forget(this.#open('forget', key), key);
    }

    // Resolves with how many idle keys were deleted.
    async prune(idle) {
        return native.prune(this.#open('prune'), time(idle, 'idle', 'prune'));
    }

    stats() {
        return { ...native.stats(this.#open('stats')) };
    }

    // Releases what is still held (except detached locks), and ends all waits. Once.
    close() {
        if (this.#closed) return this.#closed;
        this.#closed = (async () => {
            try {
                await native.close(this.#id);
            } finally {
                if (this.#onSignals) ending.leave();
            }
        })();
        this.#life.close(); // a listener may call close() again
        return this.#closed;
    }

    [asyncDispose]() {
        return this.close();
    }
}

// Returns the stack frames of a call that has a limit. The error of a call without a limit has the
// frames of the code that awaits it, because capturing them would cost as much as the wait.
const asks = { acquire: Store.prototype.acquire, once: Store.prototype.once,
    run: Store.prototype.run };
function callOf(want, ask) {
    return (typeof want === 'number' ? want : want[0]) < Infinity ? framesAbove(ask) : undefined;
}

// Runs fn, and releases the key whatever the result.
async function around(lock, fn, release = () => lock.leave()) {
    const entry = { held: lock };
    let value;
    try {
        value = await begin(entry, fn);
    } catch (error) {
        try {
            await release();
        } catch {
            // the first error is the one that is reported
        }
        throw error;
    } finally {
        end(entry);
    }
    try {
        const going = release();
        if (going) await going;
    } catch (error) {
        if (error instanceof LockLost) throw error;
        // The key was held as long as it was needed; the hold now ends by its lease.
        process.emitWarning(error.message, { type: 'HoldfastWarning', code: 'HOLDFAST_RELEASE' });
    }
    return value;
}

const OPEN = new Set(['owner', 'note', 'ioTimeout', 'existing', 'onSignals']);
const OPEN_EXISTING = 1; // HF_OPEN_EXISTING
const SHOW = new Set(['signal']);
const warned = new Set();

// Warns once of each text in a process or worker.
function warn(text) {
    if (!text || warned.has(text)) return;
    warned.add(text);
    process.emitWarning(text, { type: 'HoldfastWarning', code: 'HOLDFAST_STORE' });
}

async function open(url, options = {}) {
    known(options, OPEN, 'open');
    if (url === '')
        throw invalid('open', undefined, "'': no store has this URL; undefined is the default one");
    const { owner, note, ioTimeout, existing = false, onSignals } = options;
    if (typeof existing !== 'boolean')
        throw invalid('open', undefined, 'existing: must be true or false');
    if (onSignals !== undefined && onSignals !== 'release')
        throw invalid('open', undefined, "onSignals: must be 'release'");
    if (onSignals && !isMainThread)
        throw invalid('open', undefined, 'onSignals: a worker gets no signals');
    native.load();
    const id = await native.open(url, owner, note,
        ioTimeout === undefined ? 0 : time(ioTimeout, 'ioTimeout', 'open'),
        existing ? OPEN_EXISTING : 0);
    warn(native.warning(id));
    return new Store(id, onSignals);
}

module.exports = { Lock, Store, around, open };
