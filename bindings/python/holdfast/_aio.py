"""Waiting in asyncio: no thread and no descriptor a wait. Each event loop that uses a store has one
mailbox there, whose descriptor it reads; see src/ext.h."""
import asyncio
import contextlib
import itertools
import os
import select
import sys
import threading
import weakref
from typing import Any, Callable, Dict

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
        post = _posts[loop] = _Post()
        loop.add_reader(post.box.fileno(), post.read)
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
            _abandon(store, loop, waits)
        raise
    return waits.take()


def _abandon(store: Any, loop: asyncio.AbstractEventLoop, waits: Any) -> None:
    # It may have brought a lock, and a server has to be told.
    if not store._is_near:
        try:
            loop.run_in_executor(None, waits.abandon)
            return
        except RuntimeError:    # the executor has been shut down
            pass
    waits.abandon()


async def call(store: Any, function: Callable[..., Any], *args: Any) -> Any:
    """What may wait for a server's answer, but not for a key. Once begun it is done."""
    if store._is_near:
        return function(*args)
    loop = asyncio.get_running_loop()
    return await asyncio.shield(loop.run_in_executor(None, function, *args))


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
    global _bell, _bell_lock
    _bell, _bell_lock = None, threading.Lock()
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
                _bell = _Bell()
                _bell.start()
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
