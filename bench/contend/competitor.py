"""A competitor that is written in Python: see competitor.h."""
import os
import random
import sys
import time

LAST = 128
NAP, AWAKE_NS = 0.0005, 200_000


class Turns:
    """The file in which they see each other."""

    def __init__(self, me, path):
        self.me, self.file = me, os.open(path, os.O_RDWR) if path != '-' else None

    def mark(self, at, value):
        if self.file is not None:
            os.pwrite(self.file, bytes([value]), at)

    def wanted(self):
        seen = os.pread(self.file, LAST, 0)
        return any(seen[:self.me]) or any(seen[self.me + 1:])

    def passed_on(self):
        return os.pread(self.file, 1, LAST)[0] != self.me

    def wait(self, until, end):
        while self.file is not None and not until() and time.monotonic_ns() < end:
            time.sleep(NAP)


def keep(ns):
    until = time.monotonic_ns() + ns
    time.sleep(max(0, ns - AWAKE_NS) / 1e9)
    while (now := time.monotonic_ns()) < until:
        pass
    return now


def loop(take, give, key, start, end, hold, spread, me, path):
    holds, turns = [], Turns(int(me), path)
    start, end, hold, spread = map(int, (start, end, hold, spread))
    time.sleep(max(0, start - time.monotonic_ns()) / 1e9)
    while (asked := time.monotonic_ns()) < end:
        turns.mark(turns.me, 1)
        held = take(key)
        had = time.monotonic_ns()
        turns.mark(LAST, turns.me)
        turns.mark(turns.me, 0)
        turns.wait(turns.wanted, end)
        holds.append((asked, had, keep(hold + random.randrange(spread + 1))))
        give(held)
        turns.wait(turns.passed_on, end)
    return holds


def compete(take, give):
    """take(key) waits and returns what give(it) gives back."""
    held = None
    print('ready', flush=True)
    for line in sys.stdin:
        what, *words = line.split()
        if what == 'take':
            held = take(words[0])
            print('had', time.monotonic_ns(), flush=True)
        elif what == 'loop':
            for times in loop(take, give, *words):
                print(*times)
            print('end', flush=True)
        else:
            print('gave', time.monotonic_ns(), flush=True)
            give(held)
