#!/usr/bin/env python3
"""What the command prints delays nothing: a signal ends it while nobody takes its output, and a
slow look of the live line delays no grant. Prints TAP."""
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time

from cli_tty import (HOLDFAST, LIMIT, await_that, holdfast, in_background, is_free, key, main,
                     stop)

FAULTY = HOLDFAST.removesuffix('cli/holdfast') + 'tests/holdfast-faults'


def full_pipe():
    """Both ends of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b'x' * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def stopped_terminal():
    """Both ends of a terminal whose output is stopped."""
    reader, writer = pty.openpty()
    termios.tcflow(writer, termios.TCOOFF)
    return reader, writer


def ended_by_term(stuck, *arguments, ready):
    """The status of a command that prints on what is stuck, and is told to end when it is ready."""
    reader, writer = stuck()
    with subprocess.Popen([HOLDFAST, *arguments], stdin=subprocess.DEVNULL, stdout=writer,
                          stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            await_that('it prints', lambda: ready(process.pid))
            process.terminate()
            status = process.wait(LIMIT)
        finally:
            process.kill()
    os.close(reader)
    os.close(writer)
    return status


def prints(pid):
    """Does one of its threads wait in a write?"""
    for thread in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{thread}/syscall', encoding='utf-8') as file:
            if file.read().split()[:2] in (['1', '0x1'], ['64', '0x1']):    # x86-64, arm64
                return True
    return False


def test_a_signal_ends_acquire_while_nobody_takes_its_output(terminal):
    for stuck in full_pipe, stopped_terminal:
        for more in [], ['--json']:
            assert ended_by_term(stuck, 'acquire', key(), '--lease', '1200', *more,
                                 ready=prints) == 143
            assert is_free()


def test_acquire_ended_by_a_signal_at_any_moment_prints_what_fails_in_eval(terminal):
    moment = random.Random(26)
    for number in range(500):
        with subprocess.Popen([HOLDFAST, 'acquire', f'{key()}-{number}', '--lease', '30'],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            time.sleep(moment.uniform(0.0005, 0.006))   # any of them
            process.terminate()
            printed, said = process.communicate(timeout=LIMIT)
        if process.returncode == 143:
            assert printed.endswith('; (exit 143)\n'), printed
        elif process.returncode == 0:
            assert 'exit' not in printed and 'HOLDFAST_TOKEN=' in printed, printed
        else:   # it had hardly begun
            assert process.returncode == -signal.SIGTERM, (process.returncode, said)
            assert not printed or printed.endswith('; (exit 143)\n'), printed


def test_a_signal_ends_watch_while_nobody_takes_its_output(terminal):
    holder = in_background('run', key(), '--', 'sleep', '1200')
    await_that('held', lambda: not is_free())
    for stuck in full_pipe, stopped_terminal:
        for more in [], ['--json']:
            assert ended_by_term(stuck, 'watch', key(), *more, ready=prints) == 143
    stop(holder)


def test_a_look_of_the_live_line_that_takes_long_delays_neither_command_nor_grant(terminal):
    """The line looks at both keys; the request waits for the second, so only the line reads the
    first, and that takes an hour."""
    os.environ['HOLDFAST_STORE'] = 'sqlite:' + os.path.abspath('store.db')
    for words, then in (('run $K-a $K-b -- touch ran', ''),
                        ('acquire --lease 1h $K-a $K-b >grants', '; touch ran')):
        holder = in_background('run', key() + '-b', '--', 'sleep', '1200')
        await_that('held', lambda: '"waiters"' in holdfast('show', '--json', key() + '-b').stdout)
        t = terminal()
        t.do(f"cd {os.getcwd()}; HOLDFAST_FAULT='get@{key()}-a:*:delay=3600000' {FAULTY} "
             + words + then)
        await_that('in line', lambda: holdfast('show', '--json', key() + '-b').stdout.count(
            '"held":false,"token":null') == 1)
        stop(holder)
        await_that('the command has run', lambda: os.path.exists('ran'))
        assert t.status() == 0
        os.remove('ran')


if __name__ == '__main__':
    sys.exit(main(globals()))
