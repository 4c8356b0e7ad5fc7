"""The recipes in packaging/recipes, which are not run here: what their linters and parsers say, and
whether what they name exists. The results are TAP.

    recipes_test.py SOURCE OUT

SOURCE: the checkout. OUT: the artefacts of tools/release.
"""
import os
import platform
import re
import subprocess
import sys
import tempfile

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.dont_write_bytecode = True
from points import end, point                                           # noqa: E402

RECIPES = os.path.join(SOURCE, 'packaging', 'recipes')


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as file:
        return file.read()


def ran(what, *command, **env):
    done = subprocess.run(command, cwd=RECIPES, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, **env})
    point(done.returncode == 0, what, done.stdout)


def main():
    version = re.search(r'^#define HF_VERSION "(.*)"', read(
        SOURCE, 'include', 'holdfast.h'), flags=re.M).group(1)
    tools = subprocess.run([os.path.join(SOURCE, 'tools', 'release-tools')], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.strip()
    ran('Dockerfile: hadolint has nothing to say', os.path.join(tools, 'bin', 'hadolint'),
        'Dockerfile')
    ran('holdfast.rb: Ruby can parse it', 'ruby', '-wc', 'holdfast.rb')
    with tempfile.TemporaryDirectory() as state:
        ran('package.nix: Nix can parse it', 'nix-instantiate', '--parse', 'package.nix',
            NIX_STATE_DIR=state, NIX_REMOTE='')
    texts = {name: read(RECIPES, name) for name in ('Dockerfile', 'holdfast.rb', 'package.nix')}
    for name, pattern in (('Dockerfile', r'^ARG VERSION=(.*)$'),
                          ('holdfast.rb', r'^  url ".*/holdfast_(.*)\.orig\.tar\.gz"$'),
                          ('package.nix', r'^  version = "(.*)";$')):
        found = re.findall(pattern, texts[name], flags=re.M)
        point(found == [version], f'{name}: its version is that of the release', found)
        point('Not run by the tests' in texts[name], f'{name}: it says that it is not run here')
    known = re.findall(r"^option\('(\w+)'", read(SOURCE, 'meson_options.txt'), flags=re.M)
    named = re.findall(r'"-D(\w+)=', texts['holdfast.rb'] + texts['package.nix'])
    point(len(named) == 2 and set(named) <= set(known), 'the build options that they name exist',
          named)
    words = dict(re.findall(r'^ARG (\w+)=(.*)$', texts['Dockerfile'], flags=re.M))
    added = re.sub(r'\$\{(\w+)\}', lambda found: words[found.group(1)],
                   re.search(r'^ADD (\S+) /$', texts['Dockerfile'], flags=re.M).group(1))
    point(added in os.listdir(OUT) or platform.machine() != 'x86_64',
          f'Dockerfile: {added} is an artefact', os.listdir(OUT))
    return end()


if __name__ == '__main__':
    sys.exit(main())
