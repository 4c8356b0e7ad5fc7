import holdfast from './index.js';

export const {
    E_ALREADY_LOCKED, E_CANCELED, E_TIMEOUT, HoldfastError, InvalidArgument, KeyedMutex, Lock,
    LockCanceled, LockLost, LockUnavailable, Mutex, OutcomeUnknown, PermissionDenied,
    RecursiveAcquire, Semaphore, Store, StoreCorrupt, StoreFull, StoreUnavailable, Unsupported,
    open, tryAcquire, version, withTimeout,
} = holdfast;
export default holdfast;
