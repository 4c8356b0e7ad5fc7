"""The store under test: the URL of the command line, and what is behind it there."""
import itertools
import os
import subprocess
import sys

import holdfast
from tap import PATIENCE, own_store

URL, MORE = own_store()
PRIVATE = URL.startswith('mem:')    # the memory of one process
NEAR = PRIVATE or URL.startswith('file:')
KEYS = itertools.count()


def key(name='key'):
    return f'{name}/{os.getpid()}/{next(KEYS)}'


def free(name):
    """Can somebody else have it at once?"""
    with holdfast.open(URL) as other:
        try:
            other.acquire(name, wait=0).release()
            return True
        except holdfast.LockUnavailable:
            return False


def waiters(store, name):
    return len(store.peek(name).waiters)


def program(text, *words, expected=0, **more):
    """Runs a program; what it said on both outputs."""
    done = subprocess.run([sys.executable, '-X', 'faulthandler', '-c', text, URL, *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE, **more)
    assert done.returncode == expected, f'{done.returncode}: {done.stdout}'
    return done.stdout
