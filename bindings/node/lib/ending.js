// What INT, TERM and HUP do to a program that has no handler of its own: open(url, { onSignals:
// 'release' }) gives back what is held before the process dies of the signal.
'use strict';
const { constants } = require('os');
const native = require('./native.js');

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];
// Marks the listener, so that the copies of this package in one process know each other's. Its
// value releases what that copy holds.
const OURS = Symbol.for('holdfast.ending');
let asking = 0; // how many open stores want it

// Releases everything and ends the process. No JavaScript runs in between, so no code goes on
// without the lock that it relies on.
function end(signal) {
    const all = process.listeners(signal), ours = all.filter((listener) => listener[OURS]);
    if (ours.length < all.length) {
        stepAside(signal);
        return;
    }
    // a second signal ends it at once, if a server doesn't answer
    for (const name of SIGNALS) {
        for (const listener of process.listeners(name))
            if (listener[OURS]) process.removeListener(name, listener);
    }
    for (const listener of ours) listener[OURS]();
    process.kill(process.pid, signal);
    // The first process of a PID namespace, as in a container, isn't killed by its own signal. This
    // runs no listener of 'exit'.
    process.reallyExit(128 + constants.signals[signal]);
}
end[OURS] = () => native.end();

// A program with a handler of its own ends the process itself. This listener is away meanwhile,
// because a handler may end the process only if there is no other (that of signal-exit).
function stepAside(signal) {
    process.removeListener(signal, end);
    process.nextTick(() => {
        if (asking) listen(signal);
    });
}

// It is the first listener, so that it can step aside before the others run.
function listen(signal) {
    if (!process.listeners(signal).includes(end)) process.prependListener(signal, end);
}

function begin() {
    if (!asking++) SIGNALS.forEach(listen);
}

// Called when a store that asked for it is closed.
function leave() {
    if (--asking) return;
    for (const signal of SIGNALS) process.removeListener(signal, end);
}

module.exports = { begin, leave };
