"""redis-py's Lock: acquire and release, a bare write of the same library, the handover.

    peer_redis_py.py SOCKET ROUNDS ROUND_MS HANDOVERS      prints a JSON object a line
"""
import multiprocessing
import sys
import time

import redis

from series import show

path, rounds, ms, handovers = sys.argv[1], *map(int, sys.argv[2:5])


def per_round(once):
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < ms / 1000:
        once()
        n += 1
    return (time.perf_counter() - start) / n * 1e6


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
pairs, writes, took = [], [], []


def pair():
    lock.acquire()
    lock.release()


for _ in range(rounds):
    pairs.append(per_round(pair))
    writes.append(per_round(lambda: client.set('peer:write', '0123456789abcdef', px=30000)))
show('acquire+release', pairs)
show('raw', writes)

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
