"""Builds the extension, and the C library with it: from the sources of the checkout, or those that
a source distribution has in its folder `library`, with meson, all the drivers whose libraries are
there; they go into the package. HOLDFAST_SYSTEM_LIB=1: against the installed library that
pkg-config knows, nothing is bundled. The checkout isn't written to."""
import atexit
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = os.path.dirname(os.path.abspath(__file__))
OWN = os.path.join(HERE, 'library')
TOP = OWN if os.path.isdir(OWN) else os.path.dirname(os.path.dirname(HERE))
# What the library and its drivers are built from.
PARTS = ['core', 'drivers', 'guards', 'include', 'meson.build', 'meson_options.txt', 'LICENSE']
WORK = tempfile.mkdtemp(prefix='holdfast-build.')
atexit.register(shutil.rmtree, WORK, True)


def version():
    with open(os.path.join(TOP, 'include', 'holdfast.h'), encoding='utf-8') as header:
        return re.search(r'^#define HF_VERSION "(.*)"', header.read(), flags=re.M).group(1)


def run(*command):
    # pip's own Python path is for this build, not for the tools.
    env = {name: value for name, value in os.environ.items()
           if name not in ('PYTHONPATH', 'PYTHONHOME')}
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    except FileNotFoundError:
        sys.exit(f'holdfast: no {command[0]}: tools/setup in the checkout installs what is needed')
    if done.returncode:
        sys.exit(f'{done.stdout}\nholdfast: {" ".join(command)} failed')
    return done.stdout


class Pack(sdist):
    """Installs without the checkout: the sources of the library come along."""

    def make_distribution(self):
        """Elsewhere than in the checkout."""
        name = self.distribution.get_fullname().replace('holdfast-lock', 'holdfast_lock')
        self.make_release_tree(os.path.join(WORK, name), self.filelist.files)
        os.makedirs(self.dist_dir, exist_ok=True)
        archive = shutil.make_archive(os.path.join(os.path.abspath(self.dist_dir), name), 'gztar',
                                      WORK, name)
        self.archive_files = [archive]
        self.distribution.dist_files.append(('sdist', '', archive))

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        to = os.path.join(base_dir, 'library')
        os.makedirs(to, exist_ok=True)
        for name in PARTS:
            path = os.path.join(TOP, name)
            if os.path.isdir(path):
                shutil.copytree(path, os.path.join(to, name), dirs_exist_ok=True,
                                ignore=shutil.ignore_patterns('__pycache__'))
            else:
                shutil.copy(path, to)
        for folder, _, names in os.walk(to):    # the files of a checkout may be read-only
            for name in ['.', *names]:
                path = os.path.join(folder, name)
                os.chmod(path, os.stat(path).st_mode | 0o200)


class Build(build_ext):
    def finalize_options(self):
        super().finalize_options()
        self.inplace = False

    def build_extension(self, extension):
        if os.environ.get('HOLDFAST_SYSTEM_LIB', '') not in ('', '0'):
            flags = run('pkg-config', '--cflags', '--libs', 'holdfast').split()
            extension.extra_compile_args += [flag for flag in flags if flag[:2] in ('-I', '-D')]
            extension.extra_link_args += [flag for flag in flags if flag[:2] in ('-L', '-l')]
        else:
            self.build_library(extension)
        super().build_extension(extension)

    def build_library(self, extension):
        folder = os.path.join(WORK, 'library')
        print(run('meson', 'setup', folder, TOP, '-Dtests=false', '--buildtype=release'))
        parts = [part for part in json.loads(run('meson', 'introspect', folder, '--targets'))
                 if part['type'] in ('shared library', 'shared module') and
                 part['name'].startswith('holdfast')]
        files = [file for part in parts for file in part['filename']]
        run('ninja', '-C', folder, *(os.path.relpath(file, folder) for file in files))
        into = os.path.join(os.path.dirname(self.get_ext_fullpath(extension.name)), 'lib')
        os.makedirs(into, exist_ok=True)
        for file in files:
            # The library by the name that the extension asks for.
            name = os.path.basename(file)
            for whole in glob.glob(os.path.join(folder, 'libholdfast.so.?')):
                if os.path.samefile(whole, file):
                    name = os.path.basename(whole)
            shutil.copy(file, os.path.join(into, name))
        extension.include_dirs.append(os.path.join(TOP, 'include'))
        extension.library_dirs.append(folder)
        extension.libraries.append('holdfast')
        extension.extra_link_args.append('-Wl,-rpath,$ORIGIN/lib')


os.makedirs(os.path.join(WORK, 'egg'))
os.chdir(HERE)
setup(
    version=version(),
    cmdclass={'build_ext': Build, 'sdist': Pack},
    options={'egg_info': {'egg_base': os.path.join(WORK, 'egg')},
             'build': {'build_base': os.path.join(WORK, 'build')},
             'bdist_wheel': {'py_limited_api': 'cp39'}},
    ext_modules=[Extension(
        'holdfast._holdfast', sorted(glob.glob('src/*.c')), depends=['src/ext.h'],
        define_macros=[('Py_LIMITED_API', '0x03090000'), ('_GNU_SOURCE', None)],
        extra_compile_args=['-std=c11'], py_limited_api=True)],
)
