// Locks a key on the store that is named: node locks.js URL, where the package is installed.
'use strict';
const { open } = require('holdfast');

open(process.argv[2]).then(async (store) => {
    const lock = await store.acquire('key');
    console.log(lock.token > 0n);
    await lock.release();
    await store.close();
});
