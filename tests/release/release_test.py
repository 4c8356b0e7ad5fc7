"""Installs the artefacts of tools/release where there is no compiler, no header and no checkout,
and uses them there. The results are TAP.

    release_test.py SOURCE OUT [LIBC...]

SOURCE: the checkout, for the README's examples and the packages' own tests. OUT: the artefacts.
LIBC: gnu, the packages for Node and Python; musl, the command alone. Default: both.
What is of another processor runs by qemu-user, which shows that it works there, but nothing of that
processor's order of memory accesses: the emulator keeps the stronger one of its own.
"""
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from npm_registry import Registry
from points import end, point
sys.path.insert(0, os.path.join(os.path.abspath(sys.argv[1]), 'packaging'))
import openssl
import toolchain
from build import DRIVERS, MODULES

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
LIBCS = sys.argv[3:] or ['gnu', 'musl']
WORK = tempfile.mkdtemp(prefix='holdfast-artefacts.')
THIS = {'x86_64': 'x64', 'aarch64': 'arm64'}[platform.machine()]
EMULATORS = {'x64': 'qemu-x86_64', 'arm64': 'qemu-aarch64'}
# tests/servers has one of each, which speaks TLS, too.
SERVERS = ['redis', 's3', 'etcd', 'firestore', 'postgres', 'mongodb']
# libpq wants the authorities in a file that is named to it: sslrootcert.
TRUSTING = [server for server in SERVERS if server != 'postgres']
# libmongoc would log that it has no such compression.
LOGS = 'mongodb://127.0.0.1:1/test?compressors=snappy'
# The driver of this store is only in Debian packages; what each of the other artefacts says of it.
ABSENT = 'nats://127.0.0.1:1'
ELSEWHERE = ("install Debian's packages holdfast and holdfast-nats, or build Holdfast, or its "
             'package for Node or Python, from a clone after `tools/setup build`')
# With this openssl.cnf OpenSSL would find no algorithm, as none here is of FIPS.
NO_ALGORITHM = '''
openssl_conf = all
[all]
alg_section = algorithms
[algorithms]
default_properties = fips=yes
'''


def run(*command, cwd=WORK, path='', **env):
    """(status, output), with nothing in the PATH but what is named."""
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=3000,
                          env={'PATH': path or os.path.join(WORK, 'nothing'), 'HOME': WORK,
                               'LANG': 'C.UTF-8', **env})
    return done.returncode, done.stdout


def beside(server, *command, **env):
    """A command beside a server of tests/servers, whose URL is @."""
    return run(os.path.join(SOURCE, 'tests', 'servers', server), *command,
               path=os.environ['PATH'], HOLDFAST_CACHE=toolchain.CACHE, **env)


def shell_on_tls(server, *command, **env):
    """A script of the shell beside a server whose URL over TLS is $HOLDFAST_TEST_TLS."""
    return beside(server, '/bin/sh', '-c', *command, HOLDFAST_TEST_TCP='1',
                  HOLDFAST_TEST_TLS_ONLY='1', **env)


def on_tls(server, *command):
    """A command beside a server; @TLS is its URL over TLS."""
    return shell_on_tls(server, 'for word; do shift; '
                        '[ "$word" != @TLS ] || word=$HOLDFAST_TEST_TLS; '
                        'set -- "$@" "$word"; done; exec "$@"', 'sh', *command)


def ran(what, status, said, pattern=''):
    point(status == 0 and re.search(pattern, said, flags=re.M), what, f'status {status}\n{said}')


def artefact(pattern):
    found = glob.glob(os.path.join(OUT, pattern))
    return found[0] if len(found) == 1 else None


def readme(language):
    """The first example in this language."""
    with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
        return re.search(rf'^```{language}\n(.*?)^```$', file.read(), flags=re.M | re.S).group(1)


def write(path, text):
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)


def names(*programs):
    """A folder with these programs and no others, for a PATH."""
    folder = os.path.join(WORK, 'bin-' + '-'.join(programs))
    if not os.path.exists(folder):
        os.mkdir(folder)
        for name in programs:
            os.symlink(shutil.which(name), os.path.join(folder, name))
    return folder


# ---- the command ----

def command(cpu):
    """The static command, alone in a root directory of its own with /proc."""
    archive = artefact(f'holdfast-*-linux-{cpu}.tar.gz')
    if not archive:
        point(False, f'there is a command for {cpu}', os.listdir(OUT))
        return
    root = os.path.join(WORK, 'root-' + cpu)
    for name in ('proc', 'tmp'):
        os.makedirs(os.path.join(root, name))
    with tarfile.open(archive) as tar:
        entry = next(one for one in tar if one.name.endswith('/bin/holdfast'))
        with open(os.path.join(root, 'holdfast'), 'wb') as file:
            shutil.copyfileobj(tar.extractfile(entry), file)
    os.chmod(os.path.join(root, 'holdfast'), 0o755)
    start = ['/usr/bin/env', 'unshare', *([] if os.geteuid() == 0 else ['-r']), '-m', '-p', '-f',
             f'--mount-proc={root}/proc', 'chroot', root]
    if cpu != THIS:
        emulator = shutil.which(EMULATORS[cpu])
        if not emulator:
            point(False, f'{EMULATORS[cpu]} is installed (tools/setup release)')
            return
        start = [emulator]
    inside = [*start, '/holdfast' if cpu == THIS else os.path.join(root, 'holdfast')]
    where = '' if cpu == THIS else root

    def holdfast(*words, path=os.environ['PATH']):
        return run(*inside, *words, path=path)

    status, said = holdfast('stores')
    ran(f'{cpu}: its stores are built in', status, said, 'mem')
    point(all(re.search(rf'^ *{name}\b', said, flags=re.M)
              for name in ('mem', 'file', *DRIVERS)), f'{cpu}: all of them', said)
    status, said = holdfast('-S', LOGS, 'ls')
    point(said.count('\n') == 1 and status == 69, f'{cpu}: libmongoc says nothing itself', said)
    status, said = holdfast('-S', 'mongodb+srv://x', 'ls')
    point(status == 64 and 'write mongodb: with the hosts' in said,
          f'{cpu}: of names that the DNS leads to others it says what to write', said)
    status, said = holdfast('-S', ABSENT, 'ls')
    point(status == 64 and 'static program, which loads no drivers: ' + ELSEWHERE in said,
          f'{cpu}: of another store it says that it is static', f'{status} {said}')
    for url in ('mem:', f'file:{where}/tmp/locks', f'sqlite:{where}/tmp/locks.db'):
        if url != 'mem:':    # the first lock makes the store
            holdfast('-S', url, 'acquire', 'first', '--lease', '1')
        status, said = holdfast('-S', url, 'doctor')
        ran(f'{cpu}: doctor {url.replace(where, "") if where else url}', status, said)
    # A server's socket isn't in the root directory.
    outside = ['/usr/bin/env', os.path.join(root, 'holdfast')] if cpu == THIS else inside
    ran(f'{cpu}: doctor redis:', *beside('redis', *outside, '-S', '@', 'doctor'))
    for server in SERVERS:
        # The first lock makes the store. PostgreSQL's doctor wants it to sync.
        ran(f'{cpu}: doctor {server} over TLS', *shell_on_tls(
            server, '"$@" -S "$HOLDFAST_TEST_TLS" run first -- /bin/true && '
            'exec "$@" -S "$HOLDFAST_TEST_TLS" doctor', 'sh', *outside, HOLDFAST_TEST_DURABLE='1'))
        if cpu == THIS and server in TRUSTING:
            status, said = shell_on_tls(server, 'exec "$0" "$@"', os.path.join(
                SOURCE, 'tests', 'release', 'trusts.sh'), root, ' '.join(openssl.BUNDLES), *inside)
            trusted = re.findall(r'^trusted: (.*)$', said, flags=re.M)
            point(trusted == openssl.BUNDLES and 'trusted by whom?' not in said,
                  f'{cpu}: {server}: trusts whom the distribution trusts, whichever it is', said)
    cnf = os.path.join(WORK, f'openssl-{cpu}.cnf')
    write(cnf, NO_ALGORITHM)
    for server in SERVERS:
        ran(f'{cpu}: {server} reads no openssl.cnf', *on_tls(
            server, '/usr/bin/env', f'OPENSSL_CONF={cnf}', *outside, '-S', '@TLS', 'run', 'second',
            '--', '/bin/true'))
    store = f'file:{where}/tmp/locks'
    self = '/holdfast' if cpu == THIS else '/bin/true'
    for words in (['run', 'a', '--', self, *(['stores'] if cpu == THIS else [])],
                  ['once', 'b', '--', self, *(['stores'] if cpu == THIS else [])], ['ls', '--all']):
        status, said = holdfast('-S', store, *words)
        ran(f'{cpu}: {words[0]}', status, said)
    status, said = holdfast('-S', store, 'once', 'b', '--', '/nowhere')
    ran(f'{cpu}: once more it is done', status, said, 'done')


# ---- the library and its drivers ----

SYSTEM = {'gnu': {'libc.so.6', 'libm.so.6', 'libpthread.so.0', 'libdl.so.2',
                  'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'}, 'musl': {'libc.so'}}
OTHERS = {'libholdfast.so.0', 'libsqlite3.so.0'}


def binaries(target):
    """What the binaries of a platform need is on every system that they are for."""
    libc = target.rsplit('-', 1)[1]
    folder = os.path.join(WORK, 'binaries-' + target)
    wheel = artefact('*{}*_{}.whl'.format({'gnu': 'manylinux', 'musl': 'musllinux'}[libc],
                                          {'x64': 'x86_64', 'arm64': 'aarch64'}[
                                              target.split('-')[1]]))
    package = artefact(f'holdfast-{target}-*.tgz')
    shutil.unpack_archive(package, os.path.join(folder, 'npm'), 'gztar')
    shutil.unpack_archive(wheel, os.path.join(folder, 'wheel'), 'zip')
    files = [path for path in glob.glob(os.path.join(folder, '**', '*'), recursive=True)
             if re.search(r'\.(so|so\.0|node)$', path)]
    point(len(files) == 2 * (2 + len(MODULES)),
          f'{target}: two libraries, their modules, two extensions', files)
    for path in files:
        name = f'{target}: {os.path.relpath(path, folder)}'
        _, said = run('readelf', '-dVW', path, path=os.environ['PATH'])
        needs = set(re.findall(r'\(NEEDED\).*\[(.*)\]', said))
        point('libc.so' in ' '.join(needs) and needs <= SYSTEM[libc] | OTHERS,
              f'{name}: needs nothing but the C library', needs)
        newer = [found for found in re.findall(r'GLIBC_(\d+\.\d+)', said)
                 if tuple(map(int, found.split('.'))) > (2, 17)]
        point(not newer, f'{name}: takes nothing newer than glibc 2.17', newer)
        with open(path, 'rb') as file:
            data = file.read()
        point(b'holdfast-release' not in data and SOURCE.encode() not in data,
              f'{name}: has no path of the build')
    library = os.path.join(folder, 'npm', 'package', 'libholdfast.so.0')
    _, said = run('readelf', '--dyn-syms', '-W', library, path=os.environ['PATH'])
    names_there = re.findall(r'(?:FUNC|OBJECT) .* \d+ (\w+)(?:@\S+)?$', said, flags=re.M)
    point(len(names_there) > 40 and all(name.startswith('hf_') and not name.startswith('hf__')
                                        for name in names_there),
          f'{target}: the library exports its public functions', names_there)
    loads(target, library)


LOADERS = {'linux-x64-musl': ['/lib/ld-musl-x86_64.so.1'],
           'linux-arm64-gnu': ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu'],
           'linux-arm64-musl': ['qemu-aarch64', '-L', 'ALPINE']}


def loads(target, library):
    """A program of that platform loads the library, as Node and Python do."""
    start = LOADERS.get(target, [])
    if target != f'linux-{THIS}-gnu' and not start:
        return    # this machine has no loader of that platform
    if 'ALPINE' in start:
        start = [*start[:-1], toolchain.run(os.path.join(SOURCE, 'tools', 'alpine'),
                                            'aarch64').splitlines()[-1]]
    built = os.path.join(WORK, 'loader-' + target)
    # Its C compiler alone links programs for musl statically, whatever it is told.
    status, said = run(toolchain.zig(), 'build-exe', '-dynamic', '-lc', '-target',
                       toolchain.TARGETS[target][0], '-I', os.path.join(SOURCE, 'include'),
                       f'-femit-bin={built}',
                       os.path.join(SOURCE, 'tests', 'release', 'loader.c'),
                       path=os.environ['PATH'],
                       **{name: os.environ[name] for name in os.environ if name[:4] == 'ZIG_'})
    ran(f'{target}: a program for it', status, said)
    program = ['/usr/bin/env', *start, built]
    status, said = run(*program, library, 'mem:', f'file:{WORK}/of-{target}',
                       f'sqlite:{WORK}/of-{target}.db', path=os.environ['PATH'])
    ran(f'{target}: loaded for itself alone, the library finds its drivers', status, said)
    status, said = run(*program, library, LOGS, path=os.environ['PATH'])
    point(said.count('\n') == 1 and status == 1, f'{target}: libmongoc says nothing itself', said)
    for server in SERVERS:
        status, said = on_tls(server, *program, library, '@', '@TLS')
        ran(f'{target}: it locks on {server}, over TLS, too', status, said)


# ---- Node ----

def npm(*words, cwd, **env):
    cli = os.path.realpath(shutil.which('npm'))
    return run(shutil.which('node'), cli, *words, '--no-audit', '--no-fund', '--cache',
               os.path.join(WORK, 'npm-cache'), cwd=cwd, path=names('node'), **env)


def project(name):
    folder = os.path.join(WORK, name)
    os.mkdir(folder)
    write(os.path.join(folder, 'package.json'), '{ "name": "app", "private": true }')
    return folder


WITHOUT = '''
Object.defineProperty(process, 'platform', { value: process.argv[2] });
const { KeyedMutex } = require('holdfast/mutex');
const { open } = require('holdfast');
new KeyedMutex().runExclusive('key', () => console.log('a mutex works')).then(() => open('mem:'))
    .catch((error) => console.log(error.code, error.message));
'''


def node():
    node_path = shutil.which('node')
    app = project('app')
    with Registry(OUT) as url:
        started = time.monotonic()
        status, said = npm('install', '--ignore-scripts', '--registry', url, 'holdfast', cwd=app)
        ran(f'npm install holdfast: {time.monotonic() - started:.1f} s', status, said)
        there = sorted(os.listdir(os.path.join(app, 'node_modules')))
        wanted = f'holdfast-linux-{THIS}-gnu'
        point([name for name in there if name.startswith('holdfast')] == ['holdfast', wanted],
              'it installs the binaries of this platform, and no others', there)
        bare = project('bare')
        status, said = npm('install', '--omit=optional', '--registry', url, 'holdfast', cwd=bare)
        ran('npm install --omit=optional', status, said)
    write(os.path.join(app, 'sell.mjs'), readme('js'))
    status, said = run(node_path, 'sell.mjs', cwd=app, path=names('node'))
    ran('the example of the README', status, said, r'^sold by token \d+ false$')
    package = os.path.join(app, 'node_modules', 'holdfast')
    shutil.copytree(os.path.join(SOURCE, 'bindings', 'node', 'test'), os.path.join(package, 'test'))
    for name in ('life', 'dropped'):
        life = [node_path, '--expose-gc', os.path.join(package, 'test', name + '.test.js')]
        for url in ('mem:x', f'file:{app}/{name}', f'sqlite:{app}/{name}.db'):
            ran(f'{name} on {url.split(":")[0]}:', *run(
                *life, url, '2000', cwd=app, path=names('node')))
        # Node has an OpenSSL of its own, whose names the addon's driver doesn't take.
        for server, rounds in (('redis', 2000), ('postgres', 2000), ('mongodb', 100)):
            ran(f'{name} on {server} over TLS', *on_tls(server, *life, '@TLS', str(rounds)))
    locks = shutil.copy(os.path.join(SOURCE, 'tests', 'release', 'locks.js'), app)
    status, said = run(node_path, locks, ABSENT, cwd=app, path=names('node'))
    point(status and 'not installed: ' + ELSEWHERE in said,
          'Node: of another store it says what to install', said)
    for server in SERVERS:
        ran(f'Node locks on {server} over TLS', *on_tls(server, node_path, locks, '@TLS'), '^true$')
    for system, pattern in (('linux', f'UNSUPPORTED open: .*package {wanted} isn.t installed'),
                            ('darwin', 'UNSUPPORTED open: .*no binary for darwin'),
                            ('win32', 'UNSUPPORTED open: .*no binary for win32')):
        write(os.path.join(bare, 'without.js'), WITHOUT)
        status, said = run(node_path, 'without.js', system, cwd=bare, path=names('node'))
        ran(f'without a binary, {system}: mutexes work, a store says what is missing', status, said,
            f'^a mutex works\n{pattern}')


# ---- Python ----

LOCKS = '''
import sys, holdfast
with holdfast.open(sys.argv[1]) as store, store.lock('key') as lock:
    print(lock.token > 0)
'''


def python():
    program = '/usr/bin/python3'
    venv, pip = os.path.join(WORK, 'venv'), os.path.join(WORK, 'pip')
    for folder, words in ((pip, []), (venv, ['--without-pip'])):
        subprocess.run([program, '-m', 'venv', *words, folder], check=True)
    started = time.monotonic()
    inside = os.path.join(venv, 'bin', 'python3')
    status, said = run(os.path.join(pip, 'bin', 'pip'), '--python', inside, 'install',
                       '--no-index', '--only-binary', ':all:', '--find-links', OUT,
                       'holdfast-lock', cwd=WORK, path=names('true'))
    ran(f'pip install holdfast-lock: {time.monotonic() - started:.1f} s', status, said)
    text, urls = re.subn(r"'postgres:[^']*'", "__import__('sys').argv[1]", readme('python'),
                         count=1)
    point(urls == 1, 'the example of the README opens a store on PostgreSQL', text)
    write(os.path.join(WORK, 'sell.py'), text)
    ran('the example of the README', *beside('postgres', inside, '-W', 'error', 'sell.py', '@'),
        r'^sold by token \d+$')
    tests = os.path.join(WORK, 'tests')
    shutil.copytree(os.path.join(SOURCE, 'bindings', 'python', 'tests'), tests)
    cases = [inside, '-W', 'error', os.path.join(tests, 'cases_test.py'),
             os.path.join(SOURCE, 'bindings', 'cases.json')]
    for store in ('mem:x', 'file:@', 'sqlite:@'):
        status, said = run(*cases, store)
        ran(f'the table of cases on {store}', status, said, '^ok 40 ')
    ran('the table of cases on redis:', *beside('redis', *cases, '@'), '^ok 40 ')
    for server in ('redis', 'postgres', 'mongodb'):
        ran(f'the table of cases on {server} over TLS', *on_tls(server, *cases, '@TLS'), '^ok 40 ')
    for server in SERVERS:
        ran(f'Python locks on {server} over TLS', *on_tls(server, inside, '-c', LOCKS, '@TLS'),
            '^True$')
    status, said = run(inside, '-c', LOCKS, ABSENT)
    point(status and 'not installed: ' + ELSEWHERE in said,
          'Python: of another store it says what to install', said)
    life = os.path.join(tests, 'life_test.py')
    ran('its life on file:', *run(inside, '-W', 'error', life, 'file:@'), '^ok 1 ')
    status, said = run(inside, '-c', 'import sqlite3, sys, holdfast\n'
                       f'holdfast.open("sqlite:{WORK}/one.db").close()\n'
                       'maps = open("/proc/self/maps").read().split()\n'
                       'print({one for one in maps if "sqlite3.so" in one})')
    ran("there is one SQLite in the process, the interpreter's", status, said,
        r"^\{'[^']*/libsqlite3\.so[^']*'\}$")


def main():
    try:
        os.mkdir(os.path.join(WORK, 'nothing'))
        for cpu in ('x64', 'arm64') if 'musl' in LIBCS else ():
            if artefact(f'holdfast-*-linux-{cpu}.tar.gz') or cpu == THIS:
                command(cpu)
        for target in toolchain.TARGETS:
            if artefact(f'holdfast-{target}-*.tgz'):
                binaries(target)
        for libc in LIBCS:
            wanted = f'holdfast-linux-{THIS}-{libc}-*.tgz'
            point(artefact(wanted), f'there is a package for {libc}', os.listdir(OUT))
        if 'gnu' in LIBCS:
            node()
            python()
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
