// An option that is written as in another library is refused, and the message has the right name
// (bindings/hints.json).
//
//     node names.test.js URL
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const holdfast = require('../lib/index.js');
const hints = require('../../hints.json');

const { InvalidArgument, KeyedMutex, Mutex } = holdfast;
const url = process.argv[2];
const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const here = (right) => camel(right).replace('=', ': ');
const times = ['wait', 'lease', 'maxHold', 'atLeast', 'ioTimeout', 'keep'];

async function answers(call, name, right) {
    await assert.rejects(async () => call({ [name]: 1 }), (error) => {
        assert.ok(error instanceof InvalidArgument, error.stack);
        assert.ok(error.message.endsWith(`no option '${name}'${right ? `: write ${right}` : ''}`),
            error.message);
        return true;
    });
}

// In both spellings; and with a unit, where the option is a time.
async function all(call, table) {
    for (const [right, names] of Object.entries(table)) {
        for (const name of names) {
            for (const one of new Set([name, camel(name)])) await answers(call, one, here(right));
            if (!times.includes(here(right))) continue;
            for (const one of [`${name}_ms`, `${camel(name)}Ms`])
                await answers(call, one, here(right));
        }
    }
}

test('what other libraries call the options', async () => {
    const store = await holdfast.open(url);
    const never = () => assert.fail('runs');
    for (const call of [(options) => store.acquire('a', options),
        (options) => store.run('a', never, options),
        (options) => store.run(['a', 'b'], never, options)]) {
        await all(call, hints.acquire);
        await all(call, hints.node);
        for (const [name, right] of [['max_hold', 'maxHold'], ['maxhold', 'maxHold'],
            ['Wait', 'wait'], ['waitMs', 'wait'], ['lease_ms', 'lease'], ['at_least', 'atLeast'],
            ['no_renew', 'noRenew'], ['request_id', 'requestId'], ['nonsense', ''],
            ['constructor', ''], ['at_most_once', ''], ['x'.repeat(40), '']])
            await answers(call, name, right);
    }
    const once = (options) => store.once('a', never, options);
    await all(once, hints.once);
    await answers(once, 'at_most_once', 'atMostOnce');
    assert.equal((await store.peek('a')).rev, 0);
    await all((options) => holdfast.open(url, options), hints.open);
    await answers((options) => holdfast.open(url, options), 'lease', '');
    await answers((options) => store.list('', options), 'abortSignal', 'signal');
    await store.close();
});

test('mutexes of one process', async () => {
    const mutex = new Mutex(), keyed = new KeyedMutex();
    for (const call of [(options) => mutex.acquire(options),
        (options) => mutex.runExclusive(() => assert.fail('runs'), options)]) {
        await answers(call, 'timeout', 'wait');
        await answers(call, 'abortSignal', 'signal');
        await answers(call, 'ttl', '');
    }
    await assert.rejects(keyed.acquire('a', { timeout: 5 }), { code: 'INVALID',
        message: "acquire 'a': no option 'timeout' without a store: write wait" });
    await assert.rejects(keyed.acquire('a', { limit: 5 }), { code: 'INVALID',
        message: "acquire 'a': no option 'limit' without a store" });
});
