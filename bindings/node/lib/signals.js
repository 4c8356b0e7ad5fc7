// Listeners to AbortSignals: one for each signal, however many waits it ends. A signal may be that
// of a whole program, and Node warns of more than ten listeners.
'use strict';

const heard = new WeakMap(); // signal -> its listener, and what that calls

// The signal isn't aborted yet. Nobody is called twice.
function onAbort(signal, call) {
    const there = heard.get(signal);
    if (there) {
        there.calls.add(call);
        return;
    }
    const calls = new Set([call]);
    const listener = () => {
        for (const one of calls) one();
        heard.delete(signal);
    };
    signal.addEventListener('abort', listener, { once: true });
    heard.set(signal, { calls, listener });
}

// This runs where a holder releases its lock: no waiter's signal, whatever it is, must stop that.
function offAbort(signal, call) {
    const there = heard.get(signal);
    if (!there?.calls.delete(call) || there.calls.size) return;
    try {
        signal.removeEventListener('abort', there.listener);
        heard.delete(signal);
    } catch {
        // The listener stays, for the next wait with this signal.
    }
}

module.exports = { offAbort, onAbort };
