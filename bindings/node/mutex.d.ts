/** Mutexes of one process; KeyedMutex moves to a store when it is given a URL. */

declare global {
    /* As the library of TypeScript 5.2 has them, for older ones. */
    interface SymbolConstructor {
        readonly dispose: unique symbol;
        readonly asyncDispose: unique symbol;
    }
}

/** Releases the hold; a second call does nothing. `using` and `await using` call it, too. With a
 *  store it returns a promise that is settled when the key is released. If no code awaits that
 *  promise, a failure is a warning. */
export interface Releaser {
    (): unknown;
    [Symbol.dispose](): void;
    [Symbol.asyncDispose](): Promise<void>;
}

export interface QueueOptions {
    /** Waiters with a higher priority are served first; those of one priority in order. A store has
     *  no priorities. */
    priority?: number | undefined;
    /** How long to wait: milliseconds, or '500ms', '10s', '5m', '2h', '1d'. Default: for ever. */
    wait?: number | string | undefined;
    /** Ends the wait; its reason is what the promise is rejected with. */
    signal?: AbortSignal | undefined;
}

export interface MutexInterface {
    acquire(how?: number | QueueOptions): Promise<MutexInterface.Releaser>;
    runExclusive<T>(fn: MutexInterface.Worker<T>, how?: number | QueueOptions): Promise<T>;
    waitForUnlock(how?: number | QueueOptions): Promise<void>;
    isLocked(): boolean;
    release(): void;
    cancel(): void;
}

export namespace MutexInterface {
    interface Releaser {
        (): void;
    }
    interface Worker<T> {
        (): Promise<T> | T;
    }
}

export interface SemaphoreInterface {
    acquire(weight?: number, how?: number | QueueOptions):
        Promise<[number, SemaphoreInterface.Releaser]>;
    runExclusive<T>(fn: SemaphoreInterface.Worker<T>, weight?: number,
        how?: number | QueueOptions): Promise<T>;
    waitForUnlock(weight?: number, how?: number | QueueOptions): Promise<void>;
    isLocked(): boolean;
    getValue(): number;
    setValue(value: number): void;
    release(weight?: number): void;
    cancel(): void;
}

export namespace SemaphoreInterface {
    interface Releaser {
        (): void;
    }
    interface Worker<T> {
        (value: number): Promise<T> | T;
    }
}

export class Mutex implements MutexInterface {
    constructor(cancelError?: Error);
    acquire(how?: number | QueueOptions): Promise<Releaser>;
    runExclusive<T>(fn: () => Promise<T> | T, how?: number | QueueOptions): Promise<T>;
    waitForUnlock(how?: number | QueueOptions): Promise<void>;
    isLocked(): boolean;
    release(): void;
    cancel(): void;
}

export class Semaphore implements SemaphoreInterface {
    constructor(value: number, cancelError?: Error);
    acquire(weight?: number, how?: number | QueueOptions): Promise<[number, Releaser]>;
    runExclusive<T>(fn: (value: number) => Promise<T> | T, weight?: number,
        how?: number | QueueOptions): Promise<T>;
    waitForUnlock(weight?: number, how?: number | QueueOptions): Promise<void>;
    isLocked(): boolean;
    getValue(): number;
    setValue(value: number): void;
    release(weight?: number): void;
    cancel(): void;
}

/** The same lock with a time limit for every wait. A wait with an earlier limit keeps its own. */
export function withTimeout(mutex: MutexInterface, ms: number | string,
    error?: Error): MutexInterface;
export function withTimeout(semaphore: SemaphoreInterface, ms: number | string,
    error?: Error): SemaphoreInterface;
/** The same lock, whose requests don't wait: a request that isn't granted in this turn of the event
 *  loop is rejected. */
export function tryAcquire(mutex: MutexInterface, error?: Error): MutexInterface;
export function tryAcquire(semaphore: SemaphoreInterface, error?: Error): SemaphoreInterface;

export const E_TIMEOUT: Error;
export const E_ALREADY_LOCKED: Error;
export const E_CANCELED: Error;

/** A function that runs while a key is held. */
export interface Held {
    readonly key: string;
    /** Grows with every grant; with a store it is the fencing token. */
    readonly token: number;
    /** Aborts when the lock is lost (with a store), or with the signal in the options. */
    readonly signal: AbortSignal;
}

export interface KeyedOptions extends QueueOptions {
    /** With a store: see AcquireOptions. Without one these do nothing. */
    lease?: number | string | undefined;
    owner?: string | undefined;
    note?: string | undefined;
    /** With a store only. */
    maxHold?: number | string | undefined;
    atLeast?: number | string | undefined;
    shared?: boolean | undefined;
    limit?: number | undefined;
    unqueued?: boolean | undefined;
    noRenew?: boolean | undefined;
}

/** A mutex for each key. Idle keys are forgotten. */
export class KeyedMutex {
    /** Without a URL: in this process. With one: in that store, opened at the first use. */
    constructor(url?: string,
        options?: { owner?: string | undefined; note?: string | undefined;
            ioTimeout?: number | string | undefined; onSignals?: 'release' | undefined });
    acquire(key: string, options?: KeyedOptions): Promise<Releaser>;
    /** Acquires at once; null: another request holds the key, or waits for it. */
    tryAcquire(key: string, options?: Omit<KeyedOptions, 'wait'>): Promise<Releaser | null>;
    runExclusive<T>(key: string, fn: (held: Held) => Promise<T> | T,
        options?: KeyedOptions): Promise<T>;
    waitForUnlock(key: string, options?: KeyedOptions): Promise<void>;
    /** Whether this object holds the key, whatever other processes hold. */
    isLocked(key: string): boolean;
    release(key: string): Promise<void>;
    /** Ends the waits for a key, or for all, but not those of waitForUnlock. */
    cancel(key?: string): void;
    /** How many keys are held or waited for here. */
    readonly size: number;
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}
