"""Results whose work is done after the call that gave them: what a decorator can't protect."""
import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
from typing import Any, Callable

from ._errors import invalid


@contextlib.contextmanager
def _block() -> Any:
    yield


@contextlib.asynccontextmanager
async def _block_async() -> Any:
    yield


# What contextlib puts in the place of a generator function, and what that gives.
_MAKERS = {getattr(make, '__code__', None) for make in (_block, _block_async)}
_BLOCKS: Any = (type(_block()), type(_block_async()))
_LAZY: Any = (map, filter)


def is_kind(kind: Callable[[Any], bool], function: Any) -> bool:
    """Also of an object that can be called."""
    return kind(function) or kind(getattr(type(function), '__call__', None))


def runs_later(function: Any) -> bool:
    """Is it a generator function, or one that contextlib made of one? To call one runs nothing.
    What another decorator made of one may run it to its end: its result shows that."""
    while isinstance(function, functools.partial):
        function = function.func
    return is_kind(inspect.isgeneratorfunction, function) or \
        is_kind(inspect.isasyncgenfunction, function) or \
        getattr(function, '__code__', None) in _MAKERS


def _end(result: Any) -> None:
    """What was made for this caller alone doesn't run."""
    if isinstance(result, _BLOCKS):
        result = result.gen
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    elif isinstance(result, asyncio.Future):
        result.cancel()
        # What gather() gives ends with an exception then, which nobody else asks for.
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
    elif isinstance(result, concurrent.futures.Future):
        result.cancel()


def refuse_unrun(result: Any, doing: str, key: str) -> None:
    """InvalidArgument if the work of a function that has returned is still to be done."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or
            inspect.isasyncgen(result) or isinstance(result, _BLOCKS + _LAZY) or
            isinstance(result, concurrent.futures.Future)):
        return
    _end(result)
    raise invalid(doing, key, f'the function gave a {type(result).__name__}, whose work is done '
                              'after the call, without the key: hold the key in that work')
