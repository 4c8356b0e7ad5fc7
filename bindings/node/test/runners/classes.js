// What a test file asserts under each test runner: `expect` is Jest's or Vitest's, `holdfast` the
// module as that file sees it. The files of one run share a process, and its addon.
'use strict';
module.exports = async function classes(expect, holdfast, randomBytes) {
    const { HoldfastError, InvalidArgument, LockLost, LockUnavailable, open } = holdfast;
    const error = (promise) => promise.then(() => expect('an error').toBe('thrown'), (why) => why);
    const store = await open('mem:runners');
    const key = randomBytes(8).toString('hex');
    const lock = await store.acquire(key, { requestId: randomBytes(16) });

    // From the addon: at once, by a promise, after a wait, by a thread's event.
    const busy = await error(store.acquire(key, { wait: 0 }));
    const late = await error(store.acquire(key, { wait: 20 }));
    const stranger = await error(store.adopt(key, 1));
    const wrong = await error(store.acquire('\n'));
    const closed = await open('mem:runners');
    const unending = closed.watch();
    await closed.close();
    const over = await error(closed.acquire(key));
    for (const [why, kind] of [[busy, LockUnavailable], [late, LockUnavailable],
        [stranger, LockLost], [wrong, InvalidArgument], [over, HoldfastError]]) {
        expect(why).toBeInstanceOf(kind);
        expect(why).toBeInstanceOf(HoldfastError);
        expect(why).toBeInstanceOf(Error);
    }
    await unending.return();

    const { signal } = lock;
    await store.break(key, lock.token);
    await expect(lock.confirm()).rejects.toThrow(LockLost);
    if (!signal.aborted) await new Promise((resolve) => (signal.onabort = resolve));
    expect(signal.reason).toBeInstanceOf(LockLost);
    await expect(lock.release()).rejects.toThrow(LockLost);

    // Objects that are shown have the classes of this file's own context.
    const info = await store.peek(key);
    expect(info).toStrictEqual({ ...info, holders: [], waiters: [] });
    expect(store.stats()).toStrictEqual({ ...store.stats() });
    expect(Object.getPrototypeOf(store.stats())).toBe(Object.prototype);
    const held = await store.acquire(key, { note: 'mine' });
    expect((await store.peek(key)).holders).toStrictEqual([{ owner: held.owner, note: 'mine',
        token: held.token, since: expect.any(Number), leftMs: Infinity, mode: 'exclusive',
        limit: 0, claimed: true }]);
    await held.release();
    await store.close();
};
