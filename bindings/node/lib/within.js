// Finds the locks whose callbacks a call comes from, directly or through asynchronous work that a
// callback has started (AsyncLocalStorage).
// Before Node 24 AsyncLocalStorage slows down every promise of the program while it is in use. So
// it is in use only while there are callbacks, and until the event loop's next turn after that.
'use strict';
const { AsyncLocalStorage } = require('node:async_hooks');
const { setImmediate } = require('node:timers');

const context = new AsyncLocalStorage(); // an array of { held }, the innermost last
let running = 0; // callbacks
let rest; // the timer that checks whether there are callbacks still

function restIfIdle() {
    rest = undefined;
    // Entries that contexts still have belong to callbacks that have ended.
    if (!running) context.disable();
}

// Calls fn with entry.held, which is a lock or several. The caller calls end(entry) when fn is
// done.
function begin(entry, fn) {
    running++;
    const outer = context.getStore();
    // Leaves out entries of callbacks that have ended, because work that a callback started may
    // outlive it, and start more work.
    const entries = outer ? [...outer.filter(({ held }) => held), entry] : [entry];
    return context.run(entries, fn, entry.held);
}

// Takes the lock out of the entry: asynchronous work that the callback has started keeps the entry
// in memory, and would keep the lock with it.
function end(entry) {
    entry.held = undefined;
    if (!--running) rest ??= setImmediate(restIfIdle).unref();
}

// Returns whether this call is made within a lock for which `is` returns true.
function within(is) {
    if (!running) return false;
    const entries = context.getStore() ?? [];
    return entries.some(({ held }) => (Array.isArray(held) ? held.some(is) : held && is(held)));
}

module.exports = { begin, end, within };
