#!/usr/bin/env python3
"""bench/run: what it refuses, what it says of what is missing, how it ends, and what it makes of
turns. Of a build that has nothing but a program that does as it is told."""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..'))
from points import end, point  # noqa: E402

BENCH = os.path.join(HERE, '..', '..', 'bench')
RUN = os.path.join(BENCH, 'run')
# Waits in its folder until its pipe is opened; says what a signal made of it.
PROGRAM = '''#!/bin/sh
echo ran >>"$OF/ran"
trap 'echo ended >"$OF/ended"; exit 1' TERM
case $DO in
wait) echo "$$" >"$OF/up"; sleep 600 & wait $! ;;
bail) echo 'Bail out! no server'; echo 'and more' >&2; exit 1 ;;
*) printf '%s\\n' "$DO" ;;
esac
'''


def number(p50, unit='us', n=31):
    return {'unit': unit, 'n': n, 'min': p50, 'p50': p50, 'p90': p50, 'p99': p50, 'p999': p50,
            'max': p50}


def line(name, p50, **more):
    return json.dumps({'name': name, **number(p50, **more)})


class Place:
    """A folder with the build, the temporary files, and what is saved."""

    def __init__(self, folder):
        self.folder, self.saved = folder, os.path.join(folder, 'saved.json')
        self.temporary = os.path.join(folder, 'tmp')
        programs = os.path.join(folder, 'build', 'bench')
        os.makedirs(programs)
        os.mkdir(self.temporary)
        for name in 'bench-pairs', 'bench-spawn':
            with open(os.path.join(programs, name), 'w', encoding='utf-8') as file:
                file.write(PROGRAM)
            os.chmod(file.name, 0o755)
        os.mkfifo(os.path.join(folder, 'up'))

    def start(self, *words, do='', **more):
        return subprocess.Popen([RUN, '--build', os.path.join(self.folder, 'build'), *words],
                                stdin=subprocess.DEVNULL, text=True,
                                env={**os.environ, 'OF': self.folder, 'DO': do,
                                     'TMPDIR': self.temporary},
                                **{'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **more})

    def run(self, *words, **more):
        process = self.start(*words, **more)
        said, complained = process.communicate()
        return process.returncode, said or '', complained

    def up(self):
        """When the program is."""
        with open(os.path.join(self.folder, 'up'), encoding='utf-8') as file:
            return int(file.read())

    def has(self, name):
        """And has it no more."""
        path = os.path.join(self.folder, name)
        if os.path.exists(path):
            os.unlink(path)
            return True
        return False


def refused(place, what, words, status=None, **more):
    """By one line, before anything is measured, and without a trace."""
    def there():
        return sorted(os.listdir(place.folder) + os.listdir(place.temporary))
    before = there()
    rc, _, why = place.run(*words, **more)
    point(rc and rc == (status or rc) and len(why.splitlines()) == 1 and
          why.startswith('bench: ') and not place.has('ran') and
          there() == before, f'refused: {what}', f'{rc} {why}')


def refuses(place):
    refused(place, '--smoke --keep', ['--smoke', '--keep'], 64)
    refused(place, '--keep --save', ['--keep', '--save', place.saved], 64)
    refused(place, 'an option that there is not', ['--frob'], 64)
    spawn = ['--only', 'spawn', '--save']
    refused(place, 'to save in a folder that there is not',
            [*spawn, os.path.join(place.folder, 'none', 'x.json')])
    refused(place, 'to save as a folder', [*spawn, place.temporary])
    refused(place, 'to save where nobody can', [*spawn, '/proc/none.json'])
    refused(place, 'a folder for files that there is not', ['--only', 'spawn', '--dir', '/none'])
    refused(place, 'a standard output that is full', ['--help'], 74,
            stdout=os.open('/dev/full', os.O_WRONLY))
    for text in '', '{"parts": {', '{"a":1}', '[1]', '{"parts": {"x": 1}}':
        with open(place.saved, 'w', encoding='utf-8') as file:
            file.write(text)
        refused(place, f'to go on with {text!r}', [*spawn, place.saved], 65)
    os.unlink(place.saved)
    closed = subprocess.run(f'"{RUN}" --help >&-', shell=True, capture_output=True, text=True,
                            check=False)
    point(closed.returncode == 74 and len(closed.stderr.splitlines()) == 1,
          'refused: a standard output that is closed', closed.stderr)


ALL = [line('true', 500), line('flock true', 1000), line('holdfast run true', 1000),
       line('holdfast run true / flock true', 0.9, unit='x'),
       line('holdfast run true / true', 2, unit='x')]


def says(place):
    rc, said, why = place.run('--only', 'spawn', '--save', place.saved, do='\n'.join(ALL))
    point(rc == 0 and '1 of 1 targets reached' in said and '0.90 x' in said,
          "what is measured, by its rounds' ratios", said + why)
    with open(place.saved, encoding='utf-8') as file:
        kept = json.load(file)
    point(kept['smoke'] is False and isinstance(kept['parts']['spawn']['commit'], str) and
          os.listdir(place.temporary) == [] and not os.path.exists(place.saved + '.lock'),
          'it knows its commit, and leaves nothing else')
    place.has('ran')
    # A run that measures nothing doesn't look like one that does.
    before = 'not measured by this run, but saved before: spawn ('
    again = place.run('--only', 'handover', '--save', place.saved, do='\n'.join(ALL))
    point(before not in said and before in again[1],
          'what an earlier run has measured is said to be', again[1] + again[2])
    place.has('ran')
    refused(place, 'to go on as a smoke test', ['--smoke', '--save', place.saved], 65)
    os.unlink(place.saved)
    place.run('--smoke', '--only', 'spawn', '--save', place.saved, do='\n'.join(ALL))
    place.has('ran')
    refused(place, 'to go on with a smoke test', ['--save', place.saved], 65)
    os.unlink(place.saved)
    rc, said, why = place.run('--only', 'spawn', do='\n'.join(ALL[:1] + ALL[2:3]))
    point(rc == 1 and why == 'bench: spawn: not measured: flock true\n' and
          '0 of 1 targets reached; not measured: holdfast run KEY -- true beside flock(1)' in said,
          'what is missing', said + why)
    rc, _, why = place.run('--only', 'spawn', do='bail')
    point(rc == 1 and why == 'bench: spawn: no server\n', 'the reason, as one line', why)
    rc, _, why = place.run('--only', 'spawn', do='no number')
    point(rc == 1 and len(why.splitlines()) == 1, 'what is no number', why)
    place.has('ran')


def ends(place):
    for number_, whole in ((signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True)):
        process = place.start('--only', 'spawn', '--save', place.saved, do='wait',
                              start_new_session=True)
        program = place.up()
        place.has('ran')
        if number_ == signal.SIGTERM:
            refused(place, 'a file that another one writes', ['--save', place.saved], 75)
        (os.killpg if whole else os.kill)(process.pid, number_)
        _, complained = process.communicate()
        point(process.returncode == 128 + number_ and complained == '' and
              not os.path.exists(f'/proc/{program}') and place.has('ended') and
              not os.listdir(place.temporary) and not os.path.exists(place.saved + '.lock'),
              f'{number_.name}{" to all" if whole else ""} ends all, in order', complained)


def in_turns():
    spec = importlib.util.spec_from_loader('bench_run', SourceFileLoader('bench_run', RUN))
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    lines = []
    for ours, theirs in (10, 5), (20, 100), (30, 60):
        lines += [('ours ', {'name': 'acquire+release', **number(ours)}),
                  ('peer ', {'name': 'acquire+release', **number(theirs)})]
    found = run.in_turns('redis: x ', lines)
    both = found['redis: x ours acquire+release']
    point((both['p50'], both['n'], both['min'], both['max']) == (20, 93, 10, 30),
          'turns together', both)
    row = next(row for row in run.figures({
        name.replace(' x ', ' redis-py '): value for name, value in found.items()}).rows
        if row.peer == 'redis-py')
    point((row.value, row.peer_value, row.ratio) == (20, 60, 0.5),
          "the median of the turns' ratios, not the ratio of the medians", row)


def main():
    sys.dont_write_bytecode = True
    sys.path.insert(0, BENCH)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder)
        refuses(place)
        says(place)
        ends(place)
    in_turns()
    return end()


if __name__ == '__main__':
    sys.exit(main())
