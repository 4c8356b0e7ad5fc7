"""What PyPI's own programs say of the wheels and the source distribution: twine, abi3audit,
auditwheel (tools/release-tools). The results are TAP.

    wheel_test.py OUT

OUT: the artefacts of tools/release.
"""
import glob
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, 'tests'))
sys.dont_write_bytecode = True
from points import end, point                                           # noqa: E402

OUT = os.path.abspath(sys.argv[1])
TOOLS = subprocess.run([os.path.join(TOP, 'tools', 'release-tools')], stdout=subprocess.PIPE,
                       text=True, check=True).stdout.strip()
# The system's SQLite, on purpose: packaging/README.md says why. musl's loader takes the name
# libc.so for itself on each distribution; auditwheel knows only the name that Alpine gives it.
OTHERS = {'manylinux': ['libsqlite3.so.0'], 'musllinux': ['libc.so', 'libsqlite3.so.0']}


def run(module, *words):
    """(status, output, what it says beside its output) of a module of TOOLS."""
    done = subprocess.run([sys.executable, '-m', module, *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, 'PYTHONPATH': TOOLS, 'NO_COLOR': '1',
                               'COLUMNS': '200'})
    return done.returncode, done.stdout, done.stderr


def described(files):
    status, said, more = run('twine', 'check', '--strict', *files)
    point(status == 0 and said.count('PASSED') == len(files),
          f'twine: PyPI can show what {len(files)} files say of themselves', said + more)


def stable(wheel):
    name = os.path.basename(wheel)
    status, said, more = run('abi3audit', '--strict', '--report', wheel)
    try:
        audited = {one['name']: one['result'] for one in json.loads(said)['specs'][wheel]['wheel']}
        extension = audited['_holdfast.abi3.so']
        computed = tuple(int(word) for word in extension['computed'].split('.'))
        good = extension['is_abi3'] and computed <= (3, 9) and extension['baseline'] == '3.9'
    except (ValueError, KeyError) as error:
        audited, good = f'{error!r}: {said}{more}', False
    point(status == 0 and good, f'abi3audit: {name} is of the stable ABI of 3.9', audited)


def portable(wheel):
    """The wheel runs on the systems that its name promises, but for SQLite's library. auditwheel
    looks for no library on this system: those that it found would be judged as well."""
    name = os.path.basename(wheel)
    status, said, more = run('auditwheel', 'show', '--json', '--ldpaths', '/nowhere', wheel)
    try:
        found = json.loads(said)
        tag = found['sym_tag']
        others = OTHERS[tag.split('_')[0]]
        good = (f'-{tag}.' in name and sorted(found['external_libs']) == others and
                not found['unsupported_isa'] and
                sorted(found['policy_upgrades'][tag]['libs_to_eliminate']) == others)
    except (ValueError, KeyError) as error:
        found, good = f'{error!r}: {said}{more}', False
    point(status == 0 and good, f'auditwheel: {name} is what its name says, but for SQLite', found)


def main():
    wheels = sorted(glob.glob(os.path.join(OUT, '*.whl')))
    sources = glob.glob(os.path.join(OUT, 'holdfast_lock-*.tar.gz'))
    point(wheels and len(sources) == 1, 'there are wheels, and a source distribution',
          os.listdir(OUT))
    described([*wheels, *sources])
    for wheel in wheels:
        stable(wheel)
        portable(wheel)
    return end()


if __name__ == '__main__':
    sys.exit(main())
