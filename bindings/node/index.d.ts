/** Holdfast: one holder at a time, by key. */

export * from './mutex';

/** Milliseconds, or a text: '500ms', '10s', '1.5h', '7d'. */
export type Time = number | string;

export interface OpenOptions {
    /** Identity of the caller; default: random. */
    owner?: string | undefined;
    /** For people: shown by `holdfast ls`. */
    note?: string | undefined;
    /** The longest one request may take: 100ms to 1h; default: 5 s. */
    ioTimeout?: Time | undefined;
    /** Opens only a store that exists; otherwise StoreUnavailable. */
    existing?: boolean | undefined;
    /** 'release': on INT, TERM and HUP, if the program has no handler of its own for that signal,
     *  everything that this process holds is given back before it dies of the signal. */
    onSignals?: 'release' | undefined;
}

export interface AcquireOptions {
    /** How long to wait in the store's queue: 0s to 365d; 0 tries once; default: Infinity, for
     *  ever, but RecursiveAcquire if a callback around the call holds the key. */
    wait?: Time | undefined;
    /** 100ms to 1d; default: the store's own. Renewed in the background. */
    lease?: Time | undefined;
    /** 1ms to 365d. The hold is over (lost) after this time, renewed or not. Others can acquire the
     *  key once it is released, or its lease has ended; without a lease, and on `etcd:`, once the
     *  process has ended. */
    maxHold?: Time | undefined;
    /** 0s to 1d. The key stays taken for this long after the grant, also if it is released
     *  earlier. */
    atLeast?: Time | undefined;
    /** Together with any number of other shared holders. */
    shared?: boolean | undefined;
    /** Together with others, up to this many holders in all: 1 to 1,000. */
    limit?: number | undefined;
    /**
     * The name of the holder. RecursiveAcquire if this owner holds the key through this store
     * object, and the wait would have no limit.
     */
    owner?: string | undefined;
    note?: string | undefined;
    /** 16 bytes, or 32 hexadecimal digits. If a request with the same id is repeated, the result is
     *  the same grant. */
    requestId?: Uint8Array | string | undefined;
    /** The grant isn't bound to this process; needs a lease; isn't renewed. */
    detached?: boolean | undefined;
    /** Never enters the store's queue: tries again now and then instead. */
    unqueued?: boolean | undefined;
    /** Waits without a limit even if the owner, or a callback around the call, holds the key: for
     *  a callback that doesn't wait for this call. */
    recursive?: boolean | undefined;
    /** Don't renew in the background. */
    noRenew?: boolean | undefined;
    /** Ends the wait at once; its reason is what the promise is rejected with. What was obtained by
     *  then is released in the background. */
    signal?: AbortSignal | undefined;
}

export interface OnceOptions extends AcquireOptions {
    /** How long the mark is kept: 1ms to 36500d; default: 7 days; Infinity: for ever. */
    keep?: Time | undefined;
    /** Mark the event as done before it runs. */
    atMostOnce?: boolean | undefined;
}

/** One grant of one key. Keep the lock, not only its signal: if a lock is dropped without
 *  release(), the garbage collector releases it at some time (a detached lock isn't released). */
export class Lock {
    private constructor();
    readonly key: string;
    /** The fencing token: grows with every grant of the key. */
    readonly token: number;
    readonly owner: string;
    /**
     * For how long the holder may still believe in the lock; 0: lost or released; Infinity: no
     * lease. On `mem:` and `file:` each access asks the store.
     */
    readonly leftMs: number;
    /** Aborts when the lock is lost (its reason is a LockLost), or with the options' signal. Each
     *  access of this property checks the lock, so the signal that it returns is aborted as soon as
     *  leftMs is 0. A signal that was read before is aborted when the event loop runs again. */
    readonly signal: AbortSignal;
    /** Releases the key; LockLost if it was no longer held. A second call sends no request, and has
     *  the same result. */
    release(): Promise<void>;
    renew(lease?: Time): Promise<void>;
    /** Asks the store whether the lock is held; LockLost if it isn't. */
    confirm(): Promise<void>;
    /** Shows the token to the guard of the data, before they are read; see `holdfast guard`.
     *  `where` names the guard's fence, if it isn't the key's own. */
    enter(where?: string): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
    /** Begins to release the key, and doesn't wait for the end; a failure is a warning. */
    [Symbol.dispose](): void;
}

/** The locks of several keys, in the order in which their keys were asked for. */
export interface Locks extends Array<Lock> {
    /** Aborts when one of them is lost, or with the options' signal. */
    readonly signal: AbortSignal;
    /** Releases all of them, even if one fails; LockLost if one was no longer held. */
    release(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
    [Symbol.dispose](): void;
}

/** Of several keys: `wait` is for all together. */
export type SeveralOptions = Omit<AcquireOptions, 'atLeast'>;

export interface Party {
    owner: string;
    note: string;
    /** 0 for a waiter. */
    token: number;
    /** Milliseconds since 1970, by the store's clock. */
    since: number;
    leftMs: number;
    mode: 'exclusive' | 'shared' | 'limited';
    limit: number;
    claimed: boolean;
}

export interface Info {
    key: string;
    /** 0: the store has no row for the key. */
    rev: number;
    /** The token of the last grant. */
    token: number;
    now: number;
    /** The number of holders, and of waiters. */
    held: number;
    waiting: number;
    holders: Party[];
    waiters: Party[];
    /** When the event of this key was done; null: it isn't done. */
    done: number | null;
    /** The owner of the run that marked it. */
    doneBy: string | null;
    keepUntil: number | null;
    result: string | null;
}

export type Once<T> =
    | { ran: true; owner: string; result: string; value: T }
    /** `value` is what the run returned, as JSON keeps it; undefined if it returned nothing, or if
     *  the value was too large. */
    | { ran: false; owner: string; result: string; at: number; value: T | undefined };

export interface Stats {
    acquired: number;
    released: number;
    busy: number;
    timeouts: number;
    canceled: number;
    lost: number;
    renewals: number;
    unknown: number;
    errors: number;
    storeOps: number;
    waitMs: number;
    held: number;
    waiting: number;
}

export interface Showing extends AsyncIterableIterator<Info> {
    return(): Promise<IteratorResult<Info>>;
    [Symbol.asyncDispose](): Promise<void>;
}

export class Store {
    private constructor();
    /** Without secrets. */
    readonly url: string;
    /** The C library's. */
    readonly version: string;
    /** Runs fn while the key is held, and releases the key whatever the result. */
    run<T>(key: string, fn: (lock: Lock) => Promise<T> | T, options?: AcquireOptions): Promise<T>;
    /**
     * With several keys (1 to 64): all or none, in a fixed order, so that two callers never wait
     * for each other.
     */
    run<T>(keys: readonly string[], fn: (locks: Locks) => Promise<T> | T,
        options?: SeveralOptions): Promise<T>;
    acquire(key: string, options?: AcquireOptions): Promise<Lock>;
    acquireAll(keys: readonly string[], options?: SeveralOptions): Promise<Locks>;
    /** Doesn't wait. Null: another request holds the key, or waits for it. */
    tryAcquire(key: string, options?: Omit<AcquireOptions, 'wait'>): Promise<Lock | null>;
    /**
     * Runs fn unless the event is done already. The value that fn returns is remembered if its JSON
     * has no more than 255 bytes; of a longer string the beginning is.
     */
    once<T>(key: string, fn: (lock: Lock) => Promise<T> | T, options?: OnceOptions):
        Promise<Once<T>>;
    /** Takes charge of a grant that was made elsewhere. */
    adopt(key: string, token: number): Promise<Lock>;
    peek(key: string): Promise<Info>;
    /** Every key with the prefix. */
    list(prefix?: string, options?: { signal?: AbortSignal | undefined }): Showing;
    /** Every key that is held or waited for, then each change when it is noticed. If a key changes
     *  several times in quick succession, only the last state may be shown. */
    watch(prefix?: string, options?: { signal?: AbortSignal | undefined }): Showing;
    /** Ends the grant with this token, so that its holder loses it. */
    break(key: string, token: number): Promise<void>;
    /** Forgets that the event of this key is done: it may run again. */
    forget(key: string): Promise<void>;
    /** Deletes keys that have been idle for this long; returns how many. */
    prune(idle: Time): Promise<number>;
    stats(): Stats;
    /**
     * Releases all locks except detached ones, and ends all waits; a callback that runs under a
     * lock loses it.
     */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** Opens a store; without a URL: $HOLDFAST_STORE, the first line of /etc/holdfast/store, or `file:`
 *  in the user's state directory. */
export function open(url?: string, options?: OpenOptions): Promise<Store>;

/** This package's. */
export const version: string;

export type Code = 'BUSY' | 'TIMEOUT' | 'CANCELED' | 'LOST' | 'UNKNOWN' | 'UNAVAILABLE' | 'DENIED' |
    'INVALID' | 'RECURSIVE' | 'UNSUPPORTED' | 'CORRUPT' | 'FULL' | 'NOMEM';

/** The message is one line: the store, what was attempted on which key, and why it failed. */
export class HoldfastError extends Error {
    readonly code: Code;
    readonly text: string;
    readonly key: string | undefined;
    /** The error behind this one, if it is known: of the system, or of loading the addon. */
    readonly cause?: unknown;
}
/** BUSY, TIMEOUT */
export class LockUnavailable extends HoldfastError {}
/** CANCELED */
export class LockCanceled extends HoldfastError {}
/** LOST */
export class LockLost extends HoldfastError {}
/** UNKNOWN: the store may or may not have done it. */
export class OutcomeUnknown extends HoldfastError {}
/** UNAVAILABLE */
export class StoreUnavailable extends HoldfastError {}
/** FULL */
export class StoreFull extends HoldfastError {}
/** DENIED */
export class PermissionDenied extends HoldfastError {}
/** INVALID: an argument of a wrong value, or of a wrong type. */
export class InvalidArgument extends HoldfastError {}
/** RECURSIVE: a call without a time limit would wait for a callback that waits for it, or for a
 *  lock of its own owner. */
export class RecursiveAcquire extends HoldfastError {}
/** UNSUPPORTED */
export class Unsupported extends HoldfastError {}
/** CORRUPT */
export class StoreCorrupt extends HoldfastError {}
