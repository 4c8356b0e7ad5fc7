"""The end of a block whose release a server doesn't confirm: the work is done, and its result told.

    release_test.py URL [NAME]

With a server that can be paused (see tests/servers/common.sh).
"""
import asyncio
import contextlib
import os
import subprocess
import sys
import warnings

import holdfast
from own import MORE, URL, key
from tap import no_hang, run_functions

CONTROL = os.environ['HOLDFAST_TEST_CONTROL']


def _control(word):
    subprocess.run([CONTROL, word], check=True)


@contextlib.contextmanager
def _paused_at_the_end():
    """A store; what is told by warnings; and what pauses the server."""
    with no_hang(), holdfast.open(URL, io_timeout=0.2) as store, \
            warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        try:
            yield store, said, lambda: _control('pause')
        finally:
            _control('resume')


def _is_told(said, name):
    assert [one.category for one in said] == [holdfast.ReleaseWarning], said
    text = str(said.pop().message)
    assert name in text and 'may stay held' in text, text


def a_decorated_function_gives_its_result():
    with _paused_at_the_end() as (store, said, pause):
        name = key()

        @store.locked(name, lease=60)
        def charge():
            pause()
            return 'receipt'

        assert charge() == 'receipt'
        _is_told(said, name)


def a_decorated_coroutine_function_gives_its_result():
    with _paused_at_the_end() as (store, said, pause):
        name = key()

        @store.locked(name, lease=60)
        async def charge():
            pause()
            return 'receipt'

        assert asyncio.run(charge()) == 'receipt'
        _is_told(said, name)


def each_block_warns():
    def of_a_lock():
        with store.acquire(name, lease=60):
            pause()

    def of_several():
        with store.acquire_all([name], lease=60):
            pause()

    async def in_a_task():
        async with await store.acquire_all_async([name], lease=60):
            pause()

    for block in of_a_lock, of_several, lambda: asyncio.run(in_a_task()):
        with _paused_at_the_end() as (store, said, pause):
            name = key()
            block()
            _is_told(said, name)


def what_the_body_raises_is_raised():
    with _paused_at_the_end() as (store, said, pause):
        name = key()
        try:
            with store.lock(name, lease=60):
                pause()
                raise KeyError('x')
        except KeyError:
            pass
        _is_told(said, name)


def a_release_of_its_own_raises():
    with _paused_at_the_end() as (store, said, pause):
        held = store.acquire(key(), lease=60)
        pause()
        try:
            held.release()
            raise AssertionError('confirmed')
        except (holdfast.StoreUnavailable, holdfast.OutcomeUnknown):
            pass
        assert not said, said


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
