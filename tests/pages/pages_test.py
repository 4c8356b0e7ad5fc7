"""Runs every example of pages, as a user who has just installed the build would.

    pages_test.py SOURCE BUILD PAGE...
    tests/servers/KIND pages_test.py SOURCE BUILD PAGE...     # on that server's store

A page is a path below SOURCE. Its blocks of sh, python and js are run as they stand; where there is
a server, HOLDFAST_STORE names its store. Each has to succeed. If a block of text follows, the
program has to print it (`...` is any text; alone in its line, any lines). A page without an example
is a failure, and so is a language that isn't known.
"""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))
from pages import Home, blocks, shows
from points import end, point

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
PAGES = sys.argv[3:]
SHOWN = ('text', 'console', 'ini', 'c', 'cpp', 'sql', 'rules')   # not run


def run_sh(home, text):
    return home.sh(text)


def run_python(home, text):
    home.write('page.py', text)
    return home.sh(f'PYTHONPATH={BUILD}/bindings/python /usr/bin/python3 -W error page.py',
                   HOLDFAST_DRIVERS=BUILD)


def run_js(home, text):
    package = os.path.join(SOURCE, 'bindings', 'node')
    modules = os.path.join(home.path, 'node_modules')
    if not os.path.exists(modules):
        os.makedirs(modules)
        os.symlink(package, os.path.join(modules, 'holdfast'))
    home.write('page.mjs', text)
    home.env, own = {**os.environ, 'LANG': 'C.UTF-8'}, home.env     # the packages are in its cache
    done = home.sh(f'{package}/test/run {BUILD} {home.path}/page.mjs', limit=3000)
    home.env = own
    return done


RUNNERS = {'sh': run_sh, 'python': run_python, 'js': run_js}


def check(home, page):
    with open(os.path.join(SOURCE, page), encoding='utf-8') as file:
        found = list(blocks(file.read()))
    ran = 0
    for number, (language, text, line) in enumerate(found):
        where = f'{page}:{line} ({language or "no language"})'
        if language not in RUNNERS:
            if language not in SHOWN:
                point(False, f'{where}: nothing runs that', text)
            continue
        ran += 1
        status, said = RUNNERS[language](home, text)
        point(status == 0, f'{where}: status 0', f'status {status}\n{said}')
        after = found[number + 1] if number + 1 < len(found) else ('', '', 0)
        if after[0] == 'text' and after[2] == line + text.count('\n') + 3:
            point(shows(after[1], said), f'{where}: prints what stands below it', said)
    point(ran, f'{page} has an example that runs')


def main():
    folder = tempfile.mkdtemp(prefix='holdfast-pages-')
    try:
        home = Home(folder, BUILD)
        for name in ('HOLDFAST_TEST_STORE', 'FIRESTORE_EMULATOR_HOST', 'AWS_ACCESS_KEY_ID',
                     'AWS_SECRET_ACCESS_KEY'):
            if name in os.environ:
                home.env[name.replace('_TEST', '')] = os.environ[name]
        for number, page in enumerate(PAGES):
            home.path = home.env['HOME'] = os.path.join(folder, str(number))
            os.mkdir(home.path)
            if page.startswith('bench/'):    # for somebody with the sources
                os.symlink(os.path.join(SOURCE, 'bench'), os.path.join(home.path, 'bench'))
            check(home, page)
    finally:
        shutil.rmtree(folder)
    return end()


if __name__ == '__main__':
    sys.exit(main())
