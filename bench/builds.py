"""Which build is measured: the one that is named, else the newest build*/ of the checkout."""
import glob
import os

from plainly import Bad

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find(build, program):
    """The real path of the build that has this program: bench/PROGRAM in it."""
    builds = [build] if build else sorted(glob.glob(os.path.join(TOP, 'build*')),
                                          key=os.path.getmtime, reverse=True)
    for folder in builds:
        if os.access(os.path.join(folder, 'bench', program), os.X_OK):
            return os.path.realpath(folder)
    raise Bad(f'nothing is built in {build or "build*/"}: meson setup build && ninja -C build', 69)
