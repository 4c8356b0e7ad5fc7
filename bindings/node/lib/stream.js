// What list and watch show of a store's keys, as it comes.
'use strict';
const { asyncDispose } = require('./dispose.js');
const dropped = require('./dropped.js');
const { framesAbove, fromAddon, withFrames } = require('./errors.js');
const native = require('./native.js');
const { offAbort, onAbort } = require('./signals.js');

// Copies an object: the addon's objects belong to the main context, in which a test runner's
// modules don't run.
const shown = ({ holders, waiters, ...info }) => ({ ...info,
    holders: Array.from(holders, (party) => ({ ...party })),
    waiters: Array.from(waiters, (party) => ({ ...party })) });

const awaited = new Set(); // streams that a consumer waits for: nothing else keeps them in memory

// An async iterator. The functions that the addon and a signal have of it don't keep it in memory,
// so it ends if the program drops it.
class Stream {
    #id;
    #store; // so that it isn't dropped meanwhile
    #items = [];
    #taken = 0;
    #waiting = [];
    #over;
    #error;
    #signal;
    #abort;

    constructor(store, id, prefix, watches, signal) {
        const weak = new WeakRef(this), at = framesAbove(Stream);
        this.#store = store;
        this.#id = native.stream(id, prefix, watches, Stream.#taker(weak, at));
        const abort = Stream.#ender(weak, signal);
        if (signal?.aborted) {
            abort();
            return;
        }
        if (signal) onAbort(signal, abort);
        this.#signal = signal;
        this.#abort = abort;
        dropped.streams.register(this, { id: this.#id, signal, abort });
    }

    static #taker(weak, at) {
        return (info, failure) => {
            if (info) weak.deref()?.#items.push(shown(info));
            else weak.deref()?.#end(failure && withFrames(fromAddon(failure), at));
            weak.deref()?.#serve();
        };
    }

    static #ender(weak, signal) {
        return () => {
            weak.deref()?.#end(signal.reason);
            weak.deref()?.#serve();
        };
    }

    #end(error) {
        if (this.#over) return;
        this.#over = true;
        this.#error = error;
        if (this.#signal) offAbort(this.#signal, this.#abort);
        this.#store = undefined;
        native.stop(this.#id);
    }

    #serve() {
        while (this.#waiting.length && (this.#taken < this.#items.length || this.#over)) {
            native.pend(-1);
            this.#give(this.#waiting.shift());
        }
        if (!this.#waiting.length) awaited.delete(this);
    }

    #give({ resolve, reject }) {
        if (this.#taken < this.#items.length) {
            native.took(this.#id);
            resolve({ done: false, value: this.#items[this.#taken++] });
            if (this.#taken < 1024) return;
            this.#items.splice(0, this.#taken);
            this.#taken = 0;
        } else if (this.#error) {
            reject(this.#error);
            this.#error = undefined;
        } else {
            resolve({ done: true, value: undefined });
        }
    }

    next() {
        return new Promise((resolve, reject) => {
            this.#waiting.push({ resolve, reject });
            awaited.add(this);
            native.pend(1); // a consumer waits, so the process stays alive
            this.#serve();
        });
    }

    async return(value) {
        this.#items = [];
        this.#taken = 0;
        this.#end();
        this.#serve();
        return { done: true, value };
    }

    [Symbol.asyncIterator]() {
        return this;
    }

    [asyncDispose]() {
        return this.return();
    }
}

module.exports = { Stream, shown };
