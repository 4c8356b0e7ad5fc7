"""What the tests of the package share: results as TAP, and a store of their own."""
import atexit
import contextlib
import faulthandler
import os
import shutil
import sys
import tempfile
import time
import traceback

PATIENCE = 600      # seconds; nothing takes so long


def scratch_url(url):
    """file:@ is a file in a new directory, removed at the end."""
    if not url.endswith(':@'):
        return url
    folder = tempfile.mkdtemp(prefix='holdfast-python.')
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, True))
    return url[:-1] + os.path.join(folder, 'locks')


def until(true, what):
    """Waits for what is going to be true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.005)


@contextlib.contextmanager
def no_hang():
    """What can't be interrupted ends the program, and says where it was."""
    faulthandler.dump_traceback_later(120, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def run(tests):
    """(name, function) in order; the exit status."""
    failed = 0
    for number, (name, function) in enumerate(tests, 1):
        try:
            function()
        except BaseException:   # noqa: B036  a KeyboardInterrupt is a failure, too
            failed += 1
            for line in traceback.format_exc().splitlines():
                print('#', line)
            print('not', end=' ')
        print(f'ok {number} - {name}', flush=True)
    print(f'1..{len(tests)}', flush=True)
    return 1 if failed or not tests else 0


def run_functions(there, patterns=()):
    """The public functions of a test program, each a test that is named by its name."""
    return run([(name.replace('_', ' '), function) for name, function in there.items()
                if callable(function) and not name.startswith('_') and
                getattr(function, '__module__', '') == '__main__' and
                all(pattern in name for pattern in patterns)])


def own_store(default='mem:'):
    """The URL of the command line, and what is behind it."""
    words = sys.argv[1:] or [default]
    return scratch_url(words[0]), words[1:]
