"""Times, paths, and what other libraries call the options.

    names_test.py URL [NAME]
"""
import asyncio
import datetime
import json
import pathlib
import re
import sys
import tempfile

import holdfast
from own import MORE, URL, key
from tap import run_functions

HINTS = pathlib.Path(__file__).parents[2] / 'hints.json'


def _refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f'not {kind.__name__}')


def times_are_seconds_and_timedeltas():
    with holdfast.open(URL) as store:
        held = store.acquire(key(), wait=datetime.timedelta(0),
                             lease=datetime.timedelta(seconds=20))
        assert 10 < held.left <= 20 and held.left_ms <= 20000
        info = store.peek(held.key)
        assert 10 < info.holders[0].left <= 20
        assert 0 < info.holders[0].since <= info.now + 1 and not info.done
        held.release()
        _refused(holdfast.InvalidArgument,
                 lambda: store.acquire(key(), wait=datetime.timedelta(-1)))
        with store.once(key(), keep=datetime.timedelta(hours=1)) as event:
            assert not event.done


def a_path_is_a_file_store():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'a 100% @b?c:d'
        with holdfast.open(path) as store:
            store.acquire('k', wait=0).release()
        try:
            holdfast.open(path.with_name('none'), existing=True).close()
            raise AssertionError('made')
        except holdfast.StoreUnavailable:
            assert not path.with_name('none').exists()
        assert path.exists(), list(pathlib.Path(folder).iterdir())


def other_libraries_names_are_answered_with_the_right_ones():
    table = json.loads(HINTS.read_text())
    with holdfast.open(URL) as store:
        name = key()
        for call in store.acquire, store.lock, store.locked, \
                lambda key, **options: asyncio.run(store.acquire_async(key, **options)), \
                lambda key, **options: store.acquire_all([key], **options):
            _all(lambda option, call=call: call(name, **{option: 1}), table['acquire'])
            for option, better in (('maxHold', 'max_hold'), ('noRenew', 'no_renew'),
                                   ('waitMs', 'wait, in seconds'), ('requestId', 'request_id'),
                                   ('px', 'lease, in seconds')):
                _answered(lambda call=call, option=option: call(name, **{option: 1}), option,
                          better)
            for option in 'nonsense', 'at_most_once', 'keep_for', 'x' * 90, 'w\xe4it', '':
                assert 'write' not in str(_refused(
                    TypeError, lambda call=call, option=option: call(name, **{option: 1})))
        _all(lambda option: store.once(name, **{option: 1}).__enter__(), table['once'])
        _answered(lambda: store.once(name, atMostOnce=True).__enter__(), 'atMostOnce',
                  'at_most_once')
        assert not store.peek(name).token
        lock = store.lock(name)
        for option, better in table['locking'].items():
            for call in lock.acquire, lambda **options: asyncio.run(lock.acquire_async(**options)):
                _answered(lambda option=option, call=call: call(**{option: 1}), option, better)
                assert 'write' not in str(_refused(TypeError, lambda call=call: call(nonsense=1)))
        assert not store.peek(name).token
        assert lock.acquire(blocking=True, timeout=5)
        lock.release()
    _all(lambda option: holdfast.open(URL, **{option: 1}), table['open'])
    _all(lambda option: asyncio.run(holdfast.open_async(URL, **{option: 1})), table['open'])
    _refused(TypeError, lambda: holdfast.open(URL, nonsense=1), "'nonsense'")


def _answered(call, name, better):
    said = str(_refused(TypeError, call, f"'{name}': unknown option: write {better}"))
    assert said.endswith(better) or said.endswith(f'{better}, in seconds'), said


def _all(call, table):
    """In both spellings; and in milliseconds, where the option is a time."""
    for better, names in table.items():
        for name in names:
            camel = re.sub('_(.)', lambda found: found[1].upper(), name)
            for one in {name, camel}:
                _answered(lambda one=one: call(one), one, better)
            if better in ('wait', 'lease', 'max_hold', 'at_least', 'io_timeout', 'keep'):
                for one in name + '_ms', camel + 'Ms':
                    _answered(lambda one=one: call(one), one, f'{better}, in seconds')


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
