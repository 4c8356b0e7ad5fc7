"""What runs the program: event loops, which no call for a server may block, and what isn't served.

    loop_test.py URL [NAME]
"""
import asyncio
import functools
import gc
import inspect
import queue
import sys
import threading
import types
import warnings

import holdfast
from holdfast import _aio
from own import MORE, NEAR, URL, free, key, program
from tap import PATIENCE, no_hang, run_functions, until


LEFT = []   # tasks of closed loops

# ---- asyncio ----

def each_async_form_leaves_the_loop_alone():
    async def main():
        loop, asked = threading.get_ident(), []
        do = _aio.do

        def watched(store, work, releases=False):
            def here():
                assert threading.get_ident() != loop
                asked.append(work)
                work()
            do(store, here, releases)

        _aio.do = watched
        try:
            store = await holdfast.open_async(URL)
            name = key()
            held = await store.acquire_async(name, lease=60)
            assert len(asked) == 1
            await held.renew_async(60)
            await held.confirm_async()
            try:
                await held.enter_async()
            except holdfast.Unsupported:
                pass
            assert (await store.peek_async(name)).holders[0].token == held.token
            assert [info.key for info in await store.list_async(name)] == [name]
            assert await store.lock(name).locked_async()
            assert await store.prune_async(60) >= 0
            same = await store.adopt_async(name, held.token)
            await store.break_async(name, same.token)
            try:
                await held.release_async()
                raise AssertionError('not lost')
            except holdfast.LockLost:
                pass
            async with store.lock(name, recursive=True) as held:
                assert held.held
            # What takes no request is done at once.
            assert len(asked) == (1 if NEAR else 12), len(asked)
            async with store.watch(name) as watch:
                held = await store.acquire_async(name)
                async for info in watch:
                    assert info.key == name
                    break
            await held.release_async()
            assert len(asked) == (2 if NEAR else 14), len(asked)
            async with store.once(name) as event:
                assert event
            await store.forget_async(name)
            locks = await store.acquire_all_async([name, name + '/b'])
            await locks.release_async()
            async with await store.acquire_all_async([name, name + '/b']):
                assert len(asked) == (2 if NEAR else 18), len(asked)
            await store.close_async()
            assert len(asked) == (2 if NEAR else 21), len(asked)
        finally:
            _aio.do = do

    with no_hang():
        asyncio.run(main())


def each_call_that_makes_a_request_has_an_async_form():
    """But for those that make none; the blocks are `async with`, and break_ is break_async."""
    for kind, none in ((holdfast.Store, {'break_', 'lock', 'locked', 'once', 'stats', 'watch'}),
                       (holdfast.Lock, {'lost_fd', 'on_lost'}), (holdfast.Locking, set()),
                       (holdfast.Locks, set(dir(list))), (holdfast.Watch, set()),
                       (holdfast.Event, set())):
        calls = {name for name in dir(kind) if name[0] != '_' and callable(getattr(kind, name))}
        awaited = {name[:-len('_async')] for name in calls if name.endswith('_async')}
        plain = {name for name in calls if not name.endswith('_async')} - none
        assert plain <= awaited, (kind, plain - awaited)
        for name in awaited:
            assert inspect.iscoroutinefunction(getattr(kind, name + '_async')), (kind, name)
        assert hasattr(kind, '__enter__') == hasattr(kind, '__aenter__'), kind
    assert inspect.iscoroutinefunction(holdfast.open_async)


def _stuck(count, releases=False):
    """So many calls of a store that doesn't answer: (the store, what lets them go on)."""
    class Store:
        _is_near = False

    store, go, begun = Store(), threading.Event(), threading.Semaphore(0)
    for _ in range(count):
        _aio.do(store, lambda: (begun.release(), go.wait()), releases)
    for _ in range(min(count, _aio._Hands.MOST)):
        assert begun.acquire(timeout=PATIENCE)
    return store, go


def a_store_that_does_not_answer_delays_no_other():
    async def main():
        stuck, go = _stuck(80)
        healthy, other = _stuck(0)
        try:
            assert await _aio.call(healthy, lambda: 'done') == 'done'
            assert await _aio.in_thread(None, lambda: 'opened') == 'opened'
            # Nor do its own calls keep a release from being tried.
            assert await _aio.release(stuck, lambda: 'released') == 'released'
        finally:
            go.set()
            other.set()

    with no_hang():
        asyncio.run(main())


def a_thread_that_has_nothing_to_do_ends():
    """But for the one that waits for work; that one ends with the store."""
    idle, _aio._Threads.IDLE = _aio._Threads.IDLE, 0.01
    try:
        threads, done = _aio._Threads(2), threading.Semaphore(0)
        for _ in range(50):
            threads.do(done.release)
        for _ in range(50):
            assert done.acquire(timeout=PATIENCE)
        until(lambda: threads._threads == 1, 'a thread stays')
        threads.do(done.release)
        assert done.acquire(timeout=PATIENCE)
        store, go = _stuck(1)
        go.set()
        served = []
        _aio.do(store, lambda: served.append(threading.current_thread()))
        until(lambda: served, 'the call')
        del store
        until(lambda: not served[0].is_alive(), 'its thread stays')
    finally:
        _aio._Threads.IDLE = idle


def _interrupted_at(number, call):
    """Makes the call, and raises KeyboardInterrupt at its so manyth event: a signal handler runs
    where a Python function begins or returns, and after a function in C. False: it has fewer."""
    events = 0

    def count(frame, event, function):
        nonlocal events
        events += event != 'c_call'
        if events == number:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        sys.setprofile(count)
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return events >= number


def what_a_signal_interrupts_is_done_or_not_taken_on():
    """Nor does it keep threads from the work that comes later: a release that nobody does would
    leave its key held as long as the process lives."""
    def tell():
        done.put(threading.get_ident())

    with no_hang():
        for begun in False, True:
            number, more = 0, True
            while more:
                number += 1
                threads, done = _aio._Threads(1), queue.SimpleQueue()
                if begun:
                    threads.do(tell)
                    assert done.get(timeout=PATIENCE) != threading.get_ident()
                more = _interrupted_at(number, lambda: threads.do(tell))
                threads.do(functools.partial(done.put, 'last'))
                told = []
                while 'last' not in told:
                    told.append(done.get(timeout=PATIENCE))
                assert threading.get_ident() not in told and len(told) <= 2, (number, told)
                threads.do(tell)
                assert done.get(timeout=PATIENCE) != threading.get_ident(), number
                threads.end()


def what_fails_after_its_task_was_cancelled_is_told_once():
    """A release may tell of a loss, in words of this package. Nobody asks for what else fails."""
    class Store:
        _is_near = False

    class Error(Exception):
        def __del__(self):
            dropped.set()

    async def failing(way):
        go = threading.Event()

        def fail():
            assert go.wait(PATIENCE)
            raise Error(way.__name__)

        dropped.clear()
        del told[:]
        task = asyncio.ensure_future(way(Store(), fail))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        del task    # with the future that it waited for
        go.set()
        while not dropped.is_set():
            await asyncio.sleep(0.001)
            gc.collect()
        return told

    async def main():
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: told.append((context['message'], str(context['exception']))))
        assert await failing(_aio.call) == []
        assert await failing(_aio.release) == [
            ('holdfast: a release failed after its task was cancelled', 'release')]

    told, dropped = [], threading.Event()
    with no_hang():
        asyncio.run(main())


def the_end_of_a_watch_in_a_loop_does_not_wait():
    """Its thread ends within a quarter of a second and a request, which may take seconds."""
    async def main(end):
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        watch = store.watch(name)
        stop = watch._watch.stop

        class Slow:
            def stop(self):
                assert threading.get_ident() != here
                stop()
                loop.call_soon_threadsafe(ended.set)

        watch._watch = Slow()
        if end == 'block':
            with watch:
                pass
        del watch
        await asyncio.wait_for(ended.wait(), PATIENCE)

    with no_hang(), holdfast.open(URL) as store:
        name, here = key(), threading.get_ident()
        for end in 'block', 'drop':
            asyncio.run(main(end))


def a_lock_that_is_dropped_in_a_loop_does_not_block_it():
    async def main():
        here, later = threading.get_ident(), _aio.later
        released = asyncio.Event()
        loop = asyncio.get_running_loop()

        def watched(work, store):
            def there():
                assert threading.get_ident() != here
                work()
                loop.call_soon_threadsafe(released.set)
            later(there, store)

        _aio.later = watched
        try:
            for _ in range(3):
                held = await store.acquire_async(name)
                assert held.held
                del held
                gc.collect()
                if not NEAR:
                    await asyncio.wait_for(released.wait(), PATIENCE)
                    released.clear()
            assert not released.is_set() and not store.stats()['held']
        finally:
            _aio.later = later

    with no_hang(), holdfast.open(URL) as store, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        name = key()
        asyncio.run(main())
        assert free(name) and len(said) == 3, said


def what_is_free_is_had_without_a_mailbox():
    """A wait for it would take a thread of the library and a turn of the loop."""
    async def main():
        async with store.lock(name) as held, store.lock(name, recursive=True):
            assert held.held
        await (await store.acquire_async(name)).release_async()
        lock = store.lock(name)
        assert await lock.acquire_async()
        await lock.release_async()
        assert asyncio.get_running_loop() not in _aio._posts

    if not NEAR:
        return
    with holdfast.open(URL) as store:
        name = key()
        asyncio.run(main())
        assert free(name) and store.stats()['acquired'] == 3


# ---- others ----

def _refused(call, *words):
    try:
        call()
    except holdfast.Unsupported as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError('not refused')


def patched_greenlets_are_refused():
    """By modules that say what gevent's and eventlet's do."""
    for name, module, asks in (('gevent', 'gevent.monkey', 'is_module_patched'),
                               ('eventlet', 'eventlet.patcher', 'is_monkey_patched')):
        for patched in False, True:
            stand_in = types.ModuleType(module)
            setattr(stand_in, asks, lambda what, patched=patched: patched)
            assert module not in sys.modules
            sys.modules[module] = stand_in
            try:
                if patched:
                    _refused(lambda: holdfast.open(URL), name, 'greenlets')
                else:
                    holdfast.open(URL).close()
            finally:
                del sys.modules[module]


def a_wait_that_would_stop_its_greenlets_is_refused():
    """By a module that says what greenlet's does."""
    stand_in = types.ModuleType('greenlet')
    stand_in.getcurrent = lambda: types.SimpleNamespace(parent=stand_in)
    assert 'greenlet' not in sys.modules
    with no_hang(), holdfast.open(URL) as store, store.lock(key()) as held:
        sys.modules['greenlet'] = stand_in
        try:
            store.acquire(held.key)
            raise AssertionError('not refused')
        except holdfast.RecursiveAcquire as error:
            assert 'greenlets' in str(error)
        finally:
            del sys.modules['greenlet']


def trio_is_told_what_to_do():
    """By a module that says what trio's does."""
    def run(coroutine):
        try:
            coroutine.send(None)
            raise AssertionError('it runs')
        finally:
            coroutine.close()

    with holdfast.open(URL) as store, store.watch(key()) as watch:
        name = key()
        held = store.acquire(name + '/held')
        calls = (lambda: store.acquire_async(name), store.lock(name).__aenter__,
                 lambda: store.peek_async(name), held.release_async,
                 lambda: holdfast.open_async(URL), lambda: store.acquire_all_async([name]),
                 store.once(name).__aenter__, watch.__anext__, watch.close_async,
                 lambda: store.list_async(name), store.lock(name).locked_async)
        for call in calls:
            try:
                run(call())
            except RuntimeError as error:
                assert 'no running event loop' in str(error)
        stand_in = types.ModuleType('trio')
        stand_in.lowlevel = types.SimpleNamespace(current_task=object)
        assert 'trio' not in sys.modules
        sys.modules['trio'] = stand_in
        try:
            for call in calls:
                _refused(lambda call=call: run(call()), 'trio')
        finally:
            del sys.modules['trio']
        held.release()
        assert free(name)


def a_subinterpreter_cannot_import_it():
    text = '''
import sys
try:
    import _interpreters
    create, run = lambda: _interpreters.create('legacy'), _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    create, run = lambda: _interpreters.create(isolated=False), _interpreters.run_string
if 'first' in sys.argv:
    import holdfast
CODE = """
import sys
sys.path[:0] = %r
try:
    import holdfast
    print('imported')
except ImportError as error:
    assert 'WSGIApplicationGroup' in str(error)
    print('refused')
""" % (sys.path,)
for _ in range(2):
    one = create()
    run(one, CODE)
    _interpreters.destroy(one)
import holdfast
store = holdfast.open(sys.argv[1])
try:
    store.acquire('')
except holdfast.InvalidArgument:
    print('caught', flush=True)
'''
    for order in 'first', 'last':
        said = program(text, order).split()
        assert said.count('refused') == 2 and said[-1] == 'caught', said


def a_closed_loop_s_wait_is_given_up():
    """Before the grant, and after one that the loop has no time to notice."""
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        for event in False, True:
            for granted in False, True:
                name, kept = key(), []
                held = other.acquire(name)

                async def wait():
                    if not event:
                        await store.acquire_async(name)
                        raise AssertionError('acquired')
                    async with store.once(name):
                        raise AssertionError('begun')

                async def main():
                    kept.append(asyncio.ensure_future(wait()))
                    while not other.peek(name).waiters:
                        await asyncio.sleep(0.01)
                    if granted:
                        before = store.stats()['acquired']
                        held.release()
                        until(lambda: store.stats()['acquired'] > before, 'never granted')

                loop = asyncio.new_event_loop()
                loop.run_until_complete(main())
                loop.close()
                if not granted:
                    until(lambda: not other.peek(name).waiters, 'still in the queue')
                    held.release()
                other.acquire(name, wait=PATIENCE).release()
                LEFT.extend(kept)       # until the end of the program, which it doesn't delay
                kept[0]._log_destroy_pending = False


def a_closed_loop_gives_back_the_first_of_several_keys():
    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        first, kept = key(), []
        held = other.acquire(first + '/second')

        async def main():
            kept.append(asyncio.ensure_future(store.acquire_all_async([first, held.key])))
            while not other.peek(held.key).waiters:
                await asyncio.sleep(0.01)

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        assert not free(first)
        loop.close()
        until(lambda: free(first), 'held for ever')
        until(lambda: not other.peek(held.key).waiters, 'still in the queue')
        held.release()
        raised, before = [], sys.unraisablehook
        sys.unraisablehook = raised.append
        kept[0]._log_destroy_pending = False
        kept.clear()
        del loop
        gc.collect()
        sys.unraisablehook = before
        assert not raised, raised[0].exc_value


_CLOSED = """
import asyncio, os, sys
import holdfast
loop = asyncio.new_event_loop()         # which opens descriptors of its own
for fd in range(3):
    os.close(fd)

def low():
    return [fd for fd in range(3) if os.path.exists(f'/proc/self/fd/{fd}')
            and 'eventfd' in os.readlink(f'/proc/self/fd/{fd}')]

async def main(store):
    held = await store.acquire_async('standard')
    waiting = asyncio.ensure_future(store.acquire_async('standard'))
    while not store.peek('standard').waiters:
        await asyncio.sleep(0.01)
    bad = low()
    await held.release_async()
    (await waiting).release()
    return bad

with holdfast.open(sys.argv[1]) as store:
    with store.watch('standard'):
        bad = low()
    bad += loop.run_until_complete(main(store))
os._exit(9 if bad else 0)
"""


def no_descriptor_is_a_standard_one():
    program(_CLOSED)


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
