"""etcdctl lock: a command under it, a bare `etcdctl put`, the handover between two of them.

    peer_etcdctl.py URL ROUNDS ROUND_MS HANDOVERS      prints a JSON object a line

Each is a process, start included; `etcdctl lock KEY CMD` is what a script would use.
"""
import os
import subprocess
import sys
import tempfile
import time

from series import show

where = sys.argv[1].split('//', 1)[1].split('/')[0]
rounds, handovers = int(sys.argv[2]), int(sys.argv[4])
ctl = ['etcdctl', '--endpoints', where]
env = {**os.environ, 'ETCDCTL_API': '3'}


def timed(words):
    start = time.monotonic_ns()
    subprocess.run(ctl + words, env=env, check=True, stdout=subprocess.DEVNULL)
    return (time.monotonic_ns() - start) / 1e3


def waiters():
    keys = subprocess.run(ctl + ['get', '--prefix', '--keys-only', 'peer/handover'], env=env,
                          check=True, capture_output=True, text=True).stdout.split()
    return len(keys) - 1


pairs, writes, took = [], [], []
for _ in range(rounds):
    pairs.append(timed(['lock', 'peer/pairs', 'true']))
    writes.append(timed(['put', 'peer/write', '0123456789abcdef']))
show('acquire+release', pairs)
show('raw', writes)

pipe = os.path.join(tempfile.mkdtemp(), 'held')
os.mkfifo(pipe)
for _ in range(handovers):
    holder = subprocess.Popen(ctl + ['lock', 'peer/handover', 'cat', pipe], env=env)
    held = open(pipe, 'w')    # when the command has begun; it ends when this is closed
    waiter = subprocess.Popen(ctl + ['lock', 'peer/handover', 'date', '+%s%N'], env=env, text=True,
                              stdout=subprocess.PIPE)
    while waiters() < 1:
        time.sleep(0.01)
    time.sleep(0.15)    # it is asleep, and the server has caught up with its watch
    given = time.time_ns()
    held.close()
    took.append((int(waiter.communicate()[0]) - given) / 1e3)
    holder.wait()
os.unlink(pipe)
os.rmdir(os.path.dirname(pipe))
show('handover', took)
