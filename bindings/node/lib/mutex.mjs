import mutex from './mutex.js';

export const { E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, KeyedMutex, Mutex, Semaphore, tryAcquire,
    withTimeout } = mutex;
export default mutex;
