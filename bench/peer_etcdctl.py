"""etcdctl lock: a command under it, a bare `etcdctl put`, the handover between two of them.

    peer_etcdctl.py URL ROUNDS ROUND_MS HANDOVERS WARM_MS      prints a JSON object a line

Each is a process, start included, which takes longer than a round; `etcdctl lock KEY CMD` is what a
script would use.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

from series import in_turns, show

where = sys.argv[1].split('//', 1)[1].split('/')[0]
rounds, ms, handovers, warm_ms = map(int, sys.argv[2:6])
ctl = ['etcdctl', '--endpoints', where]
env = {**os.environ, 'ETCDCTL_API': '3'}


def run(*words):
    subprocess.run([*ctl, *words], env=env, check=True, stdout=subprocess.DEVNULL)


def waiters():
    keys = subprocess.run(ctl + ['get', '--prefix', '--keys-only', 'peer/handover'], env=env,
                          check=True, capture_output=True, text=True).stdout.split()
    return len(keys) - 1


def handover(pipe):
    holder = subprocess.Popen(ctl + ['lock', 'peer/handover', 'cat', pipe], env=env)
    # Open when the command has begun, which ends when it is closed.
    held = open(pipe, 'w', encoding='utf-8')
    waiter = subprocess.Popen(ctl + ['lock', 'peer/handover', 'date', '+%s%N'], env=env, text=True,
                              stdout=subprocess.PIPE)
    while waiters() < 1:
        time.sleep(0.01)
    time.sleep(0.15)    # it is asleep, and the server has caught up with its watch
    given = time.time_ns()
    held.close()
    took = (int(waiter.communicate()[0]) - given) / 1e3
    holder.wait()
    return took


# SIGTERM lets this process remove its folder.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
in_turns(lambda: run('lock', 'peer/pairs', 'true'),
         lambda: run('put', 'peer/write', '0123456789abcdef'), rounds, ms, warm_ms)
with tempfile.TemporaryDirectory() as folder:
    fifo = os.path.join(folder, 'held')
    os.mkfifo(fifo)
    show('handover', [handover(fifo) for _ in range(handovers)])
