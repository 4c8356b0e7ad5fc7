"""Several keys at once: all or none, in one order, within one time."""
import collections.abc
import contextlib
import datetime
import math
import re
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, cast

from . import _aio
from ._errors import HoldfastError, error, invalid
from ._holdfast import _enter_all, _leave_all, _release_all
from ._locks import Lock
from ._options import Options, Time

KEYS_CAP = 64   # the limit of hf_acquire_all
_UNITS = {'': 1.0, 's': 1.0, 'ms': 0.001, 'm': 60.0, 'h': 3600.0, 'd': 86400.0}


class Locks(List[Lock]):
    """The locks of several keys, in the order in which their keys were asked for; with or async
    with: all are released at the end of the block."""

    def __bool__(self) -> bool:
        raise TypeError('Locks have no truth value: acquire_all raises LockUnavailable if a key '
                        "isn't obtained")

    def _note(self, frame: Any, awaited: bool) -> 'Locks':
        """Notes that the locks came from a call that this frame makes, so that dropping them at
        once is reported."""
        for number, lock in enumerate(self):
            lock._note(frame, awaited, True, number > 0)
        return self

    # Functions in C: a signal handler's exception can't keep one of the locks from being released.
    release = _release_all
    __enter__ = _enter_all
    __exit__ = _leave_all

    async def release_async(self) -> None:
        """As release(); other tasks run meanwhile."""
        async with contextlib.AsyncExitStack() as stack:
            for lock in self:
                stack.push_async_callback(lock.release_async)

    async def __aenter__(self) -> 'Locks':
        try:
            for lock in self:
                await lock.__aenter__()
        except BaseException:
            with contextlib.suppress(HoldfastError):
                await self.release_async()
            raise
        return self

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for lock in self:
                stack.push_async_callback(lock.__aexit__, kind, value, traceback)


def _seconds(wait: Any) -> float:
    """Returns the seconds of a time limit that was checked."""
    if isinstance(wait, datetime.timedelta):
        return wait.total_seconds()
    if isinstance(wait, str):
        number, unit = cast('re.Match[str]', re.match(r'([\d.]*)(\w*)', wait)).groups()
        return float(number) * _UNITS[unit]
    return float(wait)


def _left(wait: Any) -> Callable[[], Optional[Time]]:
    """Returns a function that says how much is left of the time limit for all keys. It leaves at
    least 1 ms for each key, so that a free key is obtained."""
    seconds = math.inf if wait is None else _seconds(wait)
    if seconds == math.inf:
        return lambda: None
    end = time.monotonic() + seconds
    return lambda: max(0.001, end - time.monotonic()) if seconds else 0


def in_order(store: Any, keys: Iterable[str],
             options: Options) -> Tuple[List[str], List[str], Callable[[], Options]]:
    """Returns the keys as they were requested, the order in which they are acquired, and a function
    that returns the options of the next one. Every client acquires keys in the order of their
    bytes, so that no clients wait for each other in a circle."""
    several = isinstance(keys, collections.abc.Iterable) and not isinstance(keys, str)
    asked = list(keys) if several else []
    if not 1 <= len(asked) <= KEYS_CAP:
        raise invalid('acquire_all', None, f'the keys: must be a list of 1 to {KEYS_CAP}')
    for key in asked:
        store._check(False, key, **options)
    if options.get('at_least') is not None:
        # A key that is released because a later key isn't obtained would stay taken for at_least.
        raise invalid('acquire_all', asked[0], 'at_least: of one key only')
    order = sorted(asked, key=lambda key: key.encode('utf-8'))
    for one, two in zip(order, order[1:]):
        if one == two:
            raise invalid('acquire_all', one, 'named twice')
    left = _left(options.get('wait'))
    return asked, order, lambda: cast(Options, {**options, 'wait': left()})


def all_held(asked: List[str], got: Dict[str, Lock]) -> Locks:
    """Returns the locks. Raises LockLost if one of them was lost while others were waited for."""
    for lock in got.values():
        if len(got) > 1 and not lock.held:
            raise error('LOST', f"acquire_all '{lock.key}': it was lost while the others were "
                        'waited for', lock.key)
    return Locks(got[key] for key in asked)


def acquire_all(store: Any, keys: Iterable[str], options: Options) -> Locks:
    asked, order, each = in_order(store, keys, options)
    got: Dict[str, Lock] = {}
    try:
        for key in order:
            got[key] = store.acquire(key, **each())
        return all_held(asked, got)._note(sys._getframe(1).f_back, False)
    except BaseException:
        with contextlib.suppress(HoldfastError):
            Locks(got.values()).release()
        raise


async def acquire_all_async(store: Any, keys: Iterable[str], options: Options) -> Locks:
    asked, order, each = in_order(store, keys, options)
    got: Dict[str, Lock] = {}
    try:
        with _aio.acquiring(lambda: _aio.later(Locks(got.values()).release, store)):
            for key in order:
                got[key] = await store.acquire_async(key, **each())
        return all_held(asked, got)._note(sys._getframe(1).f_back, True)
    except GeneratorExit:   # the coroutine was dropped, and can't wait
        _aio.later(Locks(got.values()).release, store)
        raise
    except BaseException:
        with contextlib.suppress(HoldfastError):
            await Locks(got.values()).release_async()
        raise
