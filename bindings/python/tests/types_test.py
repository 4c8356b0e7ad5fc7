"""The declared types, and the symbols that the extension takes of the interpreter.

    types_test.py SOURCE EXTENSION

By the modules of tools/python-packages, and Pyright, of tools/node-packages. The extension runs on
every Python from the oldest promised one on if it takes nothing but what that one's limited API
has; and it is tried on each that is there: python3.N in the PATH, or among pyenv's.
"""
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from tap import run

SOURCE, EXTENSION = (os.path.abspath(path) for path in sys.argv[1:3])
PACKAGE = os.path.join(SOURCE, 'bindings', 'python')
USE = os.path.join(PACKAGE, 'tests', 'types_use.py')
OLDEST = (3, 9)
TOOLS = os.path.join(subprocess.run(
    [os.path.join(SOURCE, 'tools', 'python-packages')], check=True, text=True,
    stdout=subprocess.PIPE).stdout.splitlines()[-1], 'modules')


def _mypy(*words):
    # The cache is of no use in a checkout that isn't written to.
    done = subprocess.run(
        [sys.executable, '-m', 'mypy', '--strict', '--cache-dir', os.devnull, *words],
        env={**os.environ, 'PYTHONPATH': TOOLS, 'MYPYPATH': PACKAGE}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def mypy_has_nothing_to_say_of_a_typed_program():
    status, said = _mypy('--python-version', '3.9', USE)
    assert not status, said


def mypy_finds_what_is_wrong_in_it():
    with open(USE, encoding='utf-8') as file:
        text = file.read()
    wrong = len(re.findall('# type: ignore', text))
    status, said = _mypy('-c', text.replace('# type: ignore', '# not'))
    assert status == 1 and said.count('error: ') == wrong > 3, said


def the_typed_program_runs():
    said = subprocess.run([sys.executable, '-W', 'error', USE], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    assert said == 'done\n', said


def _package(folder):
    """The package as it is installed, with what declares its types. Its environment."""
    built = os.path.dirname(EXTENSION)
    to = os.path.join(folder, 'holdfast')
    os.makedirs(to)
    for name in os.listdir(built):
        if name.endswith(('.py', '.so')):
            shutil.copy(os.path.join(built, name), to)
    for name in '_holdfast.pyi', 'py.typed':
        shutil.copy(os.path.join(PACKAGE, 'holdfast', name), to)
    library = os.path.dirname(os.path.dirname(os.path.dirname(built)))
    return {**os.environ, 'PYTHONPATH': f'{folder}:{TOOLS}', 'MYPYPATH': folder,
            'LD_LIBRARY_PATH': library}


# What stubtest says of the names that these modules import from typing, not of ours.
IMPORTED = (r'holdfast(\._\w+)?\.(AsyncIterator|Iterable|Iterator|NamedTuple|TypeVar|TypedDict|'
            r'Unpack)(\..*)?')


def what_is_declared_is_there():
    with tempfile.TemporaryDirectory() as folder:
        env = _package(folder)
        allowed = os.path.join(folder, 'allowed')
        with open(allowed, 'w', encoding='utf-8') as file:
            file.write(IMPORTED + '\n')
        done = subprocess.run(
            [sys.executable, '-m', 'mypy.stubtest', '--allowlist', allowed,
             '--ignore-unused-allowlist', 'holdfast'], env=env, cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert not done.returncode, done.stdout


def every_type_is_known_to_pyright():
    packages = subprocess.run(
        [os.path.join(SOURCE, 'tools', 'node-packages'),
         os.path.join(PACKAGE, 'tests', 'pyright')], check=True, text=True,
        stdout=subprocess.PIPE).stdout.splitlines()[-1]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [os.path.join(packages, '.bin', 'pyright'), '--pythonpath', sys.executable,
             '--verifytypes', 'holdfast', '--ignoreexternal', '--outputjson'],
            env=_package(folder), cwd=folder, text=True, stdout=subprocess.PIPE)
        said = json.loads(done.stdout)['typeCompleteness']
        odd = [symbol['name'] for symbol in said['symbols']
               if symbol['isExported'] and not symbol['isTypeKnown']]
        assert said['completenessScore'] == 1 and not odd and not done.returncode, odd
        done = subprocess.run(
            [os.path.join(packages, '.bin', 'pyright'), '--pythonpath', sys.executable, USE],
            env=_package(os.path.join(folder, 'again')), cwd=folder, text=True,
            stdout=subprocess.PIPE)
        assert not done.returncode, done.stdout


def every_method_in_c_says_what_it_takes_and_does():
    import inspect
    from holdfast import _holdfast
    for owner in [_holdfast] + [of for of in vars(_holdfast).values() if inspect.isclass(of)]:
        assert owner is _holdfast or owner.__doc__, owner
        for name, member in vars(owner).items():
            if inspect.isbuiltin(member) or inspect.ismethoddescriptor(member):
                if name.startswith('__') and name not in ('__enter__', '__exit__'):
                    continue
                assert member.__doc__, (owner, name)
                inspect.signature(member)
            elif inspect.isgetsetdescriptor(member) and not name.startswith('__'):
                assert member.__doc__, (owner, name)


def the_extension_takes_only_what_the_limited_api_has():
    sys.path.append(TOOLS)
    import abi3info
    added = {symbol.name: (of.added.major, of.added.minor)
             for of_kind in (abi3info.FUNCTIONS, abi3info.DATAS)
             for symbol, of in of_kind.items()}
    said = subprocess.run(['nm', '-D', '--undefined-only', EXTENSION], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    taken = re.findall(r' U (_?Py\w+)', said)
    assert len(taken) > 30, said
    odd = {name: added.get(name) for name in taken if added.get(name, (9,)) > OLDEST}
    assert not odd, odd


def _interpreters():
    """{version: path}, from the oldest promised one on, without those that can't start."""
    there = {}
    for path in [shutil.which(f'python3.{minor}') for minor in range(OLDEST[1], 30)] + \
            glob.glob(os.path.expanduser('~/.pyenv/versions/3.*/bin/python3')) + [sys.executable]:
        if path is None:
            continue
        done = subprocess.run([path, '-c', 'import sys; print(*sys.version_info[:2])'], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        version = tuple(map(int, done.stdout.split()))
        if not done.returncode and version >= OLDEST:
            there[version] = path
    return there


def one_build_runs_on_each_python_that_is_here():
    there = _interpreters()
    assert sys.version_info[:2] in there, there
    table = os.path.join(SOURCE, 'bindings', 'cases.json')

    def use(path, words):
        return path, words, subprocess.run(
            [path, '-W', 'error', *words], text=True, cwd=os.path.dirname(USE),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    # They wait for most of their time.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        uses = [pool.submit(use, path, words) for path in there.values() for words in (
            ['cases_test.py', table, 'mem:abi3'], ['loop_test.py', 'mem:abi3'],
            ['misuse_test.py', 'mem:abi3'], ['caller_test.py', 'mem:abi3'], [USE])]
    for path, words, done in (one.result() for one in uses):
        assert not done.returncode, f'{path}: {words}: {done.stdout}'
    print('# on Python', *('.'.join(map(str, version)) for version in sorted(there)))


if __name__ == '__main__':
    sys.exit(run([(one.__name__.replace('_', ' '), one) for one in (
        mypy_has_nothing_to_say_of_a_typed_program, mypy_finds_what_is_wrong_in_it,
        the_typed_program_runs, what_is_declared_is_there,
        every_type_is_known_to_pyright, every_method_in_c_says_what_it_takes_and_does,
        the_extension_takes_only_what_the_limited_api_has,
        one_build_runs_on_each_python_that_is_here)]))
