"""What a store makes: Lock, one grant, and Locking, a key that is to be held."""
import functools
import sys
from typing import Any, Callable, NoReturn, Optional

from . import _aio, _holdfast
from ._errors import LockUnavailable, UnboundLock, invalid
from ._options import Time


class Lock(_holdfast.Lock):
    """One grant of one key. It has no truth value: acquire() raises if the key isn't obtained."""
    __slots__ = ()

    @property
    def left(self) -> float:
        """Believe for so many seconds; inf: as long as the process."""
        return self.left_ms / 1000

    def on_lost(self, callback: 'Callable[[Lock], Any]') -> None:
        """Calls `callback` with the lock when the lock is lost, or at once if it is lost already.
        If this is called in a running event loop, the callback runs in that loop, and so does a
        coroutine that it returns; after the end of the loop, or without one, it runs in a
        thread. Each call of this adds one more callback."""
        if not callable(callback):
            raise invalid('on_lost', self.key, "the callback can't be called")
        _aio.on_lost(self, callback)

    async def release_async(self) -> None:
        """As release(); other tasks run meanwhile."""
        await _aio.release(self.store, self.release)

    async def renew_async(self, lease: Optional[Time] = None) -> None:
        """As renew(); other tasks run meanwhile."""
        await _aio.call(self.store, self.renew, lease)

    async def confirm_async(self) -> None:
        """As confirm(); other tasks run meanwhile."""
        await _aio.call(self.store, self.confirm)

    async def enter_async(self, where: Optional[str] = None) -> None:
        """As enter(); other tasks run meanwhile."""
        await _aio.call(self.store, self.enter, where)

    async def __aenter__(self) -> 'Lock':
        if not self.held:
            await self.release_async()  # which says why
        return self.__enter__()

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        await _aio.release(self.store, self.__exit__, kind, value, traceback)


class _Nobodys:
    """How many references the running method of an object has if no other code refers to it."""
    async def count(self) -> int:
        return sys.getrefcount(self)


def _count_nobodys() -> int:
    counting = _Nobodys().count()
    try:
        counting.send(None)
    except StopIteration as end:
        return int(end.value)
    raise AssertionError


_NOBODYS = _count_nobodys()


class Locking(_holdfast.Locking):
    """A key that is to be held: what store.lock(key) gives. A block, with or async with; and it has
    what threading.Lock has: acquire, release, locked. It may be used again and again, by any number
    of threads and tasks: each block holds a lock of its own, which release() of another thread or
    task doesn't end. Unlike threading.Lock it refuses a second acquire() without a limit by the
    caller that holds the key (RecursiveAcquire), also if another thread would release it; and it
    has no truth value."""
    __slots__ = ()

    def locked(self) -> bool:
        """Asks the store whether the key is held, by any holder."""
        return bool(self.store.peek(self.key).holders)

    async def locked_async(self) -> bool:
        """As locked(); other tasks run meanwhile."""
        return await _aio.call(self.store, self.locked)

    async def acquire_async(self, blocking: bool = True, timeout: Optional[Time] = None,
                            **others: NoReturn) -> bool:
        """As acquire(); other tasks run meanwhile."""
        if others:
            self._no_others(**others)
        if sys.getrefcount(self) <= _NOBODYS:
            raise UnboundLock.before(self.key)
        try:
            self._push(await self._acquire(blocking, timeout), None)
        except LockUnavailable:
            return False
        return True

    async def _acquire(self, blocking: bool = True, timeout: Optional[Time] = None) -> Any:
        _aio.loop()
        held = self._try(blocking, timeout)
        if held is None:
            held = await _aio.wait(self.store, functools.partial(self._start, blocking, timeout))
        return held

    async def release_async(self) -> None:
        """As release(); other tasks run meanwhile."""
        await _aio.release(self.store, self._pick().release)

    async def __aenter__(self) -> Lock:
        held: Lock = await self._acquire()
        try:
            self._push(held, sys._getframe(1))
        except BaseException:   # a signal handler's
            _aio.later(held.release, self.store)
            raise
        return held

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        held = self._pop(sys._getframe(1))
        if held is not None:
            await _aio.release(self.store, held.__exit__, kind, value, traceback)


_holdfast._use(Lock, Locking)
