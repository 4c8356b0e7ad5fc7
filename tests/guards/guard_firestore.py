#!/usr/bin/env python3
"""The rules of `holdfast guard firestore` against an emulator, as alice, bob, and nobody.

    tests/servers/firestore tests/guards/guard_firestore.py --tap        (HOLDFAST: the command)

First a table: the documents, the user, the change, and whether it is allowed. Then the command
itself, as a user.
"""
import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import guard_firestore_all
from guard_firestore_rows import (
    ALICES, BY_NEW, DATAS, FRESH, FREE, LIVE, LOCKS, OLD, PAST, SECOND, changed, freed,
    fresh, grant)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from points import end, point  # noqa: E402

HOLDFAST = os.environ['HOLDFAST']
HOLDFAST_FAULTS = HOLDFAST.removesuffix('cli/holdfast') + 'tests/holdfast-faults'
PROJECT = 'demo-holdfast'
HOST = 'http://' + os.environ['FIRESTORE_EMULATOR_HOST']
ROOT = f'projects/{PROJECT}/databases/(default)/documents'
LOCK, DATA = 'mutex_critical_data', 'critical_data'


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
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.loads(answer.read() or '{}')
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def value(v):
    if isinstance(v, bool):
        return {'booleanValue': v}
    if isinstance(v, int):
        return {'integerValue': str(v)}
    if isinstance(v, float):
        return {'doubleValue': v}
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

def try_case(what, before, user, write, want):
    """`before`: the documents, as administrator."""
    status, said = commit('owner', deletion(LOCK, 'doc'), deletion(DATA, 'doc'), *before)
    if status != 200:
        point(False, what, f'cannot be prepared: {said}')
        return
    status, said = commit(user, write)
    point(status == (200 if want else 403), f'{what} as {user or "nobody"}: '
          f'{"allowed" if want else "refused"}', f'{status} {said}')


def table():
    for what, old, user, new, want in (*guard_firestore_all.locks(), *LOCKS):
        try_case(f'lock {what}', [setting(LOCK, 'doc', old)] if old else [], user,
                 setting(LOCK, 'doc', new) if new else deletion(LOCK, 'doc'), want)
    for what, held, old, user, new, want in (*guard_firestore_all.data(), *DATAS):
        before = [setting(LOCK, 'doc', held)] if held else []
        before += [setting(DATA, 'doc', old)] if old else []
        try_case(f'data {what}', before, user,
                 setting(DATA, 'doc', new) if new else deletion(DATA, 'doc'), want)
    for key, name, want in guard_firestore_all.NAMES:
        commit('owner', deletion(LOCK, name))
        try_case(f'lock absent: create {key[:9]!r} as the document {name[:15]!r}', [], 'alice',
                 setting(LOCK, name, fresh('alice', key=key)), want)
        commit('owner', deletion(LOCK, name))
    for user, want in (('alice', 200), (None, 403)):
        for collection in (LOCK, DATA):
            status, said = ask('GET', f'/v1/{ROOT}/{collection}?pageSize=1', user=user)
            point(status == want, f'{collection} read as {user}: {want}', said)
    commit('owner', deletion(LOCK, 'doc'))
    status, said = commit('alice', setting('elsewhere', 'doc', {'n': 1}))
    point(status == 403, 'what the rules don\'t name is closed', f'{status} {said}')


def raw(name, fields, mask=None, **more):
    """A write of some fields only, or with transforms."""
    write = {**setting(LOCK, name, fields), **more}
    if mask is not None:
        write['updateMask'] = {'fieldPaths': mask}
    return write


def commits():
    """What a whole commit can do that one document as it shall be can't show."""
    taking, writing = setting(LOCK, 'doc', grant('bob')), setting(DATA, 'doc', BY_NEW)
    longer = [{'fieldPath': 'expires_us', 'increment': value(600 * SECOND)}]
    by_time = [{'fieldPath': 'expires_us', 'setToServerValue': 'REQUEST_TIME'}]
    token = [{'fieldPath': 'token', 'increment': value(-5)}]
    for what, held, user, writes, want in (
            ('a release and a write of the document', ALICES, 'alice',
             [writing, setting(LOCK, 'doc', freed(ALICES))], True),
            ('a write of the document and a taking', FREE, 'bob',
             [taking, setting(DATA, 'doc', {'n': 2, 'token': FRESH})], False),
            ('a write of another document', ALICES, 'alice', [setting(DATA, 'doc2', BY_NEW)],
             False),
            ('a write below the document', ALICES, 'alice', [setting(DATA + '/doc/more', 'x', {})],
             False),
            ('a write below the lock', ALICES, 'alice', [setting(LOCK + '/doc/more', 'x', {})],
             False),
            ('one field, the owner', ALICES, 'bob', [raw('doc', {'owner': 'bob'}, ['owner'])],
             False),
            ('one field, the end', ALICES, 'bob', [raw('doc', {'expires_us': PAST},
                                                       ['expires_us'])], False),
            ('rev and end, by the owner', ALICES, 'alice',
             [raw('doc', {'rev': OLD + 1, 'expires_us': LIVE + 5}, ['rev', 'expires_us'])], True),
            ('a field removed, by the owner', ALICES, 'alice',
             [raw('doc', {'rev': OLD + 1}, ['rev', 'note'])], False),
            ('rev alone as a text', ALICES, 'alice', [raw('doc', {'rev': 'z'}, ['rev'])], False),
            ('a renewal that the server adds up to be too long', ALICES, 'alice',
             [raw('doc', changed(ALICES), updateTransforms=longer)], False),
            ('a renewal until the time of the request', ALICES, 'alice',
             [raw('doc', changed(ALICES), updateTransforms=by_time)], False),
            ('a token that the server takes back', ALICES, 'alice',
             [raw('doc', changed(ALICES), updateTransforms=token)], False),
            ('a deletion of another\'s and a new lock', ALICES, 'bob',
             [deletion(LOCK, 'doc'), taking], False),
            ('a deletion and a new lock with a lower token', {**FREE, 'token': FRESH + 1}, 'bob',
             [deletion(LOCK, 'doc'), taking], False),
            ('a deletion alone, twice', FREE, 'bob', [deletion(LOCK, 'doc')] * 2, False),
            ('a release and a taking by another', ALICES, 'bob',
             [setting(LOCK, 'doc', freed(ALICES)), taking], False)):
        commit('owner', deletion(LOCK, 'doc'), deletion(DATA, 'doc'))
        commit('owner', setting(LOCK, 'doc', held))
        status, said = commit(user, *writes)
        point(status == (200 if want else 403), f'commit: {what}, as {user}: '
              f'{"allowed" if want else "refused"}', f'{status} {said}')


def page():
    """What doc/guards/firestore.md has a web client write is what a lock consists of."""
    with open(os.path.join(os.path.dirname(__file__), '..', '..', 'doc', 'guards',
                           'firestore.md'),
              encoding='utf-8') as file:
        script = re.search(r'```js\n(.*?)```', file.read(), flags=re.S).group(1)
    taken = re.search(r'tx\.set\(lockOf\(db, id\), \{(.*?)\n    \}', script, flags=re.S).group(1)
    named = re.findall(r'(?:^|[{,]\s*)\s*(\w+)(?=:|,)', taken, flags=re.M)
    point(sorted(named) == sorted([*ALICES, 'more']), 'doc/guards/firestore.md: a web client '
          'writes every field', sorted(set(named) ^ {*ALICES, 'more'}))


# ---- the command, as a user ----

class Command:
    def __init__(self, folder):
        self.folder = folder

    def start(self, user, *arguments, store=f'firestore://{PROJECT}?collection={LOCK}', fault=''):
        env = {**os.environ, 'FIRESTORE_ID_TOKEN': id_token(user), 'HOLDFAST_STORE': store,
               'HOLDFAST_FAULT': fault, 'ID_TOKEN': id_token(user)}
        command = HOLDFAST_FAULTS if fault else HOLDFAST
        return subprocess.Popen([command, *arguments], env=env, stdin=subprocess.DEVNULL,
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                cwd=self.folder)

    def run(self, user, *arguments, **more):
        process = self.start(user, *arguments, **more)
        said = process.communicate(timeout=1200)[0]
        return process.returncode, said

    def acquire(self, user, key, *options, **more):
        status, said = self.run(user, 'acquire', key, '--owner', user, *options, **more)
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
    status, later, said = cmd.acquire('alice', 'k1', '--lease', '60', '-w', '600')
    point(status == 0, 'and alice when his lease is over', said)
    status, said = cmd.run('alice', 'release', 'k1', '--token', later)
    # A shell script, by curl. (The driver's own credentials aren't passed on.)
    with open(os.path.join(folder, 'sell.sh'), 'w', encoding='utf-8') as file:
        file.write(f'''curl -fsS -o /dev/null -H 'Content-Type: application/json' \\
    -H "Authorization: Bearer $ID_TOKEN" \\
    -d '{{"writes": [{{"update": {{"name": "{ROOT}/{DATA}/'"$HOLDFAST_KEY"'", "fields": {{
        "token": {{"integerValue": "'"$HOLDFAST_TOKEN"'"}}}}}}}}]}}' \\
    '{HOST}/v1/{ROOT}:commit'
''')
    status, said = cmd.run('alice', 'run', 'k1', '--owner', 'alice', '--', 'sh', 'sell.sh')
    point(status == 0, 'a shell script writes by curl', said)
    status, said = cmd.run('alice', 'run', 'k1', '--owner', 'alice', '--', 'env',
                           f'HOLDFAST_TOKEN={token}', 'sh', 'sell.sh')
    point(status == 22 and '403' in said, 'and not with an older token', f'{status} {said}')
    status, said = cmd.run('alice', 'once', 'event', '--owner', 'alice', '--', 'true')
    point(status == 0, 'alice runs an event once', said)
    status, said = cmd.run('bob', 'once', 'event', '--owner', 'bob', '--', 'false')
    point(status == 0, 'bob finds it done', f'{status} {said}')
    status, said = cmd.run('alice', 'run', 'a/b%c', '--owner', 'alice', '--at-least', '1s', '--',
                           'true')
    point(status == 0, 'a key that is no ID, kept taken for a while', said)
    status, said = cmd.run('bob', 'ls', '--all')
    point(status == 0 and 'k1' in said, 'bob lists', said)


def document(name, collection=LOCK):
    status, said = ask('GET', f'/v1/{ROOT}/{collection}/{name}', user='owner')
    return said['fields'] if status == 200 else None


def await_caught(pid, number):
    """Until the process catches this signal, or has blocked it to hear of it otherwise."""
    while True:
        with open(f'/proc/{pid}/status', encoding='ascii') as status:
            masks = re.findall(r'^Sig(?:Cgt|Blk):\s*(\w+)', status.read(), flags=re.M)
        if any(int(mask, 16) >> number - 1 & 1 for mask in masks):
            return
        time.sleep(0.01)


def givers_up(folder):
    """A user who gives up waiting leaves all as it was; a client that is killed leaves a lease."""
    cmd = Command(folder)
    store = f'firestore://{PROJECT}?collection={LOCK}'
    _, token, _ = cmd.acquire('alice', 'g1', '--lease', '100')
    before = document('g1')
    status, _, said = cmd.acquire('bob', 'g1', '--lease', '60', '-w', '1')
    point(status == 75 and document('g1') == before, 'bob waits in vain, and has changed nothing',
          f'{status} {said}')
    waiting = cmd.start('bob', 'run', 'g1', '--owner', 'bob', '--', 'false')
    await_caught(waiting.pid, signal.SIGTERM)
    time.sleep(1)
    waiting.terminate()
    said = waiting.communicate(timeout=600)[0]
    point(waiting.returncode == 143 and document('g1') == before,
          'bob breaks off waiting, and has changed nothing', f'{waiting.returncode} {said}')
    waiting = cmd.start('bob', 'run', 'g1', '--owner', 'bob', '--', 'false')
    time.sleep(1)
    waiting.kill()
    waiting.communicate(timeout=600)
    point(document('g1') == before, 'bob is killed while he waits, and has changed nothing')
    status, _, said = cmd.acquire('bob', 'g1', '--lease', '60', '-w', '2',
                                  store=store + '&queue=1')
    point(status == 77 and document('g1') == before,
          'bob is denied a place in a line, and has changed nothing', f'{status} {said}')
    status, said = cmd.run('alice', 'release', 'g1', '--token', token)
    point(status == 0, 'alice releases what she held through all of that', said)
    # The reply to an acquisition is lost: asked for again, it is the same; or alice gives up.
    status, token, said = cmd.acquire('alice', 'g2', '--lease', '60', fault='replace:1:after')
    point(status == 0 and document('g2')['token'] == value(int(token)),
          'alice acquires although a reply is lost', said)
    status, _, said = cmd.acquire('alice', 'g3', '--lease', '2s', '-w', '1',
                                  fault='replace:*:after')
    point(status in (69, 75, 77) and document('g3')['owner'] == value('alice'),
          'alice hears nothing and gives up, though she has been granted it', f'{status} {said}')
    granted = int(document('g3')['token']['integerValue'])
    status, later, said = cmd.acquire('bob', 'g3', '--lease', '60', '-w', '600')
    point(status == 0 and int(later) > granted, 'bob acquires it when her lease is over', said)
    # alice is killed in the middle of her work.
    working = cmd.start('alice', 'run', 'g4', '--owner', 'alice', '--lease', '6s', '--', 'sh', '-c',
                        'echo "$HOLDFAST_TOKEN"; exec sleep 1200')
    token = int(working.stdout.readline())
    status, said = commit('alice', setting(DATA, 'g4', {'n': 1, 'token': token}))
    point(status == 200, 'alice writes while she works', said)
    working.kill()
    working.communicate(timeout=600)
    status, later, said = cmd.acquire('bob', 'g4', '--lease', '60', '-w', '600')
    point(status == 0 and int(later) > token, 'she is killed, and bob acquires it', said)
    status, said = commit('alice', setting(DATA, 'g4', {'n': 9, 'token': token}))
    point(status == 403, 'her late write is refused', said)
    status, said = commit('bob', setting(DATA, 'g4', {'n': 2, 'token': int(later)}))
    point(status == 200, 'his is not', said)


def roots(folder):
    """Keys that are paths below a root, and those that aren't."""
    store = f'firestore://{PROJECT}?root=live/sync'
    cmd = Command(folder)
    for lock, data, prefix, key in (
            ('live/sync/seats', 'live/sync/sold', 'seats/', 'seats/A%2F5'),
            ('live/sync/a/b/c-d', 'x', 'a/b/c-d/', 'a/b/c-d/é $x'),
            ('live/sync/holdfast', 'x', None, 'odd/one/out')):
        load(guard('--lock', lock, '--data', data, '--token-field', 'token',
                   *(['--key-prefix', prefix] if prefix else [])))
        status, token, said = cmd.acquire('alice', key, '--lease', '60', '-n', store=store)
        point(status == 0, f'{lock}: alice acquires {key!r}', said)
        status, _, said = cmd.acquire('bob', key, '--lease', '60', '-n', store=store)
        point(status == 75, f'{lock}: bob finds it held', f'{status} {said}')
        name = key[len(prefix):] if prefix else 'odd%2Fone%2Fout'
        written = setting(data, name, {'n': 1, 'token': int(token)})
        point(commit('alice', written)[0] == 200 and commit('bob', written)[0] == 403,
              f'{lock}: alice writes what it guards, and bob does not')
        status, said = cmd.run('alice', 'release', key, '--token', token, store=store)
        point(status == 0, f'{lock}: alice releases', said)
        for wrong in (key + 'x', 'x' + key, name + '!', ''):
            status, _ = commit('alice', setting(lock, 'other', fresh('alice', key=wrong)))
            point(status == 403, f'{lock}: no lock of {wrong!r} as the document other')
        status, _, said = cmd.acquire('alice', 'apart/from/it/all', '--lease', '60', '-n',
                                      store=store)
        point(status == 77, f'{lock}: what the rules don\'t name is denied', f'{status} {said}')


def main():
    for bad in (['--lock', 'a/b', '--data', 'c'], ['--lock', 'a', '--data', 'a'],
                ['--lock', 'a{x}', '--data', 'c'], ['--lock', 'a', '--data', 'b c'],
                ['--lock', 'a', '--data', 'b', '--owner', 'auth.uid || true'],
                ['--lock', 'a', '--data', 'b', '--token-field', "'"],
                ['--lock', 'a', '--data', 'b', '--token-field', 'a\\'],
                ['--lock', 'a', '--data', 'b', '--key-prefix', "' + '"],
                ['--lock', 'a', '--data', 'b', '--key-prefix', 'a\\'],
                ['--lock', 'x; drop table y', '--data', 'b'], ['--lock', 'ä', '--data', 'b'],
                ['--lock', '..', '--data', 'b'], ['--lock', '__a__', '--data', 'b'],
                ['--lock', 'a', '--data', 'b', '--max-lease', '25h'],
                ['--lock', 'a', '--data', 'b', '--undo'], ['--lock', 'a'], ['table']):
        done = subprocess.run([HOLDFAST, 'guard', 'firestore', *bad], capture_output=True)
        point(done.returncode == 64 and not done.stdout, f'refused: {" ".join(bad)}', done.stderr)
    for options in ([], ['--owner', 'auth.token.email'], ['--max-lease', '1h'],
                    ['--token-field', 'ä"$hf$ x; drop table y'],
                    ['--key-prefix', 'ä"$hf$/@LOCK@ ']):
        status, said = load(guard('--lock', 'x/y/z.-_~1', '--data', DATA, *options))
        point(status == 200, f'rules with {options or "nothing else"} are understood', said)
    status, said = load(guard('--lock', LOCK, '--data', DATA, '--token-field', 'token'))
    point(status == 200, 'the rules are understood', said)
    table()
    commits()
    page()
    with tempfile.TemporaryDirectory(prefix='holdfast-guard-') as folder:
        users(folder)
        givers_up(folder)
        roots(folder)
    status, said = load(guard('--lock', LOCK, '--data', DATA))
    try_case('without --token-field: update without a token', [setting(LOCK, 'doc', ALICES)],
             'alice', setting(DATA, 'doc', {'n': 1}), True)
    try_case('without --token-field: update of another\'s', [setting(LOCK, 'doc', ALICES)],
             'bob', setting(DATA, 'doc', {'n': 1}), False)
    # Put up again; removed by other rules; and put up once more.
    rules, opened = guard('--lock', LOCK, '--data', DATA), "rules_version = '2';\n" \
        'service cloud.firestore { match /databases/{d}/documents { match /{at=**} {' \
        ' allow read, write: if true; } } }'
    point(rules == guard('--lock', LOCK, '--data', DATA), 'printed again they are the same')
    for text, want in ((rules, False), (rules, False), (opened, True), (rules, False)):
        load(text)
        try_case(f'{"other" if want else "these"} rules: update of another\'s',
                 [setting(LOCK, 'doc', ALICES)], 'bob', setting(DATA, 'doc', {'n': 1}), want)
    return end()


raise SystemExit(main())
