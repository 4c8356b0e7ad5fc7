'use strict';
const { classes } = require('./errors.js');
const { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, KeyedMutex, Mutex, Semaphore, tryAcquire,
    withTimeout } = require('./mutex.js');
const { Lock, Store, open } = require('./store.js');
const { version } = require('../package.json');

module.exports = { ...classes, E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, KeyedMutex, Lock, Mutex,
    Semaphore, Store, open, tryAcquire, version, withTimeout };
