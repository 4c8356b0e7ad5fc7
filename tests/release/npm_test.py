"""Installs the npm packages with each package manager, none of which may run a script, bundles
them, and runs them under test runners. The results are TAP.

    npm_test.py SOURCE OUT

SOURCE: the checkout. OUT: the artefacts of tools/release.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, OUT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.dont_write_bytecode = True
from npm_registry import Registry                                       # noqa: E402
from points import end, point                                           # noqa: E402

WORK = os.path.realpath(tempfile.mkdtemp(prefix='holdfast-npm.'))
NODE = shutil.which('node')
SOLD = r'^sold by token \d+ false$'
MINE = f'holdfast-linux-{ {"x86_64": "x64", "aarch64": "arm64"}[os.uname().machine] }-gnu'


def packages(folder):
    return subprocess.run([os.path.join(SOURCE, 'tools', 'node-packages'),
                           os.path.join(SOURCE, folder)], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()


MANAGERS = packages('tests/release/managers')
RUNNERS = packages('bindings/node/test/runners')


def run(*command, cwd, **env):
    """(status, output) of a program of Node's, with nothing in the PATH but Node."""
    path = os.path.join(WORK, 'bin')
    if not os.path.exists(path):
        os.mkdir(path)
        os.symlink(NODE, os.path.join(path, 'node'))
    done = subprocess.run([NODE, *command], cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                          env={'PATH': path, 'HOME': WORK, 'LANG': 'C.UTF-8', 'NO_COLOR': '1',
                               'CI': '1', **env})
    return done.returncode, done.stdout


def ran(what, status_said, pattern=''):
    status, said = status_said
    point(status == 0 and re.search(pattern, said, flags=re.M), what, f'status {status}\n{said}')
    return status == 0


def write(*path_and_text):
    *path, text = path_and_text
    with open(os.path.join(*path), 'w', encoding='utf-8') as file:
        file.write(text)


def project(name):
    folder = os.path.join(WORK, name)
    os.mkdir(folder)
    write(folder, 'package.json', json.dumps(
        {'name': 'app', 'private': True, 'dependencies': {'holdfast': '*'}}))
    with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
        example = re.search(r'^```js\n(.*?)^```$', file.read(), flags=re.M | re.S).group(1)
    write(folder, 'sell.mjs', example)
    return folder


def manager(name, program, words, url, files=(), start=(), **env):
    """Installs, and runs the README's example; the project's folder."""
    app = project(re.sub(r'\W', '-', name))
    for file, text in files:
        write(app, file, text.replace('URL', url))
    if ran(f'{name}: it installs', run(os.path.join(MANAGERS, program), *words, cwd=app, **env)):
        ran(f"{name}: the README's example", run(*start, 'sell.mjs', cwd=app), SOLD)
    return app


YARN = '''npmRegistryServer: "URL"
unsafeHttpWhitelist: ["127.0.0.1"]
enableGlobalCache: false
enableImmutableInstalls: false
enableScripts: false
enableTelemetry: false
pnpEnableEsmLoader: true
nodeLinker: '''


def managers(url):
    app = manager('pnpm', 'pnpm/bin/pnpm.cjs',
                  ['install', '--ignore-scripts', '--registry', url, '--store-dir',
                   os.path.join(WORK, 'pnpm-store')], url)
    there = sorted(name for name in os.listdir(os.path.join(app, 'node_modules', '.pnpm'))
                   if name.startswith('holdfast-'))
    point([re.sub('@.*', '', name) for name in there] == [MINE],
          'pnpm: the binaries of this platform, and no others', there)
    manager('yarn 1', 'yarn/bin/yarn.js',
            ['install', '--ignore-scripts', '--no-progress', '--registry', url, '--cache-folder',
             os.path.join(WORK, 'yarn-cache')], url)
    for linker, start in (('node-modules', []), ('pnp', ['--require', './.pnp.cjs',
                                                         '--loader', './.pnp.loader.mjs'])):
        manager(f'yarn 4, {linker}', '@yarnpkg/cli-dist/bin/yarn.js', ['install'], url,
                [('.yarnrc.yml', YARN + linker + '\n'), ('yarn.lock', '')], start)


# An ES module has no `require`, which esbuild leaves to the bundle for Node's own modules.
BANNER = ("--banner:js=import { createRequire } from 'node:module'; "
          'const require = createRequire(import.meta.url);')


def bundles(app):
    """esbuild makes one file of the JavaScript; the addon stays where it was installed."""
    esbuild = os.path.join(MANAGERS, 'esbuild', 'bin', 'esbuild')
    write(app, 'mutex.mjs', "import { KeyedMutex } from 'holdfast/mutex';\n"
          "await new KeyedMutex().runExclusive('key', () => console.log('alone'));\n")
    for kind, name in (('esm', 'bundle.mjs'), ('cjs', 'bundle.cjs')):
        text = 'sell.mjs'
        if kind == 'cjs':    # which has no await at its top
            with open(os.path.join(app, 'sell.mjs'), encoding='utf-8') as file:
                imports, rest = file.read().split('\n', 1)
            text = 'sell-async.mjs'
            write(app, text, f'{imports}\n(async () => {{\n{rest}}})();\n')
        bundled = ran(f'esbuild, {kind}: it bundles', run(
            esbuild, text, '--bundle', '--platform=node', f'--format={kind}', '--log-level=info',
            f'--outfile=dist-{kind}/{name}', *([BANNER] if kind == 'esm' else []), cwd=app))
        if bundled:
            with open(os.path.join(app, f'dist-{kind}', name), encoding='utf-8') as file:
                text = file.read()
            point(not re.search(r'''(require\(|from )["']holdfast["']''', text),
                  f'esbuild, {kind}: the package is inside')
            ran(f"esbuild, {kind}: the README's example",
                run(f'dist-{kind}/{name}', cwd=app), SOLD)
    alone = os.path.join(WORK, 'alone')
    os.mkdir(alone)
    if ran('esbuild: mutexes alone', run(
            esbuild, 'mutex.mjs', '--bundle', '--platform=node', '--format=esm',
            f'--outfile={alone}/mutex.mjs', cwd=app)):
        ran('esbuild: they work where nothing is installed', run('mutex.mjs', cwd=alone), '^alone$')


def runners(app):
    """The installed package in the test files of Jest and Vitest."""
    shutil.copy(os.path.join(SOURCE, 'bindings', 'node', 'test', 'runners', 'classes.js'), app)
    os.symlink(os.path.join(RUNNERS, 'vitest'), os.path.join(app, 'node_modules', 'vitest'))
    write(app, 'jest.config.js', "module.exports = { testMatch: ['**/*.jest.js'], transform: {}, "
          'testTimeout: 600000 };\n')
    write(app, 'vitest.config.mjs', "export default { test: { include: ['**/*.vitest.mjs'], "
          'testTimeout: 600000 } };\n')
    for name in ('one', 'two'):
        write(app, f'{name}.jest.js', "const classes = require('./classes.js');\n"
              f"test('{name}', () => classes(expect, require('holdfast'), "
              "require('crypto').randomBytes));\n")
        write(app, f'{name}.vitest.mjs', "import { expect, test } from 'vitest';\n"
              "import { randomBytes } from 'node:crypto';\n"
              "import * as holdfast from 'holdfast';\nimport classes from './classes.js';\n"
              f"test('{name}', () => classes(expect, holdfast, randomBytes));\n")
    ran('Jest, with the installed package', run(
        os.path.join(RUNNERS, 'jest', 'bin', 'jest.js'), '--ci', '--no-cache', '--runInBand',
        '--detectOpenHandles', cwd=app), '2 passed, 2 total')
    ran('Vitest, with the installed package', run(
        os.path.join(RUNNERS, 'vitest', 'vitest.mjs'), 'run', '--pool=forks', cwd=app),
        'Tests +2 passed')


def main():
    try:
        with Registry(OUT) as url:
            managers(url)
        app = os.path.join(WORK, 'yarn-4--node-modules')
        bundles(app)
        runners(app)
    finally:
        shutil.rmtree(WORK)
    return end()


if __name__ == '__main__':
    sys.exit(main())
