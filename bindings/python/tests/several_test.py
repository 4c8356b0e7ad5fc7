"""Several keys at once.

    several_test.py URL [NAME]
"""
import asyncio
import datetime
import sys
import threading
import warnings

import holdfast
from holdfast import _several
from own import MORE, NEAR, URL, free, key, waiters
from tap import run_functions, until


def _raised(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f'not {kind.__name__}')


def _keys(*names):
    base = key()
    return [f'{base}{name}' for name in names]


def the_locks_stand_in_the_order_that_was_asked_for():
    keys = _keys('é', '\U0001f512', 'z', '\uff5e', '1')
    with holdfast.open(URL) as store:
        with store.acquire_all(keys, lease='1m', note='all') as locks:
            assert [lock.key for lock in locks] == keys and all(lock.held for lock in locks)
            assert not any(free(name) for name in keys)
            _raised(TypeError, lambda: bool(locks), 'acquire_all')
        assert all(free(name) for name in keys)
        store.acquire_all(iter(keys), wait=0).release()
        store.acquire_all(keys, wait=datetime.timedelta(seconds=1)).release()
        assert all(free(name) for name in keys)


def all_or_none_within_one_time():
    first, busy, last = keys = _keys('a', 'b', 'c')
    with holdfast.open(URL) as one, holdfast.open(URL) as two, two.lock(busy):
        for wait, code in ((0, 'BUSY'), ('0', 'BUSY'), ('50ms', 'TIMEOUT'), (0.05, 'TIMEOUT')):
            error = _raised(holdfast.LockUnavailable, lambda: one.acquire_all(keys, wait=wait))
            assert (error.code, error.key) == (code, busy)
            assert free(first) and free(last)


def a_block_that_raises_releases_all_and_its_error_stays():
    keys = _keys('a', 'b')
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        _raised(KeyError, lambda: _fail(store, keys))
        assert all(free(name) for name in keys)

        def lose(name):
            with store.acquire_all(keys, lease='1m') as locks:
                other.break_(name, locks[keys.index(name)].token)
        for name in keys:
            error = _raised(holdfast.LockLost, lambda name=name: lose(name))
            assert error.key == name and all(free(each) for each in keys)


def _fail(store, keys):
    with store.acquire_all(keys):
        raise KeyError('broken')


class _Later:
    """The time module, an hour later."""
    def __init__(self, time):
        self._now = time.monotonic() + 3600

    def monotonic(self):
        return self._now


def what_the_first_key_took_of_the_time_the_next_one_lacks():
    keys, errors = _keys('a', 'b'), []
    with holdfast.open(URL) as one, holdfast.open(URL) as two, two.lock(keys[1]):
        first = two.acquire(keys[0])

        def wait():
            try:
                one.acquire_all(keys, wait='1h')
            except holdfast.LockUnavailable as error:
                errors.append(error)
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        until(lambda: waiters(two, keys[0]), 'waits')
        real, _several.time = _several.time, _Later(_several.time)
        try:
            first.release()
            until(lambda: errors, 'the time is over')
        finally:
            _several.time = real
        thread.join()
        assert (errors[0].code, errors[0].key) == ('TIMEOUT', keys[1]), errors
        assert free(keys[0])


def nobody_waits_in_a_circle():
    keys, inside, runs = _keys('a', 'b'), [], []

    def work(order):
        with holdfast.open(URL) as store:
            for _ in range(5):
                with store.acquire_all(order):
                    inside.append(1)
                    assert len(inside) == 1
                    inside.pop()
                    runs.append(1)
    threads = [threading.Thread(target=work, args=(order,))
               for order in (keys, keys[::-1], keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 20


def what_is_refused():
    with holdfast.open(URL) as store:
        name = key()
        for keys, options, word in (
                ([], {}, '1 to 64'), (name, {}, '1 to 64'), (5, {}, '1 to 64'),
                (None, {}, '1 to 64'), ((key() for _ in range(65)), {}, '64'),
                ([name, key(), name], {}, 'named twice'), ([name, ''], {}, 'key'),
                ([name, 5], {}, 'key'), ([name], {'at_least': 1}, 'at_least'),
                ([name], {'wait': '10'}, 'no unit'), ([name], {'limit': 0}, 'limit')):
            _raised(holdfast.InvalidArgument, lambda: store.acquire_all(keys, **options), word)
        _raised(TypeError, lambda: store.acquire_all([name], nonsense=1))
        assert free(name)


def tasks_acquire_several_and_a_cancelled_one_has_none():
    keys = _keys('a', 'b')

    async def main():
        async with holdfast.open(URL) as store, holdfast.open(URL) as other:
            async with await store.acquire_all_async(keys) as locks:
                assert [lock.key for lock in locks] == keys
                for name in keys:
                    assert not await asyncio.to_thread(free, name)
            held = await other.acquire_async(keys[1])
            task = asyncio.create_task(store.acquire_all_async(keys))
            while not (await other.peek_async(keys[1])).waiters:
                await asyncio.sleep(0.005)
            task.cancel()
            try:
                await task
                raise AssertionError('not cancelled')
            except asyncio.CancelledError:
                pass
            await (await other.acquire_async(keys[0], wait='5m')).release_async()
            await held.release_async()
            await (await store.acquire_all_async(keys, wait='5m')).release_async()
    asyncio.run(main())


def one_that_is_lost_while_the_others_are_waited_for():
    keys = _keys('a', 'b')
    with holdfast.open(URL) as one, holdfast.open(URL) as two:
        held = two.acquire(keys[1])
        seen = []

        def wait():
            try:
                one.acquire_all(keys, lease='1m').release()
            except holdfast.LockLost as error:
                seen.append(error.key)
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: waiters(two, keys[1]), 'waits')
        two.break_(keys[0], two.peek(keys[0]).holders[0].token)
        held.release()
        thread.join()
        assert seen == [keys[0]], seen
        assert free(keys[1])


def _interrupted_at_each_step(block):
    """Leaves the block with a KeyboardInterrupt at each step in Python that its end has, one after
    the other; the exceptions, each of which keeps the frames that it came through."""
    while True:
        steps, wanted = 0, len(_interrupted_at_each_step.kept)

        def count(frame, event, arg):
            nonlocal steps
            steps += 1
            if steps > wanted:
                raise KeyboardInterrupt
            return count
        try:
            with block():
                sys.settrace(count)
            return
        except KeyboardInterrupt as error:
            _interrupted_at_each_step.kept.append(error)
        finally:
            sys.settrace(None)
        yield


def a_signal_while_the_block_is_left_keeps_no_key():
    """Nor an event's: as with one lock, the end is one call."""
    with holdfast.open(URL) as store:
        keys = _keys('a', 'b')
        for block, of in ((lambda: store.lock(keys[0]), keys[:1]),
                          (lambda: store.acquire_all(keys), keys),
                          (lambda: store.once(keys[0] + '/event'), [keys[0] + '/event'])):
            _interrupted_at_each_step.kept = []
            for _ in _interrupted_at_each_step(block):
                assert all(free(name) for name in of), _interrupted_at_each_step.kept
            assert all(free(name) for name in of)


def _interrupted(number, call):
    """Makes the call, and raises KeyboardInterrupt where a signal handler may be run for the so
    manyth time: at the begin of a Python function, and after one in C. Returns the exception, which
    keeps the frames that it came through; None: there are fewer such places."""
    places = 0

    def count(frame, event, function):
        nonlocal places
        places += event in ('call', 'c_return')
        if places == number:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        sys.setprofile(count)
        call()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.setprofile(None)


def a_signal_while_a_block_begins_keeps_no_key_and_warns_of_nothing():
    """Nor is the object of an event taken for one whose block is being run."""
    def several():
        with store.acquire_all(keys):
            sys.setprofile(None)

    def event():
        with once:
            sys.setprofile(None)
            raise Left

    class Left(Exception):
        pass

    with holdfast.open(URL) as store, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        keys = _keys('a', 'b')
        once = store.once(keys[0])
        for block in several, event:
            number, error = 0, True
            while error:
                number += 1
                try:
                    error = _interrupted(number, block)
                except Left:
                    error = None
                assert not said, (number, said[0].message)
                assert all(free(name) for name in keys), (number, block.__name__)


def a_signal_while_a_task_acquires_keeps_no_key_and_warns_of_nothing():
    """What is free in this process or file is had without a wait, so one step does it."""
    async def main():
        for begin in (lambda: store.acquire_async(keys[0]), lambda: store.acquire_all_async(keys),
                      lambda: store.lock(keys[0]).__aenter__()):
            number, error, got = 0, True, []

            def step():
                try:
                    begin().send(None)
                except StopIteration as end:
                    sys.setprofile(None)
                    got.append(end.value)

            while error:
                number += 1
                error = _interrupted(number, step)
                assert not said, (number, said[0].message)
                if error:
                    until(lambda: all(free(name) for name in keys), (number, begin))
            got[0].release()

    with holdfast.open(URL) as store, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        keys = _keys('a', 'b')
        if NEAR:
            asyncio.run(main())


def each_is_released_and_the_last_failure_tells_the_one_before():
    keys = _keys('a', 'b', 'c')
    with holdfast.open(URL) as one, holdfast.open(URL) as two:
        def lose():
            for name in keys[:2]:
                two.break_(name, two.peek(name).holders[0].token)

        locks = one.acquire_all(keys, lease='1m')
        lose()
        error = _raised(holdfast.LockLost, locks.release)
        assert (error.key, error.__context__.key) == (keys[0], keys[1])
        try:
            with one.acquire_all(keys, lease='1m'):
                lose()
                raise ValueError('the body')
        except ValueError as error:
            assert sum(name in str(error.__notes__) for name in keys) == 2, error.__notes__
        assert all(free(name) for name in keys)


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
