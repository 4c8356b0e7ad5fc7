"""Cancelled tasks, signals, forks, interpreters that end.

    end_test.py URL [NAME]
"""
import asyncio
import concurrent.futures
import gc
import os
import signal
import sys
import threading
import time

import holdfast
from holdfast import _errors
from own import MORE, NEAR, PRIVATE, URL, free, key, program, waiters
from tap import PATIENCE, no_hang, run_functions, until


# ---- asyncio ----

def many_tasks_wait_without_threads():
    async def main():
        with holdfast.open(URL) as store:
            name, order = key(), []
            before = threading.active_count()
            held = await store.acquire_async(name)

            async def one(number):
                async with store.lock(name):
                    order.append(number)

            tasks = [asyncio.create_task(one(number)) for number in range(100)]
            while store.stats()['waiting'] < 100:
                await asyncio.sleep(0.01)
            assert threading.active_count() == before
            await asyncio.to_thread(held.release)
            await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
            assert order == list(range(100))
    asyncio.run(main())


def a_task_may_be_cancelled_at_any_moment():
    async def main():
        with holdfast.open(URL) as store, holdfast.open(URL) as other:
            name = key()
            inside = 0

            async def one():
                nonlocal inside
                async with store.lock(name):
                    inside += 1
                    try:
                        assert inside == 1
                        await asyncio.sleep(0)
                    finally:
                        inside -= 1

            for number in range(300 if NEAR else 40):
                tasks = [asyncio.create_task(one()) for _ in range(4)]
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                if number % 3 == 0:
                    await asyncio.sleep(0.001 * (number % 5))
                tasks[number % 4].cancel()
                tasks[(number + 1) % 4].cancel()
                done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True),
                                              PATIENCE)
                odd = [one for one in done if one is not None and
                       not isinstance(one, asyncio.CancelledError)]
                assert not odd, odd
            held = await asyncio.wait_for(other.acquire_async(name), PATIENCE)
            held.release()
    asyncio.run(main())


def a_loop_that_ends_with_waits_pending():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        name = key()
        held = other.acquire(name)

        async def main():
            asyncio.create_task(store.acquire_async(name))
            while waiters(other, name) < 1:
                await asyncio.sleep(0.01)

        asyncio.run(main())
        held.release()
        until(lambda: free(name), 'the wait of a loop that is over holds the key')
        asyncio.run(asyncio.wait_for(store.acquire_async(name), PATIENCE)).release()


def a_store_is_closed_in_a_loop_while_others_wait():
    async def main():
        async with holdfast.open(URL) as other:
            held = await other.acquire_async(key())

            async def wait():
                try:
                    async with store.lock(held.key):
                        raise AssertionError('acquired')
                except holdfast.LockCanceled:
                    return 'canceled'

            async def watch():
                async for info in store.watch(held.key):
                    seen.append(info.key)
                return 'over'

            async def hold():
                async with store.lock(held.key + '/own'):
                    inside.set()
                    while not store.closed:
                        await asyncio.sleep(0.001)

            for close in lambda: store.close(), lambda: store.close_async():
                seen, inside = [], asyncio.Event()
                store = holdfast.open(URL)
                tasks = [asyncio.create_task(wait()) for _ in range(10)]
                tasks.append(asyncio.create_task(watch()))
                holds = asyncio.create_task(hold())
                await inside.wait()
                while store.stats()['waiting'] < 10 or not seen:
                    await asyncio.sleep(0.01)
                closing = close()
                if closing:
                    await closing
                assert store.closed
                done = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
                assert done == ['canceled'] * 10 + ['over'], done
                try:
                    await asyncio.wait_for(holds, PATIENCE)
                    raise AssertionError('not told that it was closed')
                except holdfast.LockLost:
                    pass
                assert (await asyncio.to_thread(other.peek, held.key)).waiters == []
                (await other.acquire_async(held.key + '/own', wait=PATIENCE)).release()
            held.release()
        assert other.closed
    asyncio.run(main())


def who_leaves_a_block_doesnt_wait_behind_those_who_wait_for_it():
    """Not in the loop's own threads, which may all wait for the key."""
    async def main():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(2))
        with holdfast.open(URL) as store, holdfast.open(URL) as other:

            def sit():
                store.acquire(name, wait=100).release()

            for gives_up in False, True:
                name = key()
                async with store.lock(name) as held:
                    task = asyncio.create_task(other.acquire_async(name))
                    while waiters(other, name) < 1:
                        await asyncio.sleep(0.01)
                    sitting = [loop.run_in_executor(None, sit) for _ in range(2)]
                    until(lambda: store.stats()['waiting'] == 2, 'not all wait')
                    if gives_up:
                        task.cancel()
                        held.release()
                if not gives_up:
                    (await task).release()
                await asyncio.gather(*sitting)
    asyncio.run(main())


def what_a_detached_wait_brings_to_a_closed_store_is_given_back():
    async def main():
        with holdfast.open(URL) as other:
            for event in False, True:
                store, name = holdfast.open(URL), key()
                held = other.acquire(name)

                async def wait():
                    if not event:
                        return await store.acquire_async(name, detached=True, lease='1d')
                    async with store.once(name, detached=True, lease='1d'):
                        raise AssertionError('begun')

                task = asyncio.create_task(wait())
                while waiters(other, name) < 1:
                    await asyncio.sleep(0.01)
                held.release()
                until(lambda: store.stats()['acquired'] == 1, 'never granted')
                store.close()   # the loop hasn't come round
                try:
                    await task
                    raise AssertionError('granted')
                except holdfast.LockCanceled as error:
                    assert name in error.text
                (await other.acquire_async(name, wait=100)).release()
    asyncio.run(main())


# ---- signals ----

def ctrl_c_ends_a_wait():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        held = other.acquire(key())
        thread = threading.Thread(target=lambda: (
            until(lambda: waiters(other, held.key) == 1, 'nobody waits'),
            os.kill(os.getpid(), signal.SIGINT)))
        thread.start()
        try:
            store.acquire(held.key)
            raise AssertionError('acquired')
        except KeyboardInterrupt:
            pass
        thread.join()
        until(lambda: waiters(other, held.key) == 0, 'still in the queue')
        held.release()
        assert free(held.key)


def a_handler_that_returns_doesnt_end_it():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        held = other.acquire(key())
        seen = []
        before = signal.signal(signal.SIGUSR1, lambda *_: (seen.append(1), held.release()))
        thread = threading.Thread(target=lambda: (
            until(lambda: waiters(other, held.key) == 1, 'nobody waits'),
            os.kill(os.getpid(), signal.SIGUSR1)))
        thread.start()
        store.acquire(held.key).release()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
        assert seen == [1]


def a_handler_may_close_the_store():
    with holdfast.open(URL) as other:
        store = holdfast.open(URL)
        held = other.acquire(key())
        before = signal.signal(signal.SIGUSR1, lambda *_: store.close())
        thread = threading.Thread(target=lambda: (
            until(lambda: waiters(other, held.key) == 1, 'nobody waits'),
            os.kill(os.getpid(), signal.SIGUSR1)))
        thread.start()
        try:
            store.acquire(held.key)
            raise AssertionError('acquired')
        except holdfast.LockCanceled:
            pass
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def a_handler_may_close_the_store_while_an_error_is_made():
    """An error is made in Python, where signals are handled."""
    def asks_again(store):
        with store.lock(taken.key + '/own'):
            store.acquire(taken.key + '/own')

    def asks_again_after_a_wait(store):
        with other.lock(taken.key + '/own') as held:
            thread = threading.Thread(target=lambda: (
                until(lambda: waiters(other, held.key) == 1, 'nobody waits'), held.release()))
            thread.start()
            with store.lock(held.key):
                thread.join()
                store.acquire(held.key)

    async def waits(store, **options):
        await store.acquire_async(taken.key, **options)

    def closes(*_):
        store.close()

    made, before = _errors.HoldfastError.__init__, signal.signal(signal.SIGUSR1, closes)

    def interrupted(self, *args, **more):
        if not store.closed:
            os.kill(os.getpid(), signal.SIGUSR1)
        made(self, *args, **more)

    with holdfast.open(URL) as other, other.lock(key()) as taken, no_hang():
        for ask in (lambda store: store.acquire(taken.key, wait=0),
                    lambda store: store.acquire(taken.key, wait=0.01),
                    lambda store: store.acquire(taken.key, lease=0.001),
                    lambda store: store.acquire('\ud800'), asks_again, asks_again_after_a_wait,
                    lambda store: store.once(taken.key, print, wait=0),
                    lambda store: store.adopt(taken.key, 7),
                    lambda store: store.break_(taken.key, 7),
                    lambda store: asyncio.run(waits(store, wait=0)),
                    lambda store: asyncio.run(waits(store, lease=0.001))):
            store = holdfast.open(URL)
            _errors.HoldfastError.__init__ = interrupted
            try:
                ask(store)
                raise AssertionError('not refused')
            except holdfast.HoldfastError:
                assert store.closed
            finally:
                _errors.HoldfastError.__init__ = made
        signal.signal(signal.SIGUSR1, before)


def the_collector_may_close_the_store():
    """The garbage collector may run wherever an object is made, and finalizers run with it."""
    class Service:
        def __init__(self, store):
            self.itself, self.store = self, store

        def __del__(self):
            self.store.close()

    async def in_a_loop(store, name, count):
        task = asyncio.create_task(store.acquire_async(name))
        await asyncio.sleep(0)      # it has begun
        collects(store, count)
        return await task

    async def starts_in_a_loop(store, name, count):
        coroutine = store.acquire_async(name)
        collects(store, count)
        return await coroutine

    def collects(store, count):
        Service(store)
        gc.set_threshold(count)
        gc.enable()

    def asks(call):
        return lambda store, name, count: (collects(store, count), call(store, name))[1]

    names, thresholds = key(), gc.get_threshold()
    with no_hang():
        for number, ask in enumerate((
                asks(lambda store, name: store.acquire(name)),
                asks(lambda store, name: store.once(name).__enter__().lock),
                asks(lambda store, name: store.adopt(name, 7)),
                asks(lambda store, name: store.watch(name)),
                lambda *args: asyncio.run(in_a_loop(*args)),
                lambda *args: asyncio.run(starts_in_a_loop(*args)))):
            for count in range(1, 40 if NEAR else 12):
                gc.collect()
                gc.disable()
                store, held = holdfast.open(URL), None
                try:
                    held = ask(store, f'{names}/{number}/{count}', count)
                except holdfast.LockCanceled:
                    assert store.closed
                except holdfast.LockLost:   # nobody has what is adopted
                    pass
                finally:
                    gc.set_threshold(*thresholds)
                    gc.enable()
                store.close()
                del held
                assert free(f'{names}/{number}/{count}')


OPENING = '''
import asyncio, os, sys, threading, time
import holdfast
store = holdfast.open(sys.argv[1])
'''


def the_interpreter_ends_while_locks_are_held():
    for text in ('held = store.acquire("end/1")',
                 'held = [store.acquire("end/1")]; held.append(held)',
                 'block = store.lock("end/1"); block.__enter__()',
                 'sys.stuck = store.acquire("end/1")',
                 '''
class Mine(holdfast.Store):
    def __init__(self, url):
        self.name = "mine"
mine = Mine(sys.argv[1])
held = mine.acquire("end/1")
import ctypes
ctypes.pythonapi.Py_IncRef(ctypes.py_object(mine))      # no collector drops it'''):
        program(OPENING + text)
        assert PRIVATE or free('end/1')
    said = program(OPENING + 'held = store.acquire("end/1")\nraise SystemExit(3)', expected=3)
    program(OPENING + 'held = store.acquire("end/1")\nraise KeyError("x")', expected=1)
    assert PRIVATE or free('end/1')
    assert 'Fatal' not in said


def the_interpreter_ends_while_somebody_waits():
    for daemon in 'True', 'False':
        text = OPENING + f'''
held = store.acquire("end/2")
other = holdfast.open(sys.argv[1])
def sit():
    try:
        other.acquire("end/2").release()
    except holdfast.LockCanceled:
        pass
thread = threading.Thread(target=sit, daemon={daemon})
thread.start()
while not store.peek("end/2").waiters: time.sleep(0.01)
watch = store.watch()
held.on_lost(print)
{'' if daemon == 'True' else 'held.release()'}
'''
        program(text)
        assert PRIVATE or free('end/2')


def the_interpreter_ends_with_a_loop_and_listeners():
    program(OPENING + '''
held = store.acquire("end/3")
held.on_lost(print)
async def main():
    inner = await store.acquire_async("end/4")
    inner.on_lost(print)
    asyncio.create_task(store.acquire_async("end/3"))
    await asyncio.sleep(0.05)
    asyncio.get_running_loop().stop()
try:
    asyncio.run(main())
except RuntimeError:
    pass
''')
    assert PRIVATE or (free('end/3') and free('end/4'))


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
