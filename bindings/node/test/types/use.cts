// A CommonJS program in TypeScript: types.test.js compiles and runs it.
import holdfast = require('holdfast');
import { KeyedMutex, Mutex, Semaphore, withTimeout } from 'holdfast/mutex';
import type { MutexInterface, Releaser, SemaphoreInterface } from 'holdfast/mutex';
import type { AcquireOptions, Info, Once } from 'holdfast';

async function main(): Promise<void> {
    await using store = await holdfast.open('mem:types', { owner: 'me', ioTimeout: '5s' });
    const options: AcquireOptions = { wait: 0, lease: '30s', signal: AbortSignal.timeout(60000) };
    let free: holdfast.Lock;
    {
        await using lock = await store.acquire('key', options);
        free = lock;
        const info: Info = await store.peek('key');
        await lock.enter('fence').catch((error: holdfast.HoldfastError) => error.key);
        if (info.held !== 1 || lock.leftMs <= 0) throw new Error('not held');
    }
    if (free.leftMs !== 0 || (await store.peek('key')).held) throw new Error('held');
    const value: number = await store.run('key', async ({ token, key, owner, signal }) => {
        signal.throwIfAborted();
        return token + key.length + owner.length;
    });
    const once: Once<number> = await store.once('event', () => 5, { keep: Infinity });
    if (once.ran) once.value.toFixed();
    else once.at.toFixed();
    for await (const { key, holders } of store.list('k')) console.log(key, holders.length);
    try {
        await store.acquire('', { wait: 0 });
    } catch (error) {
        if (!(error instanceof holdfast.InvalidArgument)) throw error;
        const code: holdfast.Code = error.code;
        console.log(code);
    }
    const mutex = new KeyedMutex();
    console.log(await mutex.runExclusive('a', ({ token }) => token + value > 0));
    {
        await using release = await mutex.acquire('a');
        if (!mutex.isLocked('a')) throw new Error('not locked');
    }
    if (mutex.isLocked('a')) throw new Error('locked');
    {
        using release = await new Mutex().acquire();
        release();
    }
    const releaser: MutexInterface.Releaser = await new Mutex().acquire();
    const weighted: [number, SemaphoreInterface.Releaser] = await new Semaphore(0.5).acquire(0.5);
    const work: MutexInterface.Worker<number> = () => 5;
    const counts: SemaphoreInterface.Worker<number> = async (n) => n;
    releaser();
    weighted[1]();
    console.log(await new Mutex().runExclusive(work), await new Semaphore(2).runExclusive(counts));
    const tried: Releaser | null = await mutex.tryAcquire('b');
    tried?.();
    {
        using lock = await store.tryAcquire('c');
        await using locks = await store.acquireAll(['d', 'e'], { wait: '1s' });
        console.log(lock?.token, locks[1].key, locks.signal.aborted);
    }
    console.log(await store.run(['d', 'e'], (locks) => locks.map(({ token }) => token).length));
    await withTimeout(new Mutex(), 100).runExclusive(() => undefined);
    // @ts-expect-error no such option
    await store.run('key', () => 1, { wayt: 5 }).catch(() => undefined);
    // @ts-expect-error a key is a string
    await store.run(5, () => 1).catch(() => undefined);
}

main().then(() => console.log('done'));
