#!/usr/bin/env python3
"""The completions for shells: what interactive shells make of keys that are typed with TABs.

Each shell has a pseudo-terminal, and a program `holdfast` that notes the words it is called with,
unless the completion calls it. fish is tried where it is installed. Prints TAP.
"""
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))
from points import end, point

HOLDFAST = os.environ['HOLDFAST']
COMPLETIONS = os.path.join(os.environ['SOURCE'], 'completions')
LIMIT = 100     # seconds that a line may take
TAB, BACK, END = '\t', '\x02', '\x05'
SHELLS = {
    'bash': (('bash', '--norc', '--noprofile', '-i'), f'. {COMPLETIONS}/holdfast.bash'),
    'zsh': (('zsh', '-f', '-i'), f'fpath=({COMPLETIONS} $fpath); autoload -U compinit; '
                                 'compinit -u -D; bindkey -e; setopt complete_in_word'),
    'fish': (('fish', '--no-config', '-i'), f'source {COMPLETIONS}/holdfast.fish'),
}
folder = tempfile.mkdtemp(prefix='holdfast-completion-')
HERE, THERE = f'file:{folder}/here', f'file:{folder}/there'
QUOTES = 'g"\'$a'
# What it is about, the keys behind "holdfast ", the words that it is called with.
CASES = (
    ('a command', f'sho{TAB}k', ['show', 'k']),
    ('a command behind a store', f'-S {THERE} pru{TAB}', ['-S', THERE, 'prune']),
    ('an option', f'once --at{TAB}', ['once', '--at-most-once']),
    ("another command's option", f'stores --at{TAB}', ['stores', '--at']),
    ("an option's value", f'run --on-lost i{TAB}', ['run', '--on-lost', 'ignore']),
    ('a key that is held', f'break hel{TAB}', ['break', 'held']),
    ('a key', f'show alp{TAB}', ['show', 'alpha']),
    ('a key with a blank', f'show be{TAB}', ['show', 'be ta']),
    ('behind a quote', f"show 'be t{TAB}", ['show', 'be ta']),
    ('behind a double quote', f'show "be t{TAB}', ['show', 'be ta']),
    ('behind a part in quotes', f'show \'be \'t{TAB}', ['show', 'be ta']),
    ('a key with quotes', f'show g{TAB}', ['show', QUOTES]),
    ('a key with quotes, behind a quote', f"show 'g{TAB}", ['show', QUOTES]),
    ('a key with quotes, behind a double quote', f'show "g{TAB}', ['show', QUOTES]),
    ('a key with colons', f'show c:d:{TAB}', ['show', 'c:d:e f']),
    ('a key with colons, behind a quote', f"show 'c:d{TAB}", ['show', 'c:d:e f']),
    ('a key with = and @', f'show k=c@{TAB}', ['show', 'k=c@d']),
    ('in front of another word', f'show alp next{BACK * 5}{TAB}{END}', ['show', 'alpha', 'next']),
    ('within a word', f'show alpha{BACK * 2}{TAB}{END}', None),
    ('a store before the command', f'-S {THERE} show oth{TAB}', ['-S', THERE, 'show', 'other']),
    ('a store in the word of its option', f'-S{THERE} show oth{TAB}',
     [f'-S{THERE}', 'show', 'other']),
    ('a store by the long option', f'--store={THERE} show oth{TAB}',
     [f'--store={THERE}', 'show', 'other']),
    ('a store behind the long option', f'--store {THERE} show oth{TAB}',
     ['--store', THERE, 'show', 'other']),
    ('a store behind the command', f'show -S {THERE} oth{TAB}', ['show', '-S', THERE, 'other']),
    ('a store in quotes', f"-S '{THERE}' show oth{TAB}", ['-S', THERE, 'show', 'other']),
    ('a program behind --', f'run k -- only-h{TAB}x', ['run', 'k', '--', 'only-here', 'x']),
    ('a file behind --', f'run k -- cat only-h{TAB}x', ['run', 'k', '--', 'cat', 'only-here', 'x']),
)
# Within a word bash completes what is before the cursor, and leaves the rest where it is.
WITHIN = {'bash': ['show', 'alphaha'], 'zsh': ['show', 'alpha'], 'fish': ['show', 'alpha']}


def make(name, text):
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(f'#!/bin/sh\n{text}\n')
    os.chmod(path, 0o755)


class Shell:
    def __init__(self, name):
        command, start = SHELLS[name]
        self.said = ''
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM='xterm', HOME=folder, HOLDFAST_STORE=HERE, HISTFILE='',
                              PATH=f'{folder}:{os.environ["PATH"]}')
            os.chdir(folder)
            os.execvp(command[0], command)
        self.words_of(start + '; holdfast ready')

    def words_of(self, line):
        """Types the line. Returns the words that holdfast is called with; None: it isn't called."""
        words = os.path.join(folder, 'words')
        until = time.monotonic() + LIMIT
        os.write(self.fd, f'{line}\r'.encode())
        while not os.path.exists(words) and time.monotonic() < until:
            if select.select([self.fd], [], [], 0.02)[0]:
                self.said += os.read(self.fd, 65536).decode(errors='replace')
        if not os.path.exists(words):
            return None
        with open(words, encoding='utf-8') as file:
            called = file.read().splitlines()
        os.unlink(words)
        return called

    def end(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def try_shell(name):
    shell = Shell(name)
    for what, keys, expected in CASES:
        words = shell.words_of(f'holdfast {keys}')
        point(words == (expected or WITHIN[name]), f'{name}: {what}', f'{words}\n{shell.said}')
        if words is None:
            break   # the shell waits for the end of a quote
    shell.end()


try:
    for store, keys in ((HERE, ('alpha', 'be ta', QUOTES, 'c:d:e f', 'k=c@d')), (THERE, ['other'])):
        subprocess.run([HOLDFAST, '-S', store, 'run', *keys, '--', 'true'], check=True)
    subprocess.run([HOLDFAST, '-S', HERE, 'acquire', 'held', '--lease', '1h'], check=True,
                   stdout=subprocess.DEVNULL)
    make('holdfast', f'case " $* " in *" --json "*) exec "{HOLDFAST}" "$@" ;; esac\n'
                     f'cd {folder}\nprintf "%s\\n" "$@" >words.new\nmv words.new words')
    make('timeout', 'shift; exec "$@"')     # a busy machine takes longer than a user would wait
    make('only-here', '')
    for each in SHELLS:
        if each != 'fish' or shutil.which(each):
            try_shell(each)
finally:
    shutil.rmtree(folder)
sys.exit(end())
