"""The exceptions: one class for each code of holdfast.h, or for two codes that mean the same."""
import re
import threading
from typing import Any, Dict, Optional, Type


class HoldfastError(Exception):
    """The base. `text` is one line: the store, what was attempted on which key, why it failed."""

    def __init__(self, text: str, *, code: str = 'INVALID', key: Optional[str] = None) -> None:
        super().__init__(text)
        self.text = text
        self.code = code    # the name in holdfast.h, without HF_
        self.key = key

    def __reduce__(self) -> Any:    # for pickle, as between processes
        return error, (self.code, self.text, self.key)


class LockUnavailable(HoldfastError):
    """Not obtained: at once (BUSY), or within the time given (TIMEOUT)."""


class LockCanceled(HoldfastError):
    """Given up, or its store was closed (CANCELED)."""


class LockLost(HoldfastError):
    """No longer held (LOST): another client may have held the key during the end of the work."""


class OutcomeUnknown(HoldfastError):
    """The store may or may not have done it (UNKNOWN)."""


class StoreUnavailable(HoldfastError):
    """The store cannot be reached (UNAVAILABLE)."""


class PermissionDenied(HoldfastError):
    """(DENIED)"""


class InvalidArgument(HoldfastError, ValueError, TypeError):
    """A bad key, URL, time or option, by its value or by its type (INVALID)."""


class RecursiveAcquire(HoldfastError):
    """A wait without a limit for a key that its own task, thread or owner holds (RECURSIVE)."""


class ReleaseWarning(RuntimeWarning):
    """A block or a decorated function has done its work under the lock, and the release was not
    confirmed: the key may stay held, until when the text says."""


class UnboundLock(HoldfastError, RuntimeError):
    """acquire() was called and its lock was dropped: the code that follows isn't protected."""

    _texts: Dict[int, str] = {}

    def __init__(self, text: Optional[str] = None, *, code: str = 'INVALID',
                 key: Optional[str] = None) -> None:
        if text is None:    # raised by the interpreter, which gives no arguments
            text = self._texts.pop(threading.get_ident(), 'acquire: the lock was dropped at once')
        super().__init__(text, code=code, key=key)

    @classmethod
    def of(cls, key: str, several: int = 0) -> str:
        """Records the key that the next UnboundLock of this thread names."""
        call, block = (('acquire_all', 'acquire_all(keys) as locks') if several else
                       ('acquire', 'lock(key) as held'))
        text = (f"{call} '{key[:100]}': the lock was dropped at once, and the key released with "
                f"it. Write 'with store.{block}:', or keep what {call}() returns")
        cls._texts[threading.get_ident()] = text.translate(_CLEAN)
        return text

    @classmethod
    def before(cls, key: str) -> 'UnboundLock':
        """Makes the error that is raised instead of acquiring a lock that no code would keep."""
        text = (f"acquire '{key[:100]}': nothing keeps this lock object, and its end would release "
                "the key at once. Write 'async with store.lock(key) as held:', or keep what "
                'store.lock(key) returns')
        return cls(text.translate(_CLEAN), key=key)


class Unsupported(HoldfastError):
    """Not offered by this store (UNSUPPORTED)."""


class StoreCorrupt(HoldfastError):
    """The store or the row is damaged (CORRUPT)."""


class StoreFull(HoldfastError):
    """No room left (FULL)."""


# NOMEM is Python's own MemoryError.
BY_CODE: Dict[str, Type[HoldfastError]] = {
    'BUSY': LockUnavailable, 'TIMEOUT': LockUnavailable, 'CANCELED': LockCanceled,
    'LOST': LockLost, 'UNKNOWN': OutcomeUnknown, 'UNAVAILABLE': StoreUnavailable,
    'DENIED': PermissionDenied, 'INVALID': InvalidArgument, 'RECURSIVE': RecursiveAcquire,
    'UNSUPPORTED': Unsupported, 'CORRUPT': StoreCorrupt, 'FULL': StoreFull}


# These characters become '?', so that an error is one line whatever the key.
_CLEAN = {number: '?' for number in (*range(32), *range(127, 160), *range(0xd800, 0xe000))}


# The library's texts name functions and options as C does; _as_here writes them as Python does
# (wait_ms: wait). The key stands before the last "': " and is left as it is.
_C_NAME = re.compile(r'\b(wait|lease|max_hold|at_least|keep|io_timeout|idle)_ms\b|\bhf_(?=open\b)')


def _as_here(text: str) -> str:
    key, end, why = text.rpartition("': ")
    return key + end + _C_NAME.sub(lambda of: of[1] or '', why)


def error(code: str, text: str, key: Optional[str]) -> HoldfastError:
    if code in ('INVALID', 'LOST'):
        text = _as_here(text)
    return BY_CODE.get(code, HoldfastError)(text.translate(_CLEAN), code=code, key=key)


def invalid(doing: str, key: Any, why: str) -> HoldfastError:
    if not isinstance(key, str):
        return error('INVALID', f'{doing}: {why}', None)
    return error('INVALID', f"{doing} '{key[:100]}': {why}", key)


def note_loss(raised: Any, key: str, text: str) -> None:
    """Called when a block ends with the exception `raised`, and its lock was lost meanwhile. Adds a
    note to the exception; before Python 3.11, adds a LockLost at the end of its chain of
    contexts."""
    if not isinstance(raised, BaseException):
        return
    lost = error('LOST', text, key)
    if hasattr(raised, 'add_note'):
        raised.add_note(lost.text)
        return
    last: BaseException = raised
    for _ in range(1000):
        if last.__context__ is None or last.__context__ is last:
            break
        last = last.__context__
    else:
        return
    last.__context__ = lost
