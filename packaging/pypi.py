"""The Python distribution holdfast-lock, whose module is `holdfast`: a source distribution that
builds by itself, and a wheel for each processor and C library, for every CPython from 3.9 on."""
import glob
import os

from archive import read_tar, tar_gz, wheel
from build import is_musl, processor, python_extension, sqlite_of_the_system
from npm import data
from toolchain import TOP, run

NAME = 'holdfast_lock'


def tags(target):
    cpu = processor(target)
    return [f'musllinux_1_2_{cpu}'] if is_musl(target) else [
        f'manylinux_2_17_{cpu}', f'manylinux2014_{cpu}']


def build_environment(work):
    """A Python with the setuptools of pyproject.toml, from the cache."""
    folder = os.path.join(work, 'venv')
    python = os.path.join(folder, 'bin', 'python3')
    if not os.path.exists(python):
        wheels = run(os.path.join(TOP, 'tools', 'python-packages')).splitlines()[-1]
        run('/usr/bin/python3', '-m', 'venv', folder)
        run(python, '-m', 'pip', 'install', '--quiet', '--no-index', '--find-links', wheels,
            'setuptools')
    return python


def source_distribution(source, out, version, work, epoch):
    """holdfast_lock-VERSION.tar.gz: as setuptools makes it, written anew so that it is the same
    each time. Returns what its PKG-INFO says."""
    made = os.path.join(work, 'sdist')
    run(build_environment(work), '-c', 'import sys; from setuptools import build_meta; '
        'build_meta.build_sdist(sys.argv[1])', made,
        cwd=os.path.join(source, 'bindings', 'python'))
    files = read_tar(glob.glob(os.path.join(made, '*.tar.gz'))[0])
    tar_gz(os.path.join(out, f'{NAME}-{version}.tar.gz'), files, epoch)
    return files[f'{NAME}-{version}/PKG-INFO'][0]


def one_wheel(source, out, version, target, lib, build, metadata, notices, work, epoch):
    extension = os.path.join(work, f'python-{target}.so')
    python_extension(source, target, lib, extension, work)
    sqlite = os.path.join(work, f'sqlite-{target}.so')
    sqlite_of_the_system(target, build, sqlite)
    files = {'holdfast/_holdfast.abi3.so': data(extension, True)}
    top = os.path.join(source, 'bindings', 'python')
    for path in sorted(glob.glob(os.path.join(top, 'holdfast', '*'))):
        if path.endswith(('.py', '.pyi', 'py.typed')):
            files['holdfast/' + os.path.basename(path)] = data(path)
    for name in sorted(os.listdir(lib)):
        path = sqlite if name == 'libholdfast-sqlite.so' else os.path.join(lib, name)
        files['holdfast/lib/' + name] = data(path, True)
    info = f'{NAME}-{version}.dist-info'
    said = 'Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: false\n' + ''.join(
        f'Tag: cp39-abi3-{tag}\n' for tag in tags(target))
    files[f'{info}/METADATA'] = (metadata, False)
    files[f'{info}/WHEEL'] = (said.encode(), False)
    files[f'{info}/licenses/LICENSE'] = data(os.path.join(source, 'LICENSE'))
    files[f'{info}/licenses/THIRD-PARTY-NOTICES'] = (notices, False)
    path = os.path.join(out, f'{NAME}-{version}-cp39-abi3-{".".join(tags(target))}.whl')
    wheel(path, files, info, epoch)
    return path
