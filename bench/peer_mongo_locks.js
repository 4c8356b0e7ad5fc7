// mongo-locks: acquire and release, a bare conditional write of the same library. It can't wait for
// a lock, so there is no handover.
//
//     node peer_mongo_locks.js URL ROUNDS ROUND_MS [HANDOVERS]      prints a JSON object a line
'use strict';
const { LockManager } = require('mongo-locks');
const { MongoClient } = require('mongodb');
const { perRound, show } = require('./series.js');

const [rounds, ms] = process.argv.slice(3).map(Number);

async function main() {
    const client = await new MongoClient(process.argv[2]).connect();
    const locks = new LockManager(client.db().collection('peer_locks'));
    const rows = client.db().collection('peer');
    await rows.insertOne({ _id: 'k', rev: 1 });
    const pairs = [], writes = [];
    for (let i = 0; i < rounds; i++) {
        pairs.push(await perRound(ms, async () => {
            const lock = await locks.lock('pairs');
            if (!lock || !await lock.free()) throw new Error('not held');
        }));
        writes.push(await perRound(
            ms, () => rows.findOneAndUpdate({ _id: 'k', rev: { $gte: 0 } }, { $inc: { rev: 1 } })));
    }
    show('acquire+release', pairs);
    show('raw', writes);
    process.exit(0); // each lock that was had sleeps for ten seconds, before it sees that it's free
}

main().catch((error) => {
    console.error(error);
    process.exit(70);
});
