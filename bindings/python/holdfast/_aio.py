"""Waiting in asyncio: no thread and no descriptor a wait. Each event loop that uses a store has one
mailbox there, whose descriptor it reads; see src/ext.h."""
import asyncio
import contextlib
import itertools
import os
import queue
import select
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Optional

from . import _holdfast

_ids = itertools.count(1)


class _Post:
    """One mailbox and those who wait for what comes."""

    def __init__(self) -> None:
        self.box = _holdfast.Mailbox()
        self.waiting: Dict[int, Callable[[], Any]] = {}

    def read(self) -> None:
        for number in self.box.take():
            tell = self.waiting.pop(number, None)
            if tell:
                tell()


_posts: 'weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Post]' = weakref.WeakKeyDictionary()


def _post(loop: asyncio.AbstractEventLoop) -> _Post:
    post = _posts.get(loop)
    if post is None:
        post = _Post()
        loop.add_reader(post.box.fileno(), post.read)
        _posts[loop] = post
    return post


def _settle(future: 'asyncio.Future[None]') -> None:
    if not future.done():
        future.set_result(None)


async def wait(store: Any, start: Callable[[Any, int], Any]) -> Any:
    """What start(mailbox, id), a Wait, brings. Cancelled at any moment it brings nothing, and what
    it would have brought is given back."""
    loop = asyncio.get_running_loop()
    post = _post(loop)
    number, told = next(_ids), loop.create_future()
    post.waiting[number] = lambda: _settle(told)
    waits = None
    try:
        waits = start(post.box, number)
        await told
    except BaseException:
        post.waiting.pop(number, None)
        if waits is not None:
            _abandon(store, waits)
        raise
    return waits.take()


class _Hands:
    """A few threads for what may wait for a server's answer, but not for a key. The loop's own may
    all be waiting for the very key that is to be given back. Nobody waits for them at the end of
    the program: closing the stores gives back what they haven't begun with."""
    MOST = 8

    def __init__(self) -> None:
        self._work: 'queue.SimpleQueue[Callable[[], Any]]' = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0

    def do(self, work: Callable[[], Any]) -> None:
        self._work.put(work)
        with self._lock:
            if self._idle.acquire(blocking=False) or self._threads == self.MOST:
                return
            try:
                threading.Thread(target=self._serve, name='holdfast', daemon=True).start()
                self._threads += 1
                return
            except RuntimeError:    # there are no more threads to be had
                if self._threads:
                    return
        with contextlib.suppress(queue.Empty):
            while True:
                self._work.get_nowait()()

    def _serve(self) -> None:
        while True:
            self._work.get()()
            self._idle.release()


_hands = _Hands()


def _abandon(store: Any, waits: Any) -> None:
    # It may have brought a lock, and a server has to be told.
    if store._is_near:
        waits.abandon()
    else:
        _hands.do(waits.abandon)


def _end(future: 'asyncio.Future[Any]', result: Any, error: Optional[BaseException]) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def call(store: Any, function: Callable[..., Any], *args: Any) -> Any:
    """What may wait for a server's answer, but not for a key. Once begun it is done."""
    if store._is_near:
        return function(*args)
    loop = asyncio.get_running_loop()
    done: 'asyncio.Future[Any]' = loop.create_future()

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as raised:     # noqa: B036  the caller's
            error = raised
        with contextlib.suppress(RuntimeError):     # the loop is over
            loop.call_soon_threadsafe(_end, done, result, error)
        error = None    # it has this frame

    _hands.do(work)
    return await asyncio.shield(done)


async def enter(block: Any) -> Any:
    held = await wait(block.store, block._start)
    block._swap(held)
    return held


async def leave(block: Any, failed: bool) -> None:
    held = block._swap(None)
    if held is not None:
        await call(held.store, held.__exit__, RuntimeError if failed else None, None, None)


# ---- losses ----

class _Bell(threading.Thread):
    """Calls those who listen for losses outside of an event loop."""

    def __init__(self) -> None:
        super().__init__(name='holdfast-lost', daemon=True)
        self.post = _Post()

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.post.box.fileno(), select.POLLIN)
        while True:
            poll.poll()
            self.post.read()


_bell_lock = threading.Lock()
_bell = None


def _forked() -> None:
    global _bell, _bell_lock, _hands
    _bell, _bell_lock, _hands = None, threading.Lock(), _Hands()
    _posts.clear()


os.register_at_fork(after_in_child=_forked)


def on_lost(lock: Any, callback: Callable[[Any], Any]) -> None:
    """See Lock.on_lost."""
    global _bell
    in_loop = True
    try:
        post = _post(asyncio.get_running_loop())
    except RuntimeError:
        in_loop = False
        with _bell_lock:
            if _bell is None:
                bell = _Bell()
                bell.start()
                _bell = bell
            post = _bell.post
    number, found = next(_ids), weakref.ref(lock)

    def tell() -> None:
        there = found()
        if there is not None and there._is_mine:
            callback(there)

    # What it raises doesn't keep the same mailbox from telling others.
    def tell_in_loop() -> None:
        asyncio.get_running_loop().call_soon(tell)

    def tell_in_thread() -> None:
        try:
            tell()
        except BaseException:   # noqa: B036  also a SystemExit: the thread goes on
            with contextlib.suppress(BaseException):
                threading.excepthook(threading.ExceptHookArgs(
                    (*sys.exc_info(), threading.current_thread())))

    post.waiting[number] = tell_in_loop if in_loop else tell_in_thread
    weakref.finalize(lock, post.waiting.pop, number, None).atexit = False
    if not lock._tell(post.box, number):
        post.waiting.pop(number, None)
        raise RuntimeError('this lock has a callback already')
