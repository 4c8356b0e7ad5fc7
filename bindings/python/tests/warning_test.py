"""What in this process may break a store's locks is a warning of open."""
import ctypes
import os
import sys
import tempfile
import warnings

import holdfast
from tap import run_functions

NEW_NAMESPACE, RTLD_NOW = -1, 2


def _told(url, action='always'):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter(action)
        with holdfast.open(url) as store, store.lock('k'):
            pass
    return [warning for warning in said if issubclass(warning.category, RuntimeWarning)]


def a_second_copy_of_sqlite():
    with tempfile.TemporaryDirectory() as folder:
        url = f'sqlite:{folder}/locks.db'
        assert not _told(url)
        open_copy = ctypes.CDLL(None).dlmopen
        open_copy.argtypes = [ctypes.c_long, ctypes.c_char_p, ctypes.c_int]
        open_copy.restype = ctypes.c_void_p
        assert open_copy(NEW_NAMESPACE, b'libsqlite3.so.0', RTLD_NOW)
        assert not _told(f'file:{folder}/locks')
        warning, = _told(url)
        assert 'second copy of SQLite (/' in str(warning.message), warning
        assert os.path.samefile(warning.filename, __file__), warning
        try:
            _told(url, 'error')
        except RuntimeWarning as error:
            assert 'second copy' in str(error)
        else:
            assert False, 'no error'


if __name__ == '__main__':
    sys.exit(run_functions(globals(), sys.argv[1:]))
