"""The frameworks for tasks, in the versions of tools/python-packages, each in a process of its own:
those that are served, and those that are refused.

    frameworks_test.py SOURCE
"""
import os
import subprocess
import sys

from tap import run_functions

FRAMEWORKS = os.path.join(subprocess.run(
    [os.path.join(sys.argv[1], 'tools', 'python-packages')], check=True, text=True,
    stdout=subprocess.PIPE).stdout.splitlines()[-1], 'frameworks')
del sys.argv[1:]
REFUSED = '''
import holdfast

def refused(call, name):
    try:
        call()
    except holdfast.Unsupported as error:
        assert name in str(error), error
        return
    raise AssertionError('not refused')
'''
# One thread serves two requests; the first one's lock is still held, elsewhere.
TWO_REQUESTS = '''
import asyncio
import holdfast

async def two_requests(call):
    async with await holdfast.open_async('mem:frameworks') as store:
        held = await call(store.acquire, 'key')
        second = asyncio.ensure_future(call(store.acquire, 'key'))
        while not (await store.peek_async('key')).waiters and not second.done():
            await asyncio.sleep(0.005)
        await held.release_async()
        await (await second).release_async()
        (await store.acquire_async('key', wait=0)).release()
'''


def _runs(*texts):
    path = os.pathsep.join([FRAMEWORKS, os.environ['PYTHONPATH']])
    done = subprocess.run([sys.executable, '-X', 'faulthandler', '-c', '\n'.join(texts)],
                          env={**os.environ, 'PYTHONPATH': path}, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert not done.returncode, done.stdout


def gevent_is_refused_once_it_has_patched_threads():
    _runs('from gevent import monkey', 'monkey.patch_all()', REFUSED,
          "refused(lambda: holdfast.open('mem:frameworks'), 'gevent')")


def gevent_without_patches_is_served_in_its_thread_pool():
    _runs('import gevent, holdfast', '''
with holdfast.open('mem:frameworks') as store:
    pool = gevent.get_hub().threadpool
    held = pool.apply(store.acquire, ('key',))
    second = pool.spawn(store.acquire, 'key')
    while not store.peek('key').waiters and not second.ready():
        gevent.sleep(0.005)
    held.release()
    second.get().release()
''')


def a_greenlet_is_refused_a_wait_for_its_own_thread():
    _runs('import gevent, holdfast', '''
def ask(store):
    try:
        store.acquire('key')
    except holdfast.RecursiveAcquire as error:
        return str(error)

with holdfast.open('mem:frameworks') as store, store.lock('key'):
    assert 'greenlets' in gevent.spawn(ask, store).get()
''')


def eventlet_is_refused_once_it_has_patched_threads():
    _runs('import eventlet', 'eventlet.monkey_patch()', REFUSED,
          "refused(lambda: holdfast.open('mem:frameworks'), 'eventlet')")


def eventlet_without_patches_is_served_in_its_thread_pool():
    _runs('import eventlet, eventlet.tpool, holdfast', '''
eventlet.tpool.set_num_threads(1)
with holdfast.open('mem:frameworks') as store:
    held = eventlet.tpool.execute(store.acquire, 'key')
    second = eventlet.spawn(eventlet.tpool.execute, store.acquire, 'key')
    while not store.peek('key').waiters and not second.dead:
        eventlet.sleep(0.005)
    held.release()
    second.wait().release()
''')


def trio_is_refused_and_served_in_its_threads():
    _runs('import trio', REFUSED, '''
async def main():
    with holdfast.open('mem:frameworks') as store:
        refused(lambda: store.acquire_async('key').send(None), 'trio')
        held = await trio.to_thread.run_sync(store.acquire, 'key')
        await trio.to_thread.run_sync(held.release)

trio.run(main)
''')


def threads_of_anyio_serve_requests_of_several_callers():
    _runs('import anyio', TWO_REQUESTS, '''
async def main():
    one = anyio.CapacityLimiter(1)

    async def call(function, *args):
        return await anyio.to_thread.run_sync(function, *args, limiter=one)

    threads = {await call(__import__('threading').get_ident) for _ in range(4)}
    assert len(threads) == 1, threads
    await two_requests(call)

anyio.run(main)
''')


def threads_of_asgiref_serve_requests_of_several_callers():
    _runs('from asgiref.sync import sync_to_async', TWO_REQUESTS,
          'asyncio.run(two_requests(lambda call, *args: sync_to_async(call)(*args)))')


sys.exit(run_functions(globals()))
