"""What callers get wrong is refused before anything is taken, or does no harm.

    misuse_test.py URL [NAME]
"""
import asyncio
import concurrent.futures
import contextlib
import datetime
import decimal
import functools
import os
import resource
import sys
import threading

import holdfast
from holdfast import _holdfast
from own import MORE, URL, free, key
from tap import PATIENCE, run_functions, until


@contextlib.contextmanager
def _refused(kind=holdfast.InvalidArgument):
    try:
        yield
    except kind as error:
        assert type(error) is kind, repr(error)
        return
    raise AssertionError('not refused')


# ---- events ----

def an_event_is_no_coroutine_function():
    with holdfast.open(URL) as store:
        ran = []

        async def later(event):
            ran.append(event)

        def generates(event):
            ran.append(event)
            yield

        async def generates_later(event):
            ran.append(event)
            yield

        class Called:
            async def __call__(self, event):
                ran.append(event)

            async def method(self, event):
                ran.append(event)

        for function in (later, generates, generates_later, Called(), Called().method,
                         functools.partial(later), 'no function'):
            name = key('event')
            with _refused():
                store.once(name, function, at_most_once=True)
            info = store.peek(name)
            assert not info.done_us and not info.token, info
        for function in (lambda event: later(event), lambda event: generates(event),
                         lambda event: generates_later(event)):
            name = key('event')
            with _refused():
                store.once(name, function)
            assert not store.peek(name).done_us and free(name)
        assert not ran


def a_result_is_a_str():
    with holdfast.open(URL) as store:
        for bad in ({}, 5, b'bytes', ['x'], True):
            name = key('event')
            with store.once(name) as event:
                with _refused():
                    event.result = bad
                assert event.result == ''
            assert store.peek(name).done_us and free(name)
            name = key('event')
            with _refused():
                with store.once(name) as event:
                    event.result = bad
            assert not store.peek(name).done_us and free(name)


def a_result_that_isnt_clean_is_made_so():
    class Shy:
        def __str__(self):
            raise KeyError('no text')

    with holdfast.open(URL) as store:
        for given, kept in ((None, ''), ('a\0b', 'a?b'), ('\ud800x\udfff', '?x?'), ('–', '–')):
            name = key('event')
            with store.once(name) as event:
                event.result = given
                assert event.result == kept
            assert store.peek(name).done_us and store.peek(name).result == kept
            name = key('event')
            store.once(name, lambda event, given=given: given)
            assert store.peek(name).done_us and store.peek(name).result == kept
        name = key('event')
        store.once(name, lambda event: Shy())
        assert store.once(name, lambda event: 1 / 0).result == '<unprintable Shy object>'

        async def main():
            name = key('event')
            async with store.once(name) as event:
                event.result = 'a\0b'
            assert store.peek(name).result == 'a?b'
        asyncio.run(main())


def the_end_of_an_event_holds_nothing():
    with holdfast.open(URL) as store:
        name = key('event')
        with _refused():
            with store.once(name) as event:
                event._result = 'a\0b'      # past the check
        assert not event.lock.held and free(name)


def an_event_outside_of_its_block_is_neither_true_nor_false():
    with holdfast.open(URL) as store:
        name = key('event')
        with _refused(TypeError):
            if store.once(name):
                pass
        assert not store.peek(name).token
        with store.once(name) as event:
            assert event
        assert event
        with store.once(name) as event:
            assert not event
        assert not store.once(name, print)


# ---- decorators ----

def generators_are_not_decorated():
    with holdfast.open(URL) as store:
        name = key()

        def generates():
            yield

        async def generates_later():
            yield

        class Shop:
            def sell(self):
                return free(name)

        for function in (generates, generates_later, functools.partial(generates),
                         contextlib.contextmanager(generates),
                         contextlib.asynccontextmanager(generates_later),
                         functools.partial(contextlib.contextmanager(generates)),
                         classmethod(Shop.sell), staticmethod(Shop.sell), property(Shop.sell), 5):
            with _refused():
                store.locked(name)(function)

        async def later():
            return free(name)

        with _refused():
            store.locked(name)(lambda: later())()
        assert free(name)

        class Called:
            async def __call__(self):
                return free(name)

        assert asyncio.run(store.locked(name)(Called())()) is False

        @functools.wraps(generates)
        def runs_it():
            return list(generates()), free(name)

        assert store.locked(name)(runs_it)() == ([None], False)


def what_is_done_after_the_call_is_not_protected():
    async def main():
        async def work():
            ran.append(1)

        def generates():
            yield

        async def generates_later():
            yield

        loop, block = asyncio.get_running_loop(), contextlib.contextmanager(generates)
        made = []
        for make in (work, generates, generates_later, block,
                     contextlib.asynccontextmanager(generates_later), loop.create_future,
                     lambda: asyncio.ensure_future(work()), lambda: asyncio.gather(work()),
                     lambda: loop.create_task(work()), concurrent.futures.Future,
                     lambda: map(ran.append, [1]), lambda: filter(ran.append, [1])):
            name = key()

            def gives(*_, make=make):
                made.append(make())
                return made[-1]

            async def gives_later(gives=gives):
                return gives()

            def helper(*args, gives=gives):
                return gives(*args)

            with _refused():
                store.locked(name)(helper)()
            with _refused():
                await store.locked(name)(gives_later)()
            with _refused():
                store.once(name, helper)
            assert free(name) and not store.peek(name).done_us
        for one in made:
            if isinstance(one, asyncio.Future):
                await asyncio.wait([one])
                assert one.cancelled() or \
                    isinstance(one.exception(), asyncio.CancelledError)
        assert not ran

    ran = []
    with holdfast.open(URL) as store:
        asyncio.run(main())


def a_template_names_arguments():
    with holdfast.open(URL) as store:
        for template in 'a/{y}', 'a/{}', 'a/{0}', 'a/{args}', 'a/{more}', 'a/{x}/{y.z}':
            with _refused():
                store.locked(template)(lambda x, *args, **more: 1)
        with _refused():
            store.locked('a/{')(lambda x: 1)

        class Shop:
            number = 3

            @store.locked('shop/{self.number}/{where[0]}')
            def sell(self, where):
                return [info.key for info in store.list('shop/')]

        assert 'shop/3/b' in Shop().sell(['b'])


def a_callback_can_be_called():
    with holdfast.open(URL) as store, store.lock(key()) as held:
        for bad in None, 5, 'print':
            with _refused():
                held.on_lost(bad)
        held.on_lost(print)


def options_are_refused_at_once():
    with holdfast.open(URL) as store:
        for how in store.locked, store.once:
            with _refused(TypeError):   # as of any function
                how('key', nosuch=1)
            with _refused(TypeError):
                how()
            with _refused():
                how('key', shared='false')
            with _refused():
                how(5)
            for bad in -1, float('-inf'), float('nan'):
                with _refused():
                    how('key', wait=bad)
        for bad in -1, float('-inf'), float('nan'):
            with _refused():
                store.once('key', keep=bad)
        with _refused(TypeError):
            store.locked('key', keep=1)
        store.once('key', keep=1, at_most_once=True)
        store.locked('key/{x}', wait=1)


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
        with _refused():
            store.once(name, at_most_once=1)
        assert not store.peek(name).token
        store.acquire(name, wait=0, shared=True, detached=False, recursive=None).release()


def a_timeout_that_is_none_is_not_for_ever():
    with holdfast.open(URL) as store, holdfast.open(URL) as other, other.lock(key()) as held:
        lock = store.lock(held.key)
        for bad in 10 ** 400, -10 ** 400, decimal.Decimal('sNaN'), decimal.Decimal(-1), 1j, -2, \
                float('nan'), '1', True:
            with _refused():
                lock.acquire(timeout=bad)
            with _refused():
                asyncio.run(lock.acquire_async(timeout=bad))
        for bad in 'yes', 1, 0, None, []:
            with _refused():
                holdfast.open(URL, existing=bad)


@contextlib.contextmanager
def _no_more_descriptors():
    spare = os.open('/', os.O_RDONLY)
    os.close(spare)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def what_lacks_a_descriptor_is_told_as_the_packages_error():
    with holdfast.open(URL) as store:
        with _no_more_descriptors(), _refused(holdfast.StoreUnavailable):
            store.watch('')
        with _no_more_descriptors(), _refused(holdfast.StoreUnavailable):
            _holdfast.Mailbox()
        store.acquire(key(), wait=0).release()


def tokens_are_ints():
    with holdfast.open(URL) as store:
        name = key()
        held = store.acquire(name)
        for how in store.adopt, store.break_:
            for bad in (0, -1, 1 << 53, (1 << 64) + held.token, True, 1.0, str(held.token), None):
                with _refused():
                    how(name, bad)
            with _refused(holdfast.LockLost):
                how(name, (1 << 53) - 1)
        held.confirm()
        held.release()


def what_is_invalid_is_a_type_error_and_a_value_error_too():
    with holdfast.open(URL) as store:
        for bad in ({'wait': 'soon'}, {'wait': []}):
            for kind in TypeError, ValueError, holdfast.HoldfastError:
                try:
                    store.acquire(key(), **bad)
                    raise AssertionError(bad)
                except kind as error:
                    assert error.code == 'INVALID'


def limits_are_told_in_names_of_this_language():
    with holdfast.open(URL) as store, store.lock(key('a_ms')) as held:
        for call, words in (
                (lambda: store.acquire(key(), detached=True), 'a detached grant needs lease'),
                (lambda: store.acquire(key('x_ms'), at_least=2, max_hold=1),
                 'at_least: must not be above max_hold'),
                (lambda: holdfast.open('redis://none/?timeout=5'),
                 "the limit of a request is open's io_timeout")):
            try:
                call()
                raise AssertionError(words)
            except holdfast.InvalidArgument as error:
                assert error.text.endswith(': ' + words), error.text
    with holdfast.open(URL) as store:
        held = store.acquire(key(), max_hold='100ms')
        until(lambda: not held.held, 'never lost')
        try:
            held.release()
            raise AssertionError('not lost')
        except holdfast.LockLost as error:
            assert error.text.endswith(' as long as max_hold allows'), error.text


def times_that_are_none_or_out_of_range_are_refused_at_once():
    """What isn't asked for is left out: 0 and inf are no other way to say so."""
    nan, inf, year = float('nan'), float('inf'), datetime.timedelta(365)
    lease, wait = '100ms to 1d, or not given', '0s to 365d, or not given'
    with holdfast.open(URL) as store, store.lock(key()) as held:
        lock = store.lock(key())
        for calls, name, words, values in (
                ((lambda bad: store.lock('k', lease=bad), lambda bad: store.acquire('k', lease=bad),
                  lambda bad: store.locked('k', lease=bad), lambda bad: store.once('k', lease=bad),
                  lambda bad: store.acquire_all(['k'], lease=bad),
                  lambda bad: asyncio.run(store.acquire_async('k', lease=bad)), held.renew),
                 'lease', lease, (0, 0.0, '0', '0ms', datetime.timedelta(0), 0.09, 86401, 30000000,
                                  10 ** 300, inf, '9' * 400 + 's')),
                ([lambda bad: store.lock('k', max_hold=bad)], 'max_hold',
                 '1ms to 365d, or not given', (0, '0s', inf, year * 2)),
                ([lambda bad: store.lock('k', wait=bad)], 'wait', wait,
                 (31536001, year * 2, '9' * 400 + 'h', 1e300)),
                ([lambda bad: lock.acquire(timeout=bad)], 'timeout', wait, (31536001, 1e300)),
                ([lambda bad: store.lock('k', at_least=bad)], 'at_least', '0s to 1d',
                 (86401, inf)),
                ([lambda bad: store.once('k', keep=bad)], 'keep', '1ms to 36500d, or inf',
                 (0, '0', 36501 * 86400)),
                ([store.prune], 'idle', '60s to 36500d', (0, 59, inf)),
                ([lambda bad: holdfast.open(URL, io_timeout=bad)], 'io_timeout',
                 '100ms to 1h, or not given', (0, 0.0, '0', 3601, 5000, inf))):
            for call in calls:
                for bad in values:
                    said = _said(call, bad)
                    assert said.endswith(f"' is out of range: it must be {words}"), said
                    unit = ' s' if isinstance(bad, (int, float)) else ''
                    assert f": {name}: '{str(bad)[:40]}{unit}'" in said, said
                for bad in nan, -inf, -3, True, b'1s', [1], 'inf', '1,5s', '1 s', '1S', '1sec':
                    assert f': {name}: not a time such as 10 (seconds)' in _said(call, bad)
        for forever in inf, None:
            store.acquire(key(), wait=forever).release()
            with store.once(key(), keep=forever):
                pass
        assert lock.acquire(timeout=inf)
        lock.release()
        tiny = store.acquire(key(), wait=1e-9, max_hold='0.0001ms')
        until(lambda: not tiny.held, 'held for ever')
        with _refused(holdfast.LockLost):
            tiny.release()
        assert not store.peek('k').token


def _said(call, *words):
    try:
        call(*words)
    except holdfast.InvalidArgument as error:
        return str(error)
    raise AssertionError(f'not refused: {words}')


def a_time_is_no_blocking():
    """To other libraries the first argument of acquire is a time."""
    with holdfast.open(URL) as store:
        named = key()
        lock = store.lock(named)
        for bad in 5, 0.5, -1, 'no', None, [], 1 << 70:
            for call in lock.acquire, lambda bad: asyncio.run(lock.acquire_async(bad)):
                said = _said(call, bad)
                assert f"'{named}': blocking: must be a bool; a time is timeout=" in said
        for blocking in True, False, 0, 1:
            assert lock.acquire(blocking)
            lock.release()
            assert asyncio.run(lock.acquire_async(blocking))
            lock.release()


def an_empty_url_is_none():
    with _refused():
        holdfast.open('')


def a_key_of_another_type_with_a_bad_option():
    with holdfast.open(URL) as store:
        try:
            store.acquire(5, wait=-1)
            raise AssertionError('not refused')
        except holdfast.InvalidArgument as error:
            assert error.text.startswith('acquire: wait: '), error.text


def nothing_is_made_by_hand():
    for kind in holdfast.Lock, _holdfast.Locking, _holdfast.Wait, _holdfast.Watch:
        with _refused(TypeError):
            kind()
        with _refused(TypeError):
            kind.__new__(kind)
        with _refused(TypeError):
            object.__new__(kind)


def tasks_that_share_a_watch_are_told_so():
    async def main():
        with holdfast.open(URL) as store, store.watch(key('watched')) as watch:
            first = asyncio.create_task(watch.__anext__())
            await asyncio.sleep(0)
            with _refused(RuntimeError):
                await asyncio.wait_for(watch.__anext__(), PATIENCE)
            first.cancel()      # the next one may
            await asyncio.wait([first])
            prefix = key('watched')
            with store.watch(prefix) as watch:
                first = asyncio.create_task(watch.__anext__())
                await asyncio.sleep(0)
                held = await store.acquire_async(prefix)
                assert (await asyncio.wait_for(first, PATIENCE)).key == prefix
                held.release()
    asyncio.run(main())


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
