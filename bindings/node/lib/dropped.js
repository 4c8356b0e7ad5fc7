// What the program has dropped without ending it. The collector reports it here.
'use strict';
const native = require('./native.js');
const { offAbort } = require('./signals.js');

const warn = (text) => process.emitWarning(text,
    { type: 'HoldfastWarning', code: 'HOLDFAST_DROPPED' });

async function giveBack(id) {
    await native.release(id);
}

const locks = new FinalizationRegistry(({ id, key, token, detached, life }) => {
    if (detached) {
        life.forget(id);
        return;
    }
    life.dropped(id, token);
    if (native.leftMs(id))
        warn(`the lock on '${key}' (token ${token}) was dropped without release(); it is given ` +
            'back now');
    // Also a lock that is over: maxHold ends the hold for its holder only, and the key stays held.
    giveBack(id).catch(() => {});
});

const warned = new Set(); // URLs

// A store has threads and connections. It is closed when nothing uses it any more; a detached lock
// uses it for ever. A program that drops one may drop thousands, so there is one warning for a URL.
const stores = new FinalizationRegistry(async ({ id, url }) => {
    const closed = native.closeIdle(id);
    if (!closed) return;
    await closed;
    if (!warned.has(url)) warn(`the store '${url}' was dropped without close(); it is closed now`);
    warned.add(url);
});

// A list or a watch has a thread, and its store stays open.
const streams = new FinalizationRegistry(({ id, signal, abort }) => {
    native.stop(id);
    if (signal) offAbort(signal, abort);
});

module.exports = { giveBack, locks, stores, streams };
