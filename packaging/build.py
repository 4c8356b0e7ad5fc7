"""Builds what the artefacts contain, for one target: the static command, the shared library with
its drivers, and the extensions for Node and Python."""
import glob
import json
import os
import re
import shutil

from libraries import libraries
from toolchain import TARGETS, TOP, run, write

# Drivers whose libraries packaging/sources has. In the shared library, too, they are built in, so
# that OpenSSL is there once; but for SQLite's, which a wheel has otherwise.
BUILT_IN = ['etcd', 'etcds', 'firestore', 'mongodb', 'postgres', 'redis', 'rediss', 's3']
MODULES = ['sqlite']
DRIVERS = BUILT_IN + MODULES
FLAGS = ['-std=c11', '-D_GNU_SOURCE', '-O2', '-DNDEBUG', '-fPIC', '-fvisibility=hidden',
         '-fstack-protector-strong', '-pthread', '-shared', '-s']


def meson(source, target, folder, *options):
    """Sets a build up. Prefix and paths are the same wherever it is done."""
    run('meson', 'setup', folder, source, '--cross-file',
        os.path.join(libraries(target), 'cross.ini'), '-Dtests=false', '-Db_ndebug=true',
        '--prefix=/usr/local', '--libdir=lib',
        "-Dc_link_args=['-s', '-Wl,--gc-sections']", *options)


def static_command(source, target, work):
    """The path of a `holdfast` that needs no file but itself, and a folder with the pages that
    `meson install` puts beside it: share/man, share/doc."""
    folder, pages = os.path.join(work, 'static-' + target), os.path.join(work, 'pages-' + target)
    meson(source, target, folder, '-Dbuiltin_drivers=' + ','.join(DRIVERS))
    run('ninja', '-C', folder, 'cli/holdfast', 'doc/holdfast')
    run('meson', 'install', '-C', folder, '--no-rebuild', '--tags', 'man,doc', '--destdir', pages)
    return os.path.join(folder, 'cli', 'holdfast'), os.path.join(pages, 'usr', 'local')


def shared_library(source, target, work):
    """A folder with libholdfast.so.0 and its modules beside it, and the build's own folder."""
    build, folder = os.path.join(work, 'shared-' + target), os.path.join(work, 'lib-' + target)
    meson(source, target, build, '-Dbuiltin_drivers=' + ','.join(BUILT_IN))
    parts = [part for part in json.loads(run('meson', 'introspect', build, '--targets'))
             if re.match('shared', part['type']) and part['name'] in (
                 'holdfast', *('holdfast-' + name for name in MODULES))]
    files = [file for part in parts for file in part['filename']]
    run('ninja', '-C', build, *(os.path.relpath(file, build) for file in files))
    os.mkdir(folder)
    for file in files:
        # The library by the name that its users ask for.
        name = re.sub(r'(\.so\.\d+)\..*', r'\1', os.path.basename(file))
        shutil.copy(file, os.path.join(folder, name))
    return folder, build


def sqlite_of_the_system(target, build, to):
    """The driver for sqlite: linked with the SQLite that is there when it is loaded, as Python's
    own module is. Two copies of SQLite in one process would release each other's locks."""
    tools = libraries(target)
    objects = sorted(glob.glob(os.path.join(build, 'libholdfast-sqlite.so.p', '*.o')))
    # To link it takes the names of that library's functions, and no more.
    wanted = sorted(set(re.findall(r'\bU (sqlite3_\w+)', run('nm', '-u', *objects))))
    names = os.path.join(build, 'sqlite_names.c')
    write(names, ''.join(f'void {name}(void);\nvoid {name}(void) {{}}\n' for name in wanted))
    library = os.path.join(build, 'libsqlite3.so.0')
    run(os.path.join(tools, 'cc'), '-shared', '-fPIC', '-O2', '-Wl,-soname,libsqlite3.so.0', '-o',
        library, names)
    run(os.path.join(tools, 'cc'), '-shared', '-s', '-Wl,-z,nodelete', '-o', to, *objects, library,
        os.path.join(tools, 'lib', 'libjansson.a'), '-lpthread', '-ldl')


def extension(target, sources, to, lib, rpath, *flags):
    """A shared object that is linked with the shared library in the folder `lib`."""
    run(os.path.join(libraries(target), 'cc'), *FLAGS,
        f'-ffile-prefix-map={os.path.dirname(sources[0])}=.', *flags, '-o', to, *sources,
        os.path.join(lib, 'libholdfast.so.0'), '-Wl,-rpath,' + rpath, '-ldl')


def node_addon(source, target, lib, to):
    headers = run(os.path.join(TOP, 'tools', 'node-packages')).splitlines()[-1]
    extension(target, sorted(glob.glob(os.path.join(source, 'bindings', 'node', 'src', '*.c'))),
              to, lib, '$ORIGIN', '-DNAPI_VERSION=8', '-I' + os.path.join(source, 'include'),
              '-I' + os.path.join(headers, 'node-api-headers', 'include'))


def python_headers(work):
    """Debian's, of one processor; what they say of sizes holds for each target."""
    folder = os.path.join(work, 'python-headers')
    if not os.path.isdir(folder):
        code = 'import sysconfig; print(sysconfig.get_path("include"))'
        plain = run('/usr/bin/python3', '-c', code).strip()
        shutil.copytree(plain, folder)
        for real in glob.glob(os.path.join('/usr/include', '*', os.path.basename(plain),
                                           'pyconfig.h')):
            shutil.copy(real, folder)
    return folder


def python_extension(source, target, lib, to, work):
    extension(target, sorted(glob.glob(os.path.join(source, 'bindings', 'python', 'src', '*.c'))),
              to, lib, '$ORIGIN/lib', '-DPy_LIMITED_API=0x03090000',
              '-I' + os.path.join(source, 'include'), '-I' + python_headers(work))


def is_musl(target):
    return target.endswith('musl')


def processor(target):
    return TARGETS[target][1]
