// Options that are refused before the store is asked, and the message of each refusal.
//
//     node options.test.js URL
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const holdfast = require('../lib/index.js');

const { InvalidArgument, LockLost } = holdfast;
const url = process.argv[2];
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0, one, two;
const fresh = () => `${prefix}${++n}`;
// Keeps the process alive, which a pending promise or a listener alone doesn't.
const alive = setInterval(() => {}, 1000);
async function until(look) {
    while (!await look()) await new Promise((resolve) => setTimeout(resolve, 5));
}

test('open', async () => {
    [one, two] = [await holdfast.open(url), await holdfast.open(url)];
});

// Neither a grant nor a wait comes of them.
test('refused before the store is asked: signals, flags, functions', async () => {
    const key = fresh();
    const { acquired } = one.stats();
    const calls = [(options) => one.acquire(key, options),
        (options) => one.run(key, () => assert.fail(), options),
        (options) => one.once(key, () => assert.fail(), options)];
    for (const call of calls) {
        for (const signal of [new AbortController(), {}, { aborted: false }, 'x', null])
            await assert.rejects(call({ signal }),
                { name: 'InvalidArgument', message: new RegExp(`^\\w+ '${key}': signal: `) });
        for (const flag of ['shared', 'detached', 'unqueued', 'recursive', 'noRenew'])
            for (const value of ['false', 0, 1, null])
                await assert.rejects(call({ [flag]: value, lease: '60s' }),
                    { name: 'InvalidArgument',
                        message: new RegExp(`^\\w+ '${key}': ${flag}: `) });
    }
    await assert.rejects(one.once(key, () => assert.fail(), { atMostOnce: 'false' }),
        InvalidArgument);
    for (const show of ['list', 'watch'])
        assert.throws(() => one[show](key, { signal: new AbortController() }), InvalidArgument);
    for (const fn of [function* () {}, async function* () {}, undefined, 'x'])
        for (const call of ['run', 'once'])
            await assert.rejects(one[call](key, fn), InvalidArgument);
    assert.deepEqual([one.stats().acquired, (await two.peek(key)).rev], [acquired, 0]);
    const lock = await one.acquire(key, { wait: 0, shared: false, noRenew: undefined });
    await lock.release();
});

test('every refusal says in one line what was asked for which key', async () => {
    const key = fresh();
    const lock = await one.acquire(key);
    const other = fresh(), closed = await holdfast.open(url);
    await closed.close();
    for (const [at, call] of [[key, () => two.acquire(key, { wait: 0 })],
        [key, () => two.run(key, () => assert.fail(), { wait: '20ms' })],
        [key, () => two.once(key, () => assert.fail(), { wait: 0 })],
        [key, () => lock.renew('soon')], [key, () => lock.enter(5)],
        [key, () => lock.enter('a\0b')], [key, () => two.break(key, 0)],
        [key, () => two.break(key, 7)], [key, () => two.adopt(key, 7)],
        ...['acquire', 'run', 'once'].flatMap((call) => [{ wait: -1 }, { wayt: 1 }, 'x',
            { lease: '1x' }, { lease: 5 }, { lease: '2d' }, { limit: 2000 }, { owner: 'a\0b' },
            { owner: 5 }, { note: 'a\ud800' }, { note: 'x'.repeat(300) }, { requestId: 'ab' },
            { shared: true, limit: 2 }, { detached: true }, { wait: '5s\n' }, { 'a\nb': 1 },
            { lease: '\x1b[2J' }, { 'a\u2028b\u202e': 1 }].map((options) => [other,
            () => (call === 'acquire' ? two.acquire(other, options)
                : two[call](other, () => assert.fail(), options))])),
        [other, () => two.once(other, () => assert.fail(), { keep: -1 })],
        ...['acquire', 'run', 'once', 'peek', 'break', 'adopt', 'list', 'watch'].map((call) =>
            [other, () => closed[call](other, ...{ run: [() => assert.fail()], break: [7],
                once: [() => assert.fail()], adopt: [7] }[call] ?? [])])])
        await assert.rejects(async () => call(), (error) => {
            assert.ok(error instanceof holdfast.HoldfastError, error.stack);
            assert.deepEqual([error.key, error.message.includes(`'${at}'`),
                /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(error.message)], [at, true, false],
            error.message);
            return true;
        });
    await lock.release();
    await assert.rejects(lock.renew(), new RegExp(`^LockLost: renew '${key}': `));
    await assert.rejects(one.run(key, 5), new RegExp(`run '${key}': fn: `));
    for (const show of ['list', 'watch'])
        assert.throws(() => one[show](key, { prefix: 'x' }), new RegExp(`${show} '${key}': no `));
});

test('the error of a weight that is no number has one line, and not its text', async () => {
    const semaphore = new holdfast.Semaphore(1);
    for (const weight of ['a\nb', Object.create(null), { toString: assert.fail }, Symbol('a')])
        assert.throws(() => semaphore.acquire(weight), (error) =>
            error instanceof InvalidArgument && !/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(error.message));
});

test('errors of limits have the names of this language', async () => {
    const lock = await one.acquire(`${fresh()}: lease_ms: must be 5`, { maxHold: 100 });
    for (const [call, said] of [
        [() => one.acquire(fresh(), { detached: true }), 'a detached grant needs lease'],
        [() => one.acquire(`${fresh()}_ms`, { atLeast: '2s', maxHold: '1s' }),
            'atLeast: must not be above maxHold'],
        [() => holdfast.open('redis://none/?timeout=5'),
            'the limit of a request is open\'s ioTimeout']])
        await assert.rejects(call, (error) => {
            assert.ok(error instanceof InvalidArgument && error.message.endsWith(`: ${said}`),
                error.message);
            return true;
        });
    await until(() => lock.leftMs === 0);
    await assert.rejects(lock.release(), / as long as maxHold allows$/);
});

// An option that isn't wanted is left out: 0 and Infinity don't mean "not given".
test('times that are none, or out of range, are refused before the store is asked', async () => {
    const never = () => assert.fail(), { acquired } = one.stats();
    const lock = await one.acquire(fresh()), keyed = new holdfast.KeyedMutex();
    const lease = '100ms to 1d, or not given', wait = '0s to 365d, or not given';
    const of = (name) => [(bad) => one.acquire('k', { [name]: bad }),
        (bad) => one.run('k', never, { [name]: bad }),
        (bad) => one.once('k', never, { [name]: bad })];
    const several = (name) => [(bad) => one.acquireAll(['k'], { [name]: bad }),
        (bad) => one.run(['k', 'l'], never, { [name]: bad })];
    for (const [calls, name, range, values] of [
        [[...of('lease'), ...several('lease'), (bad) => lock.renew(bad),
            (bad) => keyed.acquire('k', { lease: bad })], 'lease', lease,
        [0, -0, '0', '0ms', 99, '25h', 86400001, Infinity, `${'9'.repeat(400)}s`]],
        [[...of('maxHold'), ...several('maxHold')], 'maxHold', '1ms to 365d, or not given',
            [0, '0s', Infinity, '366d']],
        [[...of('wait'), ...several('wait'), (bad) => keyed.acquire('k', { wait: bad })], 'wait',
            wait, ['366d', 2 ** 53, 1e300, `${'9'.repeat(400)}s`]],
        [of('atLeast'), 'atLeast', '0s to 1d', ['25h', Infinity]],
        [of('keep').slice(2), 'keep', '1ms to 36500d, or Infinity', [0, '0', '36501d']],
        [[(bad) => one.prune(bad)], 'idle', '60s to 36500d', [0, '59s', Infinity]],
        [[(bad) => holdfast.open(url, { ioTimeout: bad })], 'ioTimeout',
            '100ms to 1h, or not given', [0, '0', 5, '2h', Infinity]]])
        for (const call of calls) {
            for (const bad of values) {
                const unit = typeof bad === 'number' ? ' ms' : '';
                const says = `${name}: '${String(bad).slice(0, 40)}${unit}' is out of range: it ` +
                    `must be ${range}`;
                await assert.rejects(call(bad), (error) => error instanceof InvalidArgument &&
                    error.message.endsWith(says), says);
            }
            for (const bad of [NaN, -Infinity, -1, true, null, 5n, [1], {}, 'Infinity', '1 s'])
                await assert.rejects(call(bad), (error) => error instanceof InvalidArgument &&
                    / is not a time: milliseconds, or a text such as /.test(error.message),
                `${name}: ${String(bad)}`);
        }
    await assert.rejects(one.prune(), (error) => error instanceof InvalidArgument &&
        /idle: 'undefined' is not a time/.test(error.message));
    for (const forever of [Infinity, undefined]) {
        await one.run(fresh(), () => 1, { wait: forever });
        await one.once(fresh(), () => 1, { keep: forever });
    }
    assert.equal(one.stats().acquired, acquired + 5);
    const tiny = await one.acquire(fresh(), { maxHold: '0.0001ms' });
    await until(() => tiny.leftMs === 0);
    await assert.rejects(tiny.release(), LockLost);
    await lock.release();
});

test('options are a plain object', async () => {
    const never = () => assert.fail(), keyed = new holdfast.KeyedMutex();
    const signal = new AbortController().signal;
    for (const options of [signal, new AbortController(), [], ['wait', 0], new Map([['wait', 0]]),
        Promise.resolve({ wait: 0 }), new Date(), '5s', 5, true, null, () => {}, Symbol('x'), 5n])
        for (const call of [() => one.acquire('k', options), () => one.run('k', never, options),
            () => one.run(['k', 'l'], never, options), () => one.once('k', never, options),
            () => one.tryAcquire('k', options), () => one.acquireAll(['k'], options),
            () => keyed.acquire('k', options), () => keyed.runExclusive('k', never, options),
            () => keyed.tryAcquire('k', options), () => holdfast.open(url, options),
            async () => one.list('', options), async () => one.watch('', options)])
            await assert.rejects(call(), (error) => error instanceof InvalidArgument &&
                /the options are no plain object$/.test(error.message), String(options));
    class Options {
        wait = 0;
    }
    for (const options of [new Options(), Object.assign(Object.create(null), { wait: 0 }),
        require('node:vm').runInNewContext('({ wait: 0 })')])
        await (await one.acquire(fresh(), options)).release();
});

test('a KeyedMutex without a store looks at what a store would', async () => {
    for (const keyed of [new holdfast.KeyedMutex(), new holdfast.KeyedMutex(url)]) {
        for (const options of [{ owner: '' }, { owner: '(ended)' }, { owner: 5 },
            { owner: 'x'.repeat(128) }, { owner: 'a\0' }, { owner: '\ud800' }, { note: 5 },
            { note: 'x'.repeat(256) }, { lease: 5 }, { lease: 'soon' }])
            await assert.rejects(keyed.acquire('k', options), InvalidArgument);
        (await keyed.acquire('k', { owner: 'ann', note: '', lease: '1m' }))();
        await keyed.close();
    }
});

test('close', async () => {
    await Promise.all([one.close(), two.close()]);
    clearInterval(alive);
});
