"""A driver written elsewhere: examples/driver/example.c and the steps of the guide, built with what
is installed alone, pass what a store has to pass. The step `author` of tools/test.

    author_test.py SOURCE BUILD    the folders of the source and of a build of it

Installs the build into a temporary folder, copies the driver out of the tree, builds it with
pkg-config, and runs doctor, the conformance suite, the lock suites and two commands on it. The
steps of doc/adding-a-driver.md are built one after the other. Prints TAP.
"""
import os
import re
import subprocess
import sys
import tempfile

# Of the suites of tests/suites; each takes a URL in which @ is a folder of its own.
SUITES = ['conform', 'lock_adopted', 'lock_again', 'lock_basic', 'lock_life', 'lock_process',
          'low_fd', 'torture']
BUSY = 75    # the exit status of a command that doesn't get its key
WARNINGS = ['-Wall', '-Wextra', '-Werror']
FENCE = re.compile(r'^```c\n(.*?)^```$', re.M | re.S)
points = []


def point(good, what, said=''):
    points.append(good)
    if not good:
        print('\n'.join('# ' + line for line in said.split('\n')[-40:]))
    print(f'{"ok" if good else "not ok"} {len(points)} - {what}', flush=True)
    return good


def run(words, env, **more):
    done = subprocess.run(words, env=env, text=True, stdin=subprocess.DEVNULL, timeout=1200,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    return done.returncode, done.stdout


def installed(build, root):
    """Installs the build below `root`. Returns the environment that finds it."""
    status, said = run(['meson', 'install', '-C', build, '--destdir', root, '--no-rebuild'],
                       os.environ)
    point(status == 0, 'it is installed', said)
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            found[os.path.join(os.path.basename(folder), name)] = folder
    point('pkgconfig/holdfast-driver.pc' in found, 'pkg-config finds the kit')
    library = next(where for name, where in found.items() if name.endswith('/libholdfast.so.0'))
    return {**os.environ, 'PKG_CONFIG_PATH': found['pkgconfig/holdfast-driver.pc'],
            'PKG_CONFIG_SYSROOT_DIR': root, 'LD_LIBRARY_PATH': library,
            'PATH': found['bin/holdfast'] + os.pathsep + os.environ['PATH']}


def built(source, target, env):
    """Builds a driver as its author does. Returns whether that went well, and what was said."""
    status, flags = run(['pkg-config', '--cflags', '--libs', 'holdfast-driver'], env)
    if status:
        return False, flags
    # What else is in the installed headers' folder is used, and nothing of the source tree.
    compiler = os.environ.get('CC', 'cc').split()
    words = [*compiler, '-shared', '-fPIC', *WARNINGS, '-o', target, source,
             *flags.split()]
    status, said = run(words, env, cwd=os.path.dirname(target))
    return status == 0, ' '.join(words) + '\n' + said


def suites(build, env):
    """The suites that every store passes, each with all its points."""
    for name in SUITES:
        status, said = run([os.path.join(build, 'tests', name), 'example:@'], env)
        passed = len(re.findall(r'^ok\b', said, flags=re.M))
        failed = re.findall(r'^not ok\b.*', said, flags=re.M)
        point(status == 0 and passed and not failed, f'{name}: {passed} points', said)


PROGRAM = """#include <holdfast.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    hf_lock *lock;
    hf_error err;
    hf *h;
    int rc = hf_open(argv[argc - 1], NULL, &h, &err);
    if (!rc) rc = hf_acquire(h, "program", NULL, &lock, &err);
    if (!rc) rc = hf_release(lock, &err);
    if (rc) return printf("%s", err.text), 1;
    hf_close(h);
    return 0;
}
"""


def program(store, work, env):
    """A program that links the shared library loads the driver, too."""
    with open(os.path.join(work, 'program.c'), 'w', encoding='utf-8') as file:
        file.write(PROGRAM)
    status, said = run(['sh', '-c', 'cc -o program program.c $(pkg-config --cflags --libs holdfast)'
                        ' && ./program "$0"', store], env, cwd=work)
    point(status == 0, 'a program with the shared library uses it', said)


def own_headers(source):
    """The kit needs no header of the core: it is built of the headers that are installed."""
    with open(os.path.join(source, 'meson.build'), encoding='utf-8') as file:
        listed = re.search(r'^kit_headers = files\((.*?)\)', file.read(), flags=re.M | re.S)
    headers = re.findall(r"'([^']+)'", listed.group(1))
    own = {os.path.basename(path) for path in headers} | {'holdfast_driver.h', 'holdfast.h'}
    kit = os.path.join(source, 'drivers', 'kit')
    files = [os.path.join(kit, name) for name in os.listdir(kit) if name.endswith(('.c', '.h'))]
    files += [os.path.join(source, end) for path in headers
              for end in (path, path[:-2] + '.c') if os.path.exists(os.path.join(source, end))]
    strange = []
    for path in files:
        with open(path, encoding='utf-8') as file:
            strange += [f'{path}: {name}' for name in re.findall(r'^#include "(.*)"', file.read(),
                                                                 flags=re.M)
                        if os.path.basename(name) not in own]
    point(len(files) > 20 and not strange, 'the kit needs no other header', '\n'.join(strange))


def two_processes(store, env):
    """A key that one command holds is busy for another one, which gets it afterwards."""
    def command(*words):
        return ['holdfast', '-S', store, 'run', *words]
    # It says that it holds the key, and holds it until its input ends.
    with subprocess.Popen(command('job', '--', 'sh', '-c', 'echo held; cat'), env=env, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        point(holder.stdout.readline() == 'held\n', 'a command holds a key')
        status, said = run(command('-n', 'job', '--', 'true'), env)
        point(status == BUSY, 'another command does not get it', f'status {status}\n{said}')
        with subprocess.Popen(command('-w', '600', 'job', '--', 'true'), env=env,
                              stdin=subprocess.DEVNULL) as waiter:
            waits = f"until holdfast -S '{store}' show job --json | grep -q pid.*pid; do :; done"
            point(subprocess.run(['timeout', '600', 'sh', '-c', waits], env=env).returncode == 0,
                  'a third one waits in the queue')
            holder.stdin.close()
            point(waiter.wait(600) == 0, 'and gets it when it is released')
        point(holder.wait(600) == 0, 'the first command ends well')


def steps_of(page):
    """[(the functions that a step of the guide adds, the commands that it shows)]."""
    found = []
    for part in re.split(r'^## Step \d+: ', page, flags=re.M)[1:]:
        added = re.search(r'^.*?\bFunctions: ((?:`\w+`(?:, )?)+)\.', part, flags=re.M | re.S)
        names = re.findall(r'`(\w+)`', added.group(1)) if added else []
        part = re.split(r'^## ', part, flags=re.M)[0]
        shown = '\n'.join(re.findall(r'^```sh\n(.*?)^```$', part, flags=re.M | re.S))
        found.append((names, re.findall(r'^(holdfast -S .*|mkdir .*)$', shown, flags=re.M)))
    return found


FUNCTION = re.compile(r'^(?:/\*(?:(?!\*/).)*\*/\n)?static [^;{}=]*?(\w+)\([^;{}]*\)\n\{\n.*?^\}\n',
                      re.M | re.S)


def with_functions(text, names):
    """The example as it is when a reader has written these functions, and no others."""
    text = FUNCTION.sub(lambda match: match.group(0) if match.group(1) in names else '', text)
    return re.sub(r'^    \.\w+ = (ex_\w+),\n',
                  lambda match: match.group(0) if match.group(1) in names else '', text, flags=re.M)


def guide(page, text, work, env):
    """The code of the page is that of the example; each step compiles, and its commands work."""
    blocks = [piece for block in FENCE.findall(page) for piece in block.split('...\n')]
    strange = [piece for piece in blocks if piece not in text]
    point(blocks and not strange, 'the code of the guide is that of the example',
          '\n'.join(strange))
    steps = steps_of(page)
    written = set()
    for n, (names, commands) in enumerate(steps, 1):
        written |= set(names)
        folder = os.path.join(work, f'step{n}')
        os.mkdir(folder)
        source = os.path.join(folder, 'example.c')
        with open(source, 'w', encoding='utf-8') as file:
            file.write(with_functions(text, written))
        good, said = built(source, os.path.join(folder, 'libholdfast-example.so'), env)
        point(good, f'step {n} of the guide compiles', said)
        for command in commands:
            command = command.replace('/tmp/shelf', os.path.join(work, 'shelf'))
            status, said = run(['sh', '-c', command], {**env, 'HOLDFAST_DRIVERS': folder})
            point(status == 0, f'step {n}: {command.split("shelf")[-1].strip()}', said)
    left = set(FUNCTION.findall(text)) - written
    point(len(steps) == 5 and not left, 'the steps lead to the whole example', str(left))


def kit_headers(root, env):
    """Each header of the kit alone."""
    status, flags = run(['pkg-config', '--cflags', 'holdfast-driver'], env)
    names = []
    for folder, _, files in os.walk(root):
        if folder.endswith('holdfast/kit'):
            names = sorted(files)
    point(status == 0 and len(names) > 10, f'{len(names)} headers of the kit are installed', flags)
    for name in names:
        for standard in ('gnu99', 'gnu11', 'gnu17'):
            said = run(['cc', f'-std={standard}', *WARNINGS, '-Wpedantic', *flags.split(),
                        '-fsyntax-only', '-x', 'c', '-include', f'holdfast/kit/{name}',
                        '/dev/null'], env)
            point(said[0] == 0, f'holdfast/kit/{name} as {standard}', said[1])


def uninstalled(build, root):
    """packaging/README.md says that this removes what was installed. Meson removes what the last
    installation of the build has noted, so the lock lets no other test install meanwhile."""
    again = f"meson install -C '{build}' --destdir '{root}' --no-rebuild && " \
            f"ninja -C '{build}' uninstall"
    status, said = run(['flock', os.path.join(build, 'install.lock'), 'sh', '-c', again],
                       os.environ)
    left = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    point(status == 0 and not left, 'ninja uninstall leaves no file', f'{left}\n{said[-2000:]}')


def main(source, build):
    with tempfile.TemporaryDirectory(prefix='holdfast-author-') as top:
        root, work = os.path.join(top, 'root'), os.path.join(top, 'work')
        store = 'example:' + os.path.join(top, 'store')
        os.mkdir(work)
        env = installed(build, root)
        kit_headers(root, env)
        own_headers(source)
        example = os.path.join(source, 'examples', 'driver', 'example.c')
        with open(example, encoding='utf-8') as file:
            text = file.read()
        point(text.count('\n') < 300, 'the example has less than 300 lines')
        copy = os.path.join(work, 'example.c')
        with open(copy, 'w', encoding='utf-8') as file:
            file.write(text)
        with open(os.path.join(source, 'doc', 'adding-a-driver.md'), encoding='utf-8') as file:
            page = file.read()
        point(page.count('\n') <= 250, 'the guide has at most 250 lines')
        guide(page, text, work, env)
        good, said = built(copy, os.path.join(work, 'libholdfast-example.so'), env)
        if point(good, 'the example is built outside of the tree', said):
            env['HOLDFAST_DRIVERS'] = work
            _, said = run(['nm', '-D', '-j', '--defined-only', 'libholdfast-example.so'], env,
                          cwd=work)
            point(said == 'hf_driver_entry\n', 'it exports the driver and nothing of the kit', said)
            two_processes(store, env)
            program(store, work, env)
            status, said = run(['holdfast', '-S', store, 'doctor'], env)
            point(status == 0, 'doctor has nothing to say against it', said)
            suites(build, env)
        uninstalled(build, root)
    print(f'1..{len(points)}')
    return 0 if points and all(points) else 1


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
