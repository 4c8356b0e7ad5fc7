"""Blocks, options, locks that nobody gives back, threads, losses.

    life_test.py URL [NAME]
"""
import asyncio
import gc
import pickle
import sys
import threading
import time
import warnings

import holdfast
from holdfast import _aio
from own import MORE, NEAR, URL, free, key, waiters
from tap import PATIENCE, run_functions, until


def _confirms_not(held):
    try:
        held.confirm()
        return False
    except holdfast.LockLost:
        return True


# ---- blocks ----

def a_block_gives_back_whatever_happens():
    with holdfast.open(URL) as store:
        name = key()
        with store.lock(name) as held:
            assert held.held and not free(name)
        assert not held.held and free(name)
        try:
            with store.lock(name):
                raise KeyError('x')
        except KeyError:
            pass
        assert free(name)
        with store.lock(name) as held:
            held.release()
            assert free(name)
        for _ in range(3):
            with store.lock(name) as held:
                pass


def a_second_release_does_nothing_more():
    store = holdfast.open(URL)
    name = key()
    held = store.acquire(name)
    held.release()
    with store.lock(name) as other:
        held.release()
        held.__exit__(None, None, None)
        other.confirm()
    lost = store.acquire(name)
    store.break_(name, lost.token)
    with store.once(key('event')) as event:
        pass
    for _ in range(2):      # it says the same
        event.lock.release()
        try:
            lost.release()
            raise AssertionError('not lost')
        except holdfast.LockLost as error:
            assert error.key == name and f"release '{name}': " in error.text
    with store.lock(name) as inside:
        inside.release()
        store.close()
    held.release()


def a_block_of_several_holders_is_entered_again():
    """Each time it holds a lock of its own, and the inner one ends first."""
    with holdfast.open(URL) as store:
        block = store.lock(key(), shared=True)
        with block as outer:
            with block as inner:
                assert inner.token != outer.token
                assert len(store.peek(block.key).holders) == 2
            assert outer.held and not inner.held
        assert not outer.held and free(block.key)


def a_block_that_lost_its_lock_says_so():
    with holdfast.open(URL) as store:
        name = key()
        try:
            with store.lock(name) as held:
                store.break_(name, held.token)
                until(lambda: not held.held or _confirms_not(held), 'never lost')
            raise AssertionError('not told')
        except holdfast.LockLost as error:
            assert error.code == 'LOST'
        try:
            with store.lock(name) as held:
                store.break_(name, held.token)
                raise KeyError('more important')
        except KeyError:
            pass


def a_decorator_makes_the_key_of_the_arguments():
    with holdfast.open(URL) as store:
        prefix = key('user')
        seen = []

        @store.locked(prefix + '/{user_id}/{kind}')
        def work(user_id, amount, kind='plain'):
            """Doc."""
            seen.append([info.key for info in store.list(prefix)])
            if amount:
                work(user_id, 0, kind)
            return amount

        assert work.__name__ == 'work' and work.__doc__ == 'Doc.'
        assert work(7, amount=0) == 0
        assert seen == [[prefix + '/7/plain']]
        try:
            work('x', 1, kind='y')
            raise AssertionError('not recursive')
        except holdfast.RecursiveAcquire:
            pass

        @store.locked(prefix + '/{user_id}')
        async def work_async(user_id):
            seen.append([info.key for info in store.list(prefix + '/a')])

        asyncio.run(work_async('a'))
        assert seen[-1] == [prefix + '/a']
        assert free(prefix + '/a') and free(prefix + '/7/plain')


def a_done_event_that_is_forgotten_runs_again():
    with holdfast.open(URL, owner='ann') as store:
        name = key('event')
        for _ in range(2):
            assert store.once(name, lambda event: 'sent').run
            assert not store.once(name, lambda event: 'sent').run
            info = store.peek(name)
            assert (info.done_by, info.result) == ('ann', 'sent') and info.done > 0
            store.forget(name)
        assert not store.peek(name).done
        try:
            asyncio.run(store.forget_async(name))
            raise AssertionError('not told')
        except holdfast.LockLost:
            pass


def once_by_a_function():
    with holdfast.open(URL) as store:
        name, ran = key('event'), []

        def fails(event):
            ran.append(event.token)
            raise KeyError('no')

        def works(event):
            ran.append(event.token)
            return 17

        try:
            store.once(name, fails)
        except KeyError:
            pass
        assert store.once(name, works, keep='1d').run
        again = store.once(name, works)
        assert not again.run and again.result == '17' and len(ran) == 2 and ran[0] < ran[1]


def times_and_options_of_the_wrong_kind():
    with holdfast.open(URL) as store:
        name = key()
        for options in ({'nosuch': 1}, {'keep': 1}):
            try:
                store.acquire(name, **options)
                raise AssertionError(options)
            except TypeError as error:
                assert type(error) is TypeError
        for options in ({'wait': True}, {'wait': []}, {'limit': 'x'}, {'limit': True},
                        {'owner': 5}, {'request_id': 5}, {'wait': -1}, {'wait': float('nan')},
                        {'wait': -0.5}, {'wait': 10**400}, {'lease': float('inf')},
                        {'lease': 1e300}, {'limit': -1},
                        {'limit': 10**30}, {'request_id': b'short'}, {'request_id': 'x' * 32},
                        {'owner': 'a\0b'}, {'note': '\ud800'}, {'wait': '1\0'}, {'wait': '\ud800'}):
            try:
                store.acquire(name, **options)
                raise AssertionError(options)
            except holdfast.InvalidArgument:
                pass
        for bad in ('a\0b', '\ud800', '', 5, None, b'bytes'):
            try:
                store.acquire(bad)
                raise AssertionError(bad)
            except holdfast.InvalidArgument:
                pass
        for words in ((), ('a', 'b')):
            try:
                store.lock(*words)
                raise AssertionError(words)
            except TypeError:
                pass
        store.acquire(name, wait=float('inf'), lease=None, limit=None).release()
        store.acquire(name, wait=0, request_id=bytes(range(16)), lease=0.3).release()
        assert free(name)


def every_refusal_says_what_was_asked_for_which_key():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        held, name = store.acquire(key()), key()

        def once(**options):
            with other.once(name, **options):
                raise AssertionError(options)

        async def wait(**options):
            await other.acquire_async(name, **options)

        closed = holdfast.open(URL)
        closed.close()
        calls = [(held.key, lambda: other.acquire(held.key, wait=0)),
                 (held.key, lambda: other.acquire(held.key, wait='20ms')),
                 (held.key, lambda: other.once(held.key, print, wait=0)),
                 (held.key, lambda: held.renew('soon')), (held.key, lambda: held.renew([])),
                 (held.key, lambda: held.enter(5)), (held.key, lambda: held.enter('a\0b')),
                 (held.key, lambda: other.break_(held.key, 0)),
                 (held.key, lambda: other.break_(held.key, 7)),
                 (held.key, lambda: other.adopt(held.key, 7)), (name, lambda: once(keep=-1)),
                 (name, lambda: closed.acquire(name)), (name, lambda: closed.peek(name)),
                 (name, lambda: closed.break_(name, 7)), (name, lambda: closed.adopt(name, 7)),
                 (name, lambda: closed.once(name, print)), (name, lambda: closed.list(name))]
        for options in ({'wait': -1}, {'wait': []}, {'nosuch': 1}, {'lease': '1x'},
                        {'lease': 0.001}, {'lease': '2d'}, {'limit': 2000}, {'limit': 'x'},
                        {'owner': 'a\0b'}, {'owner': 5}, {'note': '\ud800'}, {'note': 'x' * 300},
                        {'request_id': 'ab'}, {'request_id': 5}, {'shared': 1}, {'detached': True},
                        {'shared': True, 'limit': 2}):
            calls += [(name, lambda o=options: other.acquire(name, **o)),
                      (name, lambda o=options: other.lock(name, **o).__enter__()),
                      (name, lambda o=options: asyncio.run(wait(**o))),
                      (name, lambda o=options: once(**o))]
        for at, call in calls:
            try:
                call()
                raise AssertionError(call.__code__.co_firstlineno, call.__defaults__)
            except holdfast.HoldfastError as error:
                assert error.key == at and f"'{at}'" in error.text, error
                assert not set(error.text) & {'\n', '\0'}, error
            except TypeError as error:
                assert f"'{at}'" in str(error), error
        try:
            other.acquire('a\nb', wait=-1)
            raise AssertionError('not refused')
        except holdfast.InvalidArgument as error:
            assert "'a?b'" in error.text
        held.release()


def entering_a_guard():
    """Where there is none, UNSUPPORTED. A fence of that name is as good as any on redis."""
    with holdfast.open(URL) as store, store.lock(key()) as held:
        for words in ((), (key('fence'),)):
            try:
                held.enter(*words)
                assert not NEAR
            except holdfast.HoldfastError as error:
                assert error.code in ('UNSUPPORTED', 'INVALID'), error
        held.confirm()


def errors_travel_between_processes():
    with holdfast.open(URL) as store:
        try:
            store.acquire('')
        except holdfast.InvalidArgument as error:
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is type(error)
            assert (again.code, again.text) == (error.code, error.text)


# ---- garbage ----

def a_dropped_lock_is_given_back_with_a_warning():
    with holdfast.open(URL) as store:
        for cycle in (False, True):
            name = key()
            held = store.acquire(name)
            token = held.token
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter('always')
                if cycle:
                    ring = [held, store]
                    ring.append(ring)
                    del ring
                del held
                gc.collect()
            assert [(one.category, str(token) in str(one.message)) for one in said] == [
                (ResourceWarning, True)], said
            assert free(name)


def a_warning_that_is_an_error_still_gives_back():
    """Here all warnings are errors (-W error); where they are raised from nobody can catch them."""
    with holdfast.open(URL) as store:
        name, said = key(), []
        hook, sys.unraisablehook = sys.unraisablehook, said.append
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('error')
                held = store.acquire(name)
                assert held.held
                del held
        finally:
            sys.unraisablehook = hook
        assert len(said) == 1 and said[0].exc_type is ResourceWarning, said
        assert free(name)


def a_dropped_detached_lock_stays():
    with holdfast.open(URL) as store:
        name = key()
        held = store.acquire(name, detached=True, lease='1h')
        token = held.token
        del held
        assert not free(name)
        store.adopt(name, token).release()
        assert free(name)


def a_store_may_be_closed_by_who_is_warned():
    """The lock in the middle is forgotten with its store: its neighbours don't know it any more."""
    store = holdfast.open(URL)
    first, second, third = (store.acquire(key()) for _ in range(3))
    size = second.__sizeof__() + 16     # the collector's
    with warnings.catch_warnings():
        warnings.simplefilter('always')
        warnings.showwarning = lambda *_, **__: store.close()
        del second
    # What has its place now: in one of them the neighbours would write.
    room = [bytes([170]) * (size - bytes().__sizeof__()) for _ in range(1000)]
    del first, third
    assert all(one.count(170) == len(one) for one in room)


def a_closed_store_gives_back_and_says_so():
    store = holdfast.open(URL)
    keeper = holdfast.open(URL)
    name = key()
    held = store.acquire(name)
    store.close()
    assert store.closed and not held.held and free(name)
    store.close()
    for what in (lambda: store.acquire(name), lambda: store.list(), lambda: store.stats()):
        try:
            what()
            raise AssertionError('not closed')
        except holdfast.LockCanceled:
            pass
    for what in (held.release, held.renew, held.confirm):
        try:
            what()
            raise AssertionError('not lost')
        except holdfast.LockLost:
            pass
    keeper.close()


def closing_ends_waits_in_other_threads():
    with holdfast.open(URL) as other, other.lock(key()) as held:
        store = holdfast.open(URL)
        codes = []

        def sit():
            try:
                store.acquire(held.key)
            except holdfast.LockCanceled as error:
                codes.append(error.code)
                said.append(error.text)

        async def waits():
            await store.acquire_async(held.key)

        def sit_in_a_loop():
            try:
                asyncio.run(waits())
            except holdfast.LockCanceled as error:
                codes.append(error.code)
                said.append(error.text)

        said = []
        threads = [threading.Thread(target=one) for one in [sit] * 3 + [sit_in_a_loop] * 2]
        for thread in threads:
            thread.start()
        until(lambda: store.stats()['waiting'] == 5, 'not all wait')
        store.close()
        for thread in threads:
            thread.join(PATIENCE)
        assert codes == ['CANCELED'] * 5, codes
        assert said == [f"acquire '{held.key}': the store is closed"] * 5, said


# ---- threads ----

def threads_take_turns():
    with holdfast.open(URL) as store:
        name, inside, most, count = key(), [], [], [0]

        def work():
            for _ in range(20):
                with store.lock(name):
                    inside.append(1)
                    most.append(len(inside))
                    before = count[0]
                    time.sleep(0)
                    count[0] = before + 1
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert count == [80] and max(most) == 1


def others_run_while_one_waits():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        held = store.acquire(key())
        done = threading.Event()

        def sit():
            other.acquire(held.key).release()
            done.set()

        thread = threading.Thread(target=sit)
        thread.start()
        until(lambda: waiters(store, held.key) == 1, 'nobody waits')
        held.release()
        assert done.wait(PATIENCE)
        thread.join()


def a_waited_lock_belongs_to_its_thread():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        name = key()
        first = other.acquire(name)
        thread = threading.Thread(target=lambda: (
            until(lambda: waiters(other, name) == 1, 'nobody waits'), first.release()))
        thread.start()
        with store.lock(name):
            thread.join()
            try:
                store.acquire(name)
                raise AssertionError('not recursive')
            except holdfast.RecursiveAcquire as error:
                assert name in error.text


def a_lock_of_a_thread_that_has_ended_is_another_threads():
    """Also of one whose number is used again."""
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        name, got, said = key(), [], []
        first = other.acquire(name)
        waits = threading.Thread(target=lambda: got.append(store.acquire(name)))
        waits.start()
        until(lambda: waiters(other, name) == 1, 'nobody waits')
        first.release()
        waits.join()

        def ask():
            try:
                store.acquire(name, wait=0.001)
            except holdfast.HoldfastError as error:
                said.append(type(error))

        for _ in range(20):
            asks = threading.Thread(target=ask)
            asks.start()
            asks.join()
            if asks.ident == waits.ident:
                break
        assert set(said) == {holdfast.LockUnavailable}, said
        got[0].release()


def a_thread_is_told_whatever_owner_it_names():
    with holdfast.open(URL) as store:
        for mine, other in ({}, {'owner': 'ben'}), ({'owner': 'ann'}, {'owner': 'ben'}):
            with store.lock(key(), **mine) as held:
                try:
                    store.acquire(held.key, **other)
                    raise AssertionError('not recursive')
                except holdfast.RecursiveAcquire as error:
                    assert held.key in error.text
                try:
                    store.acquire(held.key, wait=0, **other).release()
                    raise AssertionError('two hold it')
                except holdfast.LockUnavailable:
                    pass


def a_lock_used_and_released_at_once():
    with holdfast.open(URL) as store:
        for _ in range(20 if NEAR else 3):
            held = store.acquire(key(), lease=60)
            stop = threading.Event()
            odd = []

            def use():
                while not stop.is_set():
                    try:
                        held.renew()
                        held.confirm()
                    except holdfast.LockLost:
                        return
                    except BaseException as error:
                        odd.append(error)
                        return

            threads = [threading.Thread(target=use) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.002)
            held.release()
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
            assert not odd, odd


# ---- being told of a loss ----

def a_loss_that_nobody_listens_for_shows_when_it_is_asked_for():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        for ask in (lambda: not held.held, lambda: held.left_ms == 0):
            held = store.acquire(key())
            other.break_(held.key, held.token)
            assert NEAR or _confirms_not(held)
            assert ask()
            held.__exit__(RuntimeError, None, None)


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
