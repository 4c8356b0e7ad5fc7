"""Waiting in asyncio, without a thread or a descriptor for each wait. Each event loop that uses a
store has one mailbox, whose descriptor the loop watches; see src/ext.h."""
import _thread
import asyncio
import contextlib
import functools
import inspect
import itertools
import os
import queue
import select
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, TypeVar

from . import _holdfast
from ._errors import error

T = TypeVar('T')
_ids = itertools.count(1)


class _Post:
    """A mailbox of an event loop, the callbacks for its messages by their numbers, and the
    functions that give up the acquisitions under way."""

    def __init__(self) -> None:
        self.box = _holdfast.Mailbox()
        self.waiting: Dict[int, Callable[[], Any]] = {}
        self.acquiring: Dict[int, Callable[[], None]] = {}

    def read(self) -> None:
        for number in self.box.take():
            tell = self.waiting.pop(number, None)
            if tell:
                tell()

    def give_up(self) -> None:
        """Gives up the acquisitions. What they have brought is released."""
        for give_up in list(self.acquiring.values()):
            give_up()


class _Reader:
    """What an event loop calls when a mailbox has messages. Only the loop has a reference, and
    drops it when the loop is closed. The loop's tasks never go on then, so a key that is granted to
    one of them would stay held."""

    def __init__(self, post: _Post) -> None:
        self.post = post

    def __call__(self) -> None:
        self.post.read()

    def __del__(self) -> None:
        if hasattr(self, 'post'):   # __init__ wasn't interrupted
            self.post.give_up()


_posts: 'weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Post]]' = (
    weakref.WeakKeyDictionary())


def _post(loop: asyncio.AbstractEventLoop) -> _Post:
    known = _posts.get(loop)
    post = known() if known else None
    if post is None:
        post = _Post()
        loop.add_reader(post.box.fileno(), _Reader(post))
        _posts[loop] = weakref.ref(post)
    return post


@contextlib.contextmanager
def acquiring(give_up: Callable[[], None]) -> Iterator[None]:
    """Calls give_up if the running loop is closed before the end of the block."""
    post, number = _post(loop()), next(_ids)
    post.acquiring[number] = give_up
    try:
        yield
    finally:
        post.acquiring.pop(number, None)


def _settle(future: 'asyncio.Future[None]') -> None:
    if not future.done():
        future.set_result(None)


def loop() -> asyncio.AbstractEventLoop:
    """The running event loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get('trio')
        if trio is None or not _in_trio(trio):
            raise
    raise error('UNSUPPORTED', "trio: the coroutines of holdfast need asyncio; in trio, call "
                               "'await trio.to_thread.run_sync(function)', in which a plain 'with' "
                               "holds the key", None)


def _in_trio(trio: Any) -> bool:
    try:
        trio.lowlevel.current_task()
        return True
    except (AttributeError, RuntimeError):
        return False


def refuse_greenlets() -> None:
    """Raises an error if gevent or eventlet has patched this process: a wait in C would stop all
    greenlets of its thread, also the one that holds."""
    gevent, eventlet = sys.modules.get('gevent.monkey'), sys.modules.get('eventlet.patcher')
    name = ''
    if gevent is not None and gevent.is_module_patched('threading'):
        name = 'gevent'
    elif eventlet is not None and eventlet.is_monkey_patched('thread'):
        name = 'eventlet'
    if name:
        raise error('UNSUPPORTED', f'open: {name} has patched this process: a wait for a key would '
                                   'stop all its greenlets, also the one that holds it. Use '
                                   "threads or asyncio, or 'holdfast run KEY -- COMMAND'", None)


# The functions that the threads of a pool run: each runs the jobs of several callers.
POOLS = (('concurrent.futures.thread', '_worker'), ('multiprocessing.pool', 'worker'),
         ('gevent.threadpool', '_WorkerGreenlet.run'), ('eventlet.tpool', 'tworker'))


def _pools() -> List[Any]:
    """The code objects of those functions of POOLS whose modules are imported."""
    found = []
    for module, path in POOLS:
        function: Any = sys.modules.get(module)
        for name in path.split('.'):
            function = getattr(function, name, None)
        found.append(getattr(function, '__code__', None))
    return [code for code in found if code is not None]


def thread_kind() -> int:
    """Returns 1 in a job of a pool's thread, in which other callers' jobs ran before; 2 if a
    greenlet runs in this thread; 0 in a thread that runs its own function."""
    # A process of multiprocessing.Pool runs `worker` in its main thread, which isn't a thread of a
    # pool.
    pools = [] if threading.current_thread() is threading.main_thread() else _pools()
    frame = sys._getframe() if pools else None
    while frame is not None:
        if any(frame.f_code is code for code in pools):
            return 1
        frame = frame.f_back
    greenlet = sys.modules.get('greenlet')
    return 2 if greenlet is not None and greenlet.getcurrent().parent is not None else 0


async def wait(store: Any, start: Callable[[Any, int], Any]) -> Any:
    """Starts a Wait by start(mailbox, id), and returns its result. If the task is cancelled, at any
    moment, or its loop is closed, a lock that the wait was granted is released."""
    running = loop()
    post = _post(running)
    number, told = next(_ids), running.create_future()
    post.waiting[number] = lambda: _settle(told)
    waits = None
    try:
        waits = start(post.box, number)
        with acquiring(functools.partial(_abandon, store, waits)):
            await told
    except BaseException:
        post.waiting.pop(number, None)
        if waits is not None:
            _abandon(store, waits)
        raise
    return waits.take()


class _Threads:
    """At most `most` threads, for calls that may wait for a server's answer, but not for a key.
    (The threads of the loop's own executor may all be waiting for the very key that is to be
    released.) The end of the program doesn't wait for these threads: closing the stores releases
    what they haven't released.

    One thread, the leader, waits for work. Before it does the work, another thread takes the lead,
    so there is a leader unless all threads are at work. A thread ends that hasn't got the lead for
    IDLE seconds. The threads count themselves, and only they have the lock: a signal handler, which
    runs in the main thread, never interrupts code that has it."""
    IDLE = 10

    def __init__(self, most: float, name: str = 'holdfast') -> None:
        self._most, self._name = most, name
        self._work: 'queue.SimpleQueue[Optional[Callable[[], Any]]]' = queue.SimpleQueue()
        self._change = threading.Condition()
        self._idle = self._threads = 0
        self._led = False

    def do(self, work: Callable[[], Any]) -> None:
        """A signal handler may raise an exception here at any moment, or call this. So a thread is
        there before there is work for it: work that was taken on is always done."""
        if not self._threads:
            try:
                _thread.start_new_thread(self._begin, ())
            except RuntimeError:    # no thread can be started
                work()
                return
        self._work.put(work)

    def end(self) -> None:
        """Ends the threads once all work is done. No work comes after this."""
        self._work.put(None)

    def _begin(self) -> None:
        """Starts the first thread. Thread.start(), which is in Python, must not be interrupted: so
        it isn't called in the main thread."""
        if not self._start():
            self._serve()

    def _start(self) -> bool:
        with contextlib.suppress(RuntimeError):     # no further thread can be started
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            return True
        return False

    def _serve(self) -> None:
        with self._change:
            if self._threads >= self._most:
                return
            self._threads += 1
        work = self._next()
        while work is not None:
            work()
            work = None     # no reference to it is kept meanwhile
            work = self._next()

    def _next(self) -> Optional[Callable[[], Any]]:
        with self._change:
            self._idle += 1
            leads = self._change.wait_for(lambda: not self._led, self.IDLE)
            self._idle -= 1
            if not leads:
                self._threads -= 1
                return None
            self._led = True
        work = self._work.get()
        with self._change:
            self._led = False
            self._change.notify()
            if work is None:
                self._work.put(None)    # for the next thread
            elif not self._idle and self._threads < self._most:
                self._start()
        return work


class _Hands:
    """The threads of one store. Releases have their own, so that they never wait behind calls that
    a server doesn't answer."""
    MOST = 8

    def __init__(self) -> None:
        self.calls, self.releases = _Threads(self.MOST), _Threads(self.MOST)

    def __del__(self) -> None:
        for threads in vars(self).values():     # not both, if __init__ was interrupted
            threads.end()


# Each store has threads of its own, so that one that doesn't answer doesn't delay the others.
_hands: 'weakref.WeakKeyDictionary[Any, _Hands]' = weakref.WeakKeyDictionary()
_opening = _Threads(float('inf'))   # for calls of open, which have no store yet


def do(store: Any, work: Callable[[], Any], releases: bool = False) -> None:
    """Runs a call in a thread of the store; store None: the call opens one. While the interpreter
    ends, does nothing: the stores are closed by then, and a new thread would not run."""
    if sys.is_finalizing():
        return
    if store is None:
        _opening.do(work)
        return
    hands = _hands.get(store) or _hands.setdefault(store, _Hands())
    (hands.releases if releases else hands.calls).do(work)


def later(work: Callable[[], Any], store: Any) -> None:
    """Runs a call that releases something, in a thread of the store. Its exceptions are ignored."""
    def quietly() -> None:
        with contextlib.suppress(Exception):
            work()
    do(store, quietly, True)


def _abandon(store: Any, waits: Any) -> None:
    # The wait may have got the lock, and releasing it may be a request to a server.
    if store._is_near:
        waits.abandon()
    else:
        do(store, waits.abandon, True)


def _end(future: 'asyncio.Future[Any]', result: Any, error: Optional[BaseException],
         releases: bool) -> None:
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
    elif error is not None and releases:    # which may say that the lock was lost
        future.get_loop().call_exception_handler({
            'message': 'holdfast: a release failed after its task was cancelled',
            'exception': error})


async def call(store: Any, function: Callable[..., T], *args: Any) -> T:
    """Makes a call that may wait for a server's answer, but not for a key. A call that has begun is
    carried out, even if the task is cancelled."""
    loop()
    if store._is_near:
        return function(*args)
    return await in_thread(store, function, *args)


async def release(store: Any, function: Callable[..., T], *args: Any) -> T:
    """Does what `call` does, for calls that release something: they don't wait behind other
    calls."""
    loop()
    if store._is_near:
        return function(*args)
    return await in_thread(store, function, *args, releases=True)


async def in_thread(store: Any, function: Callable[..., T], *args: Any,
                    releases: bool = False) -> T:
    running = loop()
    done: 'asyncio.Future[T]' = running.create_future()

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as raised:     # noqa: B036  raised again in the task
            error = raised
        with contextlib.suppress(RuntimeError):     # the loop is closed
            running.call_soon_threadsafe(_end, done, result, error, releases)
        error = None    # its traceback refers to this frame

    do(store, work, releases)
    try:
        return await done
    finally:
        done.cancel()   # of a coroutine that was closed: nobody asks for an exception any more


# ---- losses ----

class _Listener(threading.Thread):
    """Calls the callbacks of losses: in the event loops that registered them, or in threads of
    _callers."""

    def __init__(self) -> None:
        super().__init__(name='holdfast-lost', daemon=True)
        self.post = _Post()

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.post.box.fileno(), select.POLLIN)
        while True:
            poll.poll()
            self.post.read()


def _new_callers() -> _Threads:
    return _Threads(64, 'holdfast-lost')


# Many threads, so that a callback that takes long doesn't delay the others.
_callers = _new_callers()
_listener_lock = threading.RLock()     # a signal handler may come here anew
_listener: Optional[_Listener] = None


class _Callbacks:
    """The callbacks of one grant."""

    def __init__(self) -> None:
        self.all: List[Callable[[], None]] = []
        self.number = next(_ids)
        self.told = False

    def tell(self) -> None:
        with _listener_lock:
            self.told, now = True, list(self.all)
        for one in now:
            one()


_running: 'Set[asyncio.Future[Any]]' = set()


def _forked() -> None:
    global _listener, _listener_lock, _hands, _opening, _callers
    _listener, _listener_lock = None, threading.RLock()
    _hands, _opening, _callers = weakref.WeakKeyDictionary(), _Threads(float('inf')), _new_callers()
    _posts.clear()


os.register_at_fork(after_in_child=_forked)


def _post_of_losses() -> _Post:
    global _listener
    with _listener_lock:
        if _listener is None:
            started = _Listener()
            started.start()
            _listener = started
        return _listener.post


def _run_in_loop(running: asyncio.AbstractEventLoop, result: Any) -> None:
    """Runs the coroutine of a callback as a task. The loop reports its exception, as that of any
    callback."""
    task = asyncio.ensure_future(result, loop=running)
    _running.add(task)

    def over(task: 'asyncio.Future[Any]') -> None:
        _running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            running.call_exception_handler({
                'message': 'holdfast: an on_lost callback failed', 'exception': task.exception(),
                'future': task})

    task.add_done_callback(over)


def _tell_in_thread(tell: Callable[[], Any]) -> None:
    """Runs a callback in this thread. Its exception is reported, and doesn't keep others from
    running."""
    try:
        result = tell()
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except BaseException:   # noqa: B036  also a SystemExit: the thread goes on
        with contextlib.suppress(BaseException):
            threading.excepthook(threading.ExceptHookArgs(
                (*sys.exc_info(), threading.current_thread())))


def on_lost(lock: Any, callback: Callable[[Any], Any]) -> None:
    """See Lock.on_lost."""
    running: Optional[asyncio.AbstractEventLoop] = None
    with contextlib.suppress(RuntimeError):
        running = asyncio.get_running_loop()
    found = weakref.ref(lock)

    def call() -> Any:
        there = found()
        return callback(there) if there is not None and there._is_mine else None

    def call_in_loop() -> None:
        result = call()
        if running is not None and inspect.isawaitable(result):
            _run_in_loop(running, result)

    def tell() -> None:
        if running is not None:
            with contextlib.suppress(RuntimeError):     # the loop is closed
                running.call_soon_threadsafe(call_in_loop)
                return
        _callers.do(functools.partial(_tell_in_thread, call))

    _listen(lock._root, lock, tell)


def _listen(root: Any, lock: Any, tell: Callable[[], None]) -> None:
    """A signal handler may call this, or raise an exception, at any moment. Only the first of the
    locks that share a grant keeps the callbacks: they often refer to it."""
    post = _post_of_losses()
    root._callbacks = _Callbacks()      # ignored if the root has callbacks already (held.c)
    callbacks: _Callbacks = root._callbacks
    with _listener_lock:
        late = callbacks.told
        callbacks.all.append(tell)
    if late:
        tell()
        return
    found = weakref.ref(callbacks)

    def lost() -> None:
        there = found()
        if there is not None:
            there.tell()

    try:
        if callbacks.number not in post.waiting:
            post.waiting[callbacks.number] = lost
            weakref.finalize(root, post.waiting.pop, callbacks.number, None).atexit = False
        lock._tell(post.box, callbacks.number)  # once for each grant
    except BaseException:
        callbacks.all.remove(tell)
        raise
