// node redlock as a competitor:  node peer_redlock.js SOCKET LEASE_MS
'use strict';
const { default: Redlock } = require('redlock');
const Redis = require('ioredis');
const { compete } = require('./competitor.js');

const client = new Redis({ path: process.argv[2] });
const locks = new Redlock([client], { retryCount: -1 });
const leaseMs = Number(process.argv[3]) || 30000;

client.ping()
    .then(() => compete((key) => locks.acquire(['contend:' + key], leaseMs),
                        (lock) => lock.release()))
    .then(() => client.disconnect(), (error) => {
        console.error(error);
        process.exit(70);
    });
