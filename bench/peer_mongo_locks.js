// mongo-locks: acquire and release, a bare conditional write of the same library. It can't wait for
// a lock, so there is no handover.
//
//     node peer_mongo_locks.js URL ROUNDS ROUND_MS HANDOVERS WARM_MS
//
// prints a JSON object a line.
'use strict';
const { LockManager } = require('mongo-locks');
const { MongoClient } = require('mongodb');
const { inTurns } = require('./series.js');

const [rounds, ms, , warmMs] = process.argv.slice(3).map(Number);

async function main() {
    const client = await new MongoClient(process.argv[2]).connect();
    const locks = new LockManager(client.db().collection('peer_locks'));
    const rows = client.db().collection('peer');
    // On this server there may have been others before.
    await rows.replaceOne({ _id: 'k' }, { rev: 1 }, { upsert: true });
    await inTurns(async () => {
        const lock = await locks.lock('pairs');
        if (!lock || !await lock.free()) throw new Error('not held');
    }, () => rows.findOneAndUpdate({ _id: 'k', rev: { $gte: 0 } }, { $inc: { rev: 1 } }),
                  rounds, ms, warmMs);
    process.exit(0); // each lock that was had sleeps for ten seconds, before it sees that it's free
}

main().catch((error) => {
    console.error(error);
    process.exit(70);
});
