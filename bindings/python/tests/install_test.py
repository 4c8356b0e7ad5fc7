"""`pip install ./bindings/python`, as the README says it, in a virtual environment.

    install_test.py SOURCE BUILD

From a copy of the sources that nobody may write to, which is as before afterwards; and against an
installed library. What was installed needs neither.
"""
import glob
import os
import shutil
import stat
import subprocess
import sys
import tempfile

from tap import run

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
FOLDER = tempfile.mkdtemp(prefix='holdfast-install.')
COPY = os.path.join(FOLDER, 'checkout')
CASES = os.path.join(COPY, 'bindings', 'python', 'tests', 'cases_test.py')
TABLE = os.path.join(COPY, 'bindings', 'cases.json')
ENV = {name: value for name, value in os.environ.items()
       if name not in ('HOLDFAST_DRIVERS', 'PYTHONPATH', 'LD_LIBRARY_PATH')}
ENV['CFLAGS'] = '-O0'  # a third of the work; how fast the library becomes isn't what is shown here
if shutil.which('ccache'):  # the same sources are built three times, in folders with other names
    ENV |= {'CC': 'ccache gcc', 'CCACHE_NOHASHDIR': '1', 'CCACHE_BASEDIR': tempfile.gettempdir()}
# In bin/python3, without the tests' directory in its path of modules.
SELL = """
import sys, holdfast
with holdfast.open(sys.argv[1]) as store, store.lock('seat', wait=2) as held:
    print(held.token > 0, holdfast.__file__)
"""


def do(*command, **more):
    done = subprocess.run([*command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          **{'env': ENV, 'cwd': FOLDER, **more})
    assert not done.returncode, f'{command}: status {done.returncode}\n{done.stdout}'
    return done.stdout


def everything(folder):
    """All that is there, and when it was changed."""
    return sorted((os.path.relpath(os.path.join(path, name), folder),
                   os.lstat(os.path.join(path, name)).st_mtime_ns)
                  for path, _, names in os.walk(folder) for name in [*names, '.'])


def environment(name):
    """A new virtual environment's Python. All have the pip of the first: to install one takes
    seconds."""
    path = os.path.join(FOLDER, name)
    do('/usr/bin/python3', '-m', 'venv', '--without-pip', path)
    return os.path.join(path, 'bin', 'python3')


def pip_install(python, *words, **env):
    with_pip = os.path.join(FOLDER, 'pip')
    if not os.path.exists(with_pip):
        do('/usr/bin/python3', '-m', 'venv', with_pip)
    do(os.path.join(with_pip, 'bin', 'pip'), '--python', python, 'install', '--quiet',
       '--disable-pip-version-check', *words, env={**ENV, **env})


def install(python, what=os.path.join(COPY, 'bindings', 'python'), **env):
    """With build isolation; the pinned wheels come from the cache instead of PyPI."""
    wheels = do(os.path.join(SOURCE, 'tools', 'python-packages')).splitlines()[-1]
    pip_install(python, what, PIP_NO_INDEX='1', PIP_FIND_LINKS=wheels, **env)


def a_copy_of_the_sources():
    shutil.copytree(SOURCE, COPY, symlinks=True, ignore=lambda folder, names: [
        name for name in names
        if name.startswith(('build', '.git')) or name in ('node_modules', '__pycache__')])
    for path, folders, names in os.walk(COPY):
        for name in [*names, '.']:
            one = os.path.join(path, name)
            if not os.path.islink(one):
                os.chmod(one, os.stat(one).st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


def one_command_installs_it():
    before = everything(COPY)
    install(environment('venv'))
    assert everything(COPY) == before


def what_was_installed_is_complete():
    python = os.path.join(FOLDER, 'venv', 'bin', 'python3')
    place = glob.glob(os.path.join(FOLDER, 'venv', 'lib', '*', 'site-packages', 'holdfast'))[0]
    there = set(os.listdir(place))
    assert there >= {'_holdfast.abi3.so', 'py.typed', '_holdfast.pyi', 'lib'}, there
    drivers = {os.path.basename(path)
               for path in glob.glob(os.path.join(BUILD, 'libholdfast-*.so'))}
    assert drivers and set(os.listdir(os.path.join(place, 'lib'))) == {
        'libholdfast.so.0', *drivers}
    # Moved away, the sources aren't missed.
    os.rename(COPY, COPY + '.away')
    try:
        for url in 'mem:', f'file:{FOLDER}/locks', f'sqlite:{FOLDER}/locks.db':
            assert do(python, '-c', SELL, url).split() == [
                'True', os.path.join(place, '__init__.py')]
    finally:
        os.rename(COPY + '.away', COPY)


def the_source_distribution_installs_by_itself():
    wheels = do(os.path.join(SOURCE, 'tools', 'python-packages')).splitlines()[-1]
    python, folder = environment('packs'), os.path.join(FOLDER, 'packed')
    pip_install(python, '--no-index', '--find-links', wheels, 'setuptools')
    before = everything(COPY)
    do(python, '-c', 'import sys; from setuptools import build_meta; '
       'build_meta.build_sdist(sys.argv[1])', folder,
       cwd=os.path.join(COPY, 'bindings', 'python'))
    assert everything(COPY) == before
    os.rename(COPY, COPY + '.away')
    try:
        install(environment('unpacks'), *glob.glob(os.path.join(folder, 'holdfast_lock-*.tar.gz')))
        python = os.path.join(FOLDER, 'unpacks', 'bin', 'python3')
        said = do(python, '-c', SELL, f'sqlite:{FOLDER}/packed.db')
        assert said.startswith('True '), said
        place = glob.glob(os.path.join(FOLDER, '*packs', 'lib', '*', 'site-packages', 'holdfast'))
        assert len(place) == 1 and set(os.listdir(place[0])) == set(os.listdir(place[0].replace(
            'unpacks', 'venv'))), place
    finally:
        os.rename(COPY + '.away', COPY)


def the_table_by_the_installed_one():
    python = os.path.join(FOLDER, 'venv', 'bin', 'python3')
    said = do(python, '-W', 'error', CASES, TABLE, 'sqlite:@')
    assert said.count('\nok ') + said.startswith('ok ') > 40 and 'not ok' not in said, said


def against_an_installed_library():
    tree = os.path.join(FOLDER, 'tree')
    do('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', tree)
    found = {name: folder for folder, _, names in os.walk(tree) for name in names}
    python = environment('system')
    install(python, HOLDFAST_SYSTEM_LIB='1', PKG_CONFIG_PATH=found['holdfast.pc'],
            PKG_CONFIG_SYSROOT_DIR=tree)
    place = glob.glob(os.path.join(FOLDER, 'system', 'lib', '*', 'site-packages', 'holdfast'))[0]
    assert 'lib' not in os.listdir(place)
    folder = os.path.dirname(os.path.join(found['libholdfast.so.0.1.0'], 'x'))
    said = do(python, '-c', SELL, f'sqlite:{FOLDER}/system.db',
              env={**ENV, 'LD_LIBRARY_PATH': folder})
    assert said.startswith('True '), said


if __name__ == '__main__':
    try:
        status = run([(one.__name__.replace('_', ' '), one) for one in (
            a_copy_of_the_sources, one_command_installs_it, what_was_installed_is_complete,
            the_source_distribution_installs_by_itself, the_table_by_the_installed_one,
            against_an_installed_library)])
    finally:
        for path, _, _ in os.walk(FOLDER):
            os.chmod(path, 0o700)
        shutil.rmtree(FOLDER)
    sys.exit(status)
