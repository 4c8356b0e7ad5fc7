"""redis-py's Lock as a competitor:  peer_redis_py.py SOCKET LEASE_MS"""
import sys

import redis

from competitor import compete

client = redis.Redis(unix_socket_path=sys.argv[1])
lease_s = int(sys.argv[2]) / 1000 or 30


def take(key):
    lock = client.lock('contend:' + key, timeout=lease_s)
    lock.acquire()
    return lock


client.ping()
compete(take, lambda lock: lock.release())
