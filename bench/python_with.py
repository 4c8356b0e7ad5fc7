"""`with store.lock(key)` of the package for Python on file:, and filelock's `with`, in turns.

    python_with.py STORE FILE ROUNDS ROUND_MS       prints a JSON object a line

And threading.Lock, the least that it can be. filelock is left out where it isn't there.
"""
import sys
import threading
import time

import holdfast

from series import show

url, path, rounds, ms = *sys.argv[1:3], *map(int, sys.argv[3:5])
store = holdfast.open(url)
key = 'bench/with'
plain = threading.Lock()


def mine():
    with store.lock(key):
        pass


def least():
    with plain:
        pass


contenders = {'with': mine, 'threading.Lock': least}
try:
    import filelock
except ImportError:
    pass
else:
    lock = filelock.FileLock(path)

    def theirs():
        with lock:
            pass

    contenders['filelock'] = theirs


def per_round(once):
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < ms / 1000:
        once()
        n += 1
    return (time.perf_counter() - start) / n * 1e6


took = {name: [] for name in contenders}
for _ in range(rounds):
    for name, once in contenders.items():
        took[name].append(per_round(once))
for name, series in took.items():
    show(name, series)
store.close()
