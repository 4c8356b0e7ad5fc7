"""The npm packages: the main one, in JavaScript, and one with the binaries for each platform, which
the main one has as optional dependencies. None of them has an install script."""
import glob
import json
import os

from archive import tar_gz
from build import is_musl, node_addon
from toolchain import read

NAME = 'holdfast'


def data(path, executable=False):
    with open(path, 'rb') as file:
        return file.read(), executable


def text(what):
    return (json.dumps(what, indent=2) + '\n').encode(), False


def platform_name(target):
    return f'{NAME}-{target}'


def main_package(source, out, version, targets, epoch):
    """holdfast-VERSION.tgz. Its package.json leaves out what a checkout needs for a build."""
    top = os.path.join(source, 'bindings', 'node')
    about = json.loads(read(os.path.join(top, 'package.json')))
    for name in ('scripts', 'dependencies', 'devDependencies', 'os'):
        del about[name]
    assert about['version'] == version and about['name'] == NAME, about
    about['files'] = ['lib', '*.d.ts', '*.d.mts', 'LICENSE']
    about['optionalDependencies'] = {platform_name(target): version for target in targets}
    files = {'package/package.json': text(about)}
    for path in sorted(glob.glob(os.path.join(top, 'lib', '*')) +
                       glob.glob(os.path.join(top, '*.d.ts')) +
                       glob.glob(os.path.join(top, '*.d.mts')) +
                       [os.path.join(top, 'README.md')]):
        files['package/' + os.path.relpath(path, top)] = data(path)
    files['package/LICENSE'] = data(os.path.join(source, 'LICENSE'))
    path = os.path.join(out, f'{NAME}-{version}.tgz')
    tar_gz(path, files, epoch)
    return path


def platform_package(source, out, version, target, lib, notices, work, epoch):
    """holdfast-PLATFORM-VERSION.tgz: the addon, and beside it the library and its drivers."""
    name = platform_name(target)
    _, cpu, libc = target.split('-')
    about = {'name': name, 'version': version, 'license': 'Apache-2.0',
             'description': f'The binaries of {NAME} for {target}', 'main': 'holdfast.node',
             'os': ['linux'], 'cpu': [cpu], 'libc': ['musl' if is_musl(target) else 'glibc'],
             'engines': {'node': '>=18'}, 'preferUnplugged': True}
    addon = os.path.join(work, f'addon-{libc}-{cpu}.node')
    node_addon(source, target, lib, addon)
    files = {'package/package.json': text(about), 'package/holdfast.node': data(addon),
             'package/LICENSE': data(os.path.join(source, 'LICENSE')),
             'package/THIRD-PARTY-NOTICES': (notices, False),
             'package/README.md': (f'The binaries of `{NAME}` for {target}. Install `{NAME}`, '
                                   'which depends on this package.\n'.encode(), False)}
    for file in sorted(os.listdir(lib)):
        files['package/' + file] = data(os.path.join(lib, file))
    path = os.path.join(out, f'{name}-{version}.tgz')
    tar_gz(path, files, epoch)
    return path
