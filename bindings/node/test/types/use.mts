// A program of ES modules in TypeScript: types.test.js compiles and runs it.
import holdfast, { KeyedMutex, LockUnavailable, open, version } from 'holdfast';
import { Mutex, Semaphore } from 'holdfast/mutex';

await using store = await open('mem:types');
const name: string = await store.run('key', ({ key }) => key);
console.log(name, version, holdfast.open === open);
const lock = await store.acquire('key');
await store.acquire('key', { wait: 0 }).catch((error: unknown) => {
    if (!(error instanceof LockUnavailable)) throw error;
});
await lock.release();
const stored = new KeyedMutex('mem:types');
await stored.runExclusive('key', ({ signal }) => signal.aborted, { lease: '30s' });
await stored.close();
await new Mutex().runExclusive(() => 1);
await new Semaphore(2).runExclusive((value) => value + 1);
console.log('done');
