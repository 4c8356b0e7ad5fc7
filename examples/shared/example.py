"""What the examples have in common: the report, and for those with a server the command and many
processes at once.

    examples/NAME/run [URL] [--tap] [--keep]

Without a URL the program starts again under tests/servers/SERVER, which gives it a server of its
own. With one (firestore://PROJECT, mongodb://HOST/DB) it works there, in documents that nobody else
has, and deletes them in the end; --keep leaves them. --tap says the results as TAP.
"""
import argparse
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
LIMIT = 900     # seconds that any one thing may take before it counts as stuck


class Report:
    """Says what happens, and counts what was expected."""

    def __init__(self, tap):
        self.tap = tap
        self.colour = sys.stdout.isatty() and not os.environ.get('NO_COLOR') and not tap
        self.points = self.failures = 0

    def say(self, text=''):
        print(f'# {text}'.rstrip() if self.tap else text, flush=True)

    def expect(self, good, what):
        self.points += 1
        self.failures += not good
        if self.tap:
            print(f'{"ok" if good else "not ok"} {self.points} - {what}', flush=True)
        else:
            print(f'  {"ok  " if good else "FAIL"}  {what}', flush=True)

    def end(self):
        if self.tap:
            print(f'1..{self.points}')
        else:
            print(f'\n{self.points - self.failures} as expected, {self.failures} not')
        return 1 if self.failures or not self.points else 0


def at_once(visits):
    """How many of the (begin, end) were going on at a time, at most."""
    steps = sorted([(begin, 1) for begin, _ in visits] + [(end, -1) for _, end in visits])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


class Example:
    """One run: self.url is the store, self.id names what is its own there."""

    def __init__(self, server, about):
        options = argparse.ArgumentParser(description=about.split('\n', 1)[0])
        options.add_argument('url', nargs='?', help='the server; without it one is started')
        options.add_argument('--tap', action='store_true', help='the results as TAP')
        options.add_argument('--keep', action='store_true', help='leave the documents there')
        options = options.parse_args()
        if not options.url:
            host = os.path.join(TOP, 'tests', 'servers', server)
            os.execv(host, [host, os.path.abspath(sys.argv[0]), *sys.argv[1:], '@'])
        for number in signal.SIGINT, signal.SIGTERM:    # so that it cleans up
            signal.signal(number, lambda caught, _: sys.exit(128 + caught))
        self.url, self.keep = options.url, options.keep
        self.report = Report(options.tap)
        self.id = time.strftime('%Y%m%d-') + uuid.uuid4().hex[:8]
        self.command = self.find_command()
        self.running = []

    @staticmethod
    def find_command():
        found = [os.environ.get('HOLDFAST', ''),
                 *sorted(glob.glob(os.path.join(TOP, 'build*', 'cli', 'holdfast'))),
                 shutil.which('holdfast') or '']
        for path in found:
            if os.access(path, os.X_OK):
                path = os.path.abspath(path)
                build = os.path.dirname(os.path.dirname(path))
                if glob.glob(os.path.join(build, 'libholdfast-*.so')):
                    os.environ.setdefault('HOLDFAST_DRIVERS', build)
                return path
        print('nothing is built: meson setup build && ninja -C build', file=sys.stderr)
        sys.exit(69)

    def store(self, option=''):
        """The URL with one option more."""
        return self.url + (('&' if '?' in self.url else '?') + option if option else '')

    def holdfast(self, store, *words):
        """(status, what it said on both outputs)."""
        done = subprocess.run([self.command, words[0], '-S', store, *words[1:]], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT)
        return done.returncode, done.stdout, done.stderr

    def start(self, command, **more):
        """A process with all that it starts in a session of its own; it ends with this program."""
        process = subprocess.Popen(command, start_new_session=True, text=True,
                                   **{'stdin': subprocess.DEVNULL, **more})
        self.running.append(process)
        return process

    def start_saying(self, command, word):
        """A process that has said this word on its standard output."""
        process = self.start(command, stdout=subprocess.PIPE)
        said = process.stdout.readline().strip()
        if said != word:
            raise RuntimeError(f'{command[-1]}: said "{said}" instead of "{word}"')
        return process

    def together(self, commands, expected='\n'):
        """Everybody at once. Returns the seconds that it took, the exit statuses in order, and how
        often somebody said what is expected on standard error; the rest is reported."""
        gate, opener = os.pipe()
        wait = ['sh', '-c', 'read -r line; exec "$@" </dev/null', 'sh']
        with tempfile.TemporaryFile('w+') as said:
            started = [self.start(wait + list(command), stdin=gate, stdout=subprocess.DEVNULL,
                                  stderr=said) for command in commands]
            os.close(gate)
            begun = time.monotonic()
            os.close(opener)
            statuses = [process.wait(LIMIT) for process in started]
            seconds = time.monotonic() - begun
            said.seek(0)
            lines = said.read().splitlines()
        for line in lines:
            if expected not in line:
                self.report.say(line)
        return seconds, statuses, sum(expected in line for line in lines)

    @staticmethod
    def kill(process):
        """SIGKILL to it and to all that it has started."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def end(self, *parts):
        """Ends what runs, and deletes what these parts have in the database."""
        for process in self.running:
            if process.poll() is None:
                self.kill(process)
            if process.stdout:
                process.stdout.close()
        # After a Ctrl-C a server of its own is gone, too.
        gone = sys.exc_info()[0] is SystemExit and 'HOLDFAST_TEST_CONTROL' in os.environ
        for part in parts:
            if not self.keep and not gone:
                part.forget()
