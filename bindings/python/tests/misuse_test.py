"""What callers get wrong is refused before anything is taken, or does no harm.

    misuse_test.py URL [NAME]
"""
import asyncio
import contextlib
import sys
import threading

import holdfast
from holdfast import _holdfast
from own import MORE, URL, key
from tap import PATIENCE, run_functions, until


@contextlib.contextmanager
def _refused(kind=TypeError):
    try:
        yield
    except kind as error:
        assert type(error) is kind, repr(error)
        return
    raise AssertionError('not refused')


# ---- arguments ----

def flags_are_bools():
    with holdfast.open(URL) as store:
        name = key()
        for flag in 'shared', 'detached', 'unqueued', 'recursive', 'no_renew':
            for bad in 'false', 0, 1, '', []:
                with _refused():
                    store.acquire(name, **{flag: bad})
                with _refused():
                    store.lock(name, **{flag: bad})
        assert not store.peek(name).token
        store.acquire(name, wait=0, shared=True, detached=False, recursive=None).release()


def tokens_are_ints():
    with holdfast.open(URL) as store:
        name = key()
        held = store.acquire(name)
        for how in store.adopt, store.break_:
            for bad in (0, -1, 1 << 53, (1 << 64) + held.token, True, 1.0, str(held.token), None):
                with _refused(holdfast.InvalidArgument):
                    how(name, bad)
            with _refused(holdfast.LockLost):
                how(name, (1 << 53) - 1)
        held.confirm()
        held.release()


def an_empty_url_is_none():
    with _refused(holdfast.InvalidArgument):
        holdfast.open('')


def a_key_of_another_type_with_a_bad_option():
    with holdfast.open(URL) as store:
        try:
            store.acquire(5, wait=-1)
            raise AssertionError('not refused')
        except holdfast.InvalidArgument as error:
            assert error.text.startswith('wait: '), error.text


def nothing_is_made_by_hand():
    for kind in holdfast.Lock, _holdfast.Locking, _holdfast.Wait, _holdfast.Watch:
        with _refused():
            kind()
        with _refused():
            kind.__new__(kind)
        with _refused():
            object.__new__(kind)


# ---- afterwards ----

def the_owner_stays_readable():
    store = holdfast.open(URL, owner='ann')
    with store.lock(key()) as released:
        assert released.owner == 'ann'
    closed = store.acquire(key(), owner='ben')
    store.close()
    assert (released.owner, closed.owner) == ('ann', 'ben')


def a_callback_that_raises_keeps_no_other_from_being_told():
    with holdfast.open(URL) as store:
        said, told, kept = [], threading.Event(), []
        hook, threading.excepthook = threading.excepthook, said.append

        def fails(lock):
            raise error

        try:
            for error in KeyError('x'), SystemExit(3), KeyboardInterrupt():
                held = store.acquire(key(), lease=1)
                kept.append(held)   # dropped once the store is closed
                held.on_lost(fails)
                store.break_(held.key, held.token)
                until(lambda: said and said[-1].exc_value is error, 'not reported')
            assert said[0].thread.name == 'holdfast-lost'
            held = store.acquire(key(), lease=1)
            held.on_lost(lambda lock: told.set())
            store.break_(held.key, held.token)
            assert told.wait(PATIENCE)
        finally:
            threading.excepthook = hook


def a_callback_that_raises_in_a_loop_keeps_no_other_from_being_told():
    async def main():
        with holdfast.open(URL) as store:
            said, told = [], asyncio.Event()
            asyncio.get_running_loop().set_exception_handler(
                lambda loop, context: said.append(context['exception']))

            def fails(lock):
                raise KeyError('x')

            locks = [store.acquire(key(), lease=1) for _ in range(3)]
            for held, callback in zip(locks, (fails, fails, lambda lock: told.set())):
                held.on_lost(callback)
            for held in locks:      # the loop sees them together
                store.break_(held.key, held.token)
                until(lambda held=held: not held.held, 'never lost')
            await asyncio.wait_for(told.wait(), PATIENCE)
            while len(said) < 2:
                await asyncio.sleep(0.01)
    asyncio.run(main())


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
