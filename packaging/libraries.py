"""The libraries of packaging/sources, built statically for a target of the portable artefacts, and
what Meson has to know to link with them. Kept in the cache, as toolchain.py says."""
import glob
import inspect
import os
import re
import shutil

import openssl
from toolchain import TARGETS, TOP, Kept, pinned, read, run, say, sources, tools, write, zig

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
Cflags: -isystem ${{pcfiledir}}/../../include
Libs: -L${{pcfiledir}}/.. {libs}
'''
# In place of what the libraries' own configure scripts write.
CONFIG = os.path.join(TOP, 'packaging', 'config')
# Without usleep a busy SQLite sleeps for whole seconds between two attempts.
SQLITE_FLAGS = ['-DSQLITE_THREADSAFE=1', '-DSQLITE_OMIT_LOAD_EXTENSION', '-DHAVE_USLEEP=1',
                '-DHAVE_FDATASYNC=1', '-DHAVE_GMTIME_R=1', '-DHAVE_LOCALTIME_R=1']


# libmongoc's headers, too, ask for these names.
MONGOC_FLAGS = ['-DBSON_STATIC', '-DMONGOC_STATIC']


class Prefix:
    """The folder in which one library is installed. `cc`: its compiler. `others`: where OpenSSL
    is."""

    def __init__(self, folder, cc, others):
        self.folder, self.cc, self.others = folder, cc, others
        self.include, self.lib = os.path.join(folder, 'include'), os.path.join(folder, 'lib')
        for name in (self.include, self.lib):
            os.makedirs(name)

    def headers(self, source, *names, to=''):
        """Installs these headers of a source, in include/TO."""
        os.makedirs(os.path.join(self.include, to), exist_ok=True)
        for name in names:
            shutil.copy(os.path.join(source, name), os.path.join(self.include, to))

    def compile(self, lib, source, files, flags):
        """lib/libLIB.a of these files. Its symbols stay hidden in whatever it is linked into."""
        objects = os.path.join(self.folder, 'objects')
        os.mkdir(objects)
        for name in files:
            made = os.path.join(objects, re.sub(r'\.c$', '.o', name).replace('/', '-'))
            run(self.cc, '-O2', '-fPIC', '-fvisibility=hidden', '-DNDEBUG',
                '-fstack-protector-strong', f'-ffile-prefix-map={source}=.', *flags,
                '-I' + self.include, '-I' + os.path.join(self.others, 'include'), '-c',
                os.path.join(source, name), '-o', made)
        run(zig(), 'ar', 'crD', os.path.join(self.lib, f'lib{lib}.a'),
            *(os.path.join(objects, name) for name in sorted(os.listdir(objects))))
        shutil.rmtree(objects)


def package(folder, name, version, *libs):
    """What pkg-config says of a library in this folder."""
    os.makedirs(os.path.join(folder, 'lib', 'pkgconfig'), exist_ok=True)
    write(os.path.join(folder, 'lib', 'pkgconfig', name + '.pc'),
          PC.format(name=name, libs=' '.join('-l' + lib for lib in libs), version=version))


def sources_in(source, *folders):
    """The C files in these folders of a source."""
    return sorted(os.path.relpath(path, source) for folder in folders
                  for path in glob.glob(os.path.join(source, folder, '*.c')))


def sqlite3(prefix, source, version):
    prefix.headers(source, 'sqlite3.h')
    prefix.compile('sqlite3', source, ['sqlite3.c'], SQLITE_FLAGS)
    package(prefix.folder, 'sqlite3', version, 'sqlite3')


def jansson(prefix, source, version):
    source = os.path.join(source, 'src')
    values = {'json_inline': 'inline', 'json_have_long_long': '1', 'json_have_localeconv': '0',
              'json_have_atomic_builtins': '1', 'json_have_sync_builtins': '1'}
    config = read(os.path.join(source, 'jansson_config.h.in'))
    write(os.path.join(prefix.include, 'jansson_config.h'),
          re.sub(r'@(\w+)@', lambda match: values.get(match[1], match[0]), config))
    prefix.headers(source, 'jansson.h')
    private = os.path.join(prefix.folder, 'private')
    os.mkdir(private)
    has = ['STDINT_H', 'UNISTD_H', 'FCNTL_H', 'OPEN', 'READ', 'CLOSE', 'GETPID', 'GETTIMEOFDAY',
           'SYS_TIME_H', 'SYS_TYPES_H', 'STRTOLL', 'SYNC_BUILTINS', 'ATOMIC_BUILTINS']
    write(os.path.join(private, 'jansson_private_config.h'),
          ''.join(f'#define HAVE_{name} 1\n' for name in has) +
          '#define USE_URANDOM 1\n#define INITIAL_HASHTABLE_ORDER 3\n')
    prefix.compile('jansson', source, sources_in(source, ''),
                   ['-I' + private, '-DHAVE_CONFIG_H'])
    shutil.rmtree(private)
    package(prefix.folder, 'jansson', version, 'jansson')


def hiredis(prefix, source, version):
    prefix.headers(source, *(name for name in (
        'hiredis.h', 'read.h', 'sds.h', 'async.h', 'alloc.h')
        if os.path.exists(os.path.join(source, name))), to='hiredis')
    prefix.compile('hiredis', source, [name for name in (
        'async.c', 'hiredis.c', 'net.c', 'read.c', 'sds.c', 'alloc.c')
        if os.path.exists(os.path.join(source, name))], ['-std=gnu99'])
    package(prefix.folder, 'hiredis', version, 'hiredis')


def curl(prefix, source, version):
    shutil.copytree(os.path.join(source, 'include', 'curl'), os.path.join(prefix.include, 'curl'))
    prefix.compile('curl', source, sources_in(source, 'lib', 'lib/vauth', 'lib/vquic', 'lib/vtls'),
                   ['-I' + CONFIG, '-I' + os.path.join(source, 'lib'), '-DHAVE_CONFIG_H',
                    '-DBUILDING_LIBCURL', '-DCURL_STATICLIB', '-ffunction-sections',
                    '-fdata-sections'])
    package(prefix.folder, 'libcurl', version, 'curl', 'ssl', 'crypto', 'pthread', 'dl')


def nghttp2(prefix, source, version):
    source = os.path.join(source, 'lib')
    public = os.path.join(source, 'includes', 'nghttp2')
    prefix.headers(public, 'nghttp2.h', to='nghttp2')
    numbers = ''.join(f'{int(number):02x}' for number in version.split('.'))
    text = read(os.path.join(public, 'nghttp2ver.h.in'))
    write(os.path.join(prefix.include, 'nghttp2', 'nghttp2ver.h'), text.replace(
        '@PACKAGE_VERSION@', version).replace('@PACKAGE_VERSION_NUM@', '0x' + numbers))
    prefix.compile('nghttp2', source, sources_in(source, ''),
                   ['-DNGHTTP2_STATICLIB', '-DHAVE_ARPA_INET_H', '-DHAVE_NETINET_IN_H',
                    '-DHAVE_TIME_H', '-DHAVE_CLOCK_GETTIME'])
    package(prefix.folder, 'libnghttp2', version, 'nghttp2')


def protobuf_c(prefix, source, version):
    prefix.headers(os.path.join(source, 'protobuf-c'), 'protobuf-c.h', to='protobuf-c')
    prefix.compile('protobuf-c', source, ['protobuf-c/protobuf-c.c'], ['-I' + source])
    package(prefix.folder, 'libprotobuf-c', version, 'protobuf-c')


def libpq(prefix, source, version):
    """Without GSSAPI, LDAP and translations. No configure script runs: its answers are in
    packaging/config."""
    parts = {'src/interfaces/libpq': """
                 fe-auth fe-auth-scram fe-connect fe-exec fe-lobj fe-misc fe-print fe-protocol3
                 fe-secure fe-secure-common fe-secure-openssl fe-trace legacy-pqsignal
                 libpq-events pqexpbuffer""",
             'src/common': """
                 base64 cryptohash_openssl encnames hmac_openssl ip link-canary md5_common
                 protocol_openssl saslprep scram-common string unicode_norm wchar""",
             'src/port': """
                 chklocale explicit_bzero getpeereid inet_net_ntop noblock pg_strong_random
                 pgstrcasecmp snprintf strerror strlcpy thread timingsafe_bcmp"""}
    major, minor = version.split('.')
    private = os.path.join(prefix.folder, 'private')
    os.mkdir(private)
    write(os.path.join(prefix.include, 'pg_config_ext.h'), '#define PG_INT64_TYPE long int\n')
    write(os.path.join(private, 'pg_config.h'), f'''
#define PG_MAJORVERSION "{major}"
#define PG_VERSION      "{version}"
#define PG_VERSION_NUM  {major}{int(minor):04}
{read(os.path.join(CONFIG, "postgresql-15_config.h"))}''')
    # Where a service file is looked for; as Debian's libpq does.
    write(os.path.join(private, 'pg_config_paths.h'),
          '#define SYSCONFDIR "/etc/postgresql-common"\n')
    includes = os.path.join(source, 'src', 'include')
    shutil.copy(os.path.join(includes, 'port', 'linux.h'), os.path.join(private, 'pg_config_os.h'))
    prefix.headers(includes, 'postgres_ext.h')
    prefix.headers(os.path.join(source, 'src', 'interfaces', 'libpq'), 'libpq-fe.h',
                   'libpq-events.h')
    # The first two flags: PostgreSQL's code needs them. The third: not stat of its own.
    prefix.compile('pq', source, [f'{folder}/{name}.c' for folder, names in parts.items()
                                  for name in names.split()],
                   ['-fno-strict-aliasing', '-fwrapv', '-DUNSAFE_STAT_OK', '-DFRONTEND',
                    '-D_GNU_SOURCE', '-ffunction-sections', '-fdata-sections', '-I' + private,
                    '-I' + includes, '-I' + os.path.join(source, 'src', 'port')])
    shutil.rmtree(private)
    package(prefix.folder, 'libpq', version, 'pq', 'ssl', 'crypto', 'pthread', 'dl')


def fill(template, to, values):
    """Writes a header from what CMake makes one of; what `values` doesn't name is 0."""
    write(to, re.sub(r'@(\w+)@', lambda match: values.get(match[1], '0'), read(template)))


def mongo_c_driver(prefix, source, version):
    """libbson and libmongoc. Without ICU, Cyrus SASL, compression, encryption by clients and SRV
    records, and without what libmongoc does to a process by itself: counters in /dev/shm, clearing
    up when the program ends."""
    folders = {name: os.path.join(source, 'src', f'lib{name}', 'src', name)
               for name in ('bson', 'mongoc')}
    yes = {'bson': 'HAVE_CLOCK_GETTIME HAVE_GMTIME_R HAVE_RAND_R HAVE_SNPRINTF HAVE_STDBOOL_H '
                   'HAVE_STRINGS_H HAVE_STRNLEN HAVE_TIMESPEC EXTRA_ALIGN OS',
           'mongoc': 'ENABLE_CRYPTO ENABLE_CRYPTO_LIBCRYPTO ENABLE_SSL ENABLE_SSL_OPENSSL '
                     'HAVE_ASN1_STRING_GET0_DATA HAVE_SOCKLEN HAVE_SS_FAMILY '
                     'NO_AUTOMATIC_GLOBALS'}
    own = {'bson': {'BSON_BYTE_ORDER': '1234'},
           'mongoc': {'MONGOC_CC': 'cc', 'MONGOC_USER_SET_CFLAGS': '',
                      'MONGOC_USER_SET_LDFLAGS': '', 'MONGOC_SOCKET_ARG2': 'struct sockaddr',
                      'MONGOC_SOCKET_ARG3': 'socklen_t'}}
    number = dict(zip(('MAJOR', 'MINOR', 'MICRO'), version.split('.')), FULL=version)
    for name, folder in folders.items():
        upper, to = name.upper(), os.path.join(prefix.include, name)
        prefix.headers(folder, *(os.path.basename(path) for path in glob.glob(
            os.path.join(folder, '*.h')) if not path.endswith('-private.h')), to=name)
        fill(os.path.join(folder, f'{name}-config.h.in'), os.path.join(to, f'{name}-config.h'),
             {**own[name], **{f'{upper}_{one}': '1' for one in yes[name].split()}})
        fill(os.path.join(folder, f'{name}-version.h.in'), os.path.join(to, f'{name}-version.h'),
             {f'{upper}_{"" if one == "FULL" else one + "_"}VERSION': what
              for one, what in number.items()})
    common, private = os.path.join(source, 'src', 'common'), os.path.join(prefix.folder, 'private')
    os.mkdir(private)
    fill(os.path.join(common, 'common-config.h.in'), os.path.join(private, 'common-config.h'), {})
    # Not _GNU_SOURCE: with musl, too, strerror_r is POSIX' one then.
    prefix.compile('mongoc-1.0', source, sources_in(
        source, *(os.path.relpath(folder, source) for folder in folders.values()),
        'src/libbson/src/jsonsl', 'src/common'),
        [*MONGOC_FLAGS, '-D_DEFAULT_SOURCE', '-DBSON_COMPILATION', '-DMONGOC_COMPILATION',
         '-DMCOMMON_NAME_PREFIX=_mongoc_mcommon', '-ffunction-sections', '-fdata-sections',
         *('-I' + one for one in (*(os.path.join(prefix.include, name) for name in folders),
                                  *map(os.path.dirname, folders.values()), *folders.values(),
                                  common, private))])
    shutil.rmtree(private)
    package(prefix.folder, 'libmongoc-1.0', version, 'mongoc-1.0', 'ssl', 'crypto', 'pthread', 'dl')


# By the names of packaging/sources; OpenSSL is openssl.py's.
BUILDERS = {'sqlite3': sqlite3, 'jansson': jansson, 'hiredis': hiredis, 'curl': curl,
            'mongo-c-driver': mongo_c_driver, 'nghttp2': nghttp2, 'postgresql-15': libpq,
            'protobuf-c': protobuf_c}


def library(name, version, target, made):
    """A folder with one library for a target, made again only if its own recipe changes. `made`:
    where OpenSSL is."""
    compiler, build = tools(target)['cc'], BUILDERS[name]
    config = os.path.join(CONFIG, name + '_config.h')
    kept = Kept(f'release-{name}-{target}', compiler, version, made, PC,
                repr(SQLITE_FLAGS), repr(MONGOC_FLAGS), inspect.getsource(fill),
                inspect.getsource(build), inspect.getsource(Prefix),
                read(config) if os.path.exists(config) else '')

    def make(folder):
        source = os.path.join(sources(), name, 'source')
        say(f'building {name} for {target}, once')
        cc = os.path.join(folder, 'cc')
        write(cc, compiler, 0o755)
        build(Prefix(folder, cc, made), source, version.split('-')[0])
        os.unlink(cc)
    return kept.get(make)


def libraries(target):
    """The folder of a target: cc, ar, the libraries, and cross.ini for meson."""
    programs, cpu = tools(target), TARGETS[target][1]
    made = openssl.openssl(target)
    parts = [made] + [library(name, version, target, made) for name, version, _ in pinned()
                      if name != 'openssl']
    kept = Kept('release-' + target, programs['cc'], read(__file__), *parts)

    def make(folder):
        for part in parts:
            shutil.copytree(part, folder, dirs_exist_ok=True)
        versions = {name: version for name, version, _ in pinned()}
        package(folder, 'openssl', versions['openssl'].split('-')[0], 'ssl', 'crypto', 'pthread',
                'dl')
        for name, text in programs.items():
            write(os.path.join(folder, name), text, 0o755)
        write(os.path.join(folder, 'cross.ini'), CROSS.format(folder=kept.path, cpu=cpu))
    return kept.get(make)
