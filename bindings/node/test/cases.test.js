// The table of cases that all languages have in common (bindings/cases.json says how it is read).
//
//     node cases.test.js URL [NAME]
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const holdfast = require('../lib/index.js');
const { cases } = require('../../cases.json');

const [url, only = ''] = process.argv.slice(2);
const PATIENCE_MS = 600000;
const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const plain = (text) => text.toLowerCase().replace(/[_ ]/g, '');
// "short" is a lease that the store keeps, "longer" a second more than that.
const short = Number(process.env.HOLDFAST_TEST_LEASE_MS ?? 3000);
const words = { short: `${short}ms`, longer: `${short + 1000}ms` };
const repeated = (value) =>
    (Array.isArray(value) ? value[0].repeat(value[1]) : words[value] ?? value);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const failed = new Error('the event has failed');

async function patiently(promise, what) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`${what}: not within ${PATIENCE_MS} ms`)),
            PATIENCE_MS);
    });
    try {
        return await Promise.race([promise, late]);
    } finally {
        clearTimeout(timer);
    }
}

async function until(look, what) {
    const end = Date.now() + PATIENCE_MS;
    while (!await look()) {
        assert.ok(Date.now() < end, what);
        await pause(5);
    }
}

class Case {
    stores = {};
    named = {}; // locks, waits and events
    constructor(number) {
        this.prefix = `cases/node-${process.pid}-${Date.now() % 1e6}/${number}/`;
    }

    async store(name) {
        return this.stores[name] ??= await holdfast.open(url);
    }

    key({ key, raw_key }) {
        return raw_key !== undefined ? repeated(raw_key) : this.prefix + key;
    }

    options({ options = {} }) {
        return Object.fromEntries(Object.entries(options).map(([name, value]) =>
            [camel(name), name === 'limit' ? value : repeated(value)]));
    }

    token(of) {
        return typeof of === 'string' ? this.named[of].token : of ?? 0;
    }

    // Checks that a call has the result that the step expects: its value, if it succeeds.
    async check({ expect = 'OK', says }, call) {
        let value, code = 'OK', text = '';
        try {
            value = await patiently(call(), 'a step');
        } catch (error) {
            if (!(error instanceof holdfast.HoldfastError)) throw error;
            ({ code, message: text } = error);
        }
        assert.equal(code, expect, text);
        if (says) assert.ok(plain(text).includes(plain(says)), `'${text}' says ${says}`);
        return value;
    }

    got(step, lock) {
        if (!lock) return;
        const { above, same } = step.token ?? {};
        if (above) assert.ok(lock.token > this.token(above));
        if (same) assert.equal(lock.token, this.token(same));
        if (step.as) this.named[step.as] = { lock, token: lock.token };
    }

    lock(step) {
        return this.named[step.lock].lock;
    }

    shown(info, shows) {
        const is = { holders: info.held, waiters: info.waiting, done: info.done !== null,
            used: info.rev !== 0, result: info.result ?? '', token: info.token };
        assert.equal(info.held, info.holders.length);
        assert.equal(info.waiting, info.waiters.length);
        for (const [name, value] of Object.entries(shows)) {
            if (name === 'parties') continue;
            if (name === 'key') assert.equal(info.key, this.prefix + value);
            else assert.equal(is[name], name === 'token' ? this.token(value) : value, name);
        }
        if (!shows.parties) return;
        const parties = [...info.holders, ...info.waiters];
        assert.equal(parties.length, shows.parties.length);
        shows.parties.forEach((party, i) => {
            for (const [name, value] of Object.entries(party))
                assert.equal(parties[i][name], name === 'token' ? this.token(value) : value, name);
        });
    }

    // The function waits for the step that ends the event.
    async begin(store, step) {
        let settle, begins;
        const ended = new Promise((resolve, reject) => (settle = { resolve, reject }));
        const begun = new Promise((resolve) => (begins = resolve));
        ended.catch(() => {});
        const done = store.once(this.key(step), (lock) => {
            begins(lock);
            return ended;
        }, this.options(step));
        const lock = await Promise.race([begun, done]);
        if (!(lock instanceof holdfast.Lock)) return { state: 'DONE', ...lock };
        done.catch(() => {});
        return { state: 'RUN', lock, done, settle };
    }

    async open(step) {
        const opened = await this.check(step, () => holdfast.open(repeated(step.url) ?? url,
            this.options(step)));
        if (opened) this.stores[step.as] = opened;
    }

    async close({ store }) {
        await this.stores[store].close();
        delete this.stores[store];
    }

    async acquire(step) {
        const store = await this.store(step.by);
        this.got(step, await this.check(step, () => store.acquire(this.key(step),
            this.options(step))));
    }

    async start(step) {
        const store = await this.store(step.by);
        const stop = new AbortController();
        const ended = store.acquire(this.key(step), { ...this.options(step), signal: stop.signal });
        ended.catch(() => {});
        this.named[step.as] = { ended, stop };
    }

    async queue(step) {
        const store = await this.store(step.by);
        await until(async () => (await store.peek(this.key(step))).waiting === step.n,
            `${step.n} waiters`);
    }

    async settle(step) {
        this.got(step, await this.check(step, () => this.named[step.wait].ended));
    }

    async cancel(step) {
        this.named[step.wait].stop.abort(new holdfast.LockCanceled('CANCELED', 'given up'));
    }

    async release(step) {
        await this.check(step, () => this.lock(step).release());
    }

    async renew(step) {
        await this.check(step, () => this.lock(step).renew(step.lease));
    }

    async confirm(step) {
        await this.check(step, () => this.lock(step).confirm());
    }

    async lost(step) {
        const { signal } = this.lock(step);
        await patiently(new Promise((resolve) => {
            if (signal.aborted) resolve();
            signal.addEventListener('abort', resolve);
        }), 'its loss');
        assert.ok(signal.reason instanceof holdfast.LockLost);
    }

    async left(step) {
        const { leftMs } = this.lock(step);
        assert.equal(leftMs === Infinity ? 'ever' : leftMs > 0 ? 'some' : 'none', step.is);
    }

    async adopt(step) {
        const store = await this.store(step.by);
        this.got(step, await this.check(step, () => store.adopt(this.key(step),
            this.token(step.of))));
    }

    async break(step) {
        const store = await this.store(step.by);
        await this.check(step, () => store.break(this.key(step), this.token(step.of)));
    }

    async once(step) {
        const store = await this.store(step.by);
        let got;
        const end = Date.now() + PATIENCE_MS;
        while ((got = await this.check(step, () => this.begin(store, step)))) {
            if (!step.until || step.until === got.state || Date.now() > end) break;
            await pause(50);
        }
        if (!got) return;
        if (step.state ?? step.until) assert.equal(got.state, step.state ?? step.until);
        this.got(step, got.lock);
        if (step.as) Object.assign(this.named[step.as], got);
        if (got.state === 'DONE') assert.ok(got.at > 0);
        for (const [name, value] of Object.entries(step.shows ?? {}))
            assert.equal(got[name], value, name);
    }

    async finish(step) {
        const { settle, done } = this.named[step.event];
        settle.resolve(step.result);
        await this.check(step, () => done);
    }

    async fail(step) {
        const { settle, done } = this.named[step.event];
        settle.reject(failed);
        await assert.rejects(done, (error) => error === failed);
    }

    async peek(step) {
        const store = await this.store(step.by);
        const info = await this.check(step, () => store.peek(this.key(step)));
        if (step.shows) this.shown(info, step.shows);
    }

    async list(step) {
        const store = await this.store(step.by);
        const keys = [];
        await this.check(step, async () => {
            for await (const info of store.list(this.prefix + step.prefix))
                keys.push(info.key.slice(this.prefix.length));
        });
        assert.deepEqual(keys.sort(), [...step.shows].sort());
    }

    async watch(step) {
        const store = await this.store(step.by);
        const { value } = await this.check(step, async () => {
            const changes = store.watch(this.prefix + step.prefix);
            const first = await changes.next();
            await changes.return();
            return first;
        });
        this.shown(value, step.shows);
    }

    async prune(step) {
        const store = await this.store(step.by);
        await this.check(step, () => store.prune(step.idle));
    }

    async stats(step) {
        const stats = (await this.store(step.by)).stats();
        for (const [name, value] of Object.entries(step.shows))
            assert.equal(stats[name], value, name);
    }
}

// A thread of JavaScript has many tasks. Which of them asks is judged in within.test.js.
const chosen = cases.map((one, number) => ({ ...one, number })).filter(({ name, needs = [] }) =>
    name.includes(only) && !needs.includes('thread'));

for (const { name, steps, number } of chosen) {
    test(name, async () => {
        const one = new Case(number);
        try {
            for (const [i, step] of steps.entries()) {
                try {
                    await one[step.do](step);
                } catch (error) {
                    error.message = `step ${i + 1}, ${JSON.stringify(step)}: ${error.message}`;
                    throw error;
                }
            }
        } finally {
            for (const { settle } of Object.values(one.named)) settle?.reject(failed);
            await Promise.all(Object.values(one.stores).map((store) => store.close()));
        }
    });
}
