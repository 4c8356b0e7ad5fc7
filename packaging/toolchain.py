"""What the portable artefacts are built by and from: Zig's C compiler (tools/zig) for four targets,
and the sources of packaging/sources. Everything is kept in the cache ($HOLDFAST_CACHE, else
holdfast in the user's cache directory) under a name that changes with whatever went into it."""
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get('HOLDFAST_CACHE') or os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache'), 'holdfast')
# Zig keeps what it compiled beside ours.
for variable in 'ZIG_GLOBAL_CACHE_DIR', 'ZIG_LOCAL_CACHE_DIR':
    os.environ[variable] = os.path.join(CACHE, 'zig-cache')

# npm's words for a platform -> what Zig calls it, and the processor.
TARGETS = {
    'linux-x64-gnu': ('x86_64-linux-gnu.2.17', 'x86_64'),
    'linux-x64-musl': ('x86_64-linux-musl', 'x86_64'),
    'linux-arm64-gnu': ('aarch64-linux-gnu.2.17', 'aarch64'),
    'linux-arm64-musl': ('aarch64-linux-musl', 'aarch64'),
}

COMPILER = '''#!/bin/sh
# Zig's C compiler for one target. Its linker is LLD, but does not tell its name when it is asked.
# Its preprocessor alone takes no version of glibc.
case " $* " in
*" -Wl,--version "*) echo 'LLD (compatible with GNU linkers)'; exit ;;
*" -E "*) exec '{zig}' cc -target {plain} "$@" ;;
esac
exec '{zig}' cc -target {target} "$@"
'''
ARCHIVER = '''#!/bin/sh
exec '{zig}' ar "$@"
'''


class Failed(Exception):
    """A step that cannot go on; the text says why."""


def run(*command, cwd=None, env=None):
    """Runs a command, whose output is shown only if it fails; returns its output."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        raise Failed(f'{done.stdout}\n{" ".join(command)}: status {done.returncode}')
    return done.stdout


def say(text):
    print(f'release: {text}', file=sys.stderr, flush=True)


def zig():
    """The path of the Zig executable."""
    return run(os.path.join(TOP, 'tools', 'zig')).splitlines()[-1]


def tools(target):
    """{name: text} of the programs that compile for a target."""
    triple = TARGETS[target][0]
    return {'cc': COMPILER.format(zig=zig(), target=triple, plain=triple.split('.')[0]),
            'ar': ARCHIVER.format(zig=zig())}


def pinned():
    """[(package, version, licence)] of packaging/sources."""
    with open(os.path.join(TOP, 'packaging', 'sources'), encoding='utf-8') as file:
        return [line.split() for line in file if line.strip() and not line.startswith('#')]


class Kept:
    """A folder of the cache: made once, under a lock, and whole or not there at all."""

    def __init__(self, name, *parts):
        text = '\0'.join(parts).encode()
        self.path = os.path.join(CACHE, f'{name}-{hashlib.sha256(text).hexdigest()[:12]}')
        self.name = name

    def get(self, make):
        """The folder's path; make(folder) fills it if it is missing."""
        if os.path.isdir(self.path):
            return self.path
        os.makedirs(CACHE, exist_ok=True)
        with open(os.path.join(CACHE, self.name + '.lock'), 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.isdir(self.path):
                work = tempfile.mkdtemp(prefix=self.name + '.', dir=CACHE)
                try:
                    folder = os.path.join(work, 'it')
                    os.mkdir(folder)
                    make(folder)
                    os.rename(folder, self.path)
                finally:
                    shutil.rmtree(work, ignore_errors=True)
        return self.path


def fetch_one(options, name, version, where):
    """The .dsc of this version, or of another that the archive serves: it may list one whose files
    are not there."""
    listed = re.findall(r'^Version: (\S+)$', run('apt-cache', *options, 'showsrc', name), re.M)
    failures = []
    for one in dict.fromkeys([version, *listed]):
        try:
            run('apt-get', *options, 'source', '--download-only', f'{name}={one}', cwd=where)
            return f'{name}_{one.split(":")[-1]}.dsc'
        except Failed as failure:
            failures.append(str(failure))
    raise Failed('\n'.join(failures))


def fetch_sources(folder):
    """Debian's source packages, each unpacked in a folder of its name. apt's own lists stay as they
    are: the lists of sources are fetched into `folder`/apt and removed again."""
    apt = os.path.join(folder, 'apt')
    os.makedirs(os.path.join(apt, 'lists', 'partial'))
    lines = {line for line in run(
        'apt-get', 'indextargets', '--format', 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)',
        'Origin: Debian', 'Created-By: Packages').splitlines() if line.startswith('deb-src ')}
    if not lines:
        raise Failed('apt knows no lists of Debian packages: run apt-get update first')
    with open(os.path.join(apt, 'sources.list'), 'w', encoding='utf-8') as file:
        file.write('\n'.join(sorted(lines)) + '\n')
    options = ['-qq', '-o', f'Dir::Etc::SourceList={apt}/sources.list',
               '-o', 'Dir::Etc::SourceParts=/dev/null', '-o', f'Dir::State::Lists={apt}/lists',
               '-o', f'Dir::Cache={apt}', '-o', 'APT::Sandbox::User=root',
               '-o', 'Acquire::Retries=3']
    say('fetching the sources of ' + ', '.join(name for name, _, _ in pinned()) + ', once')
    run('apt-get', *options, 'update')
    for name, version, _ in pinned():
        where = os.path.join(folder, name)
        os.mkdir(where)
        fetched = fetch_one(options, name, version, where)
        run('dpkg-source', '--no-check', '-x', fetched, 'source', cwd=where)
    shutil.rmtree(apt)
    # SQLite as one file; made by its own scripts.
    source = os.path.join(folder, 'sqlite3', 'source')
    run('./configure', '--disable-readline', cwd=source)
    run('make', 'sqlite3.c', cwd=source)
    # Debian's patch for CVE-2021-32765 changes a function, but not the type it is called by.
    path = os.path.join(folder, 'hiredis', 'source', 'read.h')
    write(path, read(path).replace('(*createArray)(const redisReadTask*, int)',
                                   '(*createArray)(const redisReadTask*, size_t)'))
    # libpq reads no openssl.cnf: packaging/openssl.py says why.
    path = os.path.join(folder, 'postgresql-15', 'source', 'src', 'interfaces', 'libpq',
                        'fe-secure-openssl.c')
    text = read(path)
    assert text.count('(OPENSSL_INIT_LOAD_CONFIG') == 1, path
    write(path, text.replace('(OPENSSL_INIT_LOAD_CONFIG', '(OPENSSL_INIT_NO_LOAD_CONFIG'))


def built():
    """[(package, version, licence)] as pinned(), with the version that was fetched."""
    found = []
    for name, version, licence in pinned():
        said = re.search(r'^\S+ \((\S+)\)', read(os.path.join(
            sources(), name, 'source', 'debian', 'changelog')))
        if said.group(1) != version:
            say(f'{name}: {version} is pinned, but {said.group(1)} was there to be built')
        found.append((name, said.group(1), licence))
    return found


def sources():
    return Kept('release-sources', repr(pinned()), 'patched').get(fetch_sources)


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def write(path, text, mode=0o644):
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
    os.chmod(path, mode)
