"""redis-py's Lock: acquire and release, a bare write of the same library, the handover.

    peer_redis_py.py SOCKET ROUNDS ROUND_MS HANDOVERS WARM_MS      prints a JSON object a line
"""
import multiprocessing
import sys
import time

import redis

from series import in_turns, show

path, rounds, ms, handovers, warm_ms = sys.argv[1], *map(int, sys.argv[2:6])


def waiter(pipe):
    lock = redis.Redis(unix_socket_path=path).lock('peer:handover', timeout=30)
    for _ in range(handovers):
        pipe.recv()
        lock.acquire()
        pipe.send(time.monotonic_ns())
        lock.release()
        pipe.send(None)


client = redis.Redis(unix_socket_path=path)
lock = client.lock('peer:pairs', timeout=30)
took = []


def pair():
    lock.acquire()
    lock.release()


in_turns(pair, lambda: client.set('peer:write', '0123456789abcdef', px=30000), rounds, ms, warm_ms)

mine, other = multiprocessing.Pipe()
child = multiprocessing.Process(target=waiter, args=(other,))
child.start()
held = client.lock('peer:handover', timeout=30)
for i in range(handovers):
    held.acquire()
    mine.send(None)
    time.sleep(0.03 + i * 0.037 % 0.1)    # it looks at any time of its pause
    given = time.monotonic_ns()
    held.release()
    took.append((mine.recv() - given) / 1e3)
    mine.recv()
child.join()
show('handover', took)
