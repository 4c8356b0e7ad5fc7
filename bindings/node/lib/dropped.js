// What the program has dropped without ending it. The collector reports it here.
'use strict';
const native = require('./native.js');

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

const told = new Set();

// A store has threads and connections. It stays open if something still uses it, such as a
// detached lock. A program that drops one may drop thousands, so there is one warning for a URL.
const stores = new FinalizationRegistry(({ id, url }) => {
    const closed = native.closeIdle(id);
    if (!closed) return;
    if (!told.has(url)) warn(`the store '${url}' was dropped without close(); it is closed now`);
    told.add(url);
    closed.catch(() => {});
});

module.exports = { giveBack, locks, stores };
