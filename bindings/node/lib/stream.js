// What list and watch show of a store's keys, as it comes.
'use strict';
const { asyncDispose } = require('./dispose.js');
const { framesAbove, fromAddon, withFrames } = require('./errors.js');
const native = require('./native.js');
const { offAbort, onAbort } = require('./signals.js');

// Copies an object: the addon's objects belong to the main context, in which a test runner's
// modules don't run.
const shown = ({ holders, waiters, ...info }) => ({ ...info,
    holders: Array.from(holders, (party) => ({ ...party })),
    waiters: Array.from(waiters, (party) => ({ ...party })) });

// An async iterator.
class Stream {
    #id;
    #store; // so that it isn't dropped meanwhile
    #items = [];
    #taken = 0;
    #waiting = [];
    #over;
    #error;
    #unlisten;

    constructor(store, id, prefix, watches, signal) {
        const at = framesAbove(Stream);
        this.#store = store;
        this.#id = native.stream(id, prefix, watches, (info, failure) => {
            if (info) this.#items.push(shown(info));
            else this.#end(failure && withFrames(fromAddon(failure), at));
            this.#serve();
        });
        if (!signal) return;
        const abort = () => {
            this.#end(signal.reason);
            this.#serve();
        };
        if (signal.aborted) {
            abort();
            return;
        }
        onAbort(signal, abort);
        this.#unlisten = () => offAbort(signal, abort);
    }

    #end(error) {
        if (this.#over) return;
        this.#over = true;
        this.#error = error;
        this.#unlisten?.();
        this.#store = undefined;
        native.stop(this.#id);
    }

    #serve() {
        while (this.#waiting.length && (this.#taken < this.#items.length || this.#over)) {
            native.pend(-1);
            this.#give(this.#waiting.shift());
        }
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
