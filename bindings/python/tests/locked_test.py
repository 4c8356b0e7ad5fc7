"""@store.locked of each kind of callable: the key is held while its body runs, or it is refused.

    locked_test.py URL [NAME]
"""
import asyncio
import contextlib
import functools
import itertools
import operator
import sys
import types

import holdfast
from own import MORE, URL, free, key
from tap import no_hang, run_functions


class _Ran(Exception):
    """The body ran, and the key was free or not."""


class _Object:
    """Callables of each kind, all of which say whether the key is free as they run."""

    def __init__(self, name):
        self.name = name

    def method(self, *_):
        return free(self.name)

    async def later(self, *_):
        return free(self.name)

    def generates(self, *_):
        yield free(self.name)

    async def generates_later(self, *_):
        yield free(self.name)

    bound = functools.partialmethod(method, 1)


class _Called(_Object):
    def __call__(self, *_):
        return free(self.name)


class _CalledLater(_Object):
    async def __call__(self, *_):
        return free(self.name)


class _Generates(_Object):
    def __call__(self, *_):
        yield free(self.name)


class _GeneratesLater(_Object):
    async def __call__(self, *_):
        yield free(self.name)


class _ByPartial(_Object):
    __call__ = functools.partialmethod(_Object.method, 1)


def _partials(function):
    """The function, and what calls it in its place."""
    once = functools.partial(function)
    return function, once, functools.partial(once, 1)


def _runs_now(name):
    of = _Object(name)

    def function(*_):
        return free(name)

    kinds = [function, lambda *_: free(name), of.method, _Object(name).bound, _Called(name),
             _ByPartial(name), functools.lru_cache(function), functools.singledispatch(
                 lambda *_: free(name))]
    return [one for kind in kinds for one in _partials(kind)]


def _runs_as_a_coroutine(name):
    of = _Object(name)

    async def function(*_):
        return free(name)

    return [one for kind in (function, of.later, _CalledLater(name)) for one in _partials(kind)]


def _runs_after_its_call(name):
    of = _Object(name)
    made = (contextlib.contextmanager(of.generates),
            contextlib.asynccontextmanager(of.generates_later))
    return [one for kind in (of.generates, of.generates_later, _Generates(name),
                             _GeneratesLater(name), *made) for one in _partials(kind)]


def a_body_runs_with_the_key_held():
    with no_hang(), holdfast.open(URL) as store:
        name = key()
        for function in _runs_now(name):
            assert store.locked(name)(function)(1) is False, function
            assert free(name)


def a_coroutine_runs_with_the_key_held():
    async def main():
        for function in _runs_as_a_coroutine(name):
            assert await store.locked(name)(function)(1) is False, function
            assert free(name)

    with no_hang(), holdfast.open(URL) as store:
        name = key()
        asyncio.run(main())


def what_runs_after_its_call_is_refused_as_it_is_decorated():
    with holdfast.open(URL) as store:
        name = key()
        for function in (*_runs_after_its_call(name), classmethod(_Object.method),
                         staticmethod(_Object.method), property(_Object.method),
                         _Object.__dict__['bound'], functools.cached_property(_Object.method),
                         functools.singledispatchmethod(_Object.method), _Object, type, 5, None,
                         iter(int, 1)):
            try:
                store.locked(name)(function)
            except TypeError as error:
                assert isinstance(error, holdfast.InvalidArgument)
                continue
            raise AssertionError(f'not refused: {function}')
        assert not store.peek(name).token


def an_event_is_not_marked_for_what_runs_after_its_call():
    with holdfast.open(URL) as store:
        name = key('event')
        for function in (*_runs_as_a_coroutine(name), *_runs_after_its_call(name)):
            try:
                store.once(name, function, at_most_once=True)
            except holdfast.InvalidArgument:
                assert not store.peek(name).done_us, function
                continue
            raise AssertionError(f'not refused: {function}')


def an_iterator_that_calls_functions_is_refused_as_a_result():
    def works(*_):
        raise _Ran

    newer = [lambda make=make, more=more: make(map(works, [1]), *more)
             for make, *more in ((getattr(itertools, 'pairwise', None),),    # of 3.10
                                 (getattr(itertools, 'batched', None), 1)) if make]    # of 3.12
    with holdfast.open(URL) as store:
        name = key()
        for make in (lambda: iter(works, None), lambda: map(works, [1]),
                     lambda: filter(works, [1]), lambda: zip(map(works, [1])),
                     lambda: enumerate(map(works, [1])), lambda: itertools.chain(map(works, [1])),
                     lambda: itertools.islice(map(works, [1]), 1),
                     lambda: itertools.starmap(works, [(1,)]),
                     lambda: itertools.takewhile(works, [1]),
                     lambda: itertools.groupby([1], works),
                     lambda: itertools.cycle(map(works, [1])),
                     lambda: itertools.tee(map(works, [1]))[0], *newer):
            try:
                store.locked(name)(make)()
            except holdfast.InvalidArgument:
                assert free(name)
                continue
            raise AssertionError(f'not refused: {make()}')
        for result in [1], iter([1]), iter('ab'), range(3), reversed([1]), {}.items(), \
                itertools.count(), itertools.product([1], [2]), itertools.repeat(1):
            assert store.locked(name)(lambda result=result: result)() is result


def a_result_may_be_of_a_type_without_a_module():
    def makes(*_):
        return type('Bare', (), {})()

    with holdfast.open(URL) as store:
        name = key()
        without_a_name = types.FunctionType(makes.__code__, {'type': type})
        assert not hasattr(type(without_a_name()), '__module__')
        assert type(store.locked(name)(without_a_name)()).__name__ == 'Bare' and free(name)
        name = key('event')
        store.once(name, without_a_name)
        assert store.peek(name).done_us


def a_function_in_c_may_name_no_arguments():
    with holdfast.open(URL) as store:
        for function, arguments, result in ((max, (1, 2), 2), (dict.get, ({1: 2}, 1), 2),
                                            (operator.itemgetter(0), ('a',), 'a')):
            assert store.locked(key())(function)(*arguments) == result
        try:
            store.locked('a/{x}')(max)
            raise AssertionError('not refused')
        except holdfast.InvalidArgument as error:
            assert "no argument 'x'" in str(error)


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
