#!/usr/bin/env python3
"""Holders that are stopped for longer than their lease in the middle of read-modify-write.

    tests/servers/KIND tests/guards/guard_pause.py [--tap] KIND ROUNDS     (HOLDFAST: the command)

KIND is one of KINDS below; the locks are in $HOLDFAST_TEST_STORE. Each round has a counter. One
holder enters, reads it, and is stopped (SIGSTOP) until another holds the key. Then, in turns:

    between  the other enters, reads and writes; then the first goes on and writes
    across   the other enters and reads; then the first goes on and writes; then the other writes
    within   the first was stopped within a transaction; the other enters meanwhile (`within`)

Where the store can (hf_enter), that is done again with `holdfast enter` in place of the data's own
enter step. With the guard each write is counted or refused, so the counter is the number of writes
that weren't refused. Without it, and where only the writes enter, updates must be lost: or this
shows nothing.
(The latter where the locks are elsewhere. In one database the guard's look at the lock's row leaves
so little room for it that no stopped process hits it; guard_model.c does.)
"""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

HOLDFAST = os.environ['HOLDFAST']
STORE = os.environ['HOLDFAST_TEST_STORE']
LEASE_MS = {'firestore': 400}
AT_ONCE = 10


class Refused(Exception):
    """By the guard."""


class Again(Exception):
    """Somebody else has entered meanwhile: the transaction is to be begun again."""


def printed(how, *arguments):
    if how == 'late':
        arguments += ('--elsewhere',)
    said = subprocess.run([HOLDFAST, 'guard', *arguments], check=True, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL).stdout
    return re.sub(r'(?m)^(\\set|\.bail) .*$', '', said)    # the line for psql, or for sqlite3


# ---- the databases: one connection to a counter; `how` is guarded, called, late or plain ----

def enter_by_command(how, number, token, *fence):
    """As hf_enter."""
    status, said = holdfast('enter', f'{how}/{number}', '--token', str(token), *fence)
    if status == 76:
        raise Refused(said)
    if status:
        raise RuntimeError(f'enter: {status} {said}')


class InTransactions:
    """Each reading and each writing is one: begin (which enters), value or put, commit."""

    def read(self):
        if self.how == 'called':
            enter_by_command(self.how, self.number, self.token)
        if self.how in ('called', 'late'):
            return self.value()
        self.begin()
        n = self.value()
        self.commit()
        return n

    def write(self, n):
        self.begin()
        self.put(n)
        self.commit()


class Sqlite(InTransactions):
    within = False     # a stopped transaction stops all others, locks too
    path = STORE.partition(':')[2]

    @classmethod
    def prepare(cls, how, n):
        import sqlite3
        db = sqlite3.connect(cls.path, isolation_level=None)
        db.executescript('DROP TABLE IF EXISTS counters;'
                         'CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER)')
        db.executemany('INSERT INTO counters VALUES (?, 0)', [(i,) for i in range(n)])
        if how != 'plain':
            db.executescript(printed(how, 'sqlite', 'counters', '--key-column', 'id',
                                     '--key-prefix', f'{how}/'))
        db.close()

    def __init__(self, how, number, token, who='owner'):
        import sqlite3
        self.db = sqlite3.connect(self.path, isolation_level=None, timeout=600)
        self.error = sqlite3.IntegrityError
        self.how, self.number, self.token = how, number, token

    def begin(self):
        self.db.execute('BEGIN IMMEDIATE')
        if self.how == 'plain':
            return
        try:
            self.db.execute('INSERT INTO holdfast_enter VALUES (?, ?)',
                            (f'{self.how}/{self.number}', self.token))
        except self.error as error:
            self.db.execute('ROLLBACK')
            raise Refused(error) from None

    def commit(self):
        if self.how != 'plain':
            self.db.execute('DELETE FROM holdfast_enter')
        self.db.execute('COMMIT')

    def value(self):
        return self.db.execute('SELECT n FROM counters WHERE id = ?', (self.number,)).fetchone()[0]

    def put(self, n):
        self.db.execute('UPDATE counters SET n = ? WHERE id = ?', (n, self.number))


class Postgres(InTransactions):
    """By libpq itself: there is nothing else that has to be installed."""
    within = True

    @classmethod
    def prepare(cls, how, n):
        it = cls(how, 0, 0)
        it.ask('SET client_min_messages = warning; DROP TABLE IF EXISTS counters;'
               'CREATE TABLE counters (id integer PRIMARY KEY, '
               f'n integer); INSERT INTO counters SELECT i, 0 FROM generate_series(0, {n - 1}) i')
        if how != 'plain':
            it.ask(printed(how, 'postgres', 'counters', '--key-column', 'id', '--key-prefix',
                           f'{how}/'))

    def __init__(self, how, number, token, who='owner'):
        import ctypes
        self.pq = ctypes.CDLL('libpq.so.5')
        for name in ('PQconnectdb', 'PQexec'):
            getattr(self.pq, name).restype = ctypes.c_void_p
        for name in ('PQgetvalue', 'PQerrorMessage', 'PQresultErrorField'):
            getattr(self.pq, name).restype = ctypes.c_char_p
        self.void = ctypes.c_void_p
        self.db = self.void(self.pq.PQconnectdb(STORE.encode()))
        self.how, self.number, self.token = how, number, token

    def __del__(self):
        self.pq.PQfinish(self.db)

    def ask(self, sql):
        result = self.void(self.pq.PQexec(self.db, sql.encode()))
        if self.pq.PQresultStatus(result) not in (1, 2):
            state = (self.pq.PQresultErrorField(result, ord('C')) or b'').decode()
            text = self.pq.PQerrorMessage(self.db).decode()
            self.pq.PQclear(result)
            if state.startswith('LOST'):
                self.ask('ROLLBACK')
                raise Refused(text)
            if state == '40001':
                self.ask('ROLLBACK')
                raise Again(text)
            raise RuntimeError(text)
        n = self.pq.PQgetvalue(result, 0, 0) if self.pq.PQntuples(result) else None
        n = n and int(n or 0)
        self.pq.PQclear(result)
        return n

    def begin(self):
        while True:
            self.ask('BEGIN')
            try:
                if self.how != 'plain':
                    self.ask(f"SELECT 0 WHERE holdfast_enter('{self.how}/{self.number}', "
                             f'{self.token}) IS NULL')
                return
            except Again:
                pass

    def commit(self):
        self.ask('COMMIT')

    def value(self):
        return self.ask(f'SELECT n FROM counters WHERE id = {self.number}')

    def put(self, n):
        self.ask(f'UPDATE counters SET n = {n} WHERE id = {self.number}')


class Mariadb(InTransactions):
    """The guard is put up by the client `mariadb`, which knows DELIMITER."""
    within = True
    database, _, options = STORE.rpartition('/holdfast?')
    options = dict(word.split('=', 1) for word in options.split('&')) if database else {}

    @classmethod
    def prepare(cls, how, n):
        it = cls(how, 0, 0)
        it.ask('DROP TABLE IF EXISTS counters')
        it.ask('CREATE TABLE counters (id INT PRIMARY KEY, n INT) ENGINE=InnoDB')
        it.ask('INSERT INTO counters VALUES ' + ','.join(f'({i}, 0)' for i in range(n)))
        if how != 'plain':
            subprocess.run(['mariadb', '--no-defaults', '-S', cls.options['socket'], '-u',
                            cls.options['user'], 'holdfast'], check=True, text=True,
                           input=printed(how, 'mariadb', 'counters', '--key-column', 'id',
                                         '--key-prefix', f'{how}/'))

    def __init__(self, how, number, token, who='owner'):
        from mariadb_client import Connection
        self.db = Connection(self.options['socket'], self.options['user'])
        self.how, self.number, self.token = how, number, token
        self.ask('SET innodb_lock_wait_timeout = 600')

    def ask(self, sql):
        from mariadb_client import Failed
        try:
            return self.db.ask(sql)
        except Failed as error:
            self.db.ask('ROLLBACK')
            raise {'LOST1': Refused, '40001': Again}.get(error.state, RuntimeError)(error) from None

    def begin(self):
        while True:
            self.ask('BEGIN')
            try:
                if self.how != 'plain':
                    self.ask(f"CALL holdfast_enter('{self.how}/{self.number}', {self.token})")
                return
            except Again:
                pass

    def commit(self):
        self.ask('COMMIT')

    def value(self):
        return self.ask(f'SELECT n FROM counters WHERE id = {self.number}')

    def put(self, n):
        self.ask(f'UPDATE counters SET n = {n} WHERE id = {self.number}')


class Redis:
    within = False

    @classmethod
    def prepare(cls, how, n):
        it = cls(how, 0, 0)
        for i in range(n):
            it.ask('SET', f'counter:{i}', '0')
            it.ask('DEL', f'fence:{how}/{i}')

    def __init__(self, how, number, token, who='owner'):
        self.command = ['redis-cli', '-e', *self.address(STORE)]
        self.how, self.number, self.token = how, number, token
        self.script = printed(how, 'redis')

    @staticmethod
    def address(url):
        if 'socket=' in url:
            return ['-s', url.partition('socket=')[2].partition('&')[0]]
        host, _, port = url.partition('://')[2].partition('/')[0].rpartition('@')[2].partition(':')
        return ['-h', host, '-p', port or '6379']

    def ask(self, *words):
        done = subprocess.run([*self.command, *map(str, words)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        said = done.stdout.strip() + done.stderr.strip()
        if re.search('LOST|UNENTERED', said):
            raise Refused(said)
        if done.returncode:
            raise RuntimeError(said)
        return said

    def guarded(self, *command):
        key = f'{self.how}/{self.number}'
        names = [f'fence:{key}']
        if self.how != 'late':
            names.append(f'holdfast:{key}')
        if command:
            names.append(f'counter:{self.number}')
        self.ask('EVAL', self.script, len(names), *names, self.token, *command)

    def value(self):
        return int(self.ask('GET', f'counter:{self.number}'))

    def read(self):
        if self.how == 'guarded':
            self.guarded()
        if self.how == 'called':
            enter_by_command(self.how, self.number, self.token,
                             f'fence:{self.how}/{self.number}')
        return self.value()

    def write(self, n):
        words = ['SET', f'counter:{self.number}', n]
        if self.how == 'plain':
            self.ask(*words)
            return
        if self.how == 'late':
            self.guarded()
        self.guarded(*words)


class Mongodb:
    within = False

    @classmethod
    def prepare(cls, how, n):
        it = cls(how, 0, 0)
        it.db.counters.drop()
        it.db.counters.insert_many([{'_id': i, 'n': 0} for i in range(n)])

    def __init__(self, how, number, token, who='owner'):
        import pymongo
        self.errors = pymongo.errors.OperationFailure
        self.db = pymongo.MongoClient(STORE).get_default_database()
        self.how, self.number, self.token = how, number, token
        self.calls = dict(re.findall(r'const (\w+) = .*?runCommand\((.*?)\);$',
                                     printed('', 'mongodb', 'counters'), flags=re.M | re.S))

    def call(self, name, **words):
        text = self.calls[name]
        for word, what in {'ID': self.number, 'TOKEN': self.token, **words}.items():
            text = re.sub(rf'\b{word}\b', lambda _, what=what: json.dumps(what), text)
        try:
            return self.db.command(json.loads(text))
        except self.errors as error:
            if error.code != 11000:
                raise
            raise Refused(error) from None

    def value(self):
        return self.db.counters.find_one({'_id': self.number})['n']

    def read(self):
        if self.how == 'guarded':
            return self.call('holdfast_enter')['value']['n']
        if self.how == 'called':
            enter_by_command(self.how, self.number, self.token, f'counters/{self.number}')
        return self.value()

    def write(self, n):
        if self.how == 'plain':
            self.db.counters.update_one({'_id': self.number}, {'$set': {'n': n}})
            return
        if self.how == 'late':
            self.call('holdfast_enter')
        if self.call('holdfast_write', UPDATE={'$set': {'n': n}})['n'] != 1:
            raise Refused('n is 0')


class Firestore:
    """As the SDKs' transactions do it: what was read must not have changed at the commit."""
    within = False
    project = STORE.partition('://')[2].partition('?')[0]

    @classmethod
    def prepare(cls, how, n):
        rules = printed('', 'firestore', '--lock', 'holdfast', '--data', 'counters',
                        '--token-field', 'token')
        if how != 'guarded':
            rules = re.sub(r'allow [^;]*;', 'allow read, write;', rules, flags=re.S)
        it = cls(how, 0, 0)
        it.ask('PUT', f'/emulator/v1/projects/{cls.project}:securityRules',
               {'rules': {'files': [{'name': 'firestore.rules', 'content': rules}]}}, 'owner')
        for i in range(n):
            it.number = i
            it.commit('owner', {'update': it.counter(0)})

    def __init__(self, how, number, token, who='owner'):
        self.how, self.number, self.token = how, number, token
        self.root = f'projects/{self.project}/databases/(default)/documents'
        self.who, self.times = who, None

    def ask(self, method, url, body, user):
        import urllib.error
        import urllib.request
        request = urllib.request.Request('http://' + os.environ['FIRESTORE_EMULATOR_HOST'] + url,
                                         body and json.dumps(body).encode(), method=method)
        request.add_header('Content-Type', 'application/json')
        request.add_header('Authorization',
                           'Bearer ' + (user if user == 'owner' else id_token(user, self.project)))
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.loads(answer.read() or '{}')
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            if error.code in (400, 403, 409):
                raise Refused(said) from None
            raise RuntimeError(said) from None

    def counter(self, n):
        return {'name': f'{self.root}/counters/{self.key()}',
                'fields': {'n': {'integerValue': str(n)},
                           'token': {'integerValue': str(self.token)}}}

    def key(self):
        return f'{self.how}-{self.number}'

    def get(self, path):
        return self.ask('GET', f'/v1/{self.root}/{path}', None, self.who)

    def commit(self, user, *writes):
        self.ask('POST', f'/v1/{self.root}:commit', {'writes': list(writes)}, user)

    def value(self):
        return int(self.get(f'counters/{self.key()}')['fields']['n']['integerValue'])

    def read(self):
        if self.how != 'guarded':
            return self.value()
        lock, data = self.get(f'holdfast/{self.key()}'), self.get(f'counters/{self.key()}')
        if int(lock['fields']['token']['integerValue']) != self.token:
            raise Refused('another holds it')
        self.times = lock['updateTime'], data['updateTime']
        return int(data['fields']['n']['integerValue'])

    def write(self, n):
        if self.how == 'plain':
            self.commit(self.who, {'update': self.counter(n)})
            return
        lock = f'{self.root}/holdfast/{self.key()}'
        data = {'update': self.counter(n), 'currentDocument': {'updateTime': self.times[1]}}
        self.commit(self.who, {'verify': lock, 'currentDocument': {'updateTime': self.times[0]}},
                    data)


def id_token(user, project):
    import base64

    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b'=').decode()
    now = int(time.time())
    return '.'.join([part({'alg': 'none', 'typ': 'JWT'}), part({
        'iss': f'https://securetoken.google.com/{project}', 'aud': project, 'sub': user,
        'user_id': user, 'auth_time': now, 'iat': now, 'exp': now + 3600}), ''])


# ---- a round ----

def holdfast(*arguments):
    env = {**os.environ, 'HOLDFAST_STORE': STORE}
    done = subprocess.run([HOLDFAST, *arguments], env=env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=1200)
    return done.returncode, done.stdout + done.stderr


def acquire(key, lease, who):
    status, said = holdfast('acquire', key, '--lease', lease, '-w', '600', '--owner', who)
    match = re.search(r"HOLDFAST_TOKEN='?(\d+)", said)
    if status or not match:
        raise RuntimeError(f'acquire {key}: {status} {said}')
    return int(match.group(1))


class Holder:
    """A process of its own, which is stopped after it has read; it says how each step ended."""
    started = []

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, __file__, '--holder', *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.started.append(self.process)
        self.said = ''

    def wait_stopped(self):
        self.said = self.process.stdout.readline()
        if not self.said.startswith('read'):
            raise RuntimeError(f'a holder that did not get to read: {self.said}')
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def finish(self):
        """Goes on; whether its write was accepted."""
        self.process.send_signal(signal.SIGCONT)
        self.said += self.process.stdout.read()
        if self.process.wait(1200) or not re.search('wrote|refused', self.said):
            raise RuntimeError(f'a holder ended badly: {self.said}')
        return 'wrote' in self.said


def be_holder(kind, how, case, number, who, lease_ms):
    database = KINDS[kind](how, int(number), 0, who)
    key = f'{how}-{number}' if kind == 'firestore' else f'{how}/{number}'
    within, lease_ms = case == 'within' and how not in ('late', 'called'), int(lease_ms)
    try:
        while True:
            database.token = acquire(key, f'{lease_ms}ms', who)
            try:
                if within:
                    database.begin()
                n = database.value() if within else database.read()
                break
            except Refused:    # so slow that the lease was over before the reading: a longer one
                # What may be left of it is in the way of the same owner.
                holdfast('release', key, '--token', str(database.token))
                lease_ms *= 2
        print('read', flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        if within:
            database.put(n + 1)
            database.commit()
        else:
            database.write(n + 1)
        print('wrote')
    except Refused as why:
        print('refused', why)
    holdfast('release', key, '--token', str(database.token))


def one_round(kind, how, number, case):
    """How many writes were accepted, and refused."""
    first = Holder(kind, how, case, number, 'alice', LEASE_MS.get(kind, 150))
    first.wait_stopped()
    second = Holder(kind, how, 'between', number, 'bob', 60000)
    if case == 'within':
        # It waits for the key, or in the database for the first; and goes on when that is done.
        time.sleep(0.3)
        wrote = [first.finish()]
        second.wait_stopped()
        wrote.append(second.finish())
    else:
        second.wait_stopped()
        order = [first, second] if case == 'across' else [second, first]
        wrote = [holder.finish() for holder in order]
    return sum(wrote), len(wrote) - sum(wrote)


def rounds(kind, how, n):
    """(updates lost, writes accepted, writes refused)"""
    KINDS[kind].prepare(how, n)
    within = KINDS[kind].within and how != 'called'    # which reads before its transaction
    cases = ['between', 'across'] + ['within'] * within
    results, errors = {}, []

    def some(first):
        for number in range(first, n, AT_ONCE):
            try:
                case = cases[number // AT_ONCE % len(cases)]
                results[number] = one_round(kind, how, number, case)
            except Exception as error:    # pylint: disable=broad-except
                errors.append(f'round {number}: {error}')
                return
    threads = [threading.Thread(target=some, args=(i,)) for i in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A round that failed leaves holders that are stopped, and would be waited for without end.
    for process in Holder.started:
        process.kill()
        process.wait()
    Holder.started.clear()
    if errors:
        raise RuntimeError('\n'.join(errors))
    lost = 0
    for number, (accepted, _) in results.items():
        lost += accepted - KINDS[kind](how, number, 0).value()
    return lost, sum(a for a, _ in results.values()), sum(r for _, r in results.values())


KINDS = {'sqlite': Sqlite, 'postgres': Postgres, 'mariadb': Mariadb, 'redis': Redis,
         'mongodb': Mongodb, 'firestore': Firestore}


def main(kind, n):
    n = int(n)
    failures = points = 0
    holdfast('ls')    # makes what is missing
    for how, count, what in (('guarded', n, 'with the guard'),
                             ('called', n, 'with the guard and hf_enter'),
                             ('late', max(n // 5, 20), 'control: only writes enter'),
                             ('plain', max(n // 5, 20), 'control: without it')):
        if kind == 'firestore' and how in ('called', 'late'):    # the lock is the fence there
            continue
        points += 1
        try:
            lost, accepted, refused = rounds(kind, how, count)
            kept = lost == 0 and refused > 0 and accepted >= count
            good = kept if how in ('guarded', 'called') else lost > 0
            said = f'{lost} updates lost of {accepted} accepted, {refused} writes refused'
        except Exception as error:    # pylint: disable=broad-except
            good, said = False, str(error)
        failures += not good
        first, *more = said.split('\n')
        print(f'{"ok" if good else "not ok"} {points} - {kind}, {what}: {count} pauses, {first}')
        for line in more:
            print(f'# {line}')
    print(f'1..{points}', flush=True)
    return 1 if failures else 0


if sys.argv[1] == '--holder':
    be_holder(*sys.argv[2:])
else:
    raise SystemExit(main(*[a for a in sys.argv[1:] if a != '--tap']))
