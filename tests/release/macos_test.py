#!/usr/bin/env python3
"""Compiles the library and the drivers for macOS, on both of its processors, and links them; prints
TAP. Nothing of it is run, because there is no such machine here.

    tests/release/macos_test.py SOURCE

Zig brings the headers and the symbols of the system. For those of other libraries Debian's headers
stand; what a driver calls in them isn't looked up before it is loaded.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

SOURCE = os.path.realpath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True

from toolchain import ARCHIVER, Failed, run, zig    # noqa: E402

VERSION = '14.4'        # the first with os_sync_wait_on_address
PROCESSORS = {'aarch64': 0x0100000c, 'x86_64': 0x01000007}      # Mach-O's numbers of them
DYLIB = 6                                                       # and of a library
NEEDS = ['jansson', 'hiredis', 'libpq', 'libcurl', 'libnghttp2', 'libprotobuf-c', 'openssl',
         'libmongoc-1.0', 'libmariadb', 'libnats']
DRIVERS = ['etcd', 'etcds', 'firestore', 'mariadb', 'mongodb', 'nats', 'postgres', 'redis',
           'rediss', 's3']
HEADERS = ['curl', 'google', 'hiredis', 'jansson.h', 'jansson_config.h', 'libbson-1.0',
           'libmongoc-1.0', 'mariadb', 'nats', 'nghttp2', 'openssl', 'postgresql', 'protobuf-c',
           'pg_config_ext.h', 'postgres_ext.h']
COMPILER = '''#!/bin/sh
# Zig's C compiler, with a linker that calls itself Apple's when it is asked.
case " $* " in
*" -Wl,--version "*) echo 'ld: unknown option: --version' >&2; exit 1 ;;
*" -Wl,-v "*) echo '@(#)PROGRAM:ld  PROJECT:ld64-0' >&2; exit 0 ;;
esac
for word; do
    shift
    [ "$word" != -bundle ] || word=-dynamiclib  # at the end of a bundle Zig's linker crashes
    set -- "$@" "$word"
done
exec '{zig}' cc -target {target} "$@"
'''
CROSS = '''[binaries]
c = '{cc}'
cpp = '{cc}'
ar = '{ar}'
strip = 'true'
pkgconfig = 'pkg-config'
[built-in options]
pkg_config_path = '{packages}'
[properties]
pkg_config_libdir = '{packages}'
[host_machine]
system = 'darwin'
cpu_family = '{processor}'
cpu = '{processor}'
endian = 'little'
'''


def stage(folder):
    """Headers without those of this system, and the files by which pkg-config finds them."""
    include, packages = os.path.join(folder, 'include'), os.path.join(folder, 'packages')
    os.mkdir(packages)
    for root in ('/usr/include', '/usr/include/' + run('gcc', '-print-multiarch').strip()):
        for name in HEADERS:
            source, to = os.path.join(root, name), os.path.join(include, name)
            if os.path.isdir(source):
                os.makedirs(to, exist_ok=True)
                run('cp', '-r', '--dereference', source + '/.', to)
            elif os.path.exists(source):
                os.makedirs(include, exist_ok=True)
                run('cp', source, to)
    for name in NEEDS:
        folders = {re.sub('^-I/usr/include(/[^/]*-linux-[^/]*)?', include, word)
                   for word in run('pkg-config', '--cflags', name).split() if word[:2] == '-I'}
        flags = ' '.join(f'-isystem {folder}' for folder in sorted(folders | {include}))
        version = run('pkg-config', '--modversion', name).strip()
        with open(os.path.join(packages, name + '.pc'), 'w', encoding='utf-8') as file:
            file.write(f'Name: {name}\nDescription: headers\nVersion: {version}\n'
                       f'Cflags: {flags}\nLibs:\n')
    return packages


def write(path, text):
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def build(folder, processor):
    """Builds for one processor. Returns the folder."""
    place = os.path.join(folder, processor)
    os.mkdir(place)
    packages = stage(place)
    target = f'{processor}-macos.{VERSION}'
    words = {'processor': processor, 'packages': packages,
             'cc': write(place + '/cc', COMPILER.format(zig=zig(), target=target)),
             'ar': write(place + '/ar', ARCHIVER.format(zig=zig()))}
    cross = write(place + '/cross', CROSS.format(**words))
    run('meson', 'setup', '--cross-file', cross, '-Dtests=false', '-Dwerror=true',
        '-Db_lundef=true', place + '/build', SOURCE)
    run('ninja', '--quiet', '-k', '0', '-C', place + '/build')
    return place + '/build'


def kind(path):
    """(processor, kind of file) of a Mach-O file."""
    with open(path, 'rb') as file:
        magic, processor, _, of = struct.unpack('<IIII', file.read(16))
    return (processor, of) if magic == 0xfeedfacf else (0, 0)


def main():
    failed = 0
    print(f'1..{len(PROCESSORS)}')
    with tempfile.TemporaryDirectory() as folder:
        for number, (processor, known) in enumerate(PROCESSORS.items(), 1):
            wrong = ''
            try:
                place = build(folder, processor)
                files = ['libholdfast.0.dylib'] + [f'libholdfast-{name}.so' for name in DRIVERS]
                wrong = '\n'.join(f'{name}: not a library for it' for name in files
                                  if kind(os.path.join(place, name)) != (known, DYLIB))
            except (Failed, OSError) as error:
                wrong = str(error)
            print(f'{"not ok" if wrong else "ok"} {number} - library and {len(DRIVERS)} drivers, '
                  f'{processor}', flush=True)
            for line in wrong.split('\n')[:60] if wrong else []:
                print('#', line[:500])
            failed += bool(wrong)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
