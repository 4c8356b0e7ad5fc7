// A program that was written for the types of async-mutex. types.test.js compiles it with those,
// and with those of holdfast/mutex under the same name.
import {
    E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, Mutex, MutexInterface, Semaphore, SemaphoreInterface,
    tryAcquire, withTimeout,
} from 'async-mutex';

// Fields and parameters of each type, exported or of a namespace.
class Account {
    private readonly mutex: MutexInterface = withTimeout(new Mutex(new Error('closed')), 100);
    private readonly seats: SemaphoreInterface = withTimeout(new Semaphore(2), 100, E_TIMEOUT);
    private held: MutexInterface.Releaser | undefined;
    private readonly seated = new Map<string, SemaphoreInterface.Releaser>();
    balance = 0;

    async open(): Promise<void> {
        this.held = await this.mutex.acquire();
    }

    close(): void {
        this.held?.();
        this.mutex.cancel();
        this.mutex.release();
    }

    change<T>(work: MutexInterface.Worker<T>, priority?: number): Promise<T> {
        return this.mutex.runExclusive<T>(work, priority);
    }

    async sit(name: string, weight = 1): Promise<number> {
        const [value, release] = await this.seats.acquire(weight, 1);
        this.seated.set(name, release);
        return value;
    }

    count<T>(work: SemaphoreInterface.Worker<T>): Promise<T> {
        return this.seats.runExclusive(work, 2, -1);
    }
}

// A program's own locks, for example test doubles, in the decorators.
class Double implements MutexInterface {
    acquire(_priority?: number): Promise<MutexInterface.Releaser> {
        return Promise.resolve(() => undefined);
    }
    runExclusive<T>(callback: MutexInterface.Worker<T>, _priority?: number): Promise<T> {
        return Promise.resolve(callback());
    }
    isLocked(): boolean {
        return false;
    }
    waitForUnlock(_priority?: number): Promise<void> {
        return Promise.resolve();
    }
    release(): void {}
    cancel(): void {}
}

class Counted implements SemaphoreInterface {
    constructor(private value: number) {}
    acquire(_weight?: number, _priority?: number):
        Promise<[number, SemaphoreInterface.Releaser]> {
        return Promise.resolve([this.value, () => undefined]);
    }
    runExclusive<T>(callback: SemaphoreInterface.Worker<T>, _weight?: number,
        _priority?: number): Promise<T> {
        return Promise.resolve(callback(this.value));
    }
    waitForUnlock(_weight?: number, _priority?: number): Promise<void> {
        return Promise.resolve();
    }
    isLocked(): boolean {
        return this.value <= 0;
    }
    getValue(): number {
        return this.value;
    }
    setValue(value: number): void {
        this.value = value;
    }
    release(_weight?: number): void {}
    cancel(): void {}
}

// Derived, with what the base returns.
class Named extends Mutex {
    constructor(readonly name: string) {
        super(E_CANCELED);
    }
    override acquire(priority?: number) {
        return super.acquire(priority);
    }
}
class Pool extends Semaphore {
    constructor() {
        super(4, new Error('drained'));
    }
    drain(): void {
        this.setValue(this.getValue() - 1);
        this.release(1);
    }
}

type Acquired = Awaited<ReturnType<Mutex['acquire']>>;
type Pair = Awaited<ReturnType<SemaphoreInterface['acquire']>>;
type Work = Parameters<MutexInterface['runExclusive']>[0];

export async function main(): Promise<unknown[]> {
    const account = new Account();
    await account.open();
    account.close();
    const locks: MutexInterface[] = [new Mutex(), new Named('n'), new Double(),
        tryAcquire(new Double(), E_ALREADY_LOCKED), withTimeout(new Mutex(), 5, new Error('late'))];
    const pools: SemaphoreInterface[] = [new Semaphore(1), new Pool(), tryAcquire(new Pool()),
        withTimeout(new Counted(0), 5)];
    const releases: (() => void)[] = [];
    for (const lock of locks) {
        const priority = lock.isLocked() ? 1 : 0;
        const release: Acquired | MutexInterface.Releaser = await lock.acquire(priority);
        releases.push(release);
        await lock.waitForUnlock(1).catch((error: Error) => error === E_TIMEOUT);
    }
    for (const pool of pools) {
        const got: Pair = await pool.acquire();
        const [value, release]: [number, SemaphoreInterface.Releaser] = got;
        releases.push(release);
        pool.setValue(value + pool.getValue());
        pool.release(2);
        await pool.waitForUnlock(1, 1);
    }
    const work: Work = async () => 'any';
    const errors: Error[] = [E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT];
    const text: string = await new Mutex().runExclusive(async () => 'text');
    const nothing: void = await new Mutex().runExclusive<void>(() => {}, 3);
    const number: number = await new Semaphore(1).runExclusive((value) => value * 2);
    const lifted = await Promise.all([account.change(() => 1), account.change(async () => true, 2),
        account.count(async (value) => [value]), account.sit('a')]);
    const [one, yes, [value], seat]: [number, boolean, number[], number] = lifted;
    return [work, errors, text, nothing, number, one, yes, value, seat, releases.length];
}
