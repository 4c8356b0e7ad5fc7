"""Finds results whose work is done after the call that returned them: a decorator can't protect
that work."""
import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import itertools
from typing import Any, Callable

from ._errors import invalid


@contextlib.contextmanager
def _block() -> Any:
    yield


@contextlib.asynccontextmanager
async def _block_async() -> Any:
    yield


# The code of the functions that contextlib makes of generator functions, and the types of their
# results.
_MAKERS = {getattr(make, '__code__', None) for make in (_block, _block_async)}
_BLOCKS: Any = (type(_block()), type(_block_async()))
# _LAZY: iterators that call functions, or read other iterators, only when they are read. So do all
# iterators of itertools, except for _WHOLE, which have their values.
_LAZY: Any = (map, filter, zip, enumerate, type(iter(int, 1)))
_WHOLE: Any = (itertools.count, itertools.repeat, itertools.product, itertools.permutations,
               itertools.combinations, itertools.combinations_with_replacement)


def _is_lazy(result: Any) -> bool:
    # A type that is made where there is no __name__, as some are in C, has no __module__.
    of_itertools = any(getattr(kind, '__module__', None) == 'itertools'
                       for kind in type(result).__mro__)
    return isinstance(result, _LAZY) or of_itertools and not isinstance(result, _WHOLE)


def _bare(function: Any) -> Any:
    """Returns the function that a partial object, or a bound method, calls."""
    while isinstance(function, functools.partial) or inspect.ismethod(function):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return function


def _bodies(function: Any) -> Any:
    """What runs when it is called: the function, or the method of an object that can be called."""
    bare = _bare(function)
    return bare, _bare(getattr(type(bare), '__call__', None))


def is_async(function: Any) -> bool:
    """Returns whether a call returns a coroutine."""
    return any(map(inspect.iscoroutinefunction, (function, *_bodies(function))))


def runs_later(function: Any) -> bool:
    """Is it a generator function, or one that contextlib made of one? A call of such a function
    runs nothing of it. What another decorator made of one may run it to its end: its result shows
    that."""
    return any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) or
               getattr(body, '__code__', None) in _MAKERS for body in _bodies(function))


def refuse_uncalled(function: Any, doing: str, key: str) -> None:
    """Raises InvalidArgument if it isn't a function or a callable object."""
    if isinstance(function, staticmethod) or \
            not callable(function) and hasattr(type(function), '__get__'):
        name = type(function).__name__
        raise invalid(doing, key, f'a {name}: write @{name} above @store.locked, not below it')
    if not callable(function):
        raise invalid(doing, key, 'not a function')
    if isinstance(function, type):
        raise invalid(doing, key, 'a class: its methods can be locked, each by itself')
    if runs_later(function):
        raise invalid(doing, key, 'a generator, or a context manager made of one, runs after its '
                                  'call: take the key in it')


def _end(result: Any) -> None:
    """Closes or cancels a result that was made for this call alone, so that it doesn't run."""
    if isinstance(result, _BLOCKS):
        result = result.gen
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    elif isinstance(result, asyncio.Future):
        result.cancel()
        # A future of gather() then ends with an exception. It is read here, so that asyncio doesn't
        # report it.
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
    elif isinstance(result, concurrent.futures.Future):
        result.cancel()


def refuse_unrun(result: Any, doing: str, key: str) -> None:
    """Raises InvalidArgument if a function has returned before its work was done."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or
            inspect.isasyncgen(result) or isinstance(result, _BLOCKS) or _is_lazy(result) or
            isinstance(result, concurrent.futures.Future)):
        return
    _end(result)
    raise invalid(doing, key, f'the function gave a {type(result).__name__}, whose work is done '
                              'after the call, without the key: hold the key in that work')
