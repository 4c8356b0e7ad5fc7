"""What is left after many acquisitions: nothing. A program of its own, as memory is measured.

    growth_test.py URL ACQUISITIONS [NAME]
"""
import asyncio
import gc
import os
import sys
import time
import tracemalloc

import holdfast
from own import MORE, NEAR, URL, key
from tap import run_functions

ACQUISITIONS = int(MORE[0]) if MORE else 100_000
# What is left behind by each acquisition grows in every round; what an allocator or a pool of
# connections takes or keeps for other reasons, now and then.
ROUNDS, BYTES_EACH = 8, 50


def _descriptors():
    return len(os.listdir('/proc/self/fd'))


def _resident():
    with open('/proc/self/statm', encoding='utf-8') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def _holds(store, name, n):
    for number in range(n):
        with store.lock(name, wait=1, owner='x', note='y'):
            pass
        if number % 10 == 0:
            try:
                store.acquire('', wait=0)
            except holdfast.InvalidArgument:
                pass
        if number % 100 == 0:
            with store.lock(name) as held:
                held.on_lost(print)
            del held
            store.peek(name)


async def _tasks(store, name, n):
    for _ in range(n):
        async with store.lock(name):
            waiting = asyncio.create_task(store.acquire_async(name))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])


def no_memory_and_no_descriptor_is_left():
    grown, opened, each = [], [], max(ACQUISITIONS // ROUNDS, 100)
    with holdfast.open(URL) as store:
        name = key()
        _holds(store, name, 1000)
        asyncio.run(_tasks(store, name, 10))
        for _ in range(ROUNDS):
            before, fds = _resident(), _descriptors()
            _holds(store, name, each)
            asyncio.run(_tasks(store, name, each // 1000 + 1))
            gc.collect()
            grown.append(_resident() - before)
            opened.append(_descriptors() - fds)
    print(f'# {each} acquisitions a round: {grown} bytes and {opened} descriptors more')
    assert min(grown) <= each * BYTES_EACH, f'{grown} bytes more'
    assert min(opened) <= 0, f'{opened} descriptors more'


async def _start(store, other, held, n, wait=None):
    """The processor time of starting n waits, a wait; and the tasks."""
    async def one(name):
        (await store.acquire_async(name, wait=wait)).release()

    name = key('waited')
    names = [f'{name}/{i}' for i in range(n)]
    held.extend(other.acquire(one) for one in names)
    begun = time.thread_time()
    tasks = [asyncio.create_task(one(name)) for name in names]
    await asyncio.sleep(0)
    return (time.thread_time() - begun) / n, tasks


def a_wait_beside_many_costs_what_it_costs_alone():
    """A walk of what waits would make it a hundred times as much."""
    async def main():
        few, many, held, tasks = [], [], [], []
        for n, to in [(300, few)] * 5 + [(30000, [])] + [(300, many)] * 5:
            took, more = await _start(store, other, held, n, 3600)
            to.append(took)
            tasks += more
        for lock in held:
            lock.release()
        await asyncio.gather(*tasks)
        assert min(many) < 8 * min(few), (few, many)

    if not NEAR:
        return
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        asyncio.run(main())


def a_wait_beside_many_holds_costs_what_it_costs_alone():
    """A wait checks whether its own task holds the key: it mustn't search all holds for that."""
    async def main():
        few, many, held = [], [], []
        for to in [few] * 5 + [many] * 5:
            if to is many and not many:
                name = key('held')
                held += [store.acquire(f'{name}/{i}') for i in range(30000)]
            took, tasks = await _start(store, other, held, 300)
            to.append(took)
            for lock in held[-300:]:
                lock.release()
            await asyncio.gather(*tasks)
        assert min(many) < 8 * min(few), (few, many)
        for lock in held:
            lock.release()

    if not NEAR:
        return
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        asyncio.run(main())


def no_object_is_left():
    with holdfast.open(URL) as store:
        name = key()
        tracemalloc.start()
        _holds(store, name, 1000)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        _holds(store, name, 3000)
        gc.collect()
        more = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    print(f'# {more} bytes of objects more')
    assert more < 20000, f'{more} bytes of objects more'


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE[1:]))
