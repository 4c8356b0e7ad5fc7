"""Lets the commands of two releases use the same keys at the same time. The results are TAP.

    beside_test.py SOURCE OUT [LAST]

SOURCE: the checkout. OUT: the artefacts of tools/release. LAST: those of the last release. Without
them the command of OUT stands for both: then only the test itself is tried.
"""
import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile

SOURCE = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.dont_write_bytecode = True
from points import end, point                                           # noqa: E402

CPU = {'x86_64': 'x64', 'aarch64': 'arm64'}[platform.machine()]
REDIS = os.path.join(SOURCE, 'tests', 'servers', 'redis')
BUSY = 75    # the exit status of a command that doesn't get its key
PIPES = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
RACERS, TURNS = 4, 10
# Says that it holds, with its token, and holds until its input ends.
HOLDS = ['sh', '-c', 'echo "$HOLDFAST_TOKEN"; cat']
# Two at once would lose a count.
COUNTS = 'echo "$HOLDFAST_TOKEN" >>"$0.tokens"; n=$(cat "$0"); echo $((n + 1)) >"$0"'


def unpacked(out, folder):
    """The command of these artefacts."""
    with tarfile.open(glob.glob(os.path.join(out, f'holdfast-*-linux-{CPU}.tar.gz'))[0]) as tar:
        entry = next(one for one in tar if one.name.endswith('/bin/holdfast'))
        path = os.path.join(folder, 'holdfast')
        os.mkdir(folder)
        with open(path, 'wb') as file:
            shutil.copyfileobj(tar.extractfile(entry), file)
    os.chmod(path, 0o755)
    return path


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600)
    return done.returncode, done.stdout


def start(*command):
    return subprocess.Popen(command, **PIPES)


def shown(command, key):
    """What the command says of a key."""
    return json.loads(run(*command, 'show', key, '--json')[1])


def pair(name, one, other):
    """`one` holds, `other` waits; each is a command with its store."""
    key = f'{name}/key'
    holder = start(*one, 'run', key, '--', *HOLDS)
    first = int(holder.stdout.readline())
    status, said = run(*other, 'run', '-n', key, '--', 'echo', 'both')
    point(status == BUSY and 'both' not in said, f'{name}: the one is refused what the other holds',
          f'{status} {said}')
    waiter = start(*other, 'run', key, '--', *HOLDS)
    while not shown(one, key)['waiters']:
        pass
    point(waiter.poll() is None and shown(one, key)['token'] == first,
          f'{name}: the holder sees the waiter', shown(one, key))
    holder.communicate()
    second = int(waiter.stdout.readline())
    point(second > first and shown(one, key)['token'] == second,
          f'{name}: the waiter gets the key, with a greater token', f'{first} {second}')
    waiter.communicate()
    point(holder.returncode == waiter.returncode == 0, f'{name}: both give it back',
          f'{holder.returncode} {waiter.returncode}')
    run(*one, 'once', f'{name}/event', '--', 'true')
    status, said = run(*other, 'once', f'{name}/event', '--', 'echo', 'again')
    point(status == 0 and 'again' not in said, f'{name}: an event that is done is done for both',
          f'{status} {said}')


def race(name, commands, folder):
    """Both increment a number, each under the lock."""
    count = os.path.join(folder, name + '-count')
    with open(count, 'w', encoding='utf-8') as file:
        file.write('0\n')
    text = 'for ((i = 0; i < $1; i++)); do "${@:2}" || exit; done'
    racers = [subprocess.Popen(['bash', '-c', text, '-', str(TURNS), *commands[i % 2], 'run',
                                f'{name}/count', '--', 'sh', '-c', COUNTS, count])
              for i in range(RACERS)]
    statuses = [racer.wait() for racer in racers]
    with open(count, encoding='utf-8') as file:
        total = int(file.read())
    with open(count + '.tokens', encoding='utf-8') as file:
        tokens = [int(line) for line in file]
    point(total == RACERS * TURNS and not any(statuses),
          f'{name}: nothing is counted twice or lost', f'{total} {statuses}')
    point(all(a < b for a, b in zip(tokens, tokens[1:])), f'{name}: tokens only grow', tokens)


def main():
    if len(sys.argv) < 5:
        out, last = os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[-1])
        os.execv(REDIS, [REDIS, 'env', '-u', 'HOLDFAST_TEST_CONTROL', sys.executable, __file__,
                         SOURCE, out, last, '@'])
    out, last, url = sys.argv[2:]
    work = tempfile.mkdtemp(prefix='holdfast-beside.')
    try:
        new = unpacked(out, os.path.join(work, 'new'))
        old = unpacked(last, os.path.join(work, 'old'))
        print('#', run(new, '--version')[1].strip(), 'beside', run(old, '--version')[1].strip())
        for store in (f'file:{work}/locks', f'sqlite:{work}/locks.db', url):
            name = store.split(':')[0]
            commands = [[new, '-S', store], [old, '-S', store]]
            pair(f'{name}, the new one holds', *commands)
            pair(f'{name}, the old one holds', *reversed(commands))
            race(name, commands, work)
    finally:
        shutil.rmtree(work)
    return end()


if __name__ == '__main__':
    sys.exit(main())
