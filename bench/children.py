"""Programs that bench/run starts: each leads a session of its own, so that what a terminal sends
reaches this process alone, which then ends them in order."""
import contextlib
import glob
import os
import signal
import subprocess
import time

LIMIT = 1200     # seconds for one program
PATIENCE = 30    # seconds for its end, after SIGTERM


class Failed(Exception):
    """One line that says why."""


class Stopped(BaseException):
    """By a signal."""

    def __init__(self, number):
        super().__init__(number)
        self.status = 128 + number


starting, pending = False, None


def stop(number, _):
    global pending
    # What is being started couldn't be ended: nobody knows it yet.
    if starting:
        pending = number
    else:
        raise Stopped(number)


def start(words, environment):
    global starting, pending
    starting, pending = True, None
    try:
        return subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                env={**os.environ, **(environment or {})},
                                start_new_session=True)
    finally:
        starting = False


def heed_signals():
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, stop)


def ignore_signals():
    """While things are put away."""
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)


def members(session):
    """The processes that are in it."""
    found = set()
    for path in glob.glob('/proc/[0-9]*/stat'):
        with contextlib.suppress(OSError, IndexError):
            with open(path, encoding='utf-8', errors='replace') as file:
                # After the name, which may contain anything: state, parent, group, session.
                if file.read().rpartition(')')[2].split()[3] == str(session):
                    found.add(int(path.split('/')[2]))
    return found


def end(process):
    """SIGTERM to all of them; the script of a server is the last to go, once that is put away."""
    all_of_them = members(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    # Nobody reads any more what it says.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=PATIENCE)
    while members(process.pid) and time.monotonic() < until:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pid in all_of_them:     # libmongoc's counters of those that had no time to remove them
        with contextlib.suppress(OSError):
            os.unlink(f'/dev/shm/mongoc-{pid}')


def why(said, complained):
    """The line that tells most of what a program has said, on standard output and on the other."""
    bails = [line[len('Bail out!'):] for line in said.splitlines() if line.startswith('Bail out!')]
    lines = [line for line in (complained or said).splitlines() if line.strip()]
    return ' '.join((bails or lines[-1:] or [''])[-1].split())[:300]


def run(name, words, environment=None):
    """What it says on its standard output; Failed unless it succeeds."""
    try:
        process = start(words, environment)
    except OSError as error:
        raise Failed(f'{name}: {error}') from error
    try:
        if pending:
            raise Stopped(pending)
        said, complained = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        end(process)
        raise Failed(f'{name}: took more than {LIMIT} s') from error
    except BaseException:
        ignore_signals()
        end(process)
        raise
    if process.returncode:
        if members(process.pid):
            end(process)
        raise Failed(f'{name}: {why(said, complained) or f"status {process.returncode}"}')
    return said
