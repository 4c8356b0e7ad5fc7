"""How the scripts here end: whatever goes wrong outside of them is one line and a status."""
import argparse
import contextlib
import os
import signal
import subprocess
import sys


class Bad(Exception):
    """One line that says why, and the status to end with."""

    def __init__(self, why, status=65):
        super().__init__(' '.join(str(why).split()))
        self.status = status


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Bad(message, 64)

    # argparse's own says nothing if that fails.
    def print_help(self, file=None):
        print(self.format_help(), end='', file=file, flush=True)


def _said(error):
    if isinstance(error, subprocess.CalledProcessError):
        command = [str(word) for word in error.cmd]
        why = (error.stderr or '').strip().splitlines()[-1:]
        status = error.returncode
        how = f'status {status}' if status > 0 else f'signal {-status}'
        return ': '.join([os.path.basename(command[0]), how, *why])
    if isinstance(error, OSError) and error.strerror:
        return f'{error.filename}: {error.strerror}' if error.filename else error.strerror
    return ' '.join(str(error).split()) or type(error).__name__


def _end_children():
    """Kills all children. A start that was interrupted may have left one that nothing names."""
    with contextlib.suppress(OSError):
        with open('/proc/thread-self/children', encoding='ascii') as file:
            for child in file.read().split():
                os.kill(int(child), signal.SIGKILL)


def run(name, main, *expected):
    """Ends the program with what main returns; 130 upon Ctrl-C, 143 upon SIGTERM. What main raises
    is a line where it comes from outside: of these classes or of the system, not a mistake here."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except SystemExit as error:
        status = error.code
    except (OSError, ImportError, subprocess.CalledProcessError, Bad, *expected) as error:
        print(f'{name}: {_said(error)}', file=sys.stderr)
        status = error.status if isinstance(error, Bad) else 1
    _end_children()
    try:
        sys.stdout.flush()
    except OSError:    # said above; Python would say it once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
