"""What a holder is told of a loss, and how.

    loss_test.py URL [NAME]
"""
import asyncio
import gc
import linecache
import sys
import threading
import warnings
import weakref

import holdfast
from holdfast import _aio
from own import MORE, NEAR, URL, free, key, waiters
from tap import PATIENCE, no_hang, run_functions, until


def _lose(store, held):
    store.break_(held.key, held.token)


def _give_up(held):
    """Releases what may be lost."""
    held.__exit__(RuntimeError, RuntimeError('over'), None)


def a_loss_is_told_to_a_thread():
    with holdfast.open(URL) as store:
        name, told = key(), threading.Event()
        held = store.acquire(name, lease=1)
        held.on_lost(lambda lock: told.set())
        store.break_(name, held.token)
        assert told.wait(PATIENCE)
        try:
            held.release()
            raise AssertionError('not lost')
        except holdfast.LockLost:
            pass


def a_loss_is_told_in_its_event_loop():
    async def main():
        with holdfast.open(URL) as store:
            name, told = key(), asyncio.Event()
            here = threading.get_ident()
            try:
                async with store.lock(name, lease=1) as held:
                    held.on_lost(lambda lock: threading.get_ident() == here and told.set())
                    await asyncio.to_thread(store.break_, name, held.token)
                    await asyncio.wait_for(told.wait(), PATIENCE)
                raise AssertionError('not told')
            except holdfast.LockLost:
                pass
    asyncio.run(main())


def _at_step(number, act, call):
    """Makes the call. At this step in Python of its beginning to listen, calls act; whether there
    was such a step."""
    steps = 0

    def count(frame, event, arg):
        nonlocal steps
        if frame.f_code.co_filename != _aio.__file__:
            return None
        # Python itself runs no handler between a `with` and its block.
        if linecache.getline(_aio.__file__, frame.f_lineno).strip().startswith('with '):
            return count
        steps += 1
        if steps == number:
            act()
        return count

    tracing = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(tracing)
    return steps >= number


def a_signal_handler_interrupts_what_begins_to_listen():
    """Whatever is registered after that, or by the handler, is told of the loss."""
    def stop():
        raise KeyboardInterrupt

    def listen(number, act):
        try:
            return _at_step(number, act, lambda: held.on_lost(lambda lock: told.append('one')))
        except KeyboardInterrupt:
            told.append('raised')
            return True

    with no_hang(), holdfast.open(URL) as store:
        for handler in 'raises', 'listens':
            number, more = 0, True
            while more:
                number, told = number + 1, []
                held = store.acquire(key(), lease=60)
                more = listen(number, stop if handler == 'raises' else
                              lambda: held.on_lost(lambda lock: told.append('two')))
                held.on_lost(lambda lock: told.append('last'))
                _lose(store, held)
                try:
                    held.confirm()
                    raise AssertionError('not lost')
                except holdfast.LockLost:
                    pass
                expected = {'last'}
                if 'raised' not in told:    # then the callback may be registered, or not
                    expected.add('one')
                if handler == 'listens' and more:
                    expected.add('two')
                until(lambda: expected <= set(told), (handler, number, told))
                _give_up(held)


def a_callback_that_refers_to_its_lock_keeps_it_from_nothing():
    """The collector finds both; a lock that nobody refers to is released."""
    class Job:
        def __init__(self):
            self.lock = store.acquire(name, lease=60)
            self.lock.on_lost(self.lost)
            gone.append(weakref.ref(self.lock))

        def lost(self, lock):
            pass

    with no_hang(), holdfast.open(URL) as store:
        name, gone = key(), []
        job = Job()
        job.lock.release()
        waiting = len(_aio._post_of_losses().waiting)
        del job
        gc.collect()
        assert gone.pop()() is None
        assert len(_aio._post_of_losses().waiting) == waiting - 1
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter('always')
            Job()
            gc.collect()
            assert gone.pop()() is None
        assert name in str(said[0].message)
        until(lambda: free(name), 'held')


def what_couldnt_be_begun_to_listen_is_begun_anew():
    async def main():
        loop = asyncio.get_running_loop()
        add, failed = loop.add_reader, []

        def fails(*_):
            loop.add_reader = add
            failed.append(1)
            raise OSError(28, 'No space left on device')

        loop.add_reader = fails
        with other.acquire(key()) as held:
            try:
                await store.acquire_async(held.key)
                raise AssertionError('not told')
            except OSError:
                pass
            waits = asyncio.create_task(store.acquire_async(held.key))
            while not waiters(other, held.key):
                await asyncio.sleep(0.005)
        (await asyncio.wait_for(waits, PATIENCE)).release()
        assert failed

    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        asyncio.run(main())
        listener, start, told = _aio._listener, threading.Thread.start, threading.Event()

        def fails(_):
            threading.Thread.start = start
            raise RuntimeError("can't start new thread")

        held = store.acquire(key(), lease=1)
        _aio._listener, threading.Thread.start = None, fails
        try:
            held.on_lost(lambda _: told.set())
            raise AssertionError('not told')
        except RuntimeError:
            pass
        held.on_lost(lambda _: told.set())
        store.break_(held.key, held.token)
        assert told.wait(100)
        held.__exit__(RuntimeError, None, None)
        _aio._listener = listener or _aio._listener


def who_gave_it_back_hears_nothing():
    with holdfast.open(URL) as store:
        told = []
        for _ in range(50 if NEAR else 3):
            with store.lock(key(), lease=60) as held:
                held.on_lost(told.append)
        del held
        assert not told


def several_callbacks_are_all_called():
    with holdfast.open(URL) as store:
        told, late = [], threading.Event()
        held = store.acquire(key(), lease=1)
        for n in range(3):
            held.on_lost(lambda lock, n=n: told.append((n, lock is held)))
        _lose(store, held)
        until(lambda: len(told) == 3, 'not told')
        assert sorted(told) == [(n, True) for n in range(3)]
        held.on_lost(lambda lock: late.set())   # it is lost already
        assert late.wait(PATIENCE)
        _give_up(held)
        nested = store.acquire(key(), lease=1)
        inner = store.acquire(nested.key, recursive=True)
        told.clear()
        inner.on_lost(lambda lock: told.append(lock is inner))
        nested.on_lost(lambda lock: told.append(lock is nested))
        _lose(store, nested)
        until(lambda: told == [True, True], 'not told')
        _give_up(inner)
        _give_up(nested)


def a_callback_that_takes_long_keeps_no_other_from_being_called():
    with no_hang(), holdfast.open(URL) as store:
        begun, go, told = threading.Event(), threading.Event(), threading.Semaphore(0)
        kept = [store.acquire(key(), lease=1) for _ in range(3)]
        kept[0].on_lost(lambda lock: (begun.set(), go.wait()))
        _lose(store, kept[0])
        assert begun.wait(PATIENCE)
        try:
            for held in kept[1:]:
                held.on_lost(lambda lock: told.release())
                _lose(store, held)
                assert told.acquire(timeout=PATIENCE)
        finally:
            go.set()
        for held in kept:
            _give_up(held)


def a_coroutine_is_run_in_its_loop():
    async def main():
        told, reported = asyncio.Event(), []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reported.append(context))
        held = await store.acquire_async(key(), lease=1)

        async def listens(lock):
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is loop and lock is held
            told.set()

        async def fails(lock):
            raise KeyError('x')

        held.on_lost(fails)
        held.on_lost(listens)
        await store.break_async(held.key, held.token)
        await asyncio.wait_for(told.wait(), PATIENCE)
        while not reported:
            await asyncio.sleep(0.005)
        assert isinstance(reported[0]['exception'], KeyError), reported
        _give_up(held)

    with no_hang(), holdfast.open(URL) as store:
        asyncio.run(main())


def after_the_end_of_a_loop_a_thread_tells():
    async def main():
        held = await store.acquire_async(key(), lease=1)
        held.on_lost(lambda lock: told.append('function'))

        async def listens(lock):
            told.append('coroutine')

        held.on_lost(listens)
        return held

    with no_hang(), holdfast.open(URL) as store:
        told = []
        held = asyncio.run(main())
        _lose(store, held)
        until(lambda: sorted(told) == ['coroutine', 'function'], 'not told')
        _give_up(held)


def a_loss_while_the_body_raises_is_noted():
    def said(error):
        return '\n'.join(getattr(error, '__notes__', [])) + str(error.__context__)

    with holdfast.open(URL) as store:
        try:
            with store.lock(key()) as held:
                _lose(store, held)
                raise KeyError('x')
        except KeyError as error:
            assert held.key in said(error), said(error)

        async def main():
            async with store.lock(name) as held:
                await store.break_async(name, held.token)
                raise KeyError('x')

        name = key()
        try:
            asyncio.run(main())
            raise AssertionError('not raised')
        except KeyError as error:
            assert name in said(error), said(error)
        try:
            with store.once(key()) as event:
                _lose(store, event.lock)
                raise KeyError('x')
        except KeyError as error:
            assert event.key in said(error), said(error)
        try:
            with store.lock(key()) as held:
                raise KeyError('x')
        except KeyError as error:
            assert held.key not in said(error), said(error)


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
