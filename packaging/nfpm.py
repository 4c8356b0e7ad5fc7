"""The rpm and apk packages of the static command, for the distributions that have these formats.
nfpm (tools/release-tools) makes them."""
import json
import os

from build import is_musl, processor
from toolchain import TOP, run, write

FORMATS = ('rpm', 'apk')
DESCRIPTION = 'locks by key for programs that share a file or a database'    # apk has one line


def unpacked(files, folder):
    """Writes the files of an archive of the command into `folder`; what nfpm is to pack."""
    contents = []
    for name, (data, executable) in sorted(files.items()):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(data)
        contents.append({'src': path, 'dst': '/usr/' + name,
                         'file_info': {'mode': 0o755 if executable else 0o644}})
    return contents


def packages(out, version, target, files, work, epoch):
    """holdfast-VERSION-1.PROCESSOR.rpm and holdfast_VERSION-r1_PROCESSOR.apk, from the files of the
    command's archive."""
    assert is_musl(target), target
    folder = os.path.join(work, 'nfpm-' + target)
    goarch = {'x86_64': 'amd64', 'aarch64': 'arm64'}[processor(target)]
    about = {'name': 'holdfast', 'arch': goarch, 'platform': 'linux', 'version': version,
             'version_schema': 'none', 'release': '1', 'license': 'Apache-2.0',
             'maintainer': 'Holdfast maintainers <maintainers@holdfast.invalid>',
             'description': DESCRIPTION, 'mtime': run(
                 'date', '-u', '-d', f'@{epoch}', '+%Y-%m-%dT%H:%M:%SZ').strip(),
             'rpm': {'buildhost': 'holdfast', 'group': 'Unspecified'},
             'contents': unpacked(files, folder)}
    config = os.path.join(work, f'nfpm-{target}.json')
    write(config, json.dumps(about))
    nfpm = os.path.join(run(os.path.join(TOP, 'tools', 'release-tools')).splitlines()[-1], 'bin',
                        'nfpm')
    for kind in FORMATS:
        run(nfpm, 'package', '--config', config, '--packager', kind, '--target', out)
