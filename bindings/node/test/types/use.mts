// A program of ES modules in TypeScript: types.test.js compiles and runs it.
import holdfast, { type AcquireOptions, KeyedMutex, type KeyedOptions, LockUnavailable,
    type OnceOptions, type OpenOptions, type QueueOptions, open, version } from 'holdfast';
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
// An option that is undefined is one that isn't given.
const opens = { owner: undefined, note: undefined,
    ioTimeout: undefined, existing: undefined, onSignals: undefined } satisfies OpenOptions;
const queues = { priority: undefined, wait: undefined, signal: undefined } satisfies QueueOptions;
const common = { wait: undefined, lease: undefined, maxHold: undefined, atLeast: undefined,
    shared: undefined, limit: undefined, owner: undefined, note: undefined, unqueued: undefined,
    noRenew: undefined, signal: undefined } satisfies AcquireOptions & KeyedOptions;
const all = { ...common, requestId: undefined, detached: undefined, recursive: undefined,
    keep: undefined, atMostOnce: undefined } satisfies OnceOptions;
const again = await open('mem:types', opens);
await again.once('event', () => 1, all);
for await (const _ of again.list('', { signal: undefined }));
await again.close();
await new KeyedMutex(undefined, { owner: undefined }).runExclusive('key', () => 1, queues);
await new KeyedMutex('mem:types', opens).runExclusive('key', () => 1, common);
await new Mutex().runExclusive(() => 1, queues);
await new Semaphore(2).runExclusive((value) => value + 1);
console.log('done');
