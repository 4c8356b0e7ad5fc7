#!/usr/bin/env python3
"""The command on a terminal: Ctrl-C, Ctrl-Z, fg, bg, hangup, pipelines, the live line.

Each test has a pseudo-terminal with an interactive shell on it (or the command itself), and a key
($K) in HOLDFAST_TEST_STORE, or in a file: in a new folder. Prints TAP.
"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback
import unicodedata

HOLDFAST = os.environ['HOLDFAST']
LIMIT = 600     # seconds that anything may take


class Terminal:
    def __init__(self, *command):
        self.text = ''      # everything that was written to the terminal
        self.seen = 0       # how much of it was expected already
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM='vt100', PS1='$ ', HISTFILE='', PROMPT_COMMAND='')
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            command = command or ('bash', '--norc', '--noprofile', '-i')
            set_size(0, 24, 200)
            os.execvp(command[0], command)
        if not command:
            self.prompted()

    def prompted(self):
        """Waits until the shell reads a line. Before its prompt it asks for the terminal's size and
        sets that, which undoes what was set in between."""
        self.expect(r'\$ ')

    def resize(self, rows, columns):
        """While the shell reads a line, or waits for a command."""
        set_size(self.fd, rows, columns)

    def stop_output(self):
        """As Ctrl-S does: from here on a write to the terminal waits."""
        number = struct.unpack('I', fcntl.ioctl(self.fd, 0x80045430, b'\0' * 4))[0]   # TIOCGPTN
        self.other = os.open(f'/dev/pts/{number}', os.O_RDWR | os.O_NOCTTY)
        termios.tcflow(self.other, termios.TCOOFF)

    def go_on(self):
        termios.tcflow(self.other, termios.TCOON)
        os.close(self.other)

    def send(self, text):
        os.write(self.fd, text.encode())

    def read(self, seconds):
        if self.fd < 0 or not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:     # everybody has closed the other side
            return False
        self.text += data.decode(errors='replace')
        return bool(data)

    def expect(self, pattern, limit=LIMIT):
        """Waits until what comes next on the terminal has the pattern; returns the match."""
        end = time.monotonic() + limit
        while True:
            match = re.search(pattern, self.text[self.seen:])
            if match:
                self.seen += match.end()
                return match
            left = end - time.monotonic()
            assert left > 0, f'no {pattern!r} in {self.text[self.seen:]!r}'
            self.read(min(left, 0.2))

    def do(self, line):
        """A line for the shell; waits until its echo has passed."""
        self.send(line + '\n')
        self.expect(re.escape(line[-20:]) + r'\r*\n')

    def status(self):
        """What the shell's last command gave."""
        self.send('echo "status=$?"\n')
        return int(self.expect(r'status=(\d+)\r').group(1))

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def wait(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            self.read(0.02)
            pid, raw = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(raw)
        raise AssertionError('it does not end')

    def end(self):
        """Ends whatever still runs on it."""
        if self.pid:
            for pid in members(self.pid):
                kill(pid, signal.SIGKILL)
            kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.close()


def set_size(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stat(pid):
    """The fields of /proc/PID/stat from the state on; None if there is no such process."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
            return file.read().rpartition(')')[2].split()
    except OSError:
        return None


def members(session):
    found = []
    for name in os.listdir('/proc'):
        fields = stat(name) if name.isdigit() else None
        if fields and int(fields[3]) == session:
            found.append(int(name))
    return found


def state(pid):
    fields = stat(pid)
    return fields[0] if fields else 'Z'


def await_that(what, check):
    end = time.monotonic() + LIMIT
    while not check():
        assert time.monotonic() < end, f'in vain: {what}'
        time.sleep(0.01)


def await_file(name):
    """The first line of a file that somebody is about to write."""
    await_that(f'{name} is written', lambda: os.path.exists(name) and open(name).read().count('\n'))
    return open(name).read().split('\n')[0]


def holdfast(*arguments):
    return subprocess.run([HOLDFAST, *arguments], capture_output=True, text=True, timeout=LIMIT,
                          stdin=subprocess.DEVNULL)


def key():
    return os.environ['K']


def shown():
    return holdfast('show', '--json', key()).stdout


def is_free():
    """A store that nobody has made yet isn't shown."""
    text = shown()
    return not text or '"held":false' in text.split('"waiters"')[0]


def waiters():
    return shown().count('"held":false,"token":null')


# A command that notes each INT, WINCH, HUP that it gets, and goes on.
LISTENER = """#!/bin/bash
for s in INT WINCH HUP USR1; do trap "echo $s >>got" $s; done
trap 'exit 9' TERM
echo $$ >pid
while :; do sleep 0.05; done
"""


def listener():
    with open('listen', 'w', encoding='utf-8') as file:
        file.write(LISTENER)
    os.chmod('listen', 0o755)


def got():
    return open('got').read().split() if os.path.exists('got') else []


def in_background(*arguments):
    """A holder of the key, not on the terminal."""
    return subprocess.Popen([HOLDFAST, *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def stop(process):
    """Ends a holder and the command that it runs."""
    process.terminate()
    process.wait()


# ---- the tests: each gets a function that makes terminals ----

def test_ctrl_c_reaches_the_command_once(terminal):
    t = terminal()
    listener()
    t.do('$HOLDFAST run $K -- ./listen')
    pid = int(await_file('pid'))
    t.send('\x03')
    await_that('INT came', got)
    time.sleep(0.3)     # for a second one, which must not come
    assert got() == ['INT'], got()
    os.kill(pid, signal.SIGTERM)
    assert t.status() == 9
    assert is_free()


def test_a_resized_terminal_is_told_once(terminal):
    t = terminal()
    listener()
    t.do('$HOLDFAST run $K -- ./listen')
    pid = int(await_file('pid'))
    t.resize(30, 100)
    await_that('WINCH came', got)
    time.sleep(0.3)
    assert got() == ['WINCH'], got()
    os.kill(pid, signal.SIGTERM)
    assert t.status() == 9


def test_a_signal_to_the_wrapper_alone_reaches_the_command_once(terminal):
    t = terminal()
    listener()
    t.do('$HOLDFAST run $K -- ./listen')
    pid = int(await_file('pid'))
    wrapper = int(stat(pid)[1])
    os.kill(wrapper, signal.SIGINT)
    await_that('INT came', got)
    time.sleep(0.3)
    assert got() == ['INT'], got()
    os.kill(wrapper, signal.SIGTERM)
    assert t.status() == 9


def test_ctrl_c_ends_the_command_and_gives_130(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- sh -c 'echo $$ >pid; exec sleep 1200'")
    await_file('pid')
    t.send('\x03')
    assert t.status() == 130
    assert is_free()


def test_ctrl_c_ends_the_script_that_called_us(terminal):
    t = terminal()
    with open('script', 'w', encoding='utf-8') as file:
        file.write('for i in 1 2 3; do "$HOLDFAST" run $K -- sh -c "echo $i >pid; exec sleep 999"\n'
                   'echo went-on; done\n')
    t.do('bash script')
    await_file('pid')
    t.send('\x03')
    assert t.status() == 130
    assert 'went-on' not in t.text
    assert is_free()


def test_ctrl_c_while_waiting(terminal):
    t = terminal()
    holder = in_background('run', key(), '--', 'sleep', '1200')
    await_that('held', lambda: not is_free())
    t.do('$HOLDFAST run $K -- touch ran')
    t.expect(f"waiting for '{key()}'")
    await_that('in line', lambda: waiters() == 1)
    t.send('\x03')
    assert t.status() == 130
    assert waiters() == 0
    assert not os.path.exists('ran')
    stop(holder)


def test_ctrl_z_stops_both_and_fg_goes_on(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- sh -c 'echo $$ >pid; exec sleep 1200'")
    pid = int(await_file('pid'))
    wrapper = int(stat(pid)[1])
    for _ in range(3):
        t.send('\x1a')
        t.expect('Stopped')
        await_that('both stopped', lambda: state(pid) == 'T' and state(wrapper) == 'T')
        assert not is_free()
        t.do('fg')
        await_that('both go on', lambda: state(pid) == 'S' and state(wrapper) == 'S')
    t.send('\x03')
    assert t.status() == 130
    assert is_free()


def test_ctrl_z_and_bg(terminal):
    t = terminal()
    # Not dash: it doesn't stop if Ctrl-Z comes between its vfork and the exec of a child.
    t.do("$HOLDFAST run $K -- bash -c 'echo $$ >pid; until [ -e go ]; do sleep 0.05; done; exit 7'")
    pid = int(await_file('pid'))
    wrapper = int(stat(pid)[1])
    t.send('\x1a')
    t.expect('Stopped')
    t.do('bg')
    await_that('both go on', lambda: state(pid) != 'T' and state(wrapper) != 'T')
    time.sleep(0.1)
    assert state(wrapper) != 'T'
    open('go', 'w', encoding='utf-8').close()
    t.do('wait %1')
    assert t.status() == 7


def test_ctrl_z_in_a_pipeline(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- sh -c 'echo $$ >pid; read x; echo got-$x' | cat")
    pid = int(await_file('pid'))
    t.send('\x1a')
    t.expect('Stopped')
    await_that('stopped', lambda: state(pid) == 'T')
    t.do('fg')
    await_that('goes on', lambda: state(pid) == 'S')
    t.send('word\n')
    t.expect('got-word')
    assert t.status() == 0


def test_a_command_that_stops_itself(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- sh -c 'echo $$ >pid; kill -STOP $$; echo went on'")
    t.expect('Stopped')
    t.do('fg')
    t.expect('went on\r')
    assert t.status() == 0


def test_the_rest_of_a_pipeline_keeps_the_terminal(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- echo out | sh -c 'cat; read x </dev/tty; echo got-$x'")
    t.expect('out\r')
    t.send('word\n')
    t.expect('got-word')
    assert t.status() == 0


def test_the_command_reads_the_terminal(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- sh -c 'read x; echo got-$x'")
    t.send('word\n')
    t.expect('got-word')
    assert t.status() == 0


def test_reading_in_the_background_stops_until_fg(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- sh -c 'echo $$ >pid; read x; echo got-$x' &")
    pid = int(await_file('pid'))
    wrapper = int(stat(pid)[1])
    await_that('both stopped', lambda: state(pid) == 'T' and state(wrapper) == 'T')
    t.do('fg')
    await_that('both go on', lambda: state(pid) == 'S' and state(wrapper) == 'S')
    t.send('word\n')
    t.expect('got-word')
    assert t.status() == 0


def test_a_shell_with_jobs_of_its_own(terminal):
    t = terminal()
    t.do('$HOLDFAST run $K -- bash --norc --noprofile -i')
    t.expect(r'\$ ')
    t.do('echo in-$HOLDFAST_KEY')
    t.expect(f'in-{key()}\r')
    t.do("sh -c 'echo $$ >pid; exec sleep 1200'")
    pid = int(await_file('pid'))
    t.send('\x1a')
    t.expect('Stopped')
    t.do('fg')
    await_that('goes on', lambda: state(pid) == 'S')
    t.send('\x03')
    assert t.status() == 130
    assert not is_free()
    t.do('exit 5')
    assert t.status() == 5
    assert is_free()


def test_a_stopped_hold_by_time_is_lost_and_said_so_on_fg(terminal):
    t = terminal()
    t.do("$HOLDFAST run --lease 3s $K -- sh -c 'echo $$ >pid; exec sleep 1200'")
    await_file('pid')
    t.send('\x1a')
    t.expect('Stopped')
    await_that('the lease ran out', is_free)
    t.do('fg')
    t.expect(f"lock on '{key()}' is lost")
    assert t.status() == 76


def test_hangup(terminal):
    t = terminal()
    t.do("$HOLDFAST run $K -- sh -c 'echo $$ >pid; exec sleep 1200'")
    pid = int(await_file('pid'))
    t.close()
    await_that('the command ended', lambda: state(pid) == 'Z')
    await_that('free', is_free)


def test_hangup_as_the_leader_of_the_session(terminal):
    t = terminal(HOLDFAST, 'run', key(), '--', 'sh', '-c', 'echo $$ >pid; exec sleep 1200')
    pid = int(await_file('pid'))
    t.close()
    await_that('the command ended', lambda: state(pid) == 'Z')
    assert t.wait() == 129


def test_ctrl_z_where_nobody_could_continue_us(terminal):
    t = terminal(HOLDFAST, 'run', key(), '--', 'sh', '-c', 'echo $$ >pid; read x; exit 6')
    await_file('pid')
    t.send('\x1a')
    time.sleep(0.2)
    t.send('word\n')
    assert t.wait() == 6


def test_the_live_line(terminal):
    t = terminal()
    first = in_background('run', key(), '--', 'sh', '-c', 'exec sleep 1200')
    await_that('held', lambda: not is_free())
    second = in_background('run', key(), '--', 'sleep', '1200')
    await_that('in line', lambda: waiters() == 1)
    t.do('$HOLDFAST run $K -- echo done')
    host = re.escape(os.uname().nodename)
    t.expect(rf"\rplace 2 of 2 in line; waiting for '{key()}'.*, held by \S+@{host} "
             rf'pid {first.pid} \(sh -c exec sleep 1200\) '
             r'since 2\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\x1b\[K')
    stop(first)
    t.expect(rf"\rplace 1 of 1 in line; waiting for '{key()}'.*, held by .* pid {second.pid} "
             r'\(sleep 1200\) ')
    stop(second)
    t.expect(r'\r\x1b\[Kdone\r\n')
    assert t.status() == 0


def test_the_live_line_says_what_the_lease_has_left_behind_the_place(terminal):
    grant = holdfast('acquire', key(), '--lease', '90m').stdout
    t = terminal()
    t.do('$HOLDFAST run $K -- echo done')
    t.expect(rf"\rplace 1 of 1 in line; waiting for '{key()}' \(lease: 1h(29|30)m left\), "
             r'held by \S+@\S+ ')
    holdfast('release', key(), '--token', re.search(r"_TOKEN='(\d+)'", grant).group(1))
    t.expect(r'\r\x1b\[Kdone\r\n')
    assert t.status() == 0


def test_the_live_line_fits_the_terminal_and_isnt_there_for_quiet_or_background_waits(terminal):
    t = terminal()
    t.do(f'cd {os.getcwd()}; w() {{ $HOLDFAST run -w 1 $K -- true; }}')
    t.prompted()
    t.resize(24, 30)
    holder = in_background('run', key(), '--', 'sleep', '1200')
    await_that('held', lambda: not is_free())
    t.do('w')
    line = t.expect(r'\r((place 1 of 1 in line; )?waiting.*?)\x1b\[K').group(1)
    assert len(line) == 29, line
    assert t.status() == 75
    t.prompted()
    t.resize(24, 200)
    for words in ('run -q -w 300ms $K -- true', 'run -w 300ms $K -- true 2>&1 | cat',
                  'run -w 300ms $K -- true & wait $!'):
        before = len(t.text)
        t.do('$HOLDFAST ' + words)
        t.status()
        assert 'waiting' not in t.text[before:], t.text[before:]
    stop(holder)


def test_the_live_line_counts_columns(terminal):
    t = terminal()
    t.do(f'cd {os.getcwd()}')
    t.prompted()
    t.resize(24, 60)
    os.environ['K'] = name = os.environ['K'] + '\u9320a\u0301' * 40   # two columns, one, none
    holder = in_background('run', name, '--', 'sleep', '1200')
    await_that('held', lambda: not is_free())
    t.do(f"$HOLDFAST run -w 1 '{name}' -- true")
    line = t.expect(r"\r((place 1 of 1 in line; )?waiting for.*?)\x1b\[K").group(1)
    columns = sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) == 'W')
                  for c in line)
    assert 58 <= columns <= 59, (columns, line)
    assert t.status() == 75
    stop(holder)


def test_a_stopped_terminal_does_not_keep_a_granted_command_from_starting(terminal):
    t = terminal()
    holder = in_background('run', key(), '--', 'sleep', '1200')
    await_that('held', lambda: not is_free())
    t.do(f'cd {os.getcwd()}; $HOLDFAST run -v $K -- touch ran')
    t.expect("waiting for '")
    await_that('in line', lambda: waiters() == 1)
    t.stop_output()
    stop(holder)
    await_that('the command runs', lambda: os.path.exists('ran'))
    await_that('the key is free again', is_free)
    t.go_on()
    assert t.status() == 0


def test_a_stopped_terminal_does_not_keep_a_lost_command_from_being_stopped(terminal):
    t = terminal()
    t.do(f"cd {os.getcwd()}; $HOLDFAST run -v $K -- sh -c 'trap \"\" TERM; echo $$ >pid; "
         "while :; do sleep 0.1; done'")
    command = int(await_file('pid'))
    t.stop_output()
    token = json.loads(shown())['token']
    assert holdfast('break', key(), '--token', str(token)).returncode == 0
    await_that('it is killed', lambda: state(command) == 'Z')
    t.go_on()
    t.expect('is lost; stopping the command')
    assert t.status() == 76


def test_progress_of_what_takes_longer_than_a_second(terminal):
    t = terminal()
    t.do('$HOLDFAST bench')
    t.expect(r'\rmeasuring: 1 s\x1b\[K')
    t.expect(r'\r\x1b\[K')
    assert t.status() == 0


def main(there):
    tests = [(name, test) for name, test in there.items() if name.startswith('test_')]
    wanted = [a for a in sys.argv[1:] if not a.startswith('-')]
    tests = [(n, t) for n, t in tests if not wanted or any(w in n for w in wanted)]
    failed = 0
    print(f'1..{len(tests)}')
    for number, (name, test) in enumerate(tests, 1):
        folder = tempfile.mkdtemp(prefix='holdfast-tty-')
        os.chdir(folder)
        os.environ['HOLDFAST_STORE'] = os.environ.get('HOLDFAST_TEST_STORE', f'file:{folder}/store')
        os.environ['K'] = f'tty-{os.getpid()}-{number}'
        terminals = []

        def terminal(*command):
            terminals.append(Terminal(*command))
            return terminals[-1]
        words = name[5:].replace('_', ' ')
        try:
            test(terminal)
            print(f'ok {number} - {words}', flush=True)
        except Exception:
            failed += 1
            print(f'not ok {number} - {words}')
            for line in traceback.format_exc().split('\n'):
                print('#', line)
            for t in terminals:
                print('# terminal:', repr(t.text[-1500:]), flush=True)
        for t in terminals:
            t.end()
        os.chdir('/')
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(globals()))
