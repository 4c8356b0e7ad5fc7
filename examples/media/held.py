"""A lock for as long as a `with` block, by the command `holdfast` ($HOLDFAST).

    with held(store, 'users/ann', owner='job 7') as lock:
        first()
        lock.renew()        # half-way of a long work; raises Lost if it is over
        second()

However the block is left, the lock is given back.
"""
import json
import os
import subprocess

BUSY, LOST = 75, 76


class Busy(Exception):
    """Somebody else holds it."""


class Lost(Exception):
    """The lock was over before its time: what is done from here on isn't alone."""


def holdfast(store, *words):
    command = [os.environ.get('HOLDFAST', 'holdfast'), words[0], '-S', store, *words[1:]]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode:
        kind = {BUSY: Busy, LOST: Lost}.get(done.returncode, RuntimeError)
        raise kind(done.stderr.strip())
    return done.stdout


class held:     # noqa: N801  as it reads in a program
    def __init__(self, store, key, owner, lease='60s', wait='10m'):
        self.store, self.key, self.owner, self.lease, self.wait = store, key, owner, lease, wait

    def __enter__(self):
        said = holdfast(self.store, 'acquire', self.key, '--json', '--owner', self.owner,
                        '--lease', self.lease, '-w', self.wait)
        self.token = str(json.loads(said)['token'])
        return self

    def renew(self):
        holdfast(self.store, 'renew', self.key, '--token', self.token)

    def __exit__(self, *_):
        try:
            holdfast(self.store, 'release', self.key, '--token', self.token)
        except Lost:
            pass            # then it is somebody else's, or nobody's, already
