"""The libraries of packaging/sources, built statically for a target of the portable artefacts, and
what Meson has to know to link with them. Kept in the cache, as toolchain.py says."""
import os
import re
import shutil

import openssl
from toolchain import TARGETS, Kept, pinned, read, run, say, sources, tools, write

CROSS = '''[binaries]
c = '{folder}/cc'
ar = '{folder}/ar'
pkgconfig = 'pkg-config'

[properties]
needs_exe_wrapper = true
pkg_config_libdir = '{folder}/lib/pkgconfig'

[host_machine]
system = 'linux'
cpu_family = '{cpu}'
cpu = '{cpu}'
endian = 'little'
'''
PC = '''Name: {name}
Description: {name}, built statically
Version: {version}
Cflags: -isystem {folder}/include
Libs: -L{folder}/lib {libs}
'''
# Without usleep a busy SQLite sleeps for whole seconds between two attempts.
SQLITE_FLAGS = ['-DSQLITE_THREADSAFE=1', '-DSQLITE_OMIT_LOAD_EXTENSION', '-DHAVE_USLEEP=1',
                '-DHAVE_FDATASYNC=1', '-DHAVE_GMTIME_R=1', '-DHAVE_LOCALTIME_R=1']


def compile_library(folder, lib, files, flags):
    """lib/libLIB.a of these sources. Its symbols stay hidden in whatever it is linked into."""
    objects = os.path.join(folder, 'objects-' + lib)
    os.mkdir(objects)
    names = []
    for path in files:
        names.append(os.path.join(objects, os.path.basename(path)[:-2] + '.o'))
        run(os.path.join(folder, 'cc'), '-O2', '-fPIC', '-fvisibility=hidden', '-DNDEBUG',
            '-fstack-protector-strong', f'-ffile-prefix-map={os.path.dirname(path)}=.', *flags,
            '-c', path, '-o', names[-1])
    run(os.path.join(folder, 'ar'), 'crD', os.path.join(folder, 'lib', f'lib{lib}.a'), *names)
    shutil.rmtree(objects)


def make_libraries(made, folder, final):
    """The libraries of one target, in `folder`, which becomes `final`. `made`: where OpenSSL is."""
    from_folder = sources()
    for name in ('include', 'lib/pkgconfig'):
        os.makedirs(os.path.join(folder, name))
    include = os.path.join(folder, 'include')
    versions = {name: version.split('-')[0] for name, version, _ in pinned()}

    def package(name, *libs):
        write(os.path.join(folder, 'lib', 'pkgconfig', name + '.pc'),
              PC.format(name=name, libs=' '.join('-l' + lib for lib in libs), folder=final,
                        version=versions[name]))

    source = os.path.join(from_folder, 'sqlite3', 'source')
    shutil.copy(os.path.join(source, 'sqlite3.h'), include)
    compile_library(folder, 'sqlite3', [os.path.join(source, 'sqlite3.c')], SQLITE_FLAGS)
    package('sqlite3', 'sqlite3')

    source = os.path.join(from_folder, 'jansson', 'source', 'src')
    values = {'json_inline': 'inline', 'json_have_long_long': '1', 'json_have_localeconv': '0',
              'json_have_atomic_builtins': '1', 'json_have_sync_builtins': '1'}
    config = read(os.path.join(source, 'jansson_config.h.in'))
    write(os.path.join(include, 'jansson_config.h'),
          re.sub(r'@(\w+)@', lambda match: values.get(match[1], match[0]), config))
    shutil.copy(os.path.join(source, 'jansson.h'), include)
    private = os.path.join(folder, 'private')
    os.mkdir(private)
    has = ['STDINT_H', 'UNISTD_H', 'FCNTL_H', 'OPEN', 'READ', 'CLOSE', 'GETPID', 'GETTIMEOFDAY',
           'SYS_TIME_H', 'SYS_TYPES_H', 'STRTOLL', 'SYNC_BUILTINS', 'ATOMIC_BUILTINS']
    write(os.path.join(private, 'jansson_private_config.h'),
          ''.join(f'#define HAVE_{name} 1\n' for name in has) +
          '#define USE_URANDOM 1\n#define INITIAL_HASHTABLE_ORDER 3\n')
    compile_library(folder, 'jansson', sorted(
        os.path.join(source, name) for name in os.listdir(source) if name.endswith('.c')),
        ['-I' + include, '-I' + private, '-DHAVE_CONFIG_H'])
    shutil.rmtree(private)
    package('jansson', 'jansson')

    source = os.path.join(from_folder, 'hiredis', 'source')
    os.mkdir(os.path.join(include, 'hiredis'))
    for name in ('hiredis.h', 'read.h', 'sds.h', 'async.h', 'alloc.h'):
        if os.path.exists(os.path.join(source, name)):
            shutil.copy(os.path.join(source, name), os.path.join(include, 'hiredis'))
    compile_library(folder, 'hiredis', [os.path.join(source, name) for name in (
        'async.c', 'hiredis.c', 'net.c', 'read.c', 'sds.c', 'alloc.c')
        if os.path.exists(os.path.join(source, name))], ['-std=gnu99'])
    package('hiredis', 'hiredis')

    shutil.copytree(os.path.join(made, 'include', 'openssl'), os.path.join(include, 'openssl'))
    for name in os.listdir(os.path.join(made, 'lib')):
        shutil.copy(os.path.join(made, 'lib', name), os.path.join(folder, 'lib'))
    package('openssl', 'ssl', 'crypto', 'pthread', 'dl')


def libraries(target):
    """The folder of a target: cc, ar, the libraries, and cross.ini for meson."""
    programs, cpu = tools(target), TARGETS[target][1]
    made = openssl.openssl(target)
    kept = Kept('release-' + target, programs['cc'], repr(pinned()), read(__file__), made)

    def make(folder):
        for name, text in programs.items():
            write(os.path.join(folder, name), text, 0o755)
        write(os.path.join(folder, 'cross.ini'), CROSS.format(folder=kept.path, cpu=cpu))
        say(f'building the libraries for {target}, once')
        make_libraries(made, folder, kept.path)
    return kept.get(make)
