// Which locks a call is made within: those whose callback has made it, at once or by whatever the
// callback has started (AsyncLocalStorage).
//
// Before Node 24 AsyncLocalStorage costs every promise of the program something while it is in use.
// So it is in use only while there are callbacks, and until the event loop comes round after that.
'use strict';
const { AsyncLocalStorage } = require('node:async_hooks');
const { setImmediate } = require('node:timers');

const context = new AsyncLocalStorage(); // an array of { held }, the innermost last
let running = 0; // callbacks
let rest; // the look whether there are any still

function restIfIdle() {
    rest = undefined;
    // What the contexts still have is over, now and when they are in use again.
    if (!running) context.disable();
}

// Calls fn with what entry.held is, a lock or several; end(entry) has to follow when it is done.
function begin(entry, fn) {
    running++;
    const outer = context.getStore();
    // Without those that are over: what a callback starts may outlive it, again and again.
    const entries = outer ? [...outer.filter(({ held }) => held), entry] : [entry];
    return context.run(entries, fn, entry.held);
}

// What the callback has started keeps the entry, and would keep the lock.
function end(entry) {
    entry.held = undefined;
    if (!--running) rest ??= setImmediate(restIfIdle).unref();
}

// Is this call made within a lock of which `is` tells so?
function within(is) {
    if (!running) return false;
    const entries = context.getStore() ?? [];
    return entries.some(({ held }) => (Array.isArray(held) ? held.some(is) : held && is(held)));
}

module.exports = { begin, end, within };
