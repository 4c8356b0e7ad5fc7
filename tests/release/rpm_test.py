"""Installs the rpm package of the static command in an empty root directory, uses and removes it;
and looks whether the apk package is what Alpine's apk takes (alpine_test.py installs it). The
results are TAP.

    rpm_test.py SOURCE OUT

SOURCE: the checkout. OUT: the artefacts of tools/release. Debian has no apk, so the apk package is
taken apart here: two streams, the second by the checksum that the first one says. Packages for the
other processor are tried by qemu-user, if they are there.
"""
import glob
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True
from chroot import as_root                                              # noqa: E402
from points import end, point                                           # noqa: E402

as_root(os.path.abspath(__file__))
WORK = tempfile.mkdtemp(prefix='holdfast-rpm.')
CPU = platform.machine()
OTHER = {'x86_64': 'aarch64', 'aarch64': 'x86_64'}[CPU]


def run(*command, **env):
    done = subprocess.run(command, cwd=WORK, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600,
                          env={**os.environ, 'LC_ALL': 'C.UTF-8', 'HOME': WORK, **env})
    return done.returncode, done.stdout


def ran(what, status_said, pattern=''):
    status, said = status_said
    point(status == 0 and re.search(pattern, said, flags=re.M), what, f'status {status}\n{said}')


def only(pattern):
    found = glob.glob(os.path.join(OUT, pattern))
    point(len(found) == 1, f'there is one {pattern}', os.listdir(OUT))
    return found[0] if len(found) == 1 else None


def readme(language):
    """The README's first example in this language."""
    with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
        return re.search(rf'^```{language}\n(.*?)^```$', file.read(), flags=re.M | re.S).group(1)


def script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.write('#!/bin/sh\n' + text)
    os.chmod(path, 0o755)


def used(what, root, cpu):
    """The command runs there, where nothing else is; the emulator enters no root directory."""
    program = os.path.join(root, 'usr', 'bin', 'holdfast')
    if cpu == CPU:
        for name in ('proc', 'tmp'):
            os.makedirs(os.path.join(root, name), exist_ok=True)
        inside = ['unshare', '-m', '-p', '-f', f'--mount-proc={root}/proc', 'chroot', root,
                  '/usr/bin/holdfast', '-S', 'file:/tmp/locks']
        command = [*inside, 'run', 'a', '--', '/usr/bin/holdfast', 'stores']
        start = [program]
    else:
        start = ['qemu-' + cpu, program]
        inside = [*start, '-S', f'file:{root}-locks']
        command = [*inside, 'run', 'a', '--', *start, 'stores']
    ran(f'{what}: holdfast run', run(*command), '^sqlite ')
    for words in (['doctor'], ['ls', '--all']):
        ran(f'{what}: holdfast {words[0]}', run(*inside, *words))
    # With a shell, which isn't there.
    path = root + '-bin'
    script(os.path.join(path, 'holdfast'), f'exec {" ".join(start)} "$@"\n')
    script(os.path.join(path, 'make-report'), 'echo "made by $HOLDFAST_TOKEN of $HOLDFAST_KEY"\n')
    ran(f"{what}: the README's first example", run(
        'sh', '-euc', readme('sh'), PATH=f'{path}:{os.environ["PATH"]}'),
        r'^made by \d+ of reports/nightly$')


def files(root):
    """The paths below usr."""
    return sorted(os.path.relpath(os.path.join(folder, name), root)
                  for folder, _, names in os.walk(os.path.join(root, 'usr')) for name in names)


def rpm(version, cpu):
    """What it installs."""
    package, name = only(f'holdfast-*.{cpu}.rpm'), f'rpm, {cpu}'
    if not package:
        return None
    root = os.path.join(WORK, 'rpm-' + cpu)
    os.mkdir(root)
    rpm_there = ['rpm', '--root', root, '--dbpath', '/var/lib/rpm']
    ran(f'{name}: its digests are right', run('rpm', '-K', '--nosignature', package), 'digests OK')
    ran(f'{name}: it has name, version and licence', run(
        'rpm', '-qp', '--qf', '%{NAME} %{VERSION} %{LICENSE} %{ARCH}', package),
        f'^holdfast {re.escape(version)} Apache-2.0 {cpu}$')
    status, said = run('rpm', '-qp', '--requires', package)
    point(status == 0 and all(line.startswith('rpmlib(') for line in said.splitlines()),
          f'{name}: it needs nothing', said)
    # --force-debian: rpm on Debian warns of a system whose packages are others.
    ran(f'{name}: it installs', run(*rpm_there, '--force-debian', *(
        ['--ignorearch'] if cpu == OTHER else []), '-i', package))
    ran(f'{name}: and is there as it was packed', run(*rpm_there, '-V', 'holdfast'), r'\A\Z')
    used(name, root, cpu)
    there = files(root)
    ran(f'{name}: it is removed', run(*rpm_there, '--force-debian', '-e', 'holdfast'))
    point(not files(root), f'{name}: nothing is left', files(root))
    return there


def streams(data):
    """The gzip streams that follow each other in `data`, as they are."""
    found = []
    while data:
        one = zlib.decompressobj(31)
        one.decompress(data)
        found.append(data[:len(data) - len(one.unused_data)])
        data = one.unused_data
    return found


def apk(version, cpu, wanted):
    package, name = only(f'holdfast_*_{cpu}.apk'), f'apk, {cpu}'
    if not package:
        return
    with open(package, 'rb') as file:
        parts = streams(file.read())
    point(len(parts) == 2, f'{name}: what it says of itself, and its files', len(parts))
    with tarfile.open(fileobj=io.BytesIO(parts[0])) as tar:
        said = tar.extractfile('.PKGINFO').read().decode()
    about = dict(line.split(' = ', 1) for line in said.splitlines()
                 if line and not line.startswith('#'))
    point(about.get('pkgname') == 'holdfast' and about.get('pkgver') == f'{version}-r1' and
          about.get('arch') == cpu and 'depend' not in about,
          f'{name}: name, version, processor', said)
    point(about.get('datahash') == hashlib.sha256(parts[-1]).hexdigest(),
          f'{name}: the checksum of its files is right', said)
    root = os.path.join(WORK, 'apk-' + cpu)
    os.mkdir(root)
    with tarfile.open(fileobj=io.BytesIO(parts[-1])) as tar:
        bad = [one.name for one in tar if one.isfile() and one.pax_headers.get(
            'APK-TOOLS.checksum.SHA1') != hashlib.sha1(tar.extractfile(one).read()).hexdigest()]
        point(not bad, f'{name}: so is that of each file', bad)
        point(all(one.uid == one.gid == 0 for one in tar), f'{name}: they belong to root')
        tar.extractall(root)
    point(files(root) == wanted, f'{name}: the files of the rpm package', files(root))
    used(name, root, cpu)


def main():
    with open(os.path.join(SOURCE, 'include', 'holdfast.h'), encoding='utf-8') as file:
        version = re.search(r'^#define HF_VERSION "(.*)"', file.read(), flags=re.M).group(1)
    try:
        for cpu in (CPU, OTHER):
            if cpu == CPU or glob.glob(os.path.join(OUT, f'holdfast-*.{cpu}.rpm')):
                apk(version, cpu, rpm(version, cpu))
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
