"""Times, paths, and what other libraries call the options.

    names_test.py URL [NAME]
"""
import datetime
import pathlib
import sys
import tempfile

import holdfast
from own import MORE, URL, key
from tap import run_functions


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
    with holdfast.open(URL) as store:
        for name, better in (('timeout', 'wait'), ('blocking', 'wait=0'), ('ttl', 'lease'),
                             ('blocking_timeout', 'wait'), ('expire', 'lease')):
            _refused(TypeError, lambda name=name: store.acquire(key(), **{name: 1}),
                     f"'{name}'", f'write {better}')
        assert 'write' not in str(_refused(TypeError, lambda: store.lock(key(), nonsense=1)))


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
