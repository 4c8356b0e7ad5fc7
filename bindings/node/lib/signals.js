// Listeners to AbortSignals: one for each signal, however many waits it ends. A signal may be that
// of a whole program, and Node warns of more than ten listeners.
'use strict';

const heard = new WeakMap(); // signal -> its listener, and what that calls

// Calls `call` once when the signal aborts. The signal isn't aborted yet.
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

// Takes `call` back. It runs while a holder releases its lock, so an exception of a waiter's signal
// must not stop it.
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
