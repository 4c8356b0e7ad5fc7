"""`etcdctl lock KEY COMMAND` as a competitor: a process for each time, its start included.

    peer_etcdctl.py URL LEASE_MS
"""
import os
import signal
import subprocess
import sys
import tempfile

from competitor import compete

where = sys.argv[1].split('//', 1)[1].split('/')[0]
lease_s = max(1, int(sys.argv[2]) // 1000) if int(sys.argv[2]) else 30


def take(key):
    """The pipe is open when the command has begun, which ends when it is closed."""
    held = subprocess.Popen(['etcdctl', '--endpoints', where, 'lock', f'--ttl={lease_s}',
                             'contend/' + key, 'cat', pipe])
    return held, open(pipe, 'w', encoding='utf-8')


def give(held):
    held[1].close()
    held[0].wait()


# SIGTERM lets this process remove its folder.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with tempfile.TemporaryDirectory() as folder:
    pipe = os.path.join(folder, 'held')
    os.mkfifo(pipe)
    compete(take, give)
