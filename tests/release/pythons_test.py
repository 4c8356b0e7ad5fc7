"""Installs the wheel for glibc in a virtual environment of each Python that is here (python3.N in
the PATH, and pyenv's), from the oldest promised one on, and uses it there. The results are TAP.

    pythons_test.py SOURCE OUT

SOURCE: the checkout, for the README's example and the package's own tests. OUT: the artefacts.
release_test.py tries more, with Debian's Python.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.dont_write_bytecode = True
from points import end, point                                           # noqa: E402

WORK = tempfile.mkdtemp(prefix='holdfast-pythons.')
OLDEST = (3, 9)
TESTS = os.path.join(WORK, 'tests')


def run(*command, **env):
    """(status, output), with nothing in the PATH."""
    done = subprocess.run(command, cwd=WORK, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=1000,
                          env={'PATH': '/nowhere', 'HOME': WORK, 'LANG': 'C.UTF-8', **env})
    return done.returncode, done.stdout


def ran(what, status_said, pattern=''):
    status, said = status_said
    good = status == 0 and bool(re.search(pattern, said, flags=re.M))
    point(good, what, f'status {status}\n{said}')
    return good


def interpreters():
    """{(3, N): path} of those that can start."""
    there = {}
    for path in ['/usr/bin/python3', *glob.glob(os.path.expanduser(
            '~/.pyenv/versions/3.*/bin/python3')),
                 *(shutil.which(f'python3.{minor}') for minor in range(OLDEST[1], 30))]:
        status, said = run(path, '-c', 'import sys; print(*sys.version_info[:2])',
                           PATH=os.environ['PATH']) if path else (1, '')
        if status == 0 and tuple(map(int, said.split())) >= OLDEST:
            there.setdefault(tuple(map(int, said.split())), path)
    return there


def one(name, program):
    venv = os.path.join(WORK, name)
    subprocess.run([program, '-m', 'venv', venv], check=True)
    inside = os.path.join(venv, 'bin', 'python3')
    if not ran(f'{name}: pip install', run(
            inside, '-m', 'pip', 'install', '--no-index', '--only-binary', ':all:',
            '--find-links', OUT, 'holdfast-lock')):
        return
    python = [inside, '-W', 'error']
    with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
        example = re.search(r'^```python\n(.*?)^```$', file.read(), flags=re.M | re.S).group(1)
    example = re.sub(r"'postgres:[^']*'", f"'file:{WORK}/seats-{name}'", example, count=1)
    ran(f"{name}: the README's example, on a file", run(*python, '-c', example),
        r'^sold by token \d+$')
    for store in ('mem:x', 'file:@'):
        ran(f'{name}: the table of cases on {store}', run(
            *python, os.path.join(TESTS, 'cases_test.py'),
            os.path.join(SOURCE, 'bindings', 'cases.json'), store), '^ok 40 ')
    ran(f'{name}: its life on file:', run(*python, os.path.join(TESTS, 'life_test.py'), 'file:@'),
        '^ok 1 ')


def main():
    try:
        shutil.copytree(os.path.join(SOURCE, 'bindings', 'python', 'tests'), TESTS)
        there = interpreters()
        point(there, 'there are Pythons', there)
        for (major, minor), program in sorted(there.items()):
            one(f'{major}.{minor}', program)
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
