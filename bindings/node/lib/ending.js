// What INT, TERM and HUP do to a program that has no handler of its own: open(url, { onSignals:
// 'release' }) gives back what is held before the process dies of the signal.
'use strict';
const native = require('./native.js');

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];
let asking = 0; // how many open stores want it

// Releases everything and ends the process. No JavaScript runs in between, so no code goes on
// without the lock that it relies on.
function end(signal) {
    // A program with a handler of its own ends the process itself.
    if (process.listeners(signal).some((listener) => listener !== end)) return;
    unlisten(); // a second signal ends it at once, if a server doesn't answer
    native.end();
    process.kill(process.pid, signal);
}

function unlisten() {
    for (const signal of SIGNALS) process.removeListener(signal, end);
}

function begin() {
    if (asking++) return;
    for (const signal of SIGNALS) process.on(signal, end);
}

// Called when a store that asked for it is closed.
function leave() {
    if (!--asking) unlisten();
}

module.exports = { begin, leave };
