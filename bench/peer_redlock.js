// node redlock: acquire and release, a bare write of the same library, the handover (between two
// clients of one process).
//
//     node peer_redlock.js SOCKET ROUNDS ROUND_MS HANDOVERS      prints a JSON object a line
'use strict';
const { default: Redlock } = require('redlock');
const Redis = require('ioredis');
const { perRound, show } = require('./series.js');

const [path, rounds, ms, handovers] = [process.argv[2], ...process.argv.slice(3).map(Number)];

async function main() {
    const clients = [new Redis({ path }), new Redis({ path })];
    const [one, two] = clients.map((c) => new Redlock([c], { retryCount: -1 }));
    const pairs = [], writes = [], took = [];
    for (let i = 0; i < rounds; i++) {
        pairs.push(await perRound(ms, async () => {
            const lock = await one.acquire(['peer:pairs'], 30000);
            await lock.release();
        }));
        writes.push(await perRound(
            ms, () => clients[0].set('peer:write', '0123456789abcdef', 'PX', 30000)));
    }
    show('acquire+release', pairs);
    show('raw', writes);
    for (let i = 0; i < handovers; i++) {
        const held = await one.acquire(['peer:handover'], 30000);
        let had;
        const next = two.acquire(['peer:handover'], 30000).then((lock) => {
            had = performance.now();
            return lock.release();
        });
        await new Promise((done) => setTimeout(done, 30 + i * 37 % 200));
        const given = performance.now();
        await held.release();
        await next;
        took.push((had - given) * 1e3);
    }
    show('handover', took);
    clients.forEach((c) => c.disconnect());
}

main().catch((error) => {
    console.error(error);
    process.exit(70);
});
