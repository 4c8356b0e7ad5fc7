"""The steps of tools/test: see there. Each is a function that notes what passed and what failed in
a Step; its output is kept in build-logs/."""
import concurrent.futures
import difflib
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import messages
import report
from choice import (CHOSEN, RELEASE, in_turn, needed, of_suites, of_the_release, shares, turn,
                    whole)
from exported import symbols, versioned

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(TOP, 'build-logs')
TTY = sys.stdout.isatty()
PRINTING = threading.Lock()
CORES = len(os.sched_getaffinity(0))
# A limit is there to end what hangs, and nothing else: no test is wrong because it took long. Those
# of tests/meson.build are generous where nothing else runs; a machine may be slow, or busy.
PATIENCE = 5
LIMIT = 4 * 3600    # of one command, in seconds

# What is built: the compiler, the options, and the environment of what runs.
# Warnings are errors in the first two only: the sanitizers make compilers see ghosts. Of clang only
# they are wanted, for nothing of that build runs; libc's own come only where it optimizes.
# With -O1 and -g1 the build with asan takes half the time of -O2 -g, and its tests take no longer.
SANITIZED = ['-Db_ndebug=false', '-Dbuildtype=debugoptimized']
BUILDS = {
    'gcc': ('gcc', ['-Dwerror=true', '-Db_ndebug=false'], {}),
    'clang': ('clang-14', ['-Dwerror=true', '-Db_ndebug=false', '-Doptimization=1'], {}),
    'asan': ('gcc', ['-Db_ndebug=false', '-Doptimization=1', '-Ddebug=false',
                     '-Db_sanitize=address,undefined',
                     '-Dc_args=-g1 -fno-sanitize-recover=all -fno-omit-frame-pointer'],
             {'ASAN_OPTIONS': 'detect_stack_use_after_return=1:strict_string_checks=1',
              'UBSAN_OPTIONS': 'print_stacktrace=1'}),
    'tsan': ('clang-14', [*SANITIZED, '-Db_sanitize=thread'],
             {'TSAN_OPTIONS': 'halt_on_error=1:second_deadlock_stack=1:suppressions='
                              + os.path.join(TOP, 'tests', 'tsan.supp')}),
    'fuzz': ('clang-14', [*SANITIZED, '-Dtests=false', '-Dfuzz=true',
                          '-Dc_args=-fsanitize=fuzzer-no-link,address,undefined '
                          '-fno-sanitize-recover=all',
                          '-Dc_link_args=-fsanitize=address,undefined'],
             {'UBSAN_OPTIONS': 'print_stacktrace=1'}),
}


class Failed(Exception):
    """A step that cannot go on; the text says what to do again."""


class Step:
    """What one step has: its log, and what passed and failed in it."""

    def __init__(self, name, before=()):
        self.name = name
        self.before = before    # words that stand before each command
        self.path = os.path.join(LOGS, name.replace(' ', '-') + '.log')
        self.log = open(self.path, 'w', encoding='utf-8')
        self.passed = 0
        self.failed = []    # (what, how to do it again)
        self.details = []   # what the failed ones said of it: some lines of each
        self.took = []      # (seconds, test)
        self.note = ''      # what its line doesn't say
        self.ruined = None  # the step that failed before, so that this one didn't run

    def check(self, good, what, again):
        if good:
            self.passed += 1
        else:
            self.failed.append((what, again))

    def run(self, command, env=None, cwd=TOP, text_in=None, limit=LIMIT):
        """Runs a command into the log; returns its status. Its whole session ends with it."""
        command = [*self.before, *command]
        self.log.write('$ ' + ' '.join(command) + '\n')
        self.log.flush()
        begin = os.path.getsize(self.path)
        try:
            process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **(env or {})}, stdout=self.log,
                stderr=self.log, start_new_session=True,
                stdin=subprocess.DEVNULL if text_in is None else subprocess.PIPE)
        except OSError as error:
            self.log.write(f'{command[0]}: {error.strerror}\n')
            self.keep(begin)
            return 127
        try:
            process.communicate(text_in.encode() if text_in is not None else None, timeout=limit)
        except subprocess.TimeoutExpired:
            self.log.write(f'{command[0]}: not done within {limit} s\n')
            process.returncode = 124
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if process.returncode:
            self.keep(begin)
        return process.returncode

    def said(self, begin=0):
        """What stands in the log from there on."""
        self.log.flush()
        with open(self.path, encoding='utf-8', errors='replace') as log:
            log.seek(begin)
            return log.read()

    def keep(self, begin):
        """Keeps why the command failed whose output begins there."""
        self.details.append(report.reasons(self.said(begin).split('\n')))

    def must(self, command, what, **more):
        """A command whose success is one check; without it the step cannot go on."""
        status = self.run(command, **more)
        again = ' '.join(command)
        self.check(status == 0, f'{what} (status {status})', again)
        if status:
            raise Failed(what)


def build_dir(name):
    return os.path.join(TOP, 'build-' + name)


def repository_files(*patterns):
    """The files of the tree, those that match one of the patterns (none: all)."""
    found = subprocess.run([os.path.join(TOP, 'tools', 'lint'), '--files'], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return [path for path in found if os.path.exists(os.path.join(TOP, path)) and
            (not patterns or any(fnmatch.fnmatch(path, pattern) for pattern in patterns))]


def lint(step):
    step.must(['tools/lint'], 'tools/lint')
    for path in repository_files('*.py'):
        step.check(step.run([sys.executable, '-W', 'error', '-c',
                             'import ast, sys; ast.parse(open(sys.argv[1]).read())', path]) == 0,
                   path, f'python3 -m py_compile {path}')


def scripts(step):
    """Every shell script, found by its first line, through shellcheck."""
    for path in repository_files():
        full = os.path.join(TOP, path)
        if os.path.isfile(full) and not os.path.islink(full):
            with open(full, 'rb') as file:
                first = file.readline()
            match = re.match(rb'#!\S*[/ ](env )?(sh|bash|bats)\b', first)
            if match:
                command = ['shellcheck', '-x', path]
                if match.group(2) == b'bats':    # which stops at a failing cd by itself
                    command[1:1] = ['--severity=warning', '--exclude=SC2164']
                step.check(step.run(command) == 0, path, ' '.join(command))


def build(name, *targets):
    compiler, options, _ = BUILDS[name]

    def run(step):
        folder = build_dir(name)
        if not os.path.exists(os.path.join(folder, 'build.ninja')):
            shutil.rmtree(folder, ignore_errors=True)
            plus = {'clang-14': 'clang++-14', 'gcc': 'g++'}[compiler]
            # Meson looks for the cache by itself only where it chooses the compiler, too.
            cache = 'ccache ' if shutil.which('ccache') else ''
            step.must(['meson', 'setup', folder, *options], 'meson setup',
                      env={'CC': cache + compiler, 'CXX': cache + plus})
        wanted = targets
        if name in CHOSEN:
            wanted = needed(folder, CHOSEN[name])
        elif name == 'clang' and not whole():
            wanted = needed(folder, ['--suite', 'none'])
            step.note = 'the programs of the tests are left to another turn (all: tools/test ' \
                        '--long "build clang")'
        step.must(['ninja', '-j', str(CORES), '-C', folder, *wanted], f'build with {compiler}')
    return run


def servers(step):
    """What no package has, and takes minutes to make: once, before a test waits for it."""
    for what in ('ferretdb', 'hidane', 'mongo-java-server', 'go-server nats-server',
                 'go-server versitygw', 'node-packages', 'node-versions', 'porcupine',
                 'python-packages', 'wheel-servers', 'node-packages tests/guards/web',
                 'bench-peers matplotlib', 'node-packages bindings/node/test/runners',
                 'node-packages bindings/python/tests/pyright'):
        command = f'tools/{what}'
        step.check(step.run(command.split()) == 0, command, command)


def count_points(step, folder, log, env_text):
    """Counts the test points in this log of a `meson test`: what ran, not what was listed."""
    for line in open(log, encoding='utf-8'):
        test = json.loads(line)
        step.took.append((test.get('duration', 0), test['name'].split(' / ')[-1]))
        again = f'{env_text}meson test -C {os.path.relpath(folder, TOP)} ' \
                f'--print-errorlogs {test["name"].split(" / ")[-1]}'
        points = re.findall(r'^(not ok|ok)\b([^\n]*)', test['stdout'], flags=re.M)
        bad = [text for word, text in points
               if word == 'not ok' or re.search(r'#\s*(skip|todo)\b', text, flags=re.I)]
        step.passed += len(points) - len(bad)
        for text in bad:
            step.failed.append((f'{test["name"]}:{text}', again))
        if not bad and test['result'] != 'OK':
            step.failed.append((f'{test["name"]}: {test["result"]}', again))
        elif not points:
            step.failed.append((f'{test["name"]}: no test points', again))
        if bad or test['result'] != 'OK':
            said = [*test['stdout'].split('\n')[-200:],
                    *test.get('stderr', '').split('\n')[-200:]]
            head = f'---- {test["name"]}: {test["result"]}'
            step.log.write('\n'.join([head, *said]) + '\n')
            step.details.append([head, *report.reasons(said)])


def left_out(count, step_name):
    """Which turn this is, and how to run what it leaves out."""
    this = int(os.environ['HF_TURN'])
    return f'turn {this % shares() + 1} of {shares()}: {count} tests are left to the others ' \
           f'(HF_TURN={this + 1} to {this + shares() - 1} tools/test "{step_name}"; ' \
           f'all: tools/test --long "{step_name}")'


def tests(name, selection, processes=2 * CORES):
    def run(step):
        folder = build_dir(name)
        chosen = of_suites(folder, selection)
        # A build with a sanitizer tries another share than the one without.
        names = in_turn(chosen, int(os.environ['HF_TURN']) + list(BUILDS).index(name), name)
        if len(names) < len(chosen):
            step.note = left_out(len(chosen) - len(names), step.name)
        env = BUILDS[name][2]
        before = []
        if name == 'tsan' and subprocess.run(['setarch', '-R', 'true'],
                                             capture_output=True).returncode == 0:
            before = ['setarch', '-R']    # wide address randomization is too much for it
        base = step.name.replace(' ', '-')    # two steps may test one build at the same time
        log = os.path.join(folder, 'meson-logs', base + '.json')
        if os.path.exists(log):
            os.unlink(log)
        status = step.run([*before, 'meson', 'test', '-C', folder, '--no-rebuild', '--logbase',
                           base, '--timeout-multiplier', str(PATIENCE), '--num-processes',
                           str(processes), *names], env=env)
        if not os.path.exists(log):
            step.check(False, f'meson test (status {status})', f'meson test -C {folder}')
            return
        step.details.clear()    # each failed test says itself why
        count_points(step, folder, log,
                     ' '.join([f"{k}='{v}'" for k, v in env.items()] + before + ['']))
        if status and not step.failed:
            step.check(False, f'meson test (status {status})', f'meson test -C {folder}')
    return run


def headers(step):
    """Each public header alone, by the oldest languages that it promises, and by the newest."""
    for path in repository_files('include/*.h', 'include/*.hpp'):
        cpp = ['c++11', 'c++17', 'c++20']
        for standard in cpp if path.endswith('.hpp') else ['c99', 'c11', 'c17', *cpp]:
            for compiler in (['g++', 'clang++-14'] if '+' in standard else ['gcc', 'clang-14']):
                language = 'c++' if '+' in standard else 'c'
                command = [compiler, f'-std={standard}', '-Wall', '-Wextra', '-Wpedantic',
                           '-Werror', '-Iinclude', '-fsyntax-only', '-x', language, '-include',
                           os.path.basename(path), '/dev/null']
                step.check(step.run(command) == 0, f'{path} as {standard}', ' '.join(command))


def declared(header='*.h'):
    """The public functions as the headers declare them, one normalized line each, sorted."""
    found = []
    for path in repository_files('include/' + header):
        text = open(os.path.join(TOP, path), encoding='utf-8').read()
        text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
        text = re.sub(r'^\s*#.*?(?<!\\)$', '', text, flags=re.M | re.S)
        for match in re.finditer(r'\bHF_API\b([^;{]*);', text):
            line = re.sub(r'\bHF_MUST_USE\b|__attribute__.*', ' ', match.group(1), flags=re.S)
            line = re.sub(r'\s+', ' ', line).strip()
            found.append((re.search(r'(\w+)\(', line).group(1), line))
    return sorted(found)


def sizes():
    """What else is in the ABI: the sizes of the public structs, the numbers of the public enums."""
    text = open(os.path.join(TOP, 'include', 'holdfast.h'), encoding='utf-8').read()
    structs = re.findall(r'^typedef struct (hf_\w+) \{', text, flags=re.M)
    numbers = re.findall(r'^ +(HF_\w+) = \d', text, flags=re.M)
    numbers += ['HF_' + name for name in re.findall(r'^ +X\((\w+), +-?\d', text, flags=re.M)]
    program = '#include <holdfast.h>\n#include <stdio.h>\nint main(void)\n{\n' + ''.join(
        [f'    printf("sizeof({name}) = %d\\n", (int)sizeof({name}));\n' for name in structs] +
        [f'    printf("{name} = %d\\n", (int){name});\n' for name in numbers]) + '}\n'
    source = os.path.join(LOGS, 'sizes.c')
    with open(source, 'w', encoding='utf-8') as file:
        file.write(program)
    subprocess.run(['gcc', '-I' + os.path.join(TOP, 'include'), '-o', source[:-2], source],
                   check=True)
    return subprocess.run([source[:-2]], check=True, capture_output=True, text=True).stdout


def api(step):
    """The library exports what the headers declare, and that is what it was."""
    snapshot = os.path.join(TOP, 'tests', 'api.txt')
    now = ''.join(line + '\n' for _, line in declared()) + sizes()
    if os.environ.get('HF_API_NEW'):
        with open(snapshot, 'w', encoding='utf-8') as file:
            file.write(now)
    was = open(snapshot, encoding='utf-8').read() if os.path.exists(snapshot) else ''
    for line in difflib.unified_diff(was.splitlines(), now.splitlines(), 'tests/api.txt',
                                     'the headers', lineterm='', n=0):
        step.log.write(line + '\n')
    step.check(was == now, 'the headers are what tests/api.txt says; if that is meant, write it '
               'anew', 'HF_API_NEW=1 tools/test api')
    names, folder = {name for name, _ in declared()}, build_dir('gcc')
    for file, options, good in (
            ('libholdfast.so', ['-D'], lambda name: name in names),
            ('libholdfast.a', [], lambda name: name.startswith('hf_'))):
        exported = {name.partition('@')[0] for name in symbols(folder, file, *options)}
        strange = sorted(name for name in exported if not good(name))
        step.log.write(f'{file}: {len(exported)} symbols; not hf_ or not declared: {strange}\n')
        step.check(exported and not strange, f'{file} exports {strange}', f'nm -g build-gcc/{file}')
        missing = sorted(names - exported)
        step.log.write(f'{file}: declared but not there: {missing}\n')
        step.check(not missing, f'{file} lacks {missing}', f'nm -g build-gcc/{file}')
    versioned(step, folder, names)
    # What only `doctor` and the tests need is in no library that is installed.
    for own in ('libconform.a', 'tests/fakes/libfaults.a'):
        own_names = symbols(folder, own)
        inside = own_names & (symbols(folder, 'libholdfast.a') | names)
        step.check(own_names and not inside, f'libholdfast has {sorted(inside)} of {own}',
                   f'nm -g build-gcc/{own}')


def manuals(step):
    pages = repository_files('man/*.[1357]')
    step.check(bool(pages), 'there are manual pages', 'ls man')
    for path in pages:
        step.check(step.run(['mandoc', '-T', 'lint', '-W', 'warning', path]) == 0, path,
                   f'mandoc -T lint -W warning {path}')
    # Every public function has its place in the manual, under a page's name or a link's.
    listed = open(os.path.join(TOP, 'man', 'meson.build'), encoding='utf-8').read()
    for name, _ in declared('holdfast.h'):
        step.check(f"'{name}'" in listed and any(
            re.search(rf'^\.F[no] "?{name}\b', open(os.path.join(TOP, path)).read(), flags=re.M)
            for path in pages), f'{name} in the manual', f'grep -rw {name} man')
    table = open(os.path.join(TOP, 'man', 'holdfast.3'), encoding='utf-8').read()
    header = open(os.path.join(TOP, 'include', 'holdfast.h'), encoding='utf-8').read()
    codes = messages.codes(header)
    step.check(len(codes) == header.count(' X('), 'each code of holdfast.h is understood',
               'grep " X(" include/holdfast.h')
    for code in codes:
        row = '.It Dv HF_{} Ta {} Ta {} Ta {}\n'.format(*code[:4]).replace(' -', ' \\-')
        step.check(row in table, f'holdfast.3 has: {row.strip()}', 'grep "It Dv" man/holdfast.3')


def memory(step):
    """The command under valgrind, through a life: nothing is read that wasn't written. Leaks are
    the address sanitizer's: valgrind would search all of the address range reserved for a store."""
    holdfast = os.path.join(build_dir('gcc'), 'cli', 'holdfast')
    store = os.path.join(LOGS, 'valgrind.store')
    if os.path.exists(store):
        os.unlink(store)
    for words in (['run', 'a', '--', 'true'], ['once', 'b', '--', 'true'],
                  ['once', 'b', '--', 'true'], ['ls', '--all'], ['show', 'a', '--json'],
                  ['acquire', 'c', '--lease', '10'], ['stores'], ['prune', '--idle', '60']):
        command = ['valgrind', '-q', '--error-exitcode=99', '--leak-check=no',
                   '--trace-children=no', holdfast, '-S', 'file:' + store, *words]
        step.check(step.run(command) == 0, ' '.join(words), ' '.join(command))


def fuzz(step):
    """Each target for some seconds, two at once; the seed is another for each commit. Before a
    release, for an hour: HF_FUZZ_SECONDS=3600 HF_FUZZ_SEED=0 tools/test fuzz."""
    seconds = os.environ.get('HF_FUZZ_SECONDS', '5')
    seed = os.environ.get('HF_FUZZ_SEED') or str(int(os.environ['HF_TURN']) + 1)
    step.run(['tests/fuzz/run', build_dir('fuzz'), seconds],
             env={**BUILDS['fuzz'][2], 'HF_FUZZ_SEED': seed}, limit=12 * int(seconds) + LIMIT)
    text = step.said()
    step.passed += len(re.findall(r'^ok\b', text, flags=re.M))
    for what in re.findall(r'^not ok\b([^\n]*)', text, flags=re.M):
        step.failed.append((what, 'tools/test fuzz'))
    listed = re.search(r'^1\.\.(\d+)', text, flags=re.M)
    step.check(listed and int(listed.group(1)) == step.passed + len(step.failed),
               'every target ran', 'tools/test fuzz')


def release(step):
    """Artefacts for this machine's processor and system, those whose turn it is, installed where
    there is no compiler. All of them, and twice: tools/release --again, then tests/release/all."""
    out = 'build-release'
    cpu = {'x86_64': 'x64', 'aarch64': 'arm64'}[os.uname().machine]
    parts = of_the_release()
    libcs = [part for part in parts if part != 'deb']
    words = [word for libc in libcs for word in ('--target', f'linux-{cpu}-{libc}')]
    words += ['--deb'] if 'deb' in parts else []
    step.must(['tools/release', '--work-tree', *words, out], 'tools/release')
    if parts != RELEASE:
        step.note = f'only {parts[0]}: the rest is left to other turns (tools/test --long release)'
    todo = [['notes_test.py', '.'], ['bill_test.py', out]]
    todo += [['wheel_test.py', out], ['install_test.py', '.', out, *libcs],
             ['release_test.py', '.', out, *libcs]] if libcs else []
    todo += [['npm_test.py', '.', out], ['pythons_test.py', '.', out]] if 'gnu' in parts else []
    todo += [[name + '_test.py', '.', out] for name in (
        'alpine', 'rpm', 'beside', 'recipes')] if 'musl' in parts else []
    todo += [['deb_test.py', '.', out], ['macos_test.py', '.']] if 'deb' in parts else []
    for test in todo:
        before = os.path.getsize(step.path)
        words = ['tests/release/' + test[0], *test[1:]]
        status = step.run([sys.executable, *words])
        said = step.said(before)
        step.passed += len(re.findall(r'^ok\b', said, flags=re.M))
        again = 'python3 ' + ' '.join(words)
        bad = re.findall(r'^not ok\b([^\n]*)', said, flags=re.M)
        step.failed += [(what, again) for what in bad]
        step.check(status == 0 or bad, f'{test[0]} came to its end', again)


def author(step):
    """A driver that is built elsewhere, with what is installed: tests/author/author_test.py."""
    status = step.run([sys.executable, 'tests/author/author_test.py', TOP, build_dir('gcc')])
    said = step.said()
    step.passed += len(re.findall(r'^ok\b', said, flags=re.M))
    again = 'python3 tests/author/author_test.py . build-gcc'
    step.failed += [(what, again) for what in re.findall(r'^not ok\b([^\n]*)', said, flags=re.M)]
    step.check(status == 0 or step.failed, 'all of it was tried', again)


def demo(step):
    """The README's first command, as it is."""
    step.must(['tools/demo', '--tap'], 'tools/demo')
    step.passed += len(re.findall(r'^ok\b', step.said(), flags=re.M))


# name -> (function, the steps that it stands on). In this order.
STEPS = {
    'lint': (lint, []),
    'scripts': (scripts, []),
    'servers': (servers, []),
    'build gcc': (build('gcc'), []),
    # Most of the time is spent waiting: for leases to end, for servers to start.
    'test gcc': (tests('gcc', ['--no-suite', 'stores', '--no-suite', 'compute']), ['build gcc']),
    'test stores': (tests('gcc', ['--suite', 'stores']), ['servers', 'build gcc']),
    'test compute': (tests('gcc', ['--suite', 'compute'], CORES), ['servers', 'build gcc']),
    'api': (api, ['build gcc']),
    'headers': (headers, []),
    'manuals': (manuals, []),
    'build clang': (build('clang'), []),
    'build asan': (build('asan'), []),
    'test asan': (tests('asan', CHOSEN['asan']), ['servers', 'build asan']),
    'build tsan': (build('tsan'), []),
    'test tsan': (tests('tsan', CHOSEN['tsan'], CORES), ['build tsan']),
    'build fuzz': (build('fuzz', 'fuzz'), []),
    'fuzz': (fuzz, ['build fuzz']),
    'memory': (memory, ['build gcc']),
    'author': (author, ['build gcc']),
    'release': (release, []),
    'demo': (demo, []),
}
# What the tests leave of the machine while they wait makes the other builds meanwhile, the soonest
# needed first, and then what else has no time to keep to.
ASIDE = ['build asan', 'test compute', 'build tsan', 'build fuzz', 'build clang', 'lint', 'scripts',
         'api', 'headers', 'manuals', 'memory', 'author', 'release']
QUICK = {**{name: STEPS[name]
            for name in ('lint', 'scripts', 'servers', 'build gcc', 'build fuzz')},
         # What takes long or needs a store's server is left to the rest.
         'test quick': (tests('gcc', [word for suite in ('plain', 'torture', 'sim', 'turns',
                                                         'stores', 'compute')
                                      for word in ('--no-suite', suite)], 4 * CORES),
                        ['servers', 'build gcc'])}


def do_step(name, function, ruined):
    """Runs one step and prints its line; returns it."""
    if TTY:
        print(f'      {name} ...', end='\r', flush=True)
    started = time.monotonic()
    step = Step(name, ['nice', '-n', '10'] if name in ASIDE else [])
    step.ruined = ruined
    try:
        if ruined:
            step.check(False, f'not run: {ruined} failed', f'tools/test "{ruined}"')
        else:
            function(step)
    except Failed:
        pass
    if not step.passed and not step.failed:
        step.check(False, 'nothing ran', f'tools/test "{name}"')
    with PRINTING:
        report.show(step, time.monotonic() - started, TOP)
    step.log.close()
    return step


def main(words):
    steps = {**STEPS, **{name: how for name, how in QUICK.items() if name not in STEPS}}
    if words == ['--list']:
        print('\n'.join(steps))
        return 0
    if words[:1] == ['--long']:
        os.environ['HF_LONG'] = '1'
        words = words[1:]
    if words == ['--quick']:
        chosen = list(QUICK)
    else:
        unknown = [word for word in words if word not in steps]
        if unknown:
            print(f'tools/test: no step "{unknown[0]}": {", ".join(steps)}', file=sys.stderr)
            return 64
        chosen = words or list(STEPS)
        needed = {base for name in chosen for base in steps[name][1]}
        chosen = [name for name in steps if name in needed or name in chosen]
    os.chdir(TOP)
    os.makedirs(LOGS, exist_ok=True)
    os.environ['HF_TURN'] = turn()
    # A compiler's cache is good for a checkout in another directory, too; only debug information
    # names it.
    os.environ.setdefault('CCACHE_NOHASHDIR', '1')
    done, ended = {name: threading.Event() for name in chosen}, {}

    def run_all(names):
        try:
            for name in names:
                function, bases = steps[name]
                for base in bases:
                    done[base].wait()
                # Without a server its own tests fail, and no others.
                ruined = next((base for base in bases if base != 'servers' and
                               (base not in ended or ended[base].failed)), None)
                ended[name] = do_step(name, function, ruined)
                done[name].set()
        finally:    # nobody waits for what doesn't come
            for name in names:
                done[name].set()

    def aside():
        if 'build gcc' in chosen:    # which has the machine for itself
            done['build gcc'].wait()
        run_all([name for name in ASIDE if name in chosen])

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        builds = pool.submit(aside)
        run_all([name for name in chosen if name not in ASIDE])
        builds.result()
    passed = sum(step.passed for step in ended.values())
    failed = sum(len(step.failed) for step in ended.values())
    report.summary(ended.values())
    print(f'{passed} passed, {failed} failed')
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
