"""Prints the table of packaging/README.md: how large the artefacts of this processor are, packed
and installed, and how long each takes to install.

    sizes.py OUT      OUT: the artefacts of tools/release; as root
"""
import glob
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from npm_registry import Registry                                       # noqa: E402

OUT = os.path.abspath(sys.argv[1])
CPU = platform.machine()
NAME = {'x86_64': 'x64', 'aarch64': 'arm64'}[CPU]
TIMES = 3


def found(pattern):
    return glob.glob(os.path.join(OUT, pattern))[0]


def size(path):
    """Bytes of the regular files below a folder, or of one."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.lstat(os.path.join(folder, name)).st_size
               for folder, _, names in os.walk(path) for name in names)


def row(what, files, install):
    """A line of the table; install(folder, cache) fills a new folder."""
    seconds = []
    with tempfile.TemporaryDirectory(prefix='holdfast-sizes.') as work:
        for turn in range(TIMES):
            folder = os.path.join(work, str(turn))
            os.mkdir(folder)
            before, started = size(folder), time.monotonic()
            install(folder, work)
            seconds.append(time.monotonic() - started)
            installed = size(folder) - before
    packed = sum(map(size, files)) / 1e6
    print(f'| {what} | {packed:.1f} MB | {installed / 1e6:.1f} MB | '
          f'{statistics.median(seconds):.1f} s |')


def run(*command, **more):
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                   stderr=subprocess.STDOUT, check=True, **more)


def main():
    archive = found(f'holdfast-*-linux-{NAME}.tar.gz')
    row(f'command, {NAME}: `tar -xzf`', [archive],
        lambda folder, _: run('tar', '-xzf', archive, '-C', folder))
    rpm = found(f'holdfast-*.{CPU}.rpm')
    row(f'rpm, {CPU}: `rpm -i`', [rpm], lambda folder, _: (
        run('rpm', '--root', folder, '--dbpath', '/var/lib/rpm', '--force-debian', '-i', rpm),
        shutil.rmtree(os.path.join(folder, 'var'))))
    packages = [found('holdfast-[0-9]*.tgz'), found(f'holdfast-linux-{NAME}-gnu-*.tgz')]
    with Registry(OUT) as url:
        row(f'npm, {NAME} gnu: `npm install holdfast`', packages, lambda folder, work: run(
            'npm', 'install', '--no-audit', '--no-fund', '--registry', url, '--cache',
            os.path.join(work, 'cache'), 'holdfast', cwd=folder))
    wheel = found(f'*manylinux*_{CPU}.whl')
    with tempfile.TemporaryDirectory(prefix='holdfast-sizes.') as venv:
        run('/usr/bin/python3', '-m', 'venv', venv)
        row(f'wheel, {CPU} manylinux: `pip install`', [wheel], lambda folder, _: run(
            os.path.join(venv, 'bin', 'pip'), 'install', '--no-index', '--target', folder, wheel))


if __name__ == '__main__':
    main()
