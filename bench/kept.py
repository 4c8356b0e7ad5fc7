"""Results that are kept as a file: the form, what is read and written. Used by bench/run and
bench/report."""
import contextlib
import fcntl
import json
import os
import platform
import re
import subprocess
import time

from plainly import Bad

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def processor():
    """Its model is all that is kept of the machine."""
    with open('/proc/cpuinfo', encoding='utf-8') as file:
        for line in file:
            if line.startswith('model name'):
                return line.split(':', 1)[1].strip()
    return platform.machine()


def version():
    with open(os.path.join(TOP, 'meson.build'), encoding='utf-8') as file:
        return re.search(r"version: '([^']+)'", file.read()).group(1)


def git(*words):
    try:
        done = subprocess.run(['git', '-C', TOP, *words], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return ''
    return '' if done.returncode else done.stdout.strip()


def commit():
    """The short name, with + if files that are tracked differ; '' if this is no checkout."""
    # Else a checkout around an unpacked archive would count.
    if not os.path.exists(os.path.join(TOP, '.git')):
        return ''
    changed = git('status', '--porcelain', '--untracked-files=no', '--', ':!bench/results')
    return git('rev-parse', '--short', 'HEAD') + ('+' if changed else '')


def is_number(number):
    """As a program prints it."""
    return (isinstance(number, dict) and isinstance(number.get('unit'), str) and
            all(isinstance(number.get(what), (int, float)) for what in
                ('n', 'min', 'p50', 'p90', 'p99', 'max')))


def is_part(part):
    return (isinstance(part, dict) and isinstance(part.get('when'), str) and
            isinstance(part.get('commit', ''), str) and isinstance(part.get('numbers'), dict) and
            all(map(is_number, part['numbers'].values())))


def is_kept(found):
    return (isinstance(found, dict) and isinstance(found.get('release'), str) and
            isinstance(found.get('cpu'), str) and isinstance(found.get('processors'), int) and
            isinstance(found.get('parts'), dict) and all(map(is_part, found['parts'].values())))


def read(path):
    """What is in a file of JSON."""
    try:
        with open(path, encoding='utf-8') as file:
            return json.load(file)
    except OSError as error:
        raise Bad(f'{path}: {error.strerror}', 66) from error
    except ValueError as error:
        raise Bad(f'{path}: not JSON: {error}') from error


def numbers_of(kept):
    return {name: number for part in kept['parts'].values()
            for name, number in part['numbers'].items()}


class Saved:
    """The results as a file: one part after the other, each as soon as it was measured. Nobody else
    writes it meanwhile. path None: they are only remembered."""

    def __init__(self, path, smoke=False):
        self.path, self.lock = path, None
        self.all = {'release': version(), 'cpu': processor(), 'processors': os.cpu_count(),
                    'smoke': smoke, 'parts': {}}
        if not path:
            return
        try:
            self.take()
            if os.path.lexists(path):
                self.go_on()
        except OSError as error:
            self.close()
            raise Bad(f'{path}: {error.strerror}', 73) from error
        except Bad:
            self.close()
            raise

    def take(self):
        """The lock, and with it the proof that the folder can be written."""
        name = self.path + '.lock'
        while self.lock is None:
            file = open(name, 'w', encoding='utf-8')    # pylint: disable=consider-using-with
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The holder before may have removed the file since it was opened.
                if os.path.samestat(os.fstat(file.fileno()), os.stat(name)):
                    self.lock = file
            except BlockingIOError:
                file.close()
                raise Bad(f'{self.path}: another run writes it', 75) from None
            except FileNotFoundError:
                pass
            if self.lock is None:
                file.close()

    def go_on(self):
        """With what was interrupted."""
        if not os.path.isfile(self.path):
            raise Bad(f'{self.path}: not a file', 73)
        if not os.access(self.path, os.W_OK):
            raise Bad(f'{self.path}: not to be written', 73)
        found = read(self.path)
        if not is_kept(found):
            raise Bad(f'{self.path}: not what --save writes; remove it first')
        for what in 'release', 'cpu', 'processors':
            if found[what] != self.all[what]:
                raise Bad(f'{self.path}: of another {what} ({found[what]}); remove it first')
        if bool(found.get('smoke')) != self.all['smoke']:
            raise Bad(f'{self.path}: {"not " if self.all["smoke"] else ""}of a --smoke run; '
                      'remove it first')
        self.all = found

    def add(self, part, numbers):
        self.all['parts'][part] = {'when': time.strftime('%Y-%m-%d'), 'commit': commit(),
                                   'numbers': numbers}
        if not self.path:
            return
        try:
            with open(self.path + '.new', 'w', encoding='utf-8') as file:
                json.dump(self.all, file, indent=1, sort_keys=True)
                file.write('\n')
            os.replace(self.path + '.new', self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(self.path + '.new')
            raise Bad(f'{self.path}: {error.strerror}', 73) from error

    def close(self):
        if self.lock:
            os.unlink(self.lock.name)
            self.lock.close()
            self.lock = None
