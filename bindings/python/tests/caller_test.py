"""Which task or thread holds a key, and what acquire() returned and nobody kept.

    caller_test.py URL [NAME]
"""
import asyncio
import collections
import concurrent.futures
import contextvars
import gc
import multiprocessing.pool
import sys
import threading
import time
import warnings

import holdfast
from own import MORE, NEAR, URL, free, key, waiters
from tap import PATIENCE, no_hang, run_functions, until


def _refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f'not {kind.__name__}')


def _refused_by(kind, coroutine, *words):
    async def main():
        try:
            await coroutine
        except kind as error:
            assert all(word in str(error) for word in words), error
            return
        raise AssertionError(f'not {kind.__name__}')
    return main()


# ---- a wait for oneself ----

def a_thread_that_would_wait_for_itself_is_told():
    with holdfast.open(URL) as store, store.lock(key()) as held:
        _refused(holdfast.RecursiveAcquire, lambda: store.acquire(held.key), 'this thread')
        _refused(holdfast.RecursiveAcquire, lambda: store.acquire(held.key, shared=True))
        for wait in 0, 0.02:
            _refused(holdfast.LockUnavailable, lambda wait=wait: store.acquire(held.key, wait=wait))


def a_task_that_would_wait_for_itself_is_told():
    async def main():
        async with store.lock(key()) as held:
            await _refused_by(holdfast.RecursiveAcquire, store.acquire_async(held.key), 'this task')
            await _refused_by(holdfast.RecursiveAcquire, store.lock(held.key).__aenter__())
            await _refused_by(holdfast.LockUnavailable, store.acquire_async(held.key, wait=0.02))
            # A wait that keeps its thread keeps the loop from whatever releases the key.
            other = asyncio.create_task(_refused_by(
                holdfast.RecursiveAcquire, _sync(lambda: store.acquire(held.key)), 'event loop'))
            await other

    async def _sync(call):
        call()

    with no_hang(), holdfast.open(URL) as store:
        asyncio.run(main())


def a_task_that_would_wait_for_the_code_that_runs_its_loop_is_told():
    async def nested(store, name):
        await _refused_by(holdfast.RecursiveAcquire, store.acquire_async(name),
                          'the code that runs this event loop')
        await asyncio.gather(*[_refused_by(holdfast.RecursiveAcquire,
                                           store.lock(name).__aenter__()) for _ in range(3)])
        await _refused_by(holdfast.LockUnavailable, store.acquire_async(name, wait=0.02))

    async def waits(store, name):
        async with store.lock(name):
            pass

    with no_hang(), holdfast.open(URL) as store:
        name = key()
        with store.lock(name):
            asyncio.run(nested(store, name))
        store.locked(name)(lambda: asyncio.run(nested(store, name)))()
        asyncio.run(waits(store, name))
        # Another thread's loop ends it, and one that ran before.
        held = store.acquire(name)
        thread = threading.Thread(target=lambda: asyncio.run(waits(store, name)))
        thread.start()
        until(lambda: waiters(store, name) == 1, 'nobody waits')
        held.release()
        thread.join(PATIENCE)
        held = asyncio.run(store.acquire_async(name))
        threading.Timer(0.02, held.release).start()
        asyncio.run(waits(store, name))
        # A pool's thread runs jobs of several callers.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            held = pool.submit(store.acquire, name).result(PATIENCE)
            second = pool.submit(lambda: asyncio.run(waits(store, name)))
            until(lambda: waiters(store, name) == 1 or second.done(), 'nobody waits')
            held.release()
            second.result(PATIENCE)
        assert free(name)


def other_tasks_wait():
    async def main():
        got = []

        async def work(n):
            async with store.lock(name):
                got.append(n)
                await asyncio.sleep(0)

        async with store.lock(name):
            tasks = [asyncio.create_task(work(n)) for n in range(3)]
            while waiters(store, name) < 1:
                await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)
        assert sorted(got) == [0, 1, 2]

    with no_hang(), holdfast.open(URL) as store:
        name = key()
        asyncio.run(main())


def _in_pool_thread(how):
    """One thread serves two requests; the first one's lock is still held, elsewhere."""
    with no_hang(), holdfast.open(URL) as store, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        name = key()
        held = how(pool, store.acquire, name).result(PATIENCE)
        second = how(pool, store.acquire, name)
        until(lambda: waiters(store, name) == 1 or second.done(), 'nobody waits')
        held.release()
        second.result(PATIENCE).release()
        assert free(name)


def a_pool_thread_serves_two_requests():
    """loop.run_in_executor."""
    _in_pool_thread(lambda pool, call, *args: pool.submit(call, *args))


def a_thread_of_multiprocessing_serves_two_requests():
    """Its ThreadPool."""
    with no_hang(), holdfast.open(URL) as store, multiprocessing.pool.ThreadPool(1) as pool:
        name = key()
        held = pool.apply(store.acquire, (name,))
        second = pool.apply_async(store.acquire, (name,))
        until(lambda: waiters(store, name) == 1 or second.ready(), 'nobody waits')
        held.release()
        second.get(PATIENCE).release()
        assert free(name)


def _acquire_twice(url, name):
    with holdfast.open(url) as store, store.lock(name):
        _refused(holdfast.RecursiveAcquire, lambda: store.acquire(name))


def a_process_of_multiprocessing_would_wait_for_itself():
    """A job there runs in the main thread of its process."""
    with no_hang(), multiprocessing.get_context('fork').Pool(1) as pool:
        pool.apply_async(_acquire_twice, (URL, key())).get(PATIENCE)


def a_pool_thread_with_contexts_serves_two_requests():
    """asyncio.to_thread, asgiref."""
    _in_pool_thread(lambda pool, call, *args:
                    pool.submit(contextvars.copy_context().run, call, *args))


def a_thread_that_runs_jobs_in_contexts_serves_two_requests():
    """anyio's worker threads, and with them FastAPI's dependencies."""
    with no_hang(), holdfast.open(URL) as store:
        name, held = key(), []
        with store.lock(key()):     # a mark of the context that the jobs' are copies of
            contexts = [contextvars.copy_context() for _ in range(2)]

        def serve():
            for context in contexts:
                held.append(context.run(store.acquire, name))

        thread = threading.Thread(target=serve)
        thread.start()
        until(lambda: held and waiters(store, name) == 1, 'nobody waits')
        held[0].release()
        thread.join(PATIENCE)
        held[1].release()
        # Within one of its jobs it would wait for itself.
        both = contextvars.copy_context()
        first = both.run(store.acquire, name)
        _refused(holdfast.RecursiveAcquire, lambda: both.run(store.acquire, name))
        first.release()


def a_hold_that_ends_by_its_lease_is_waited_for():
    with no_hang(), holdfast.open(URL) as store:
        name = key()
        first = store.acquire(name, lease=1.5, no_renew=True)
        store.acquire(name).release()
        _refused(holdfast.LockLost, first.release)


# ---- recursive ----

def recursive_counts_as_an_rlock():
    with holdfast.open(URL) as store:
        name = key()
        outer = store.acquire(name, recursive=True)
        inner = store.acquire(name, recursive=True)
        assert inner.token == outer.token and inner.held and not free(name)
        outer.release()     # in any order
        assert not outer.held and inner.held and not free(name)
        _refused(holdfast.LockLost, outer.confirm, 'released')
        inner.confirm()
        inner.release()
        outer.release()
        assert not inner.held and free(name)
        block = store.lock(name, recursive=True)
        with block as one, block as two:
            assert one.held and two.held and block.locked()
        assert free(name)
        _refused(KeyError, lambda: _fails_within(store, name))
        assert free(name)


def _fails_within(store, name):
    with store.lock(name, recursive=True), store.lock(name, recursive=True):
        raise KeyError('x')


def recursive_is_not_for_others():
    with no_hang(), holdfast.open(URL) as store:
        with store.lock(key(), recursive=True) as held:
            said = []

            def other():
                said.append(_refused(holdfast.LockUnavailable, lambda: store.acquire(
                    held.key, wait=0, recursive=True)))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert len(said) == 1

        async def main():
            async with store.lock(name, recursive=True) as one:
                async with store.lock(name, recursive=True) as two:
                    assert one.token == two.token
                await asyncio.create_task(_refused_by(
                    holdfast.LockUnavailable, store.acquire_async(name, wait=0, recursive=True)))
                assert one.held

        name = key()
        asyncio.run(main())
        assert free(name)


def a_nested_lock_that_is_dropped_keeps_the_other():
    with holdfast.open(URL) as store, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        outer = store.acquire(key(), recursive=True)
        inner = store.acquire(outer.key, recursive=True)
        assert inner.held
        del inner
        gc.collect()
        assert len(said) == 1 and not free(outer.key)
        outer.release()
        assert free(outer.key)


def closing_ends_nested_locks():
    store = holdfast.open(URL)
    outer = store.acquire(key(), recursive=True)
    inner = store.acquire(outer.key, recursive=True)
    store.close()
    assert not outer.held and not inner.held
    del outer
    _refused(holdfast.LockLost, inner.confirm)


# ---- a lock that nobody keeps ----

def a_lock_has_no_truth_value():
    with holdfast.open(URL) as store:
        name = key()
        with warnings.catch_warnings(record=True):
            _refused(TypeError, lambda: 1 if store.acquire(name, wait=0) else 0, 'with store.lock')
        assert free(name)


def a_lock_that_a_signal_s_exception_drops_is_released_without_a_warning():
    """The program had no chance to keep it, and is told by the exception."""
    def interrupt(frame, event, function):
        if event == 'c_return' and function.__name__ == 'acquire':
            sys.setprofile(None)
            raise KeyboardInterrupt

    def one():
        store.acquire(name)

    def several():
        store.acquire_all([name, name + '/2'])

    with holdfast.open(URL) as store:
        name = key()
        for acquire in one, several:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter('always')
                try:
                    sys.setprofile(interrupt)
                    acquire()
                    raise AssertionError('not interrupted')
                except KeyboardInterrupt as error:
                    (lambda: None)()    # where an exception for this thread would be raised
                    assert not error.__context__
                finally:
                    sys.setprofile(None)
            assert not said, said[0].message
            assert free(name)


def a_lock_that_is_dropped_with_its_store_is_an_error_at_once():
    ran = []

    def work():
        ran.append(1)

    def bare():
        holdfast.open(URL).acquire(name)
        work()

    name = key()
    _refused(holdfast.UnboundLock, bare)
    assert not ran and free(name)


def a_lock_that_is_dropped_at_once_is_an_error_at_once():
    ran = []

    def work():
        ran.append(1)

    def bare():
        store.acquire(name)
        work()

    def of_a_key():
        store.lock(name).acquire()
        work()

    def last():
        store.acquire(name, wait=0, lease=5)

    def calls():
        last()
        work()

    with holdfast.open(URL) as store:
        name = key()
        for wrong in bare, of_a_key, calls:
            _refused(holdfast.UnboundLock, wrong, name, 'with store.lock')
            assert not ran and free(name)
        # What keeps it for a while has a warning alone.
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter('always')
            for n in range(2):
                held = store.acquire(f'{name}/{n}')
            del held
            work()
            # What keeps it is in C, and may have kept it as long as it was needed.
            collections.deque(map(store.acquire, [name]), maxlen=0)
            work()
        assert ran and [one.category for one in said] == [RuntimeWarning] * 3, said
        store.acquire(name, lease=0.2, detached=True)   # it is meant to stay
        work()


def several_locks_that_are_dropped_at_once_are_an_error_at_once():
    ran = []

    def work():
        ran.append(1)

    def bare():
        store.acquire_all([name + '/b', name + '/a'])
        work()

    with holdfast.open(URL) as store:
        name = key()
        _refused(holdfast.UnboundLock, bare, name + '/b', 'with store.acquire_all')
        assert not ran and free(name + '/a') and free(name + '/b')
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter('always')
            kept = store.acquire_all([name])
            work()
            del kept
            assert [one.category for one in said] == [RuntimeWarning], said
        with store.acquire_all([name + '/a', name + '/b']) as locks:
            work()
            assert [lock.held for lock in locks] == [True, True]


def a_lock_of_which_only_an_attribute_is_kept_is_an_error_at_once():
    ran = []

    def work(value):
        ran.append(value)

    def token():
        work(store.acquire(name).token)

    def held():
        if store.acquire(name).held:
            work(1)

    def left():
        kept = store.acquire(name).left_ms
        work(kept)

    with holdfast.open(URL) as store:
        name = key()
        for wrong in token, held, left:
            _refused(holdfast.UnboundLock, wrong, name)
            assert not ran and free(name)
        with store.acquire(name) as lock:
            work(lock.token)
        store.acquire(name).release()
        lock = store.acquire(name)
        work(lock.token)
        lock.release()


def a_lock_object_that_nobody_keeps_acquires_nothing_in_a_loop():
    async def main():
        name = key()
        for options in {}, {'blocking': False}, {'timeout': 5}:
            await _refused_by(holdfast.UnboundLock, _acquires(store, name, options), name)
            assert not store.peek(name).token
        lock = store.lock(name)
        assert await lock.acquire_async(blocking=False)
        await lock.release_async()
        assert await asyncio.create_task(lock.acquire_async())
        await lock.release_async()
        objects = [store.lock(name)]
        assert await objects[0].acquire_async()
        await objects[0].release_async()

    async def _acquires(store, name, options):
        if await store.lock(name).acquire_async(**options):
            raise AssertionError('runs')

    with holdfast.open(URL) as store:
        asyncio.run(main())


def an_object_of_a_key_has_no_truth_value():
    with holdfast.open(URL) as store:
        _refused(TypeError, lambda: 1 if store.lock(key()) else 0, 'with store.lock')


def a_task_that_keeps_no_lock_is_warned():
    async def one():
        await store.acquire_async(name)

    async def several():
        await store.acquire_all_async([name, name + '/b'])

    async def token():
        assert (await store.acquire_async(name)).token

    with holdfast.open(URL) as store:
        for main in one, several, token:
            name = key()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter('always')
                asyncio.run(main())
                gc.collect()
                assert [one.category for one in said] == [RuntimeWarning], said
                assert 'dropped at once' in str(said[0].message), said[0]
            until(lambda: free(name), 'held still')


# ---- as a lock of threading ----

def a_key_is_a_lock_of_threading():
    with no_hang(), holdfast.open(URL) as store, holdfast.open(URL) as other:
        lock = store.lock(key())
        assert lock.acquire() is True and lock.locked() and not free(lock.key)
        theirs = other.lock(lock.key)
        assert theirs.acquire(False) is False and theirs.acquire(blocking=False) is False
        assert theirs.acquire(timeout=0.02) is False and theirs.acquire(True, 0.02) is False
        _refused(ValueError, lambda: theirs.acquire(False, 1))
        lock.release()
        assert not lock.locked()
        assert theirs.acquire(timeout=-1) is True
        theirs.release()
        _refused(RuntimeError, theirs.release)
        once_more = store.lock(lock.key, wait=0)
        assert once_more.acquire() is True and not theirs.acquire(False)
        once_more.release()
        total = [0]

        def add():
            for _ in range(20 if NEAR else 3):
                with lock:
                    now = total[0]
                    time.sleep(0)
                    total[0] = now + 1

        threads = [threading.Thread(target=add) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert total[0] == (80 if NEAR else 12)


def a_key_is_a_lock_of_asyncio():
    async def main():
        lock = store.lock(key())
        assert await lock.acquire_async() and await lock.locked_async()
        theirs = other.lock(lock.key)
        assert not await theirs.acquire_async(False)
        assert not await theirs.acquire_async(timeout=0.02)
        waits = asyncio.create_task(theirs.acquire_async())
        while waiters(store, lock.key) != 1:
            await asyncio.sleep(0.005)
        await lock.release_async()
        assert await waits and not await lock.acquire_async(False)
        await theirs.release_async()
        await _refused_by(RuntimeError, theirs.release_async())

    with no_hang(), holdfast.open(URL) as store, holdfast.open(URL) as other:
        asyncio.run(main())


def a_lost_lock_and_the_next_one_of_one_object():
    with holdfast.open(URL) as store:
        lock = store.lock(key())
        first = lock.__enter__()
        store.break_(lock.key, first.token)
        until(lambda: not first.held or _confirms_not(first), 'never lost')

        def other():
            with lock as second:
                got.append(second)
                until(lambda: done, 'not left')
                second.confirm()

        got, done = [], []
        thread = threading.Thread(target=other)
        thread.start()
        until(lambda: got, 'not acquired')
        _refused(holdfast.LockLost, lambda: lock.__exit__(None, None, None))
        got[0].confirm()
        done.append(1)
        thread.join()
        assert free(lock.key)


def _confirms_not(held):
    try:
        held.confirm()
        return False
    except holdfast.LockLost:
        return True


def a_retry_by_an_owner_waits_for_its_dead_run():
    """The retry comes by another handle, like that of another process. It isn't refused as
    recursive."""
    with holdfast.open(URL) as first, holdfast.open(URL) as again:
        name, ran = key(), []
        dead = first.once(name, owner='execution-7')
        dead.__enter__()
        assert dead.run
        try:
            again.once(name, ran.append, owner='execution-7', wait=0)
            raise AssertionError('it runs twice')
        except holdfast.LockUnavailable:
            pass
        retry = threading.Thread(target=lambda: again.once(name, ran.append, owner='execution-7'))
        retry.start()
        until(lambda: waiters(again, name) == 1, 'in line')
        again.break_(name, dead.lock.token)     # as its lease's end, or its process's, does
        retry.join(PATIENCE)
        assert len(ran) == 1 and again.peek(name).done
        try:
            dead.__exit__(None, None, None)
            raise AssertionError('it marks over the next run')
        except holdfast.LockLost:
            pass


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
