#!/usr/bin/env python3
"""The rules of `holdfast guard firestore` against an emulator, as alice, bob, and nobody.

    tests/servers/firestore tests/guard_firestore.py --tap        (HOLDFAST: the command)

First a table: how the documents are, who does what, and whether it is allowed. Then the command
itself, as a user.
"""
import base64
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

HOLDFAST = os.environ['HOLDFAST']
PROJECT = 'demo-holdfast'
HOST = 'http://' + os.environ['FIRESTORE_EMULATOR_HOST']
ROOT = f'projects/{PROJECT}/databases/(default)/documents'
LOCK, DATA = 'mutex_critical_data', 'critical_data'
SECOND = 1000000
points = failures = 0


def point(good, what, shown=''):
    global points, failures
    points += 1
    failures += not good
    print(f'{"ok" if good else "not ok"} {points} - {what}', flush=True)
    if not good:
        for line in str(shown).rstrip().split('\n'):
            print(f'#   {line}')


# ---- the emulator ----

def id_token(user, **claims):
    """As Firebase gives them, unsigned: the emulator takes those."""
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b'=').decode()
    now = int(time.time())
    return '.'.join([part({'alg': 'none', 'typ': 'JWT'}), part({
        'iss': f'https://securetoken.google.com/{PROJECT}', 'aud': PROJECT, 'sub': user,
        'user_id': user, 'auth_time': now, 'iat': now, 'exp': now + 3600, **claims,
        'firebase': {'identities': {}, 'sign_in_provider': 'custom'}}), ''])


def ask(method, url, body=None, user=None):
    """(status, answer). `user`: None: nobody; 'owner': the administrator."""
    request = urllib.request.Request(HOST + url, body and json.dumps(body).encode(), method=method)
    request.add_header('Content-Type', 'application/json')
    if user:
        request.add_header('Authorization',
                           'Bearer ' + (user if user == 'owner' else id_token(user)))
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or '{}')
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def value(v):
    if isinstance(v, bool):
        return {'booleanValue': v}
    if isinstance(v, int):
        return {'integerValue': str(v)}
    if isinstance(v, list):
        return {'arrayValue': {'values': [value(item) for item in v]}}
    if isinstance(v, dict):
        return {'mapValue': {'fields': {name: value(item) for name, item in v.items()}}}
    return {'stringValue': v}


def commit(user, *writes):
    return ask('POST', f'/v1/{ROOT}:commit', {'writes': list(writes)}, user)


def setting(collection, name, fields):
    return {'update': {'name': f'{ROOT}/{collection}/{name}',
                       'fields': {k: value(v) for k, v in fields.items()}}}


def deletion(collection, name):
    return {'delete': f'{ROOT}/{collection}/{name}'}


def load(rules):
    return ask('PUT', f'/emulator/v1/projects/{PROJECT}:securityRules',
               {'rules': {'files': [{'name': 'firestore.rules', 'content': rules}]}}, 'owner')


def guard(*options):
    return subprocess.run([HOLDFAST, 'guard', 'firestore', *options], check=True,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


# ---- the table ----

NOW = int(time.time() * SECOND)
OLD = NOW - 100 * SECOND     # the token that is there
FRESH = NOW                  # of a new grant


def lock(owner='', ends=0, token=OLD, rev=None, **more):
    row = {'key': 'doc', 'format': 1, 'rev': rev or token, 'token': token, 'owner': owner,
           'expires_us': ends, 'acquired_us': token if owner else 0,
           'lease_ms': 30000 if owner else 0, 'mode': 0, 'limit': 0, 'note': '', 'session': 0,
           'request': 'ab' * 16 if owner else '', 'granted': token if owner else 0, 'claim_ms': 0,
           'flags': 0, 'bell': 0, 'others': [], 'queue': [], 'done_us': 0, 'keep_until_us': 0,
           'done_by': '', 'result': ''}
    row.update(more)
    return row


LIVE, PAST = NOW + 200 * SECOND, NOW - SECOND
FREE = lock(rev=OLD + 5)
ALICES, BOBS = lock('alice', LIVE), lock('bob', LIVE)
WAS_ALICES, WAS_BOBS = lock('alice', PAST), lock('bob', PAST)
ENDING = lock('alice', LIVE, flags=4)
LINE = [{'request': 'cd' * 16, 'owner': 'carol', 'note': ''}]


def grant(who, **more):
    return lock(who, **{'ends': NOW + 60 * SECOND, 'token': FRESH, **more})


def changed(row, **more):
    return {**row, 'rev': row['rev'] + 1, **more}


def freed(row, **more):
    return changed(row, **{'owner': '', 'granted': 0, 'expires_us': 0, **more})


# What it is about; the lock as it is (None: none); who; the lock as it shall be (None: deleted).
LOCKS = [
    ('absent: create for oneself', None, 'alice', grant('alice'), True),
    ('absent: create for another', None, 'alice', grant('bob'), False),
    ('absent: create as nobody', None, None, grant('alice'), False),
    ('absent: create as nobody for nobody', None, None, grant(''), False),
    ('absent: create it free', None, 'alice', lock(token=FRESH), False),
    ('absent: create with a token of the past', None, 'alice', grant('alice', token=17), False),
    ('absent: create with a token of an hour ago', None, 'alice',
     grant('alice', token=NOW - 3600 * SECOND), False),
    ('absent: create with a token of the future', None, 'alice',
     grant('alice', token=NOW + 3600 * SECOND), False),
    ('absent: create with a lease that is too long', None, 'alice',
     grant('alice', ends=NOW + 301 * SECOND), False),
    ('absent: create with the longest lease', None, 'alice',
     grant('alice', ends=NOW + 299 * SECOND), True),
    ('absent: create without an end', None, 'alice', grant('alice', ends=0), False),
    ('absent: create with another token than rev', None, 'alice',
     grant('alice', granted=FRESH - 1), False),
    ('absent: create the lock of another key', None, 'alice', grant('alice', key='other'), False),
    ('absent: create with further holders', None, 'alice',
     grant('alice', others=[{'owner': 'bob'}]), False),
    ('absent: create with a line', None, 'alice', grant('alice', queue=LINE), False),
    ('absent: create with a field of one\'s own', None, 'alice', grant('alice', mine=1), False),
    ('absent: create in another format', None, 'alice', grant('alice', format=2), False),
    ('absent: create shared', None, 'alice', grant('alice', mode=1), False),
    ('absent: create with a number that is a text', None, 'alice', grant('alice', rev='1'), False),
    ('absent: create without a field', None, 'alice',
     {k: v for k, v in grant('alice').items() if k != 'queue'}, False),
    ('absent: create with a long note', None, 'alice', grant('alice', note='x' * 256), False),
    ('absent: create with another\'s mark', None, 'alice',
     grant('alice', done_us=NOW, done_by='bob'), False),
    ('absent: create with one\'s own mark (at most once)', None, 'alice',
     grant('alice', done_us=NOW, keep_until_us=LIVE, done_by='alice'), True),

    ('free: take', FREE, 'bob', grant('bob'), True),
    ('free: take for another', FREE, 'bob', grant('alice'), False),
    ('free: take as nobody', FREE, None, grant('bob'), False),
    ('free: take with the old token', FREE, 'bob',
     changed(FREE, owner='bob', granted=OLD, expires_us=LIVE, request='ab' * 16), False),
    ('free: take with a lower token', FREE, 'bob', grant('bob', token=OLD - 1), False),
    ('free: take with a lower token and a higher rev', FREE, 'bob',
     grant('bob', token=OLD - 1, rev=FRESH), False),
    ('free: take with a token of the future', FREE, 'bob',
     grant('bob', token=NOW + 3600 * SECOND), False),
    ('free: take for too long', FREE, 'bob', grant('bob', ends=NOW + 400 * SECOND), False),
    ('free: take under another key', FREE, 'bob', grant('bob', key='other'), False),
    ('free: take and jump the line', changed(FREE, queue=LINE), 'bob', grant('bob'), False),
    ('free: take and keep the line', changed(FREE, queue=LINE), 'bob', grant('bob', queue=LINE),
     False),
    ('free: take what several held', changed(FREE, others=[{'owner': 'bob'}]), 'bob', grant('bob'),
     False),
    ('free: move rev', FREE, 'bob', changed(FREE), True),
    ('free: move rev back', FREE, 'bob', {**FREE, 'rev': OLD + 4}, False),
    ('free: move the token back', FREE, 'bob', changed(FREE, token=OLD - 1), False),
    ('free: move the token on', FREE, 'bob', changed(FREE, token=OLD + 6), False),
    ('free: mark it done', FREE, 'bob', changed(FREE, done_us=NOW, done_by='bob'), False),
    ('free: delete', FREE, 'bob', None, False),
    ('free, far in the future: take by the next rev', lock(rev=NOW + 9000 * SECOND), 'bob',
     grant('bob', token=NOW + 9000 * SECOND + 1), True),

    ('held by oneself: renew', ALICES, 'alice', changed(ALICES, expires_us=NOW + 250 * SECOND),
     True),
    ('held by oneself: renew for too long', ALICES, 'alice',
     changed(ALICES, expires_us=NOW + 400 * SECOND), False),
    ('held by oneself: renew without an end', ALICES, 'alice', changed(ALICES, expires_us=0),
     False),
    ('held by oneself: renew with the old rev', ALICES, 'alice', {**ALICES, 'expires_us': LIVE + 1},
     False),
    ('held by oneself: renew with a lower token', ALICES, 'alice',
     changed(ALICES, token=OLD - 1, granted=OLD - 1), False),
    ('held by oneself: renew with a higher token', ALICES, 'alice',
     changed(ALICES, token=OLD + 1, granted=OLD + 1), False),
    ('held by oneself: take again', ALICES, 'alice', grant('alice'), False),
    ('held by oneself: pass on', ALICES, 'alice', changed(ALICES, owner='bob'), False),
    ('held by oneself: release', ALICES, 'alice', freed(ALICES), True),
    ('held by oneself: release, kept taken for a while', ALICES, 'alice',
     changed(ALICES, flags=4, request='ff' * 16, expires_us=NOW + 5 * SECOND), True),
    ('held by oneself: release with a lower token', ALICES, 'alice', freed(ALICES, token=OLD - 1),
     False),
    ('held by oneself: release and forget the token', ALICES, 'alice', freed(ALICES, token=0),
     False),
    ('held by oneself: release and mark', ALICES, 'alice',
     freed(ALICES, done_us=NOW, keep_until_us=LIVE, done_by='alice', result='sent'), True),
    ('held by oneself: release and mark for another', ALICES, 'alice',
     freed(ALICES, done_us=NOW, keep_until_us=LIVE, done_by='bob'), False),
    ('held by oneself: release past the line', changed(ALICES, queue=LINE), 'alice',
     freed(changed(ALICES, queue=LINE)), False),
    ('held by oneself: delete', ALICES, 'alice', None, False),
    ('held by oneself: renew as nobody', ALICES, None, changed(ALICES, expires_us=LIVE), False),
    ('ended by oneself: renew', ENDING, 'alice', changed(ENDING, flags=0), False),

    ('held by another: steal', ALICES, 'bob', grant('bob'), False),
    ('held by another: steal by a backdated write', ALICES, 'bob', grant('bob', token=OLD - 1),
     False),
    ('held by another: take its name', ALICES, 'bob', changed(ALICES, owner='bob'), False),
    ('held by another: renew', ALICES, 'bob', changed(ALICES, expires_us=LIVE + 1), False),
    ('held by another: shorten', ALICES, 'bob', changed(ALICES, expires_us=PAST), False),
    ('held by another: release', ALICES, 'bob', freed(ALICES), False),
    ('held by another: move rev', ALICES, 'bob', changed(ALICES), False),
    ('held by another: stand in line', ALICES, 'bob', changed(ALICES, queue=LINE), False),
    ('held by another: delete', ALICES, 'bob', None, False),
    ('held by another without an end: steal', {**ALICES, 'expires_us': 0}, 'bob', grant('bob'),
     False),

    ('expired: take', WAS_ALICES, 'bob', grant('bob'), True),
    ('expired: take for another', WAS_ALICES, 'bob', grant('carol'), False),
    ('expired: take with a lower token', WAS_ALICES, 'bob', grant('bob', token=OLD - 1), False),
    ('expired: tidy up', WAS_ALICES, 'bob', freed(WAS_ALICES), True),
    ('expired: renew', WAS_ALICES, 'alice', changed(WAS_ALICES, expires_us=LIVE), False),
    ('expired: take once more', WAS_ALICES, 'alice', grant('alice'), True),
    ('expired: mark', WAS_ALICES, 'alice', freed(WAS_ALICES, done_us=NOW, done_by='alice'), False),
    ('expired: delete', WAS_ALICES, 'bob', None, False),
    ('expired: take as nobody', WAS_ALICES, None, grant('bob'), False),
    ('absent: create with an older grant', None, 'alice',
     grant('alice', token=FRESH - 1, rev=FRESH), False),
    ('absent: create it ended', None, 'alice', grant('alice', flags=4), False),
    ('absent: create with a request that is none', None, 'alice',
     grant('alice', request='x'), False),
    ('held by oneself: renew with a field of one\'s own', ALICES, 'alice', changed(ALICES, mine=1),
     False),
    ('held by oneself: renew and remove the line', changed(ALICES, queue=LINE), 'alice',
     changed(changed(ALICES), expires_us=LIVE + 1), False),
    ('held by oneself: renew and keep the line', changed(ALICES, queue=LINE), 'alice',
     changed(changed(ALICES), queue=LINE), True),
    ('absent: create as somebody with a long name', None, 'x' * 128, grant('x' * 128), False),
    ('free: take and mark for another', FREE, 'bob', grant('bob', done_us=NOW, done_by='alice'),
     False),
    ('free: take and mark (at most once)', FREE, 'bob',
     grant('bob', done_us=NOW, keep_until_us=LIVE, done_by='bob'), True),
    ('free, marked: take and unmark', {**FREE, 'done_us': OLD, 'done_by': 'alice'}, 'bob',
     grant('bob'), False),
    ('held by oneself: release by halves', ALICES, 'alice', freed(ALICES, granted=OLD), False),
    ('held by oneself: release with an end', ALICES, 'alice', freed(ALICES, expires_us=LIVE),
     False),
    ('held by oneself: renew as another request', ALICES, 'alice',
     changed(ALICES, request='cd' * 16), False),
    ('expired: tidy up past the line', changed(WAS_ALICES, queue=LINE), 'bob',
     freed(changed(WAS_ALICES, queue=LINE)), False),
    ('no lock at all: take', {'title': 'x'}, 'bob', grant('bob'), False),
]

# Fields of another kind, or out of range, in a renewal that is fine otherwise.
ODD = [(name, '1') for name, v in ALICES.items() if isinstance(v, int)]
ODD += [(name, 1) for name, v in ALICES.items() if isinstance(v, (str, list))]
ODD += [('lease_ms', -1), ('lease_ms', 86400001), ('claim_ms', -1), ('claim_ms', 86400001),
        ('limit', -1), ('limit', 1001), ('session', 1), ('bell', 1), ('flags', 1), ('flags', 8),
        ('mode', 2), ('note', 'x' * 256), ('request', 'AB' * 16), ('request', 'ab' * 15),
        ('others', [1]), ('rev', -1), ('rev', 2**53), ('granted', OLD + 1),
        ('acquired_us', OLD + 1), ('owner', ''), ('result', 'x'),
        ('done_by', 'alice'), ('done_us', NOW),
        ('keep_until_us', LIVE)]
LOCKS += [(f'held by oneself: renew with {name} = {str(odd)[:20]}', ALICES, 'alice',
           changed(ALICES, **{name: odd}), False) for name, odd in ODD]
FINISHED = freed(ALICES, done_us=NOW, keep_until_us=LIVE, done_by='alice')
LOCKS += [(f'held by oneself: mark with {name} = {str(odd)[:20]}', ALICES, 'alice',
           {**FINISHED, name: odd}, False)
          for name, odd in (('result', 'x' * 256), ('keep_until_us', -1), ('done_us', 0),
                            ('done_us', NOW + 3600 * SECOND), ('done_us', -5))]
# A lock that somebody with more rights made so that users can't handle it.
LOCKS += [(f'expired, {name} = {odd}: take', {**WAS_ALICES, name: odd}, 'bob', grant('bob'), False)
          for name, odd in (('format', 2), ('others', [{'owner': 'carol'}]))]

# The lock; the document that it guards as it is; who; the document as it shall be (None: deleted).
BY_OLD, BY_NEW = {'n': 1, 'token': OLD - 9}, {'n': 2, 'token': OLD}
DATAS = [
    ('no lock: create', None, None, 'alice', BY_NEW, False),
    ('no lock: create as nobody', None, None, None, BY_NEW, False),
    ('free: create', FREE, None, 'alice', BY_NEW, False),
    ('free: update', FREE, BY_OLD, 'alice', BY_NEW, False),
    ('free: delete', FREE, BY_NEW, 'alice', None, False),
    ('held: create', ALICES, None, 'alice', BY_NEW, True),
    ('held: update', ALICES, BY_OLD, 'alice', BY_NEW, True),
    ('held: update again', ALICES, BY_NEW, 'alice', {'n': 3, 'token': OLD}, True),
    ('held: delete what one has written', ALICES, BY_NEW, 'alice', None, True),
    ('held: delete what an earlier one has written', ALICES, BY_OLD, 'alice', None, False),
    ('held: update without a token', ALICES, BY_OLD, 'alice', {'n': 3}, False),
    ('held: update with a lower token', ALICES, BY_OLD, 'alice', {'n': 3, 'token': OLD - 1}, False),
    ('held: update with a higher token', ALICES, BY_OLD, 'alice', {'n': 3, 'token': OLD + 1},
     False),
    ('held: update with the token that was there', ALICES, BY_OLD, 'alice',
     {'n': 3, 'token': OLD - 9}, False),
    ('held by another: create', BOBS, None, 'alice', BY_NEW, False),
    ('held by another: update', BOBS, BY_OLD, 'alice', BY_NEW, False),
    ('held by another: delete', BOBS, BY_NEW, 'alice', None, False),
    ('held by another: update as nobody', BOBS, BY_OLD, None, BY_NEW, False),
    ('expired: create', WAS_ALICES, None, 'alice', BY_NEW, False),
    ('expired: update', WAS_ALICES, BY_OLD, 'alice', BY_NEW, False),
    ('expired: delete', WAS_ALICES, BY_NEW, 'alice', None, False),
    ('expired, another\'s: update', WAS_BOBS, BY_OLD, 'alice', BY_NEW, False),
    ('ended: update', ENDING, BY_OLD, 'alice', BY_NEW, False),
    ('held without an end (not by these rules): update', {**ALICES, 'expires_us': 0}, BY_OLD,
     'alice', BY_NEW, False),
]


def try_case(what, before, user, write, want):
    """`before`: the documents, as administrator."""
    status, said = commit('owner', deletion(LOCK, 'doc'), deletion(DATA, 'doc'))
    if status == 200 and before:
        status, said = commit('owner', *before)
    if status != 200:
        point(False, what, f'cannot be prepared: {said}')
        return
    status, said = commit(user, write)
    point(status == (200 if want else 403), f'{what} as {user or "nobody"}: '
          f'{"allowed" if want else "refused"}', f'{status} {said}')


def table():
    for what, old, user, new, want in LOCKS:
        try_case(f'lock {what}', [setting(LOCK, 'doc', old)] if old else [], user,
                 setting(LOCK, 'doc', new) if new else deletion(LOCK, 'doc'), want)
    for what, held, old, user, new, want in DATAS:
        before = [setting(LOCK, 'doc', held)] if held else []
        before += [setting(DATA, 'doc', old)] if old else []
        try_case(f'data {what}', before, user,
                 setting(DATA, 'doc', new) if new else deletion(DATA, 'doc'), want)
    for key, name, want in (('a/b%c', 'a%2Fb%25c', True), ('other', 'a%2Fb%25c', False),
                            ('..', '%2E.', True), ('__a__', '%5F_a__', True),
                            ('a%2Fb', 'a%2Fb', False), ('other', 'doc', False),
                            ('x' * 513, '%5F', False)):
        commit('owner', deletion(LOCK, name))
        try_case(f'lock absent: create {key[:9]} as the document {name}', [], 'alice',
                 setting(LOCK, name, grant('alice', key=key)), want)
        commit('owner', deletion(LOCK, name))
    for user, want in (('alice', 200), (None, 403)):
        for collection in (LOCK, DATA):
            status, said = ask('GET', f'/v1/{ROOT}/{collection}?pageSize=1', user=user)
            point(status == want, f'{collection} read as {user}: {want}', said)
    commit('owner', deletion(LOCK, 'doc'))
    status, said = commit('alice', setting('elsewhere', 'doc', {'n': 1}))
    point(status == 403, 'what the rules don\'t name is closed', f'{status} {said}')


def page():
    """What doc/guards.md has a web client write is what a lock consists of."""
    with open(os.path.join(os.path.dirname(__file__), '..', 'doc', 'guards.md'),
              encoding='utf-8') as file:
        script = re.search(r'```js\n(.*?)```', file.read(), flags=re.S).group(1)
    taken = re.search(r'tx\.set\(lockOf\(db, id\), \{(.*?)\n    \}', script, flags=re.S).group(1)
    named = re.findall(r'(?:^|[{,]\s*)\s*(\w+)(?=:|,)', taken, flags=re.M)
    point(sorted(named) == sorted(ALICES), 'doc/guards.md: a web client writes every field',
          sorted(set(named) ^ set(ALICES)))


# ---- the command, as a user ----

class Command:
    def __init__(self, folder):
        self.folder = folder

    def run(self, user, *arguments, store=f'firestore://{PROJECT}?collection={LOCK}'):
        env = {**os.environ, 'FIRESTORE_ID_TOKEN': id_token(user), 'HOLDFAST_STORE': store}
        done = subprocess.run([HOLDFAST, *arguments], env=env, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return done.returncode, done.stdout

    def acquire(self, user, key, *more):
        status, said = self.run(user, 'acquire', key, '--owner', user, *more)
        words = dict(line.split('=', 1) for line in said.splitlines() if '=' in line)
        return status, words.get('HOLDFAST_TOKEN', '').strip("'"), said


def users(folder):
    cmd = Command(folder)
    status, token, said = cmd.acquire('alice', 'k1', '--lease', '60')
    point(status == 0 and token, 'alice acquires by the command', said)
    status, _, said = cmd.acquire('bob', 'k1', '--lease', '60', '-n')
    point(status == 75, 'bob finds it held', f'{status} {said}')
    status, _, said = cmd.acquire('bob', 'k2', '--lease', '600', '-n')
    point(status == 77, 'a lease beyond the limit is denied', f'{status} {said}')
    status, said = cmd.run('alice', 'renew', 'k1', '--token', token, '--lease', '90')
    point(status == 0, 'alice renews', said)
    status, said = cmd.run('bob', 'break', 'k1', '--token', token)
    point(status == 77, 'bob may not break it', f'{status} {said}')
    status, said = cmd.run('bob', 'acquire', 'k3', '--owner', 'alice', '--lease', '60')
    point(status == 77, 'bob may not acquire as alice', f'{status} {said}')
    status, said = commit('alice', setting(DATA, 'k1', {'n': 1, 'token': int(token)}))
    point(status == 200, 'alice writes with her token', said)
    status, said = commit('bob', setting(DATA, 'k1', {'n': 9, 'token': int(token)}))
    point(status == 403, 'bob doesn\'t with hers', said)
    status, said = cmd.run('alice', 'release', 'k1', '--token', token)
    point(status == 0, 'alice releases', said)
    status, said = commit('alice', setting(DATA, 'k1', {'n': 2, 'token': int(token)}))
    point(status == 403, 'and writes no more', said)
    status, later, said = cmd.acquire('bob', 'k1', '--lease', '1s', '-n')
    point(status == 0 and int(later) > int(token), 'bob acquires, by a greater token', said)
    status, later, said = cmd.acquire('alice', 'k1', '--lease', '60', '-w', '20')
    point(status == 0, 'and alice when his lease is over', said)
    status, said = cmd.run('alice', 'once', 'event', '--owner', 'alice', '--', 'true')
    point(status == 0, 'alice runs an event once', said)
    status, said = cmd.run('bob', 'once', 'event', '--owner', 'bob', '--', 'false')
    point(status == 0, 'bob finds it done', f'{status} {said}')
    status, said = cmd.run('alice', 'run', 'a/b%c', '--owner', 'alice', '--at-least', '1s', '--',
                           'true')
    point(status == 0, 'a key that is no ID, kept taken for a while', said)
    status, said = cmd.run('bob', 'ls', '--all')
    point(status == 0 and 'k1' in said, 'bob lists', said)


def main():
    for bad in (['--lock', 'a/b', '--data', 'c'], ['--lock', 'a', '--data', 'a'],
                ['--lock', 'a{x}', '--data', 'c'], ['--lock', 'a', '--data', 'b c'],
                ['--lock', 'a', '--data', 'b', '--owner', 'auth.uid || true'],
                ['--lock', 'a', '--data', 'b', '--token-field', "'"],
                ['--lock', 'a', '--data', 'b', '--max-lease', '25h'],
                ['--lock', 'a', '--data', 'b', '--undo'], ['--lock', 'a'], ['table']):
        done = subprocess.run([HOLDFAST, 'guard', 'firestore', *bad], capture_output=True)
        point(done.returncode == 64 and not done.stdout, f'refused: {" ".join(bad)}', done.stderr)
    for options in ([], ['--owner', 'auth.token.email'], ['--max-lease', '1h']):
        status, said = load(guard('--lock', 'x/y/z.-_~1', '--data', DATA, *options))
        point(status == 200, f'rules with {options or "nothing else"} are understood', said)
    status, said = load(guard('--lock', LOCK, '--data', DATA, '--token-field', 'token'))
    point(status == 200, 'the rules are understood', said)
    table()
    page()
    with tempfile.TemporaryDirectory(prefix='holdfast-guard-') as folder:
        users(folder)
    status, said = load(guard('--lock', LOCK, '--data', DATA))
    try_case('without --token-field: update without a token', [setting(LOCK, 'doc', ALICES)],
             'alice', setting(DATA, 'doc', {'n': 1}), True)
    try_case('without --token-field: update of another\'s', [setting(LOCK, 'doc', ALICES)],
             'bob', setting(DATA, 'doc', {'n': 1}), False)
    print(f'1..{points}')
    return 1 if failures else 0


raise SystemExit(main())
