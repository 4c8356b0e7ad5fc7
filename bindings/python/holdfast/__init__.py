"""One holder at a time, by key.

    import holdfast

    with holdfast.open('file:/var/lib/shop/locks') as store:
        with store.lock('seats/12/A/5', wait=2) as held:
            sell(held.token)

Times are seconds (int, float), timedeltas, or texts such as '500ms', '10s', '5m', '2h', '1d'. The
options of lock, acquire and locked; what isn't wanted is left out, or None:

    wait        how long to wait, up to 365d: 0 tries once; for ever if not given, or inf
    lease       the grant ends after so long unless renewed (it is, in the background): 100ms to 1d
    max_hold    the hold is over (lost) after so long, renewed or not: 1ms to 365d; the key is free
                once it is released, or its lease has ended; without one, and on etcd:, its process
    at_least    the key stays taken so long after the grant, also if it is released earlier: to 1d
    shared      together with other shared holders
    limit       together with others, up to so many
    detached    not bound to this process; needs lease
    unqueued    doesn't stand in the queue
    recursive   the task or thread that holds the key already gets it once more, as from an RLock:
                the key is free when each of these locks is released
    no_renew    no renewal in the background
    owner, note the holder's name, and what it holds the key for
    request_id  16 bytes or 32 hexadecimal digits: asked again it is the same grant

README.md and man 3 holdfast tell the rest.
"""
import asyncio
import atexit
import functools
import inspect
import math
import os
import re
import string
import sys
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterable, Iterator, List, \
    NamedTuple, Optional, Set, Type, TypeVar, Union, cast

from . import _aio, _holdfast, _later, _locks, _several
from ._errors import (HoldfastError, InvalidArgument, LockCanceled, LockLost, LockUnavailable,
                      OutcomeUnknown, PermissionDenied, RecursiveAcquire, ReleaseWarning,
                      StoreCorrupt, StoreFull, StoreUnavailable, UnboundLock, Unsupported,
                      invalid as _invalid)
from ._holdfast import _leave_event
from ._options import OnceOptions, Options, Time
from ._locks import Lock, Locking
from ._several import Locks

__all__ = ['Event', 'HoldfastError', 'Info', 'InvalidArgument', 'Lock', 'LockCanceled', 'LockLost',
           'LockUnavailable', 'Locking', 'Locks', 'OnceOptions', 'Options', 'OutcomeUnknown',
           'Party', 'PermissionDenied', 'RecursiveAcquire', 'ReleaseWarning', 'Store',
           'StoreCorrupt', 'StoreFull', 'StoreUnavailable', 'Time', 'UnboundLock', 'Unsupported',
           'Watch', 'open', 'open_async']
__version__ = _holdfast.library_version

if TYPE_CHECKING:
    from typing_extensions import Unpack

S = TypeVar('S', bound='Store')
F = TypeVar('F', bound=Callable[..., Any])


class Party(NamedTuple):
    """A holder or a waiter."""
    owner: str
    note: str
    token: int          # 0 for a waiter
    since_us: int       # by the store's clock
    left_ms: float      # inf: as long as its process lives; 0: a waiter
    mode: str           # exclusive, shared, limited
    limit: int
    claimed: bool       # False: granted by a handover, and not claimed yet

    @property
    def since(self) -> float:
        """Seconds by the store's clock."""
        return self.since_us / 1e6

    @property
    def left(self) -> float:
        """Seconds of its lease; inf: as long as its process lives; 0: a waiter."""
        return self.left_ms / 1000


class Info(NamedTuple):
    """A key."""
    key: str
    rev: int            # 0: the store has no row for the key
    token: int          # of the last grant
    now_us: int         # the store's clock
    done_us: int        # 0: no event was done
    keep_until_us: float
    result: str
    done_by: str        # the owner of the run that did it
    holders: List[Party]
    waiters: List[Party]    # in order

    @property
    def now(self) -> float:
        """The store's clock, in seconds."""
        return self.now_us / 1e6

    @property
    def done(self) -> float:
        """When the event was done, in seconds by the store's clock; 0: it isn't."""
        return self.done_us / 1e6

    @property
    def keep_until(self) -> float:
        """Until when that is remembered."""
        return self.keep_until_us / 1e6


def _party(of: Any) -> Party:
    party = Party(*of)
    return party._replace(left_ms=math.inf) if party.left_ms < 0 else party


def _info(of: Any) -> Info:
    info = Info(*of)
    return info._replace(
        keep_until_us=math.inf if info.keep_until_us < 0 else info.keep_until_us,
        holders=[_party(one) for one in info.holders],
        waiters=[_party(one) for one in info.waiters])


class Event:
    """An event that is done once: the object of `with store.once(key)`. It is true if this program
    is to do the work; then set `result` (a str), and leave the block without an exception to
    mark the event as done. If it is false, done_us, owner and result say when, by whom and with
    what result the work was done. One block at a time may be entered with it."""

    def __init__(self, store: 'Store', key: str, options: OnceOptions) -> None:
        store._check(True, key, **options)
        self._store, self._options = store, options
        self.key: str = key
        self.lock: Optional[Lock] = None
        self.run: bool = False
        self.done_us: int = 0
        self.owner: str = ''
        self._entered, self._result = False, ''

    def __bool__(self) -> bool:
        if not self._entered:
            raise TypeError(f'once({self.key!r}) is for a block: with store.once(key) as event')
        return self.run

    @property
    def result(self) -> str:
        return self._result

    @result.setter
    def result(self, value: Optional[str]) -> None:
        """The result, a str; None: no result. Control characters and invalid text become '?',
        because at the end of the block it is too late to refuse them."""
        if value is not None and not isinstance(value, str):
            raise _invalid('once', self.key, f'result: must be a str, not {type(value).__name__}')
        self._result = (value or '').encode('utf-8', 'replace').decode().replace('\0', '?')

    @property
    def token(self) -> int:
        return self.lock.token if self.lock is not None else 0

    def _enter(self, block: object) -> None:
        """The end of a block of another thread or task would mark this one's event."""
        if self.__dict__.setdefault('_inside', block) is not block:
            raise RuntimeError(f'once({self.key!r}): a block of this object is being run: each '
                               'block needs a once(key) of its own')

    def _begun(self) -> 'Event':
        self.run, self._entered = self.lock is not None, True
        return self

    def _not_begun(self, block: object) -> None:
        """An exception, perhaps a signal handler's, keeps the block from being run."""
        if self.__dict__.get('_inside') is block:
            _leave_event(self, *sys.exc_info())

    def __enter__(self) -> 'Event':
        block = object()
        try:
            self._enter(block)
            self.lock, self.done_us, self.owner, self._result = self._store._once_begin(
                self.key, **self._options)
            return self._begun()
        except BaseException:
            self._not_begun(block)
            raise

    @property
    def done(self) -> float:
        """When the event was done, in seconds by the store's clock; 0: this program is to do it."""
        return self.done_us / 1e6

    # A function in C, as that of Locks: a signal handler's exception can't interrupt it.
    __exit__ = _leave_event

    async def __aenter__(self) -> 'Event':
        block = object()
        try:
            self._enter(block)
            self.lock, self.done_us, self.owner, self._result = await _aio.wait(
                self._store, self._begin)
            return self._begun()
        except BaseException:
            self._not_begun(block)
            raise

    def _begin(self, box: Any, number: int) -> Any:
        return self._store._start(box, number, True, self.key, **self._options)

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        await _aio.release(self._store, self.__exit__, kind, value, traceback)


class Watch:
    """Each key with the prefix that is held or waited for, then each change as it is noticed (of
    several at once perhaps the last alone). Iterates, also in asyncio; leaving its block, or
    close(), ends it."""

    def __init__(self, store: 'Store', prefix: str) -> None:
        self._watch, self._store = store._watch(prefix), store
        self._seen: List[Info] = []
        self._awaited = False

    def _next(self) -> Optional[Info]:
        if not self._seen:
            self._seen = [_info(one) for one in reversed(self._watch.take())]
        return self._seen.pop() if self._seen else None

    def __iter__(self) -> Iterator[Info]:
        return self

    def __next__(self) -> Info:
        while True:
            info = self._next()
            if info is not None:
                return info
            self._watch.wait()

    def __aiter__(self) -> AsyncIterator[Info]:
        return self

    async def __anext__(self) -> Info:
        loop = _aio.loop()
        while True:
            try:
                info = self._next()
            except StopIteration:
                raise StopAsyncIteration from None
            if info is not None:
                return info
            if self._awaited:
                raise RuntimeError('watch: another task waits for the next change: each task needs '
                                   'a watch of its own')
            ready = loop.create_future()
            loop.add_reader(self._watch.fileno(), _aio._settle, ready)
            self._awaited = True
            try:
                await ready
            finally:
                self._awaited = False
                loop.remove_reader(self._watch.fileno())

    def close(self) -> None:
        """Ends the watch. In a running event loop a thread does the rest of the work."""
        if asyncio._get_running_loop() is None:
            self._watch.stop()
        else:
            _aio.later(self._watch.stop, self._store)

    async def close_async(self) -> None:
        """As close(), and waits for the end."""
        await _aio.in_thread(self._store, self._watch.stop)

    def __del__(self, loop: Any = asyncio._get_running_loop, later: Any = _aio.later) -> None:
        """If an event loop runs here, a thread ends the watch: that may take a quarter of a
        second, and a request."""
        if hasattr(self, '_seen') and loop() is not None:
            later(self._watch.stop, self._store)

    def __enter__(self) -> 'Watch':
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self.close()

    async def __aenter__(self) -> 'Watch':
        return self

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        await self.close_async()


def _url_of(url: 'Union[str, os.PathLike[str], None]') -> Optional[str]:
    if not isinstance(url, os.PathLike):
        return url
    # These characters have a meaning in a URL, so they are percent-encoded.
    path = os.path.abspath(os.fspath(url))
    return 'file:' + re.sub('[%?@:]', lambda of: f'%{ord(of[0]):02X}', path)


class Store(_holdfast.Store):
    """A store, opened: see open()."""
    __slots__ = ('__weakref__',)

    def __new__(cls: Type[S], url: 'Union[str, os.PathLike[str], None]' = None, *,
                owner: Optional[str] = None, note: Optional[str] = None,
                io_timeout: Optional[Time] = None, existing: bool = False) -> S:
        _aio.refuse_greenlets()
        made = super().__new__(cls, _url_of(url), owner=owner, note=note, io_timeout=io_timeout,
                               existing=existing)
        _open_stores.add(weakref.ref(made, _open_stores.discard))
        _close_at_the_end_of_a_child()
        return made

    def __init__(self, url: 'Union[str, os.PathLike[str], None]' = None, *,
                 owner: Optional[str] = None, note: Optional[str] = None,
                 io_timeout: Optional[Time] = None, existing: bool = False) -> None:
        """The work is done in __new__, which a subclass can't leave out."""

    async def close_async(self) -> None:
        """As close(); other tasks run meanwhile."""
        await _aio.call(self, self.close)

    async def __aenter__(self) -> 'Store':
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close_async()

    async def acquire_async(self, key: str, **options: 'Unpack[Options]') -> Lock:
        """As acquire(); other tasks run meanwhile. Cancelled it has acquired nothing."""
        _aio.loop()
        lock: Optional[Lock] = self._try(key, **options)
        if lock is None:
            lock = await _aio.wait(
                self, lambda box, number: self._start(box, number, False, key, **options))
        try:
            lock._note(sys._getframe().f_back, True, False, False)
        except BaseException:   # a signal handler's
            _aio.later(lock.release, self)
            raise
        return lock

    def acquire_all(self, keys: Iterable[str], **options: 'Unpack[Options]') -> Locks:
        """Acquires several keys (1 to 64), all or none. `wait` is the limit for all together. The
        keys are acquired in a fixed order, so that two callers never wait for each other.
        `at_least` is not allowed. A block releases all of them at its end:
        `with store.acquire_all(['a', 'b']) as locks:`."""
        return _several.acquire_all(self, keys, options)

    async def acquire_all_async(self, keys: Iterable[str], **options: 'Unpack[Options]') -> Locks:
        """As acquire_all(); other tasks run meanwhile. Cancelled it has acquired nothing."""
        return await _several.acquire_all_async(self, keys, options)

    async def adopt_async(self, key: str, token: int) -> Lock:
        """As adopt(); other tasks run meanwhile."""
        return await _aio.call(self, self.adopt, key, token)

    async def break_async(self, key: str, token: int) -> None:
        """As break_(); other tasks run meanwhile."""
        await _aio.call(self, self.break_, key, token)

    async def forget_async(self, key: str) -> None:
        """As forget(); other tasks run meanwhile."""
        await _aio.call(self, self.forget, key)

    async def peek_async(self, key: str) -> Info:
        """As peek(); other tasks run meanwhile."""
        return await _aio.call(self, self.peek, key)

    async def list_async(self, prefix: str = '') -> List[Info]:
        """As list(); other tasks run meanwhile."""
        return await _aio.call(self, self.list, prefix)

    async def prune_async(self, idle: Time) -> int:
        """As prune(); other tasks run meanwhile."""
        return await _aio.call(self, self.prune, idle)

    def locked(self, key: str, **options: 'Unpack[Options]') -> Callable[[F], F]:
        """A decorator: the key is held while the function runs. {name} in the key is the argument
        of that name: @store.locked('user/{user_id}'). Functions whose work is done after the
        call are refused: generators, context managers, and functions that return those, tasks,
        futures, or iterators that call functions. So are classes. Write it below @classmethod,
        @staticmethod and @property, not above them. If the release isn't confirmed, the function's
        result is returned with a ReleaseWarning."""
        self._check(False, key, **options)

        def around(function: F) -> F:
            _later.refuse_uncalled(function, 'locked', key)
            try:
                fields = [field for _, field, _, _ in string.Formatter().parse(key)
                          if field is not None]
            except ValueError as error:
                raise _invalid('locked', key, str(error)) from None
            try:
                signature = inspect.signature(function)
            except (TypeError, ValueError):     # a function in C
                signature = inspect.Signature()
            takes = signature.parameters
            for field in fields:
                name = (re.match(r'[^.[]*', field) or [''])[0]
                if name not in takes or takes[name].kind in (
                        inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                    raise _invalid('locked', key, f'the function has no argument {name!r}')

            def key_of(args: Any, kwargs: Any) -> str:
                if not fields:
                    return key.format()
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                return key.format(**bound.arguments)

            if _later.is_async(function):
                @functools.wraps(function)
                async def held_async(*args: Any, **kwargs: Any) -> Any:
                    async with self.lock(key_of(args, kwargs), **options):
                        result = await function(*args, **kwargs)
                        _later.refuse_unrun(result, 'locked', key)
                        return result
                return held_async   # type: ignore[return-value]

            @functools.wraps(function)
            def held(*args: Any, **kwargs: Any) -> Any:
                with self.lock(key_of(args, kwargs), **options):
                    result = function(*args, **kwargs)
                    _later.refuse_unrun(result, 'locked', key)
                    return result
            return held     # type: ignore[return-value]
        return around

    def once(self, key: str, function: Optional[Callable[[Event], Any]] = None,
             **options: 'Unpack[OnceOptions]') -> Event:
        """An event that is done once, and remembered for `keep` (default: 7 days). With a function:
        runs the function with the event unless it is done already; the function's result, as a
        str, is the event's. Coroutines and generators are refused. Without a function: a `with`
        block, or `async with`; see Event. at_most_once marks the event before it runs."""
        event = Event(self, key, options)
        if function is None:
            return event
        if not callable(function):
            raise _invalid('once', key, 'not a function')
        if _later.runs_later(function) or _later.is_async(function):
            raise _invalid('once', key, 'a call would run nothing: async with store.once(key)')
        with event:
            if event:
                result = function(event)
                _later.refuse_unrun(result, 'once', key)
                if result is not None:
                    try:
                        event.result = str(result)
                    except Exception:   # it has run, so the event is done
                        event.result = f'<unprintable {type(result).__name__} object>'
        return event

    def peek(self, key: str) -> Info:
        return _info(self._peek(key)[0])

    def list(self, prefix: str = '') -> List[Info]:
        return [_info(one) for one in self._list(prefix)]

    def __iter__(self) -> Iterator[Info]:
        return iter(self.list())

    def watch(self, prefix: str = '') -> Watch:
        return Watch(self, prefix)

    def __repr__(self) -> str:
        return f'<holdfast.Store {self.url!r}{", closed" if self.closed else ""}>'


def _answers(function: F) -> F:
    """Raises TypeError for an unknown option of open. If another library calls an option so, the
    text names ours."""
    known = {'url', *(function.__kwdefaults__ or ())}

    def check(names: Iterable[str]) -> None:
        for name in names:
            hint = None if name in known else _holdfast._open_hint(name)
            if hint:
                raise TypeError(f"open: '{name}': unknown option: {hint}")

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(kwargs)
        return function(*args, **kwargs)

    @functools.wraps(function)
    async def checked_async(*args: Any, **kwargs: Any) -> Any:
        check(kwargs)
        return await function(*args, **kwargs)

    return cast(F, checked_async if inspect.iscoroutinefunction(function) else checked)


@_answers
def open(url: 'Union[str, os.PathLike[str], None]' = None, *, owner: Optional[str] = None,
         note: Optional[str] = None, io_timeout: Optional[Time] = None,
         existing: bool = False) -> Store:
    """Opens a store: 'mem:', 'file:/path', 'redis://...', or a Path for a file. None:
    $HOLDFAST_STORE, the first line of /etc/holdfast/store, or 'file:' in the user's state
    directory. It is closed at the end of the program, if not before, which releases what it holds.
    With `existing` a file that isn't there is StoreUnavailable; else it is made."""
    return Store(url, owner=owner, note=note, io_timeout=io_timeout, existing=existing)


@_answers
async def open_async(url: 'Union[str, os.PathLike[str], None]' = None, *,
                     owner: Optional[str] = None, note: Optional[str] = None,
                     io_timeout: Optional[Time] = None, existing: bool = False) -> Store:
    """As open(); other tasks run meanwhile."""
    return await _aio.in_thread(None, functools.partial(
        open, url, owner=owner, note=note, io_timeout=io_timeout, existing=existing))


# ---- the end of the program ----

# Not a WeakSet: that runs Python code when a store is dropped, and an UnboundLock that is raised in
# that code doesn't stop the program.
_open_stores: 'Set[weakref.ref[Store]]' = set()


def _close_all() -> None:
    for found in list(_open_stores):
        store = found()
        if store is not None:
            store.close()


atexit.register(_close_all)


_closes_in = 0


def _forked() -> None:
    """After a fork: closes the inherited stores, too, at the end of this process."""
    util = sys.modules.get('multiprocessing.util')
    if util is not None:    # it clears its finalizers when a child of its own begins
        util.register_after_fork(_close_all, lambda _: _close_at_the_end_of_a_child())


os.register_at_fork(after_in_child=_forked)


def _close_at_the_end_of_a_child() -> None:
    """A child of multiprocessing ends without atexit."""
    global _closes_in
    process = sys.modules.get('multiprocessing.process')
    if process is None or process.parent_process() is None or _closes_in == os.getpid():
        return
    _closes_in = os.getpid()
    from multiprocessing import util
    util.Finalize(None, _close_all, exitpriority=0)
