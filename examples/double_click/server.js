// A shop: POST /orders/CUSTOMER/CONCERT buys a ticket, unless the customer has one already.
//
//     node server.js DATABASE [none | memory | URL of a store]      prints its port
'use strict';
const http = require('node:http');
const { execFile } = require('node:child_process');
const { setTimeout: pause } = require('node:timers/promises');
const { promisify } = require('node:util');
const { KeyedMutex } = require('../../bindings/node/lib/mutex.js'); // installed: 'holdfast/mutex'

const [database, locks = 'none'] = process.argv.slice(2);
const PAYMENT_MS = 500;
const run = promisify(execFile);

async function sql(text) {
    const { stdout } = await run('sqlite3', ['-bail', '-cmd', '.timeout 30000', database, text]);
    return stdout.trim();
}

// As its team had it: look, take the money, write.
async function buy(customer, concert) {
    const where = `customer = '${customer}' AND concert = '${concert}'`;
    const had = await sql(`SELECT id FROM orders WHERE ${where} LIMIT 1`);
    if (had) return { status: 200, ticket: had };
    await pause(PAYMENT_MS);
    const ticket = await sql('INSERT INTO orders (customer, concert) VALUES ' +
        `('${customer}', '${concert}') RETURNING id`);
    return { status: 201, ticket };
}

// The difference: one line, and the call inside it.
const mutex = locks === 'none' ? null : new KeyedMutex(locks === 'memory' ? undefined : locks);

function order(customer, concert) {
    if (!mutex) return buy(customer, concert);
    return mutex.runExclusive(`orders/${customer}/${concert}`, () => buy(customer, concert));
}

const server = http.createServer(async (request, response) => {
    const [, customer, concert] = /^\/orders\/(\w+)\/(\w+)$/.exec(request.url) ?? [];
    let answer = { status: 404 };
    try {
        if (customer && request.method === 'POST') answer = await order(customer, concert);
    } catch (error) {
        answer = { status: 503, error: error.message };
    }
    response.writeHead(answer.status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(answer));
});
server.listen(0, '127.0.0.1', 256, () => console.log(server.address().port));
// The process that started this one ends it by closing its input.
process.stdin.on('end', () => process.exit()).resume();
