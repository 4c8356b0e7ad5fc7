// A call that is made within the callback of run, once or runExclusive: which waits are refused,
// because they would be for that callback.
//
//     node within.test.js URL
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const crypto = require('node:crypto');
const path = require('node:path');
const { AsyncResource } = require('node:async_hooks');
const holdfast = require('../lib/index.js');
const native = require('../lib/native.js');
const { begin, end, within } = require('../lib/within.js');

const { KeyedMutex, LockUnavailable, RecursiveAcquire } = holdfast;
const url = process.argv[2];
const prefix = `${crypto.randomBytes(6).toString('hex')}/`;
let n = 0;
const fresh = () => `${prefix}${++n}`;
let one, two;
// Keeps the process alive, which a pending promise or a listener alone doesn't.
const alive = setInterval(() => {}, 1000);

const tick = () => new Promise((resolve) => setTimeout(resolve, 1));

// Looks again until it is so; ends with the test's own time.
async function until(look) {
    while (!await look()) await new Promise((resolve) => setTimeout(resolve, 5));
}

// All waits of a handle are one in the store's queue.
const queued = (key) => until(async () => (await two.peek(key)).waiting === 1);

// If nothing is refused, the wait never ends.
async function refused(asked, says = () => true) {
    let timer;
    const late = new Promise((resolve) => {
        timer = setTimeout(resolve, 30000, 'waits');
    });
    try {
        await assert.rejects(Promise.race([asked, late]), (error) => {
            assert.ok(error instanceof RecursiveAcquire, error.stack);
            return says(error);
        });
    } finally {
        clearTimeout(timer);
    }
}

test('open: two handles', async () => {
    one = await holdfast.open(url);
    two = await holdfast.open(url);
});

// Each way to make a request whose wait has no limit.
const never = () => assert.fail('runs');
const asks = {
    acquire: (key) => one.acquire(key),
    'with options': (key) => one.acquire(key, { lease: '30s', owner: 'another' }),
    'with a wait without end': (key) => one.acquire(key, { wait: Infinity }),
    'with a signal': (key) => one.acquire(key, { signal: new AbortController().signal }),
    'for others, too': (key) => one.acquire(key, { shared: true }),
    run: (key) => one.run(key, never),
    once: (key) => one.once(key, never),
    acquireAll: (key) => one.acquireAll([`${key}/a`, key]),
    'run with several': (key) => one.run([key, `${key}/z`], never),
};

for (const [name, ask] of Object.entries(asks)) {
    test(`${name}: without a limit within the run that holds the key`, async () => {
        const key = fresh();
        await one.run(key, async (lock) => {
            await refused(ask(key), (error) => {
                assert.deepEqual([error.code, error.key], ['RECURSIVE', key]);
                assert.match(error.message, new RegExp(`^(acquire|once) '${key}': .*give the `));
                assert.ok(error.stack.includes(path.basename(__filename)), error.stack);
                return true;
            });
            assert.equal((await two.peek(key)).waiting, 0);
            await lock.confirm();
        });
        for (const other of [key, `${key}/a`, `${key}/z`])
            assert.equal((await two.peek(other)).held, 0);
    });
}

// Each way to run a function while it holds a key.
const holds = {
    run: (key, fn) => one.run(key, fn),
    'a run that has waited': async (key, fn) => {
        const lock = await two.acquire(key);
        const running = one.run(key, fn);
        await queued(key);
        await lock.release();
        return running;
    },
    once: (key, fn) => one.once(key, fn),
    'run with several': (key, fn) => one.run([`${key}/a`, key], fn),
};

for (const [name, hold] of Object.entries(holds)) {
    test(`${name}: what its callback awaits is within it`, async () => {
        const key = fresh();
        const again = () => refused(one.run(key, never));
        await hold(key, async () => {
            await again();
            await tick();
            await Promise.all([again(), tick().then(again), one.run(fresh(), again)]);
            await one.once(fresh(), async () => {
                await tick();
                await again();
            });
            // The code after a nested call is still within the first lock, and no longer within the
            // nested one.
            const inner = fresh();
            await one.run(inner, tick);
            await again();
            await one.run(inner, tick);
        });
        await one.run(key, tick);
    });
}

test('KeyedMutex of a store: within runExclusive', async () => {
    const keyed = new KeyedMutex(url), key = fresh();
    await keyed.runExclusive(key, async () => {
        await tick();
        await refused(keyed.runExclusive(key, never));
        await refused(keyed.acquire(key));
        await refused(keyed.waitForUnlock(key));
        assert.equal(await keyed.tryAcquire(key), null);
        await keyed.runExclusive(fresh(), tick);
    });
    await keyed.runExclusive(key, tick);
    await keyed.close();
});

test('a wait with a limit waits', async () => {
    const key = fresh();
    await one.run(key, async (lock) => {
        await assert.rejects(one.acquire(key, { wait: '20ms' }), { code: 'TIMEOUT' });
        await assert.rejects(one.run(key, never, { wait: 0 }), { code: 'BUSY' });
        await assert.rejects(one.once(key, never, { wait: 20 }), LockUnavailable);
        assert.equal(await one.tryAcquire(key), null);
        const next = one.acquire(key, { wait: '60s' });
        await queued(key);
        await lock.release();
        await (await next).release();
    });
});

test('calls that are made elsewhere wait', async () => {
    const key = fresh(), ran = [];
    // The lock belongs to another task, although the callback makes that task run.
    const elsewhere = new AsyncResource('elsewhere');
    let others;
    await one.run(key, async () => {
        others = elsewhere.runInAsyncScope(() => [1, 2].map((i) =>
            one.run(key, () => ran.push(i))));
        await queued(key);
        assert.deepEqual(ran, []);
    });
    await Promise.all(others);
    assert.deepEqual(ran, [1, 2]);
});

test('a hold that was released is in nobody\'s way, nor is one after its callback', async () => {
    const key = fresh();
    let later;
    await one.run(key, async (lock) => {
        await lock.release();
        const again = await one.acquire(key);
        // The lock belongs to another caller by now: it is released, and then the wait ends.
        const next = one.acquire(key);
        await queued(key);
        await again.release();
        await (await next).release();
    });
    const lock = await one.run(key, async () => {
        later = tick().then(() => tick()).then(() => one.acquire(key));
        return undefined;
    }).then(() => one.acquire(key));
    await queued(key);
    await lock.release();
    await (await later).release();
});

test('a hold that is lost keeps nobody from the key', async () => {
    const key = fresh();
    await assert.rejects(one.run(key, async (lock) => {
        await two.break(key, lock.token);
        await lock.confirm().catch(() => {});
        await (await one.acquire(key)).release();
    }), { code: 'LOST' });
});

test('a hold that ends by its lease is waited for', async () => {
    for (const how of [{ noRenew: true }, { maxHold: '200ms' }, { detached: true }]) {
        const key = fresh();
        await assert.rejects(one.run(key, async () => {
            await one.run(key, tick);
        }, { lease: '300ms', ...how }), { code: 'LOST' });
    }
});

test('maxHold without a lease ends nothing for others on mem: and file:', async () => {
    if (!/^(mem|file):/.test(url)) return;
    const key = fresh();
    await one.run(key, () => refused(one.acquire(key)),
        { maxHold: '60s' });
});

test('shared and limited holds', async () => {
    const key = fresh();
    for (const how of [{ shared: true }, { limit: 3 }]) {
        await one.run(key, async () => {
            await one.run(key, async () => {
                await one.run(key, tick, how);
                await refused(one.acquire(key));
            }, how);
            const other = how.limit ? { shared: true } : { limit: 3 };
            await refused(one.acquire(key, other));
        }, how);
    }
    // As many limited holds as one of the limits allows leave no room for another.
    for (const [limits, limit] of [[[1], 1], [[2, 2], 2], [[1], 3], [[3, 2], 5]]) {
        const nest = ([first, ...more]) => (first
            ? one.run(key, () => nest(more), { limit: first })
            : refused(one.run(key, never, { limit })));
        await nest(limits);
    }
    // The key admits several holders, so another one may be released first.
    await one.run(key, async () => {
        const others = await one.acquire(key, { limit: 2 });
        const third = one.acquire(key, { limit: 2 });
        await queued(key);
        await others.release();
        await (await third).release();
    }, { limit: 2 });
});

test('another key that is held is waited for', async () => {
    const key = fresh(), theirs = await two.acquire(key);
    await one.run(fresh(), async () => {
        const mine = one.acquire(key);
        await queued(key);
        await theirs.release();
        await (await mine).release();
    });
});

test('another store object is another one', async () => {
    const key = fresh();
    await one.run(key, async (lock) => {
        const theirs = two.acquire(key);
        await queued(key);
        await lock.release();
        await (await theirs).release();
    });
});

test('recursive: true waits for a callback that does not wait for the call', async () => {
    const key = fresh();
    let next;
    await one.run(key, async () => {
        next = one.run(key, () => 'next', { recursive: true });
        await queued(key);
    });
    assert.equal(await next, 'next');
});

test('the same request, and an event that is done, need no wait', async () => {
    const requestId = crypto.randomBytes(16), key = fresh(), event = fresh();
    await one.run(key, async (lock) => {
        await refused(one.acquire(key, { requestId: crypto.randomBytes(16) }));
        const again = await one.acquire(key, { requestId });
        assert.equal(again.token, lock.token);
    }, { requestId }).catch((error) => assert.equal(error.code, 'LOST', error.stack));
    // Marked before it runs.
    const { ran } = await one.once(event, async () => {
        assert.equal((await one.once(event, never)).ran, false);
    }, { atMostOnce: true });
    assert.equal(ran, true);
});

test('a callback keeps no lock of those that have led to it and are over', async () => {
    const refs = [];
    await one.run(fresh(), () => new Promise((resolve, reject) => {
        const step = (left) => one.run(fresh(), async (lock) => {
            refs.push(new WeakRef(lock));
            if (left) {
                setTimeout(() => step(left - 1).catch(reject), 0);
                return;
            }
            refs.pop(); // that of this one
            for (let i = 0; refs.some((ref) => ref.deref()) && i < 400; i++) {
                await new Promise((done) => setTimeout(done, 5));
                gc();
            }
            resolve();
        });
        step(20).catch(reject);
    }));
    assert.deepEqual(refs.filter((ref) => ref.deref()), []);
});

test('what is over is not handed on to further callbacks', () => {
    let looks = 0, lock = {}, scope;
    const over = {
        get held() {
            looks++;
            return lock;
        },
        set held(value) {
            lock = value;
        },
    };
    begin(over, () => (scope = new AsyncResource('within')));
    end(over);
    scope.runInAsyncScope(() => {
        const entry = { held: {} };
        begin(entry, () => {
            looks = 0;
            assert.equal(within((held) => held === entry.held), true);
        });
        end(entry);
    });
    assert.equal(looks, 0);
});

test('before Node 24 promises cost more only while there is a callback', () => {
    const said = execFileSync(process.execPath, ['-e', `
        const { open } = require(${JSON.stringify(path.join(__dirname, '..'))});
        // AsyncLocalStorage as older Nodes have it marks each promise.
        const marked = () => Object.getOwnPropertySymbols(new Promise(() => {})).length > 0;
        const turn = () => new Promise((resolve) => setTimeout(resolve, 2));
        (async () => {
            const store = await open('mem:within');
            const marks = [marked()];
            for (let i = 0; i < 2; i++) {
                await store.run('a', async () => {
                    await Promise.all([store.run('b', turn), store.once('c' + i, turn)]);
                    marks.push(marked());
                });
                await store.run('a', () => { throw new Error(); }).catch(() => {});
                await turn();
                marks.push(marked());
            }
            await store.close();
            console.log(JSON.stringify(marks));
        })();
    `], { encoding: 'utf8' });
    const old = Number(process.versions.node.split('.')[0]) < 24;
    assert.deepEqual(JSON.parse(said), [false, old, false, old, false]);
});

test('end', async () => {
    await Promise.all([one.close(), two.close()]);
    await until(() => native.pending() === 0);
    clearInterval(alive);
});
