#!/usr/bin/env python3
"""Are the tests able to find the mistakes that lock systems are known for? Builds the library with
each of tests/mutants/*.patch, and says which check of CI's found it. What survives fails.

    tests/mutants/seeds.py SOURCE BUILD [NAME...]    default: all of them

With the number $HF_TURN (tools/test sets it to one that the commit says) one of six is tried, and
of the others only whether the patch applies. $HF_LONG: all of them nevertheless.

A patch begins with what the mistake is and which checks may find it, the cheapest first:

    Mistake: TEXT
    Check: NAME [WORD...]     a test of `meson test`; the words are its case (bats, cmocka), or its
                              arguments. "lint FILE" is tools/lint.

It is applied to a copy of the tree and of its build: only what it touches is compiled again, and
afterwards what was built before is put back. Other tests may run on BUILD meanwhile.
Each check has to pass in that copy without a mistake, too, as far as it comes in a few seconds.
"""
import collections
import concurrent.futures
import glob
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP, BUILD = (os.path.realpath(path) for path in sys.argv[1:3])
JOBS = 8        # most of the time is spent waiting
CHANGING = ('node', 'meson-logs')   # of the build's folder; tests and `meson test` write there
LIMIT = 180     # seconds for one check; what hangs is found too
CASE = 45       # seconds for a case of bats, which hangs most often
GLANCE = 3      # seconds for one that isn't expected to find anything,
PATIENCE = 7200     # however long its first point takes
REST = 10       # seconds that one that finds something nevertheless has to say what,
SAID = 40       # in so many lines
SHARES = 6      # of one of them it is the turn


def keep_build(scratch):
    """The build as it is now, from which the copies are made and put back."""
    kept = os.path.join(scratch, 'kept')
    os.makedirs(kept)
    names = [name for name in os.listdir(BUILD) if name not in CHANGING]
    subprocess.run(['cp', '-a', *names, kept], cwd=BUILD, check=True)
    return kept


class Copy:
    """A tree and its build that may be broken."""

    def __init__(self, scratch, kept, number):
        self.kept = kept
        self.top = os.path.join(scratch, str(number))
        self.build = os.path.join(self.top, os.path.relpath(BUILD, TOP))
        self.tmp = os.path.join(scratch, f'tmp{number}')
        os.makedirs(self.top)
        os.makedirs(self.tmp)
        files = subprocess.run([os.path.join(TOP, 'tools', 'lint'), '--files'], check=True,
                               capture_output=True, text=True).stdout.split('\n')
        there = [path for path in files if path and os.path.lexists(os.path.join(TOP, path))]
        subprocess.run(['cp', '-a', '--parents', *there, self.top], cwd=TOP, check=True)
        subprocess.run(['cp', '-a', kept, self.build], check=True)

    def here(self, text):
        return text.replace(TOP, self.top)

    def patch(self, path, *options):
        """Returns what patch(1) says if it doesn't apply as it is."""
        done = subprocess.run(['patch', '-p1', '--no-backup-if-mismatch', '-s', '-r', '-', '-f',
                               '-F0', *options, '-i', path], cwd=self.top, capture_output=True,
                              text=True)
        return (done.stdout + done.stderr).strip() if done.returncode else ''

    def put_back(self):
        """The build as it was, down to the times: nothing is to be made for the next one."""
        for folder, _, names in os.walk(self.kept):
            here = os.path.join(self.build, os.path.relpath(folder, self.kept))
            for name in names:
                was, now = os.path.join(folder, name), os.path.join(here, name)
                if not os.path.islink(was) and stamp(was) != stamp(now):
                    shutil.copy2(was, now)

    def ninja(self, targets):
        done = subprocess.run(['ninja', '-C', self.build, *targets], capture_output=True, text=True)
        return done.stdout[-2000:] if done.returncode else ''

    def run(self, check, glance=False):
        """The first thing that the check finds, or ''; and how many points passed."""
        command, env = check.command(self), {**os.environ, 'TMPDIR': self.tmp}
        started = time.monotonic()
        if not glance:
            env['BATS_TEST_TIMEOUT'] = str(CASE)
        env.update({name: self.here(value) for name, value in check.env.items()})
        process = subprocess.Popen(command, cwd=self.build, env=env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True, text=True, errors='replace')
        late = threading.Event()
        limit = PATIENCE if glance else LIMIT
        timer = threading.Timer(limit, lambda: (late.set(), end(process, signal.SIGKILL)))
        timer.start()
        passed, enough, found, last = 0, False, '', ''
        said = collections.deque(maxlen=SAID)
        for line in process.stdout:
            said.append(line.rstrip())
            if re.match(r'ok\b', line):
                passed += 1
                enough = glance and time.monotonic() - started > GLANCE
            elif re.match(r'not ok\b', line):
                found = re.sub(r'^not ok *\d* *(- )?', '', line).strip()
            if found or enough:
                break
            last = line.strip() or last
        if found and glance:    # which is news, unlike that a mistake is found: what else it says
            rest = threading.Timer(REST, lambda: end(process, signal.SIGKILL))
            rest.start()
            said.extend(line.rstrip() for line in process.stdout)
            rest.cancel()
        if found or enough:     # the rest would only take time
            end(process, signal.SIGTERM)
            timer.cancel()
            timer = threading.Timer(5, lambda: end(process, signal.SIGKILL))
            timer.start()
        process.stdout.close()
        status = process.wait()
        timer.cancel()
        end(process, signal.SIGKILL)
        if late.is_set():
            found = f'not done within {limit} s'
        elif status and not found and not enough:
            found = last if check.name == 'lint' else f'status {status} ({last})'
        if found:
            more = said if glance else ()
            found = '\n'.join([f'{found} ({time.monotonic() - started:.1f} s)', *more])
        return found, passed


def stamp(path):
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return None
    return there.st_mtime_ns, there.st_size


def end(process, sig):
    try:
        os.killpg(process.pid, sig)
    except ProcessLookupError:
        pass


class Check:
    """A test as `meson test` knows it, or one case of it."""
    tests = {test['name']: test for test in
             json.load(open(os.path.join(BUILD, 'meson-info', 'intro-tests.json')))}
    files = {target['id']: os.path.relpath(target['filename'][0], BUILD) for target in
             json.load(open(os.path.join(BUILD, 'meson-info', 'intro-targets.json')))}

    def __init__(self, text):
        self.text = text
        self.name, _, self.case = text.partition(' ')
        self.env, self.targets, self.waits = {}, [], False
        if self.name == 'lint':
            return
        test = self.tests[self.name]
        self.env = test['env']
        self.waits = test['cmd'][-1].endswith('.bats')
        self.targets = [self.files[one] for one in test['depends']]
        if 'HOLDFAST' in self.env:
            self.targets.append(os.path.relpath(self.env['HOLDFAST'], BUILD))
        self.add_module(self.name.split('_')[-1])

    def add_module(self, driver):
        module = f'libholdfast-{driver}.so'
        if module in self.files.values() and module not in self.targets:
            self.targets.append(module)

    def command(self, copy):
        if self.name == 'lint':
            return [os.path.join(copy.top, 'tools', 'lint'), os.path.join(copy.top, self.case)]
        command = [copy.here(word) for word in self.tests[self.name]['cmd']]
        if not self.case:
            return command
        if command[-1].endswith('.bats'):
            return [*command[:-1], '--filter', re.escape(self.case), command[-1]]
        return command + self.case.split()


class Seed:
    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path)[:-len('.patch')]
        text = open(path, encoding='utf-8').read()
        self.files = re.findall(r'^--- a/(\S+)', text, flags=re.M)
        self.mistake = re.search(r'^Mistake: (.*)', text, flags=re.M).group(1)
        self.checks = [Check(line) for line in re.findall(r'^Check: (.*)', text, flags=re.M)]
        for driver in re.findall(r'^--- a/drivers/(\w+)/', text, flags=re.M):
            for check in self.checks:
                check.add_module(driver)

    def plant(self, copy):
        """(found, by what)."""
        files = [os.path.join(copy.top, path) for path in self.files]
        times = [(path, os.stat(path)) for path in files]
        trouble = copy.patch(self.path)
        if trouble:
            return False, 'does not apply: ' + trouble
        try:
            for check in self.checks:
                trouble = check.targets and copy.ninja(check.targets)
                if trouble:
                    return False, 'does not compile: ' + trouble
                found, _ = copy.run(check)
                if 'Bail out!' in found:    # it could not try anything
                    return False, f'{check.name}: {found}'
                if found:
                    return True, f'found by {check.name}: {found}'
            return False, 'not found'
        finally:
            trouble = copy.patch(self.path, '-R')
            if trouble:
                raise RuntimeError(f'{self.name} cannot be taken back: {trouble}')
            for path, was in times:
                os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
            copy.put_back()


def passes(copy, check):
    trouble = check.targets and copy.ninja(check.targets)
    if trouble:
        return False, 'does not compile: ' + trouble
    found, passed = copy.run(check, glance=True)
    return not found and (passed or check.name == 'lint'), found or f'{passed} passed'


def chosen(seeds):
    """Those that are named, or those whose turn it is."""
    names, turn = sys.argv[3:], os.environ.get('HF_TURN')
    if names:
        return [seed for seed in seeds if seed.name in names]
    if not turn or os.environ.get('HF_LONG'):
        return seeds
    return seeds[int(turn) % SHARES::SHARES]


def applies(copy, seeds):
    """Do all of them apply?"""
    stale = [f'{seed.name}: {trouble}' for seed in seeds
             for trouble in [copy.patch(seed.path, '--dry-run')] if trouble]
    return not stale, '\n'.join(stale) or f'{len(seeds)} of them'


def main():
    # A copy whose build files are older than the tree's would make those of the tree anew.
    subprocess.run(['ninja', '-C', BUILD], check=True, stdout=subprocess.DEVNULL)
    known = [Seed(path) for path in sorted(glob.glob(os.path.join(TOP, 'tests/mutants/*.patch')))]
    seeds = chosen(known)
    checks = {check.text: check for seed in seeds for check in seed.checks[:1]}
    jobs = [(f'without a mistake: {text}', passes, check) for text, check in checks.items()]
    jobs.insert(0, ('each patch applies', applies, known))
    plants = [(f'{seed.name} ({seed.mistake})', lambda copy, one: one.plant(copy), seed)
              for seed in seeds]
    # Mistakes that hang begin first, so that they don't run alone at the end.
    hanging = [job for job in plants if job[2].checks[0].waits]
    jobs = hanging + jobs + [job for job in plants if job not in hanging]
    scratch = tempfile.mkdtemp(prefix='holdfast-seeds-')
    os.chmod(scratch, 0o711)    # servers that refuse to be root run as another user
    kept = keep_build(scratch)
    copies, made = queue.Queue(), {}
    failed = 0

    def do(job):
        number = copies.get()
        try:
            copy = made.get(number) or made.setdefault(number, Copy(scratch, kept, number))
            return job[1](copy, job[2])
        except Exception as error:      # of one job; the others go on
            return False, str(error)
        finally:
            copies.put(number)

    print(f'1..{len(jobs)}')
    try:
        for number in range(JOBS):
            copies.put(number)
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for number, (job, (good, text)) in enumerate(zip(jobs, pool.map(do, jobs)), 1):
                first, *more = text.split('\n')
                print(f'{"ok" if good else "not ok"} {number} - {job[0]}: {first}', flush=True)
                for line in more:
                    print('#', line)
                failed += not good
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    sys.exit(main())
