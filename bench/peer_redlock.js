// node redlock: acquire and release, a bare write of the same library, the handover (to another
// process, by this program without more words than the socket).
//
//     node peer_redlock.js SOCKET ROUNDS ROUND_MS HANDOVERS WARM_MS     prints a JSON object a line
'use strict';
const { fork } = require('child_process');
const { once } = require('events');
const { default: Redlock } = require('redlock');
const Redis = require('ioredis');
const { inTurns, show } = require('./series.js');

const [path, rounds, ms, handovers, warmMs] = [process.argv[2],
                                               ...process.argv.slice(3).map(Number)];
const client = new Redis({ path });
const locks = new Redlock([client], { retryCount: -1 });
const now = () => process.hrtime.bigint(); // the machine's, not the process's

// The other process: for each message it takes the lock, and says when it had it.
function want() {
    process.on('disconnect', () => process.exit());
    process.on('message', async () => {
        const held = await locks.acquire(['peer:handover'], 30000);
        const had = now();
        await held.release();
        process.send(String(had));
    });
}

async function handover() {
    const other = fork(__filename, [path]), took = [];
    for (let i = 0; i < handovers; i++) {
        const held = await locks.acquire(['peer:handover'], 30000);
        other.send('want');
        await new Promise((done) => setTimeout(done, 30 + i * 37 % 200));
        const said = once(other, 'message');
        const given = now();
        await held.release();
        took.push(Number(BigInt((await said)[0]) - given) / 1e3);
    }
    other.disconnect();
    show('handover', took);
}

async function main() {
    await inTurns(async () => (await locks.acquire(['peer:pairs'], 30000)).release(),
                  () => client.set('peer:write', '0123456789abcdef', 'PX', 30000),
                  rounds, ms, warmMs);
    await handover();
    client.disconnect();
}

if (process.argv.length === 3) want();
else main().catch((error) => {
    console.error(error);
    process.exit(70);
});
