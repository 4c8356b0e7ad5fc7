"""`with store.lock(key)` of the package for Python on file:, and filelock's `with`, in turns.

    python_with.py STORE FILE ROUNDS ROUND_MS       prints a JSON object a line

And threading.Lock, the least that it can be. filelock is left out where it isn't there.
"""
import sys
import threading

import holdfast

from series import per_round, ratio, show

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


took = {name: [] for name in contenders}
for _ in range(rounds):
    for name, once in contenders.items():
        took[name].append(per_round(once, ms))
for name in contenders:
    if name != 'with':
        ratio(f'with / {name}', took['with'], took[name])
for name, series in took.items():
    show(name, series)
store.close()
