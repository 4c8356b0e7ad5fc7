// What the oldest TypeScript compiles, by both ways of resolving modules (types.test.js).
import { KeyedMutex, Lock, LockUnavailable, Once, open } from 'holdfast';
import { Mutex, MutexInterface, withTimeout } from 'holdfast/mutex';

export async function use(): Promise<number> {
    const store = await open('mem:', { onSignals: 'release' });
    const lock: Lock | null = await store.tryAcquire('k', { lease: '10s' });
    const locks = await store.acquireAll(['a', 'b'], { wait: 5 });
    await locks[Symbol.asyncDispose]();
    const release: MutexInterface.Releaser = await new Mutex().acquire();
    release();
    const limited: MutexInterface = withTimeout(new Mutex(), 100);
    (await limited.acquire(1))();
    const once: Once<number> = await store.once('e', () => 5);
    (await new KeyedMutex().acquire('x'))[Symbol.dispose]();
    try {
        await store.close();
    } catch (error) {
        if (error instanceof LockUnavailable) console.log(error.code, error.cause);
    }
    return (lock ? lock.token : 0) + (once.value ?? 0);
}
