"""Installs the rpm package of the static command in an empty root directory, uses and removes it;
and looks whether the apk package is what Alpine's apk takes (alpine_test.py installs it). The
results are TAP.

    rpm_test.py SOURCE OUT

SOURCE: the checkout. OUT: the artefacts of tools/release. Debian has no apk, so the apk package is
taken apart here: two streams, the second by the checksum that the first one says.
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


def run(*command):
    done = subprocess.run(command, cwd=WORK, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600,
                          env={**os.environ, 'LC_ALL': 'C.UTF-8', 'HOME': '/tmp'})
    return done.returncode, done.stdout


def ran(what, status_said, pattern=''):
    status, said = status_said
    point(status == 0 and re.search(pattern, said, flags=re.M), what, f'status {status}\n{said}')


def only(pattern):
    found = glob.glob(os.path.join(OUT, pattern))
    point(len(found) == 1, f'there is one {pattern}', os.listdir(OUT))
    return found[0] if len(found) == 1 else None


def used(what, root):
    """The command runs there, where nothing else is."""
    for name in ('proc', 'tmp'):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    inside = ['unshare', '-m', '-p', '-f', f'--mount-proc={root}/proc', 'chroot', root,
              '/usr/bin/holdfast', '-S', 'file:/tmp/locks']
    for words in (['run', 'a', '--', '/usr/bin/holdfast', 'stores'], ['doctor'], ['ls', '--all']):
        ran(f'{what}: holdfast {words[0]}', run(*inside, *words))


def files(root):
    """The paths below usr."""
    return sorted(os.path.relpath(os.path.join(folder, name), root)
                  for folder, _, names in os.walk(os.path.join(root, 'usr')) for name in names)


def rpm(version):
    """What it installs."""
    package = only(f'holdfast-*.{CPU}.rpm')
    if not package:
        return None
    root = os.path.join(WORK, 'rpm-root')
    os.mkdir(root)
    rpm_there = ['rpm', '--root', root, '--dbpath', '/var/lib/rpm']
    ran('rpm: its digests are right', run('rpm', '-K', '--nosignature', package), 'digests OK')
    ran('rpm: it has name, version and licence', run(
        'rpm', '-qp', '--qf', '%{NAME} %{VERSION} %{LICENSE} %{ARCH}', package),
        f'^holdfast {re.escape(version)} Apache-2.0 {CPU}$')
    status, said = run('rpm', '-qp', '--requires', package)
    point(status == 0 and all(line.startswith('rpmlib(') for line in said.splitlines()),
          'rpm: it needs nothing', said)
    # --force-debian: rpm on Debian warns of a system whose packages are others.
    ran('rpm: it installs', run(*rpm_there, '--force-debian', '-i', package))
    ran('rpm: and is there as it was packed', run(*rpm_there, '-V', 'holdfast'), r'\A\Z')
    used('rpm', root)
    there = files(root)
    ran('rpm: it is removed', run(*rpm_there, '--force-debian', '-e', 'holdfast'))
    point(not files(root), 'rpm: nothing is left', files(root))
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


def apk(version, wanted):
    package = only(f'holdfast_*_{CPU}.apk')
    if not package:
        return
    with open(package, 'rb') as file:
        parts = streams(file.read())
    point(len(parts) == 2, 'apk: what it says of itself, and its files', len(parts))
    with tarfile.open(fileobj=io.BytesIO(parts[0])) as tar:
        said = tar.extractfile('.PKGINFO').read().decode()
    about = dict(line.split(' = ', 1) for line in said.splitlines()
                 if line and not line.startswith('#'))
    point(about.get('pkgname') == 'holdfast' and about.get('pkgver') == f'{version}-r1' and
          about.get('arch') == CPU and 'depend' not in about, 'apk: name, version, processor', said)
    point(about.get('datahash') == hashlib.sha256(parts[-1]).hexdigest(),
          'apk: the checksum of its files is right', said)
    root = os.path.join(WORK, 'apk-root')
    os.mkdir(root)
    with tarfile.open(fileobj=io.BytesIO(parts[-1])) as tar:
        bad = [one.name for one in tar if one.isfile() and one.pax_headers.get(
            'APK-TOOLS.checksum.SHA1') != hashlib.sha1(tar.extractfile(one).read()).hexdigest()]
        point(not bad, 'apk: so is that of each file', bad)
        point(all(one.uid == one.gid == 0 for one in tar), 'apk: they belong to root')
        tar.extractall(root)
    point(files(root) == wanted, 'apk: the files of the rpm package', files(root))
    used('apk', root)


def main():
    with open(os.path.join(SOURCE, 'include', 'holdfast.h'), encoding='utf-8') as file:
        version = re.search(r'^#define HF_VERSION "(.*)"', file.read(), flags=re.M).group(1)
    try:
        apk(version, rpm(version))
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
