"""Installs the Debian packages of tools/release in a minimal Debian without a network, a compiler
or a checkout, uses them there, and removes them. The results are TAP.

    deb_test.py SOURCE OUT

SOURCE: the checkout, for the README's examples. OUT: the artefacts.
"""
import glob
import os
import re
import shutil
import sys
import tempfile
import urllib.parse

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True
import toolchain                                                        # noqa: E402
from chroot import COMPILER, Root, as_root, made, minimal               # noqa: E402
from pages import broken_links                                          # noqa: E402
from points import end, point                                           # noqa: E402

REDIS = os.path.join(SOURCE, 'tests', 'servers', 'redis')
DRIVERS = {'etcd': ['etcd', 'etcds'], 'firestore': ['firestore'], 'mariadb': ['mariadb'],
           'mongodb': ['mongodb'], 'nats': ['nats'], 'postgres': ['postgres'],
           'redis': ['redis', 'rediss'], 's3': ['s3'], 'sqlite': ['sqlite']}
PACKAGES = ['holdfast', 'libholdfast-dev', 'libholdfast0', *(f'holdfast-{n}' for n in DRIVERS)]
# Where no server can be: there is no network.
UNREACHABLE = {'firestore': 'firestore://p', 'mariadb': 'mariadb://127.0.0.1:1/d',
               'mongodb': 'mongodb://127.0.0.1:1/', 'nats': 'nats://127.0.0.1:1',
               's3': 's3://bucket?endpoint=http://127.0.0.1:1',
               'sqlite': 'sqlite:/nowhere/store.db'}


def ran(what, said_status, pattern=''):
    status, said = said_status
    point(status == 0 and re.search(pattern, said, flags=re.M), what, f'status {status}\n{said}')


def readme(language):
    """The README's first example in this language."""
    return re.search(rf'^```{language}\n(.*?)^```$', toolchain.read(
        os.path.join(SOURCE, 'README.md')), flags=re.M | re.S).group(1)


def field(deb, name):
    return toolchain.run('dpkg-deb', '-f', deb, name).strip()


def described(debs):
    """{package: .deb}, after a look at what their fields say."""
    found = {field(deb, 'Package'): deb for deb in debs}
    point(sorted(found) == sorted(PACKAGES), 'there are the packages', sorted(found))
    version = field(found['libholdfast0'], 'Version')
    for name in PACKAGES:
        if name != 'libholdfast0':
            depends = field(found[name], 'Depends')
            point(f'libholdfast0 (= {version})' in depends,
                  f'{name} depends on the library of its own version', depends)
    return found


def lintian():
    files = sorted(glob.glob(os.path.join(OUT, '*.deb')) + glob.glob(os.path.join(OUT, '*.dsc')))
    try:
        said = toolchain.run('lintian', '--allow-root', '--fail-on', 'error,warning', *files)
        point(not said.strip(), 'lintian has nothing to say', said)
    except toolchain.Failed as failure:
        point(False, 'lintian has nothing to say', failure)


# ---- the command ----

def command(root):
    for name in ('cc', 'gcc', 'make', 'python3'):
        point(root.run('sh', '-c', f'command -v {name}')[0] != 0, f'there is no {name}')
    point(not os.path.exists(root.real('/usr/include/stdio.h')), 'there are no headers')
    status, said = root.run('cat', '/proc/net/dev')
    point(status == 0 and re.findall(r'^ *(\S+):', said, flags=re.M) == ['lo'],
          'there is no network', said)
    root.write('/usr/local/bin/make-report', '#!/bin/sh\necho "made by $HOLDFAST_TOKEN of '
               '$HOLDFAST_KEY"\n', 0o755)
    ran("the README's first example", root.sh(readme('sh')), r'^made by \d+ of reports/nightly$')
    os.unlink(root.real('/usr/local/bin/make-report'))
    for url in ('file:/tmp/locks', 'sqlite:/tmp/locks.db'):
        ran(f'{url}: a lock', root.run('holdfast', '-S', url, 'run', 'first', '--', 'true'))
        ran(f'doctor {url}', root.run('holdfast', '-S', url, 'doctor'))
    status, said = root.run('holdfast', 'stores')
    for scheme in ['mem', 'file', *sum(DRIVERS.values(), [])]:
        where = r'\(/usr/lib/[^/]+/holdfast/libholdfast-' if scheme not in ('mem', 'file') else ''
        point(re.search(rf'^{scheme} .*{where}', said, flags=re.M),
              f'stores: {scheme}', f'status {status}\n{said}')
    for scheme in sum(DRIVERS.values(), []):
        url = UNREACHABLE.get(scheme, f'{scheme}://127.0.0.1:1/')
        status, said = root.run('holdfast', '-S', url, 'run', '-n', 'key', '--', 'true')
        # At the opening, or where that asks for nothing at the first request, which names the key.
        asked = rf"holdfast: (run 'key': ({scheme}|etcd): |{scheme}: get 'key': )"
        point(status in (69, 77) and re.match(asked, said),
              f'the driver for {scheme} is loaded, and says what is missing', f'{status}: {said}')


def server(root, url):
    """The conformance suite on a server of the host, by a socket that is there inside, too."""
    folder = os.path.dirname(urllib.parse.parse_qs(url.partition('?')[2])['socket'][0])
    ran('doctor redis:', root.run('holdfast', '-S', url, 'doctor', binds=[folder]))


# ---- pages ----

def links(root, top='/usr/share/doc/holdfast'):
    """Each link of the pages to another file leads to one."""
    count, bad = broken_links(root.real(top))
    point(count > 50 and not bad, f'{top}: every link leads somewhere', f'{count} links; {bad}')


def wanted_pages(sections):
    """The pages and the links to them that man/ has."""
    made_by = toolchain.read(os.path.join(SOURCE, 'man', 'meson.build'))
    names = {name for name in os.listdir(os.path.join(SOURCE, 'man')) if name[-1] in sections}
    if '3' in sections:
        names |= {name + '.3' for name in re.findall(r"'(hf_\w+)'", made_by)}
    return names


def pages(root, sections):
    for name in sorted(wanted_pages(sections)):
        path = root.real(f'/usr/share/man/man{name[-1]}/{name}.gz')
        point(os.path.exists(path) and os.path.getsize(path), f'the page {name}', path)


def files(root):
    pages(root, '157')
    for path in ('bash-completion/completions/holdfast', 'zsh/vendor-completions/_holdfast',
                 'fish/vendor_completions.d/holdfast.fish'):
        point(os.path.exists(root.real('/usr/share/' + path)), path)
    ran('the completions for bash', root.run('bash', '-c', '''
        . /usr/share/bash-completion/completions/holdfast
        complete -p holdfast'''), 'holdfast$')
    links(root)
    point(os.path.isdir(root.real('/usr/share/doc/holdfast/stores')),
          'the pages that holdfast(1) names')


def gone(root, before, packages):
    ran('they are removed', root.apt('purge', *packages))
    ran('with what was installed for them', root.apt('autoremove', '--purge'))
    after = root.files()
    left = sorted(set(after) - set(before))
    changed = sorted(path for path in before if after.get(path) != before[path])
    point(not left and not changed, 'which leaves nothing',
          f'left: {left}\nchanged: {changed[:20]}')


# ---- the library ----

CMAKE = '''
cmake_minimum_required(VERSION 3.13)
project(sell C)
find_package(holdfast 0.1 REQUIRED CONFIG)
add_executable(sell sell.c)
target_link_libraries(sell PRIVATE holdfast::holdfast)
add_executable(sell_static sell.c)
target_link_libraries(sell_static PRIVATE holdfast::holdfast_static)
find_package(holdfast 9 QUIET CONFIG)
if(holdfast_FOUND)
  message(FATAL_ERROR "version 9 was found, too")
endif()
'''


def library(root):
    root.write('/tmp/app/sell.c', readme('c'))
    root.write('/tmp/app/CMakeLists.txt', CMAKE)
    compiles = re.search(r'`(cc -o sell [^`]*)`', toolchain.read(
        os.path.join(SOURCE, 'README.md'))).group(1)
    ran("pkg-config: the README's example", root.sh(f'cd /tmp/app; {compiles}; ./sell'),
        r'^sold by token \d+$')
    ran('CMake: find_package, the library', root.sh(
        'cd /tmp/app; cmake -B build . && cmake --build build && build/sell'),
        r'^sold by token \d+$')
    ran('CMake: the static library', root.sh('cd /tmp/app; build/sell_static'),
        r'^sold by token \d+$')
    ran('it is in the program', root.sh(
        'cd /tmp/app; ! ldd build/sell_static | grep holdfast; nm -D build/sell_static'),
        r' T hf_acquire$')
    ran('CMake: it exports what drivers look up', root.sh('ldd /tmp/app/build/sell'),
        r'libholdfast\.so\.0 => /')
    source = os.path.join(SOURCE, 'examples', 'driver', 'example.c')
    root.write('/tmp/app/example.c', toolchain.read(source))
    compiles = re.search(r'^(cc -shared .*holdfast-driver\))$', toolchain.read(
        os.path.join(SOURCE, 'doc', 'adding-a-driver.md')), flags=re.M).group(1)
    ran("pkg-config: the guide's driver", root.sh(f'cd /tmp/app; {compiles}; nm -D *.so'),
        r' hf_driver_entry$')
    pages(root, '3')


def autopkgtest(root):
    """The tests that the source package brings, by Debian's runner of them."""
    dsc, archive = (toolchain.read(glob.glob(os.path.join(OUT, '*.dsc'))[0]),
                    glob.glob(os.path.join(OUT, '*.debian.tar.xz'))[0])
    point('\nTestsuite: autopkgtest\n' in dsc, 'the source package says that it has tests', dsc)
    os.mkdir(root.real('/tmp/source'))
    toolchain.run('tar', '-xJf', archive, '-C', root.real('/tmp/source'), 'debian/tests')
    status, said = root.run('autopkgtest', '--no-built-binaries', '/tmp/source', '--', 'null')
    results = dict(re.findall(r'^(\w+) +(PASS|FAIL|SKIP)', said.split('@@ summary')[-1],
                              flags=re.M))
    point(status == 0 and results == {'command': 'PASS', 'library': 'PASS'},
          'autopkgtest: they pass', f'status {status}\n{said}')


def needed(debs, headers):
    """What our packages depend on: libholdfast-dev, or all the others."""
    return sorted({name for package, deb in debs.items() if (package == 'libholdfast-dev') ==
                   headers for name in re.findall(r'(?:^|, )([\w.+-]+)', field(deb, 'Depends'))
                   if 'holdfast' not in name})


def main():
    if len(sys.argv) == 3:
        as_root(__file__)
        os.execv(REDIS, [REDIS, sys.executable, __file__, SOURCE, OUT, '@'])
    debs = described(glob.glob(os.path.join(OUT, '*.deb')))
    lintian()
    base = minimal(needed(debs, False))
    work = tempfile.mkdtemp(prefix='holdfast-debs.')
    try:
        root = Root(os.path.join(work, 'root'), os.path.join(base, 'root.tar'),
                    [*glob.glob(os.path.join(base, 'debs', '*.deb')), *debs.values()])
        before = root.files()
        ran('apt reads what there is', root.apt('update'))
        names = [name for name in PACKAGES if name.partition('-')[2] != 'dev']
        ran('all but the headers are installed', root.apt('install', *names))
        command(root)
        server(root, sys.argv[3])
        files(root)
        gone(root, before, names)
        compiler = COMPILER + needed(debs, True)
        root = Root(os.path.join(work, 'dev'), os.path.join(made(
            compiler, '--include=' + ','.join(compiler)), 'root.tar'),
                    [*glob.glob(os.path.join(base, 'debs', '*.deb')), *debs.values()])
        ran('apt reads what there is', root.apt('update'))
        typed = re.search(r'\| `(apt install OUT/[^`]*)` \|$', toolchain.read(
            os.path.join(SOURCE, 'README.md')), flags=re.M).group(1)
        os.mkdir(root.real('/out'))
        for deb in debs.values():
            shutil.copy(deb, root.real('/out'))
        ran("the README's line installs all of them",
            root.sh(typed.replace('OUT', '/out').replace('apt', 'apt -y', 1)))
        library(root)
        autopkgtest(root)
    finally:
        shutil.rmtree(work)
    return end()


if __name__ == '__main__':
    sys.exit(main())
