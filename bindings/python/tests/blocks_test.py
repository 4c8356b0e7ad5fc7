"""What store.lock(key) gives is shared by threads and tasks: each block has a lock of its own.

    blocks_test.py URL [NAME]
"""
import asyncio
import concurrent.futures
import contextlib
import sys
import threading

import holdfast
from own import MORE, NEAR, URL, free, key, program
from tap import PATIENCE, no_hang, run_functions, until

SEVERAL = ({'shared': True}, {'limit': 3})


def _refused(kind, call, words=''):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError('not refused')


@contextlib.contextmanager
def _thread():
    """Runs what is given to it in one thread of its own, to the end."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    try:
        yield lambda call, *args: pool.submit(call, *args).result(PATIENCE)
    finally:
        pool.shutdown()


def several_blocks_of_one_object_hold_at_the_same_time():
    with no_hang(), holdfast.open(URL) as store, _thread() as there, _thread() as elsewhere:
        for options in SEVERAL:
            for first, second in (there, elsewhere), (elsewhere, there):
                lock = store.lock(key(), **options)
                one, two = first(lock.__enter__), second(lock.__enter__)
                assert one.token != two.token
                first(lock.__exit__, None, None, None)
                assert not one.held
                two.confirm()
                second(lock.__exit__, None, None, None)
                assert not two.held and free(lock.key)


def several_threads_acquire_one_object():
    with no_hang(), holdfast.open(URL) as store, _thread() as there, _thread() as elsewhere:
        lock = store.lock(key(), limit=2)
        assert there(lock.acquire) and elsewhere(lock.acquire) and not lock.acquire(False)
        there(lock.release)
        assert lock.acquire(False)
        for release in lock.release, lock.release:
            release()   # the last one is another thread's, as of a semaphore
        _refused(RuntimeError, lock.release, 'release unlocked lock')
        assert free(lock.key)


def several_tasks_hold_one_object():
    async def works(lock, number):
        async with lock as held:
            inside.append(held)
            await turns[number].wait()
            await held.confirm_async()
        assert not held.held

    async def main():
        for options in SEVERAL:
            lock = store.lock(key(), **options)
            inside.clear()
            turns[:] = [asyncio.Event() for _ in range(3)]
            tasks = [asyncio.create_task(works(lock, number)) for number in range(3)]
            while len(inside) < 3:
                await asyncio.sleep(0.005)
            for number in 1, 0, 2:
                turns[number].set()
                await tasks[number]
            assert free(lock.key)

    inside, turns = [], []
    with no_hang(), holdfast.open(URL) as store:
        asyncio.run(main())


def a_generator_leaves_its_block_in_another_thread():
    """As those of FastAPI's dependencies do."""
    def holds(lock):
        with lock as held:
            yield held

    with no_hang(), holdfast.open(URL) as store, _thread() as there, _thread() as elsewhere, \
            _thread() as end:
        for options in SEVERAL:
            lock = store.lock(key(), **options)
            one, two, three = holds(lock), holds(lock), holds(lock)
            held = [there(next, one), elsewhere(next, two), elsewhere(next, three)]
            for which, leaves in (1, two), (0, one), (2, three):
                held[which].confirm()
                end(leaves.close)
                assert not held[which].held
            assert free(lock.key)


def a_generator_whose_lock_was_lost_ends_no_other_block():
    def holds():
        with lock as held:
            yield held

    with no_hang(), holdfast.open(URL) as store, _thread() as there, _thread() as elsewhere:
        for first in 0, 1:
            lock = store.lock(key())
            blocks = [holds(), holds()]
            lost = there(next, blocks[0])
            store.break_(lock.key, lost.token)
            until(lambda lost=lost: not lost.held, 'never lost')
            held = elsewhere(next, blocks[1])
            for leaves in first, 1 - first:
                if leaves:
                    held.confirm()
                blocks[leaves].close()
                assert held.held == (not leaves and not first)
            assert free(lock.key)


def a_task_ends_what_another_entered():
    async def main():
        async def holds():
            async with lock as held:
                yield held

        async def begins(generator):
            return await generator.__anext__()

        lock = store.lock(key(), shared=True)
        blocks = [holds(), holds()]
        held = [await asyncio.create_task(begins(one)) for one in blocks]
        await blocks[1].aclose()
        assert not held[1].held
        await held[0].confirm_async()
        await blocks[0].aclose()
        assert free(lock.key)

    with no_hang(), holdfast.open(URL) as store:
        asyncio.run(main())


def a_block_that_isnt_known_takes_no_other_ones_lock():
    def enter():
        return lock.__enter__()

    with no_hang(), holdfast.open(URL) as store, _thread() as there, _thread() as elsewhere:
        lock = store.lock(key(), shared=True)
        one, two = there(enter), elsewhere(enter)
        _refused(RuntimeError, lambda: lock.__exit__(None, None, None), 'of its own')
        one.confirm()
        two.confirm()
        there(lock.__exit__, None, None, None)
        lock.__exit__(None, None, None)     # it can be one only
        assert free(lock.key)


def nobody_else_releases_what_a_block_holds():
    with no_hang(), holdfast.open(URL) as store, _thread() as there:
        for options in ({}, *SEVERAL):
            lock = store.lock(key(), **options)
            with lock as held:
                _refused(RuntimeError, lambda lock=lock: there(lock.release), 'block of another')
                held.confirm()
            assert free(lock.key)


def no_task_releases_what_the_block_of_another_holds():
    async def releases(lock):
        try:
            await lock.release_async()
        except RuntimeError as error:
            assert 'block of another' in str(error)
            return
        raise AssertionError('not refused')

    async def main():
        for options in ({}, *SEVERAL):
            lock = store.lock(key(), **options)
            async with lock as held:
                await asyncio.create_task(releases(lock))
                await held.confirm_async()
            assert free(lock.key)

    with no_hang(), holdfast.open(URL) as store:
        asyncio.run(main())


def a_block_that_has_released_takes_no_other_ones_lock():
    def other():
        with lock as held:
            got.append(held)
            entered.set()
            left.wait(PATIENCE)
            held.confirm()

    with no_hang(), holdfast.open(URL) as store:
        lock, got = store.lock(key()), []
        entered, left = threading.Event(), threading.Event()
        thread = threading.Thread(target=other)
        with lock:
            lock.release()
            _refused(RuntimeError, lock.release)
            thread.start()
            entered.wait(PATIENCE)
        got[0].confirm()
        left.set()
        thread.join()
        assert free(lock.key)


def an_inner_block_that_is_left_in_another_frame_ends_itself():
    with no_hang(), holdfast.open(URL) as store:
        lock = store.lock(key(), recursive=True)
        with lock as outer:
            with contextlib.ExitStack() as stack:
                inner = stack.enter_context(lock)
            outer.confirm()
            assert outer.held and not inner.held
        assert free(lock.key)


def no_block_begins_without_a_hold():
    """As where a module acquires once, and uses the lock in each call of a function."""
    async def in_loop(held):
        async with held:
            ran.append(held)

    def plain(held):
        with held:
            ran.append(held)

    def refused(enter, held, why):
        try:
            enter(held)
        except holdfast.LockLost as error:
            assert why in str(error) and name in str(error), error
        else:
            raise AssertionError('entered')
        assert not ran

    ran = []
    with holdfast.open(URL) as store:
        for enter in plain, lambda held: asyncio.run(in_loop(held)):
            name = key()
            for acquire in store.acquire, lambda name: store.acquire_all([name + '/0', name]):
                held = acquire(name)
                enter(held)
                assert ran.pop() is held
                refused(enter, held, 'this lock was released')
            held = store.acquire(name)
            store.break_(name, held.token)
            if not NEAR:
                try:
                    held.confirm()
                except holdfast.LockLost:
                    pass
            refused(enter, held, 'is over')
            both = store.acquire_all([name, name + '/1'])
            both[0].release()
            refused(enter, both, 'this lock was released')
            assert free(name + '/1')
            with store.acquire(name) as held:   # in blocks of its own, too
                with held:
                    assert held.held
                assert not held.held


def an_event_has_one_block_at_a_time():
    """The end of the first block would mark the event that the second one works on."""
    async def in_loop():
        async with event:
            pass

    def plain():
        with event:
            pass

    with holdfast.open(URL) as store:
        name = key()
        event = store.once(name)
        with event:
            for enter in plain, lambda: asyncio.run(in_loop()):
                try:
                    enter()
                    raise AssertionError('entered')
                except RuntimeError as error:
                    assert name in str(error) and 'once(key) of its own' in str(error), error
            assert event and event.lock.held
        assert store.peek(name).done
        with event:     # one after the other
            assert not event
        store.forget(name)
        for error in ValueError, asyncio.CancelledError:
            try:
                with event:
                    assert event
                    raise error
            except error:
                pass
        with store.lock(name):
            again = store.once(name, wait=0)
            for _ in range(2):
                try:
                    again.__enter__()
                    raise AssertionError('entered')
                except holdfast.LockUnavailable:
                    pass


def stacks_end_in_any_order():
    with no_hang(), holdfast.open(URL) as store:
        for options in {'shared': True}, {'limit': 5}:
            for order in (0, 1, 2), (1, 2, 0), (2, 0, 1):
                lock = store.lock(key(), **options)
                for moved in False, True:
                    stacks = [contextlib.ExitStack() for _ in order]
                    held = [stack.enter_context(lock) for stack in stacks]
                    for left in order:
                        (stacks[left].pop_all() if moved else stacks[left]).close()
                        assert not held[left].held
                        assert [one.held for one in held].count(True) == len(order) - 1 - \
                            order.index(left)
                    assert free(lock.key)


def stacks_of_one_caller_count_as_an_rlock_does():
    with no_hang(), holdfast.open(URL) as store:
        for order in (0, 1, 2), (1, 2, 0), (2, 0, 1):
            lock = store.lock(key(), recursive=True)
            stacks = [contextlib.ExitStack() for _ in order]
            held = [stack.enter_context(lock) for stack in stacks]
            for nth, left in enumerate(order):
                assert not free(lock.key)
                stacks[left].close()
                assert [one.held for one in held] == [at in order[nth + 1:] for at in range(3)]
                for at in order[nth + 1:]:
                    held[at].confirm()
            assert free(lock.key)


def blocks_may_end_while_one_of_them_is_looked_for():
    assert program("""
import asyncio, sys
within = []
running = asyncio._get_running_loop
def looks():  # called by the extension; a finalizer may run in its place
    while within:
        within.pop()()
    return running()
asyncio._get_running_loop = looks
import holdfast
with holdfast.open(sys.argv[1]) as store:
    lock = store.lock(sys.argv[2], shared=True)
    def leave_both():
        for _ in range(2):
            lock.__exit__(None, None, None)
    def release_both():
        for _ in range(2):
            lock.release()
    for _ in range(2):
        lock.__enter__()
    within.append(leave_both)
    lock.__exit__(None, None, None)
    print(len(within), len(store.peek(lock.key).holders))
    for _ in range(2):
        lock.acquire()
    within.append(release_both)
    try:
        lock.release()
    except RuntimeError as error:
        print(error)
    print(len(within), len(store.peek(lock.key).holders))
""", key()).split('\n') == ['0 0', 'release unlocked lock', '0 0', '']


def stacks_of_a_task_end_in_any_order():
    async def main():
        with holdfast.open(URL) as store:
            lock = store.lock(key(), shared=True)
            stacks = [contextlib.AsyncExitStack() for _ in range(3)]
            held = [await stack.enter_async_context(lock) for stack in stacks]
            for stack, one in zip(stacks, held):
                assert one.held
                await stack.aclose()
                assert not one.held
            assert free(lock.key)
    with no_hang():
        asyncio.run(main())


def a_stack_that_another_caller_closes_ends_its_own_block():
    with no_hang(), holdfast.open(URL) as store, _thread() as there:
        for options in SEVERAL:
            lock, stack = store.lock(key(), **options), contextlib.ExitStack()
            held = there(stack.enter_context, lock)
            with lock as own:
                stack.close()
                assert not held.held
                own.confirm()
            assert free(lock.key)


def a_block_is_entered_and_left_where_no_python_code_runs():
    assert program("""
import _thread, atexit, operator, sys
import holdfast
store = holdfast.open(sys.argv[1])
lock = store.lock(sys.argv[2], shared=True)
entered = _thread.allocate_lock()
entered.acquire()
calls = map(operator.methodcaller('__call__'), (lock.__enter__, entered.release))
_thread.start_new_thread(list, (calls,))
entered.acquire()
own = lock.__enter__()
atexit.register(lambda: print(own.held, len(store.peek(lock.key).holders)))
for _ in range(2):
    atexit.register(lock.__exit__, None, None, None)
""", key()).split() == ['False', '0']


def any_thread_releases_what_acquire_brought():
    with no_hang(), holdfast.open(URL) as store, _thread() as there:
        lock = store.lock(key())
        assert there(lock.acquire)
        lock.release()
        assert free(lock.key)


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
