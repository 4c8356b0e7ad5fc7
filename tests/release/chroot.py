"""Root directories in which a test installs our packages, without a network: a minimal Debian, made
once by mmdebstrap and kept in the cache beside the packages that ours depend on, or what
tools/alpine fetches.

As root, or by a user who may make user namespaces and has a range of ids (subuid(5)).
"""
import os
import shutil
import subprocess
import sys

import toolchain
from libraries import libraries

SUITE = 'bookworm'
# What is in the root directory where programs are compiled, and Debian's own tests run.
COMPILER = ['autopkgtest', 'cmake', 'gcc', 'libc6-dev', 'make', 'pkg-config']

# Mounts are this command's own; all that it starts ends with it. $0: the root directory; words up
# to -- are directories of the host that are there by the same path.
ENTER = '''
mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" || exit 125
while [ "$1" != -- ]; do
    mkdir -p "$0$1" && mount --bind "$1" "$0$1" || exit 125
    shift
done
shift
exec chroot "$0" "$@"
'''


def as_root(test):
    """Goes on as root of a user namespace, unless this is root already."""
    if os.geteuid():
        os.execvp('unshare', ['unshare', '--map-root-user', '--map-auto', sys.executable, test,
                              *sys.argv[1:]])


def made(names, *options):
    """The folder in the cache with root.tar, which has these packages, and debs/."""
    def make(folder):
        toolchain.say(f'making a root directory for tests with {", ".join(names) or "nothing"}')
        toolchain.run('mmdebstrap', '--quiet', '--variant=minbase', *options, SUITE,
                      os.path.join(folder, 'root.tar'))

    return toolchain.Kept('debian-root', SUITE, *names, *options).get(make)


def minimal(needed):
    """Without anything; debs/ has the packages `needed` and what they depend on."""
    fetch = ('chroot "$1" apt-get install -qq --download-only --no-install-recommends '
             + ' '.join(needed))
    folder = toolchain.Kept('debian-debs', SUITE, fetch)

    def make(into):
        debs = os.path.join(into, 'debs')
        os.mkdir(debs)
        toolchain.say('fetching what our packages depend on, once')
        toolchain.run('mmdebstrap', '--quiet', '--variant=minbase', '--customize-hook=' + fetch,
                      f'--customize-hook=sync-out /var/cache/apt/archives {debs}', SUITE,
                      os.path.join(into, 'root.tar'))
        for name in os.listdir(debs):
            if not name.endswith('.deb'):
                path = os.path.join(debs, name)
                (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)
    return folder.get(make)


def unpacked(cpu, names):
    """A folder of the cache with these packages for a processor, and what they depend on. Nothing
    of them is run: it needs no emulator that the kernel knows."""
    def make(folder):
        toolchain.say(f'unpacking {", ".join(names)} for {cpu}, once')
        tar = os.path.join(folder, 'root.tar')
        toolchain.run('mmdebstrap', '--quiet', '--variant=extract', f'--architectures={cpu}',
                      '--include=' + ','.join(names), SUITE, tar)
        toolchain.run('tar', '-xf', tar, '-C', folder, '--exclude=./dev/*')
        os.unlink(tar)
    return toolchain.Kept(f'debian-{cpu}', SUITE, *names).get(make)


def libsqlite(platform, root):
    """SQLite's library, which Alpine has in a package, made of the release's sources."""
    source = os.path.join(toolchain.sources(), 'sqlite3', 'source', 'sqlite3.c')
    toolchain.run(os.path.join(libraries(platform), 'cc'), '-shared', '-fPIC', '-s',
                  '-Wl,-soname,libsqlite3.so.0', '-o',
                  os.path.join(root, 'usr', 'lib', 'libsqlite3.so.0'), source)


class Place:
    """A directory in which a system is installed, entered as its root."""

    def __init__(self, path):
        self.path = path

    def real(self, path):
        return self.path + path

    def inside(self, path):
        """How a command that `run` starts names this path."""
        return path

    def write(self, path, text, mode=0o644):
        os.makedirs(os.path.dirname(self.real(path)), exist_ok=True)
        with open(self.real(path), 'w', encoding='utf-8') as file:
            file.write(text)
        os.chmod(self.real(path), mode)

    def enter(self, *command, binds=(), net=False):
        """The words that start a command in it, which sees no process of ours and no network;
        `net`: ours."""
        return ['unshare', '--mount', *([] if net else ['--net']), '--ipc', '--pid', '--fork',
                '--kill-child', 'sh', '-c', ENTER, self.path, *binds, '--', *command]

    def run(self, *command, binds=(), beside=(), net=False, **env):
        """(status, output) of a command in it. `beside`: what starts it."""
        os.makedirs(self.real('/tmp/home'), exist_ok=True)
        done = subprocess.run(
            [*beside, *self.enter(*command, binds=binds, net=net)], cwd='/',
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=3000, env={
                'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
                'HOME': '/tmp/home', 'LC_ALL': 'C.UTF-8', **env})
        return done.returncode, done.stdout

    def sh(self, text, **more):
        return self.run('sh', '-euc', text, **more)

    def files(self):
        """{path: what it is} of all but what package managers and ldconfig keep of their work."""
        found = {}
        own = ('/debs', '/dev', '/proc', '/tmp', '/var/cache', '/var/lib/apt', '/var/lib/dpkg',
               '/var/log')
        for folder, folders, names in os.walk(self.path):
            inside = folder[len(self.path):]
            folders[:] = [name for name in folders if f'{inside}/{name}' not in own]
            for name in folders + names:
                path, real = f'{inside}/{name}', os.path.join(folder, name)
                if path != '/etc/ld.so.cache':
                    about = os.lstat(real)
                    found[path] = (os.readlink(real) if os.path.islink(real) else about.st_mode,
                                   about.st_uid, about.st_gid)
        return found


class Root(Place):
    """A minimal Debian, unpacked, with a repository of packages in /debs."""

    def __init__(self, path, tar, debs):
        super().__init__(path)
        os.mkdir(path)
        toolchain.run('tar', '-xf', tar, '-C', path, '--exclude=./dev/*')
        os.mkdir(os.path.join(path, 'debs'))
        for deb in debs:
            shutil.copy(deb, os.path.join(path, 'debs'))
        said = toolchain.run('dpkg-scanpackages', '--multiversion', '.', cwd=os.path.join(
            path, 'debs')).split('dpkg-scanpackages: ')[0]
        self.write('/debs/Packages', said)
        self.write('/debs/sources', 'deb [trusted=yes] file:/debs ./\n')
        self.write('/debs/apt.conf', 'Dir::Etc::SourceList "/debs/sources";\n'
                   'Dir::Etc::SourceParts "/dev/null";\nAPT::Sandbox::User "root";\n'
                   'APT::Install-Recommends "false";\n')

    def run(self, *command, **more):
        return super().run(*command, DEBIAN_FRONTEND='noninteractive',
                           APT_CONFIG='/debs/apt.conf', **more)

    def apt(self, *words):
        return self.run('apt-get', '-qq', '-y', *words)
