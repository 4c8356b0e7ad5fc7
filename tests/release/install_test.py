"""Types the README's lines of installation as they stand there, and looks at what is installed. The
results are TAP.

    install_test.py SOURCE OUT [LIBC...]

SOURCE: the checkout. OUT: the artefacts of tools/release. LIBC: gnu, the lines for Node and Python;
musl, the one for the command. Default: both.
"""
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
LIBCS = sys.argv[3:] or ['gnu', 'musl']
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True
from pages import broken_links, commands                                # noqa: E402
from points import end, point                                           # noqa: E402
from toolchain import TARGETS                                           # noqa: E402

WORK = tempfile.mkdtemp(prefix='holdfast-install.')
CPU = {'x86_64': 'x64', 'aarch64': 'arm64'}[platform.machine()]


def line(program):
    """The README's line that begins with this program, for this processor."""
    with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
        found = re.findall(rf'\| `({program} [^`]*OUT[^`]*)` \|$', file.read(), flags=re.M)
    assert len(found) == 1, found
    return found[0].replace('OUT', OUT).replace('linux-x64', 'linux-' + CPU)


def run(text, cwd=WORK, **env):
    """(status, output) of a line of the shell."""
    done = subprocess.run(['sh', '-euc', text], cwd=cwd, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                          env={**os.environ, 'HOME': WORK, **env})
    return done.returncode, done.stdout


def ran(what, status_said, pattern=''):
    status, said = status_said
    point(status == 0 and re.search(pattern, said, flags=re.M), what, f'status {status}\n{said}')


def manual(man, name):
    """The text of a page of section 1; a page may be one line that includes another."""
    path = os.path.join(man, 'man1', name + '.1')
    if not os.path.exists(path):
        return ''
    with open(path, encoding='utf-8') as file:
        text = file.read()
    other = re.fullmatch(r'\.so man1/(\S+)\.1\n', text)
    return manual(man, other.group(1)) if other else text


def archive():
    top = os.path.join(WORK, 'local')
    os.mkdir(top)
    typed = line('tar')
    point(' -C /usr/local ' in typed, 'the archive is for /usr/local', typed)
    ran('the archive is unpacked', run(typed.replace('/usr/local', top)))
    point(sorted(os.listdir(top)) == ['bin', 'share'], 'nothing is beside its folders',
          os.listdir(top))
    status, said = run(os.path.join(top, 'bin', 'holdfast') + ' --help')
    there = commands(said)
    point(status == 0 and len(there) > 10, 'the command names its commands', said)
    for name in there:
        text = manual(os.path.join(top, 'share', 'man'), 'holdfast-' + name)
        point(re.search(rf'^\.Nm holdfast[ -]{name}$', text, flags=re.M),
              f'it has a page holdfast-{name}(1)', text[:300])
    docs = os.path.join(top, 'share', 'doc', 'holdfast')
    point(os.path.exists(os.path.join(docs, 'stores', 'redis.md')),
          'it has the pages of stores that holdfast(1) names')
    count, bad = broken_links(docs)
    point(count > 50 and not bad, 'every link of its pages leads somewhere', f'{count}; {bad}')


def node():
    app = os.path.join(WORK, 'app')
    os.mkdir(app)
    how = ' --offline --ignore-scripts --no-audit --no-fund'
    # Nothing is fetched: packages for other platforms needn't be there.
    ran('npm install', run(line('npm') + how, app))
    there = sorted(os.listdir(os.path.join(app, 'node_modules')))
    point([name for name in there if name.startswith('holdfast')] == [
        'holdfast', f'holdfast-linux-{CPU}-gnu'], 'of the binaries, those of this system', there)
    if len(glob.glob(os.path.join(OUT, 'holdfast-*.tgz'))) > len(TARGETS):
        ran('npm ci, with the binaries of all systems at hand', run('npm ci' + how, app))
    ran('Node opens a store', run(
        "node -e \"require('holdfast').open('mem:').then((store) => console.log(store.url))\"",
        app), '^mem:')


def python():
    venv = os.path.join(WORK, 'venv')
    ran('a virtual environment', run(f'/usr/bin/python3 -m venv {venv}'))
    ran('pip install', run(f'{venv}/bin/' + line('pip')))
    ran('Python opens a store', run(
        f"{venv}/bin/python3 -c \"import holdfast; print(holdfast.open('mem:').url)\""), '^mem:')


def main():
    try:
        if 'musl' in LIBCS:
            archive()
        if 'gnu' in LIBCS:
            node()
            python()
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
