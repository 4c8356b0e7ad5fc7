"""Debian's packages: the source package and what debhelper builds of it (packaging/debian).
They are built on this system, whose libraries they are for."""
import glob
import os
import re
import shutil

from archive import tar_gz
from toolchain import CACHE, Failed, read, run

# What dpkg-buildpackage leaves and is another each time, or says nothing more than the rest.
LEFT = ('.buildinfo', '.changes')


def debian_version(source, version):
    """The version of the source package, whose part before the dash is that of the release."""
    found = re.match(r'holdfast \((.*)\) ', read(
        os.path.join(source, 'packaging', 'debian', 'changelog'))).group(1)
    if found.rsplit('-', 1)[0] != version:
        raise Failed(f'packaging/debian/changelog is of {found}, the release is {version}')
    return found


def source_files(source, prefix):
    """All files of a folder, as tar_gz takes them."""
    files = {}
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in names:
            path = os.path.join(folder, name)
            with open(path, 'rb') as file:
                files[os.path.join(prefix, os.path.relpath(path, source))] = (
                    file.read(), bool(os.stat(path).st_mode & 0o100))
    return files


def packages(source, out, version, work, epoch):
    """Writes the .dsc with its two archives, and the .deb files, into `out`."""
    debian_version(source, version)
    top = os.path.join(work, 'deb')
    tree = os.path.join(top, f'holdfast-{version}')
    shutil.copytree(source, tree)
    shutil.copytree(os.path.join(tree, 'packaging', 'debian'), os.path.join(tree, 'debian'))
    tar_gz(os.path.join(top, f'holdfast_{version}.orig.tar.gz'),
           source_files(source, f'holdfast-{version}'), epoch)
    cores = len(os.sched_getaffinity(0))
    run('dpkg-buildpackage', '--build=full', '--no-sign', cwd=tree, env={
        'SOURCE_DATE_EPOCH': str(epoch), 'LC_ALL': 'C.UTF-8', 'TZ': 'UTC',
        'DEB_BUILD_OPTIONS': f'nocheck noautodbgsym parallel={cores}',
        # debhelper names a home that ends with the build.
        'CCACHE_DIR': os.environ.get('CCACHE_DIR') or os.path.join(CACHE, 'deb-ccache'),
        'CCACHE_BASEDIR': tree, 'CCACHE_NOHASHDIR': '1'})
    for path in glob.glob(os.path.join(top, 'holdfast_*')) + glob.glob(
            os.path.join(top, '*.deb')):
        if not path.endswith(LEFT):
            shutil.copyfile(path, os.path.join(out, os.path.basename(path)))
