"""Installs the npm package for musl by a Node that runs on musl (tools/musl-node), as on Alpine,
and uses it. The results are TAP.

    musl_test.py SOURCE OUT

SOURCE: the checkout. OUT: the artefacts of tools/release.
"""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True
import toolchain                                                        # noqa: E402
from npm_registry import Registry                                       # noqa: E402
from points import end, point                                           # noqa: E402

WORK = os.path.realpath(tempfile.mkdtemp(prefix='holdfast-musl.'))
CPU = platform.machine()
MINE = f'holdfast-linux-{ {"x86_64": "x64", "aarch64": "arm64"}[CPU] }-musl'
SERVERS = os.path.join(SOURCE, 'tests', 'servers')


def run(*command, cwd=WORK, **env):
    """(status, output), with nothing of the checkout's in the environment."""
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=1000,
                          env={'PATH': os.environ['PATH'], 'HOME': WORK, 'LANG': 'C.UTF-8', **env})
    return done.returncode, done.stdout


def ran(what, status_said, pattern=''):
    status, said = status_said
    good = status == 0 and bool(re.search(pattern, said, flags=re.M))
    point(good, what, f'status {status}\n{said}')
    return good


def preload():
    """The library that an older musl needs before this Node."""
    path = os.path.join(WORK, 'relr.so')
    toolchain.run(toolchain.zig(), 'cc', '-target', f'{CPU}-linux-musl', '-shared', '-fPIC', '-O2',
                  '-Wall', '-Wextra', '-Werror', '-o', path,
                  os.path.join(SOURCE, 'tests', 'release', 'relr.c'))
    return path


def main():
    node = [toolchain.run(os.path.join(SOURCE, 'tools', 'musl-node')).splitlines()[-1]]
    node = ['env', f'LD_PRELOAD={preload()}', *node]
    app = os.path.join(WORK, 'app')
    os.mkdir(app)
    try:
        ran('Node runs on musl', run(
            *node, '-p', 'process.report.getReport().header.glibcVersionRuntime'), '^undefined$')
        with Registry(OUT) as url:
            ran('npm install holdfast', run(
                *node, os.path.realpath(shutil.which('npm')), 'install', '--ignore-scripts',
                '--no-audit', '--no-fund', '--libc=musl', '--cache', os.path.join(WORK, 'cache'),
                '--registry', url, 'holdfast', cwd=app))
        there = sorted(name for name in os.listdir(os.path.join(app, 'node_modules'))
                       if name.startswith('holdfast'))
        point(there == ['holdfast', MINE], 'it installs the binaries for musl, no others', there)
        with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
            example = re.search(r'^```js\n(.*?)^```$', file.read(), flags=re.M | re.S).group(1)
        with open(os.path.join(app, 'sell.mjs'), 'w', encoding='utf-8') as file:
            file.write(example)
        if not ran('the example of the README', run(*node, 'sell.mjs', cwd=app),
                   r'^sold by token \d+ false$'):
            return end()
        package = os.path.join(app, 'node_modules', 'holdfast')
        shutil.copytree(os.path.join(SOURCE, 'bindings', 'node', 'test'),
                        os.path.join(package, 'test'))
        life = [*node, '--expose-gc', os.path.join(package, 'test', 'life.test.js')]
        for url in ('mem:x', f'file:{app}/life', f'sqlite:{app}/life.db'):
            ran(f'its life on {url.split(":")[0]}:', run(*life, url, '2000', cwd=app))
        # The server's control is a program for glibc, which can't have what is preloaded.
        for server, rounds in (('redis', 2000), ('mongodb', 100)):
            ran(f'its life on {server}:', run(os.path.join(SERVERS, server), 'env', '-u',
                                              'HOLDFAST_TEST_CONTROL', *life, '@', str(rounds)))
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
