#!/usr/bin/env python3
"""What bench/contend/measure makes of what competitors say: of some that have a script each."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, '..', '..', 'bench')
sys.path[:0] = [os.path.join(HERE, '..'), BENCH]
from points import end, point  # noqa: E402
from contended import COSTS  # noqa: E402

MEASURE = os.path.join(BENCH, 'contend', 'measure')
# Says of each hold when (us after START) it was asked for, had and given (-1: it was lost). What is
# asked for by `take` it gets at once, LATE later by what it says; but "waited-for" only if it has
# number 0. Else it waits, with a pair of sockets, and a thread that looks all the time.
COMPETITOR = '''
import json, os, socket, subprocess, sys, threading, time
def look():
    while True:
        time.sleep(0.001)
me = 0
open(f"/dev/shm/mongoc-{os.getpid()}", "w").close()
open(f"{sys.argv[2]}/{os.getpid()}", "w").close()
holds = json.loads(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    what, *words = line.split()
    if what == "loop":
        start, me, path = int(words[1]), int(words[5]), words[6]
        for hold in holds["at once" if path == "-" else "one by one"][me]:
            print(*(start + 1000 * us if us >= 0 else 0 for us in hold))
        print("end", flush=True)
    elif words == ["waited-for"] and me:
        pair = socket.socketpair()
        threading.Thread(target=look).start()
        child = subprocess.Popen(["sleep", "600"])
        open(f"{sys.argv[2]}/{os.getpid()}", "w").write(str(child.pid))
        threading.Event().wait()
    else:
        print("had" if what == "take" else "gave", time.monotonic_ns() + holds["late_ns"],
              flush=True)
'''
ONE_BY_ONE = [[[0, 0, 1000], [1500, 2050, 3000], [3000, 2009000, 2009100]],
              [[0, 1100, 2000], [2500, 3200, 3300], [3301, 3310, 2000000]]]
AT_ONCE = [[[0, 0, 100], [100, 101, 200], [200, 900, 1000], [1001, 250000, 260000]],
           [[0, 300, 800]]]
LATE_NS = 600 * 10**9    # later than this test takes


def alive(pid):
    """Whether the process lives. A zombie doesn't."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8') as file:
            return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def measure(lease_ms=None, late_ns=LATE_NS, **holds):
    holds = {'one by one': ONE_BY_ONE, 'at once': AT_ONCE, 'late_ns': late_ns, **holds}
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, 'competitor')
        with open(program, 'w', encoding='utf-8') as file:
            file.write(COMPETITOR)
        plan = {'who': [{'name': 'A', 'where': folder, 'lease_ms': lease_ms, 'seconds': 0.1,
                         'command': [sys.executable, program, json.dumps(holds)],
                         'hold_us': 1, 'spread_us': 0}],
                'among': [2], 'work_us': 1, 'seconds': 0.2, 'pairs': 2, 'kills': 2,
                'waiting': 0.3}
        done = subprocess.run([MEASURE, json.dumps(plan)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        left = [pid for pid in os.listdir(folder) if os.path.exists(f'/dev/shm/mongoc-{pid}')]
        for pid in left:
            os.unlink(f'/dev/shm/mongoc-{pid}')
        done.left = left
        pids = [open(os.path.join(folder, pid), encoding='utf-8').read()
                for pid in os.listdir(folder) if pid.isdigit()]
        done.children = [pid for pid in pids if pid and alive(pid)]
    print(''.join(f'# {line}\n' for line in done.stderr.splitlines()), end='')
    lines = map(json.loads, done.stdout.splitlines())
    return done, {line.pop('name'): line for line in lines}


def main():
    done, found = measure()
    point(done.returncode == 0, 'it measures')
    handover = found.get('A among 2: handover', {})
    point([handover.get(what) for what in ('n', 'min', 'p50', 'p999', 'max')] ==
          [3, 50, 100, 200, 200], 'from one to the next, given by the end of the time')
    # Of the four holds within 200 ms one was by the holder before.
    point(found.get('A among 2: again', {}).get('p50') == round(100 / 3, 3), 'the same again')
    point(found.get('A among 2: holds', {}).get('p50') == 20, 'how many a second')
    wait = found.get('A among 2: wait', {})
    point([wait.get(what) for what in ('n', 'min', 'p50', 'max')] == [5, 0, 300, 198999],
          'waits; one that was not over by the end counts until then')
    longest = found.get('A among 2: longest', {})
    point([longest.get(what) for what in ('n', 'min', 'max')] == [2, 1, round(198999 / 300, 3)],
          "each one's longest wait, in medians")
    point('A: died' not in found, 'a competitor without a lease is not killed')
    served = found.get('A among 2: served', {})
    point([served.get(what) for what in ('n', 'min', 'max')] == [2, 1, 3], 'how often each had it')
    cost = {what: found.get(f'A among 2: waiting, {what}', {}).get('p50') for what in COSTS}
    point(cost['threads'] == 3 and cost['sockets'] == 2 and cost['wakeups a second'] > 10 and
          cost['CPU a second'] >= 0 and cost['memory'] > 1, 'what waiting costs', str(cost))
    point(done.children == [], 'it is ended with the child that waits for it', str(done.children))
    done, _ = measure(**{'at once': [[[0, 0, 100]], [[0, 99, 200]]]})
    point(done.returncode == 70 and 'two held it at once' in done.stderr, 'two at once end it')
    done, found = measure(**{'at once': [[[0, 0, -1]], [[0, 50, 100]]]})
    point(done.returncode == 0 and found['A among 2: lost']['p50'] == 1, 'one that was lost')
    done, found = measure(lease_ms=0)
    died = found.get('A: died', {})
    point(done.left == [], "nothing of the killed is left in /dev/shm", done.left)
    point(done.returncode == 0 and died.get('n') == 4 and died.get('min', 0) > LATE_NS / 2e6,
          'from the death of each to the next one')
    done, _ = measure(lease_ms=0, late_ns=0)
    point(done.returncode == 70 and 'before the holder was killed' in done.stderr,
          'one that has it before the holder is dead ends it')
    done, _ = measure(**{'one by one': []})
    point(done.returncode == 70, 'a competitor that fails ends it')
    for plan in (), ('{"who": [',), ('[1]',):
        done = subprocess.run([MEASURE, *plan], capture_output=True, text=True, check=False)
        point(done.returncode == 64 and len(done.stderr.splitlines()) == 1, f'refused: {plan}',
              done.stderr)
    return end()


if __name__ == '__main__':
    sys.exit(main())
