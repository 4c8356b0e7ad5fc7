"""What the measured numbers say: figures, each with what it is held against. Used by bench/run and
bench/report."""
import collections
import os
import re

# A library of locks that is measured beside ours: what finds it (None: it is there), its program,
# whether a release can grant the lock to a waiter.
Peer = collections.namedtuple('Peer', 'name finder program hands_over')
# Stores with a server (tests/servers/NAME starts it), and the peers that are measured on it.
STORES = {
    'etcd': [Peer('etcdctl lock', None, 'peer_etcdctl.py', True),
             Peer('concurrency.Mutex', ['tools/bench-peers', 'go'], 'go/etcd.go', True)],
    'firestore': [Peer('gae-js-firestore', ['tools/bench-peers', 'gae-js'],
                       'peer_gae_js_firestore.js', False)],
    'mariadb': [Peer('GET_LOCK', None, 'bench-peer-get-lock', True),
                Peer('ShedLock', ['tools/bench-peers', 'shedlock'], 'PeerShedlock.java', False)],
    'mongodb': [Peer('mongo-locks', ['tools/bench-peers', 'mongo-locks'], 'peer_mongo_locks.js',
                     False)],
    'postgres': [Peer('advisory locks', None, 'bench-peer-advisory', True),
                 Peer('ShedLock', ['tools/bench-peers', 'shedlock'], 'PeerShedlock.java', False)],
    'redis': [Peer('redis-py', ['tools/bench-peers', 'redis-py'], 'peer_redis_py.py', True),
              Peer('redlock', ['tools/bench-peers', 'redlock'], 'peer_redlock.js', True),
              Peer('redsync', ['tools/bench-peers', 'go'], 'go/redsync.go', True)],
    'sqlite': [],
}
# Nobody is woken there: a handover takes as long as it takes until the other one looks.
SILENT = ['firestore', 'mariadb', 'sqlite']
# Where a write is on disk when it is answered, if the server is started so.
DURABLE = ['file', 'sqlite', 'etcd', 'postgres', 'redis']
# There the write by the library alone is the driver's own, not one that tells and asks less.
SAME_WRITE = ['redis']

# What is measured of waiting on a server: waits, of so many keys, by so many handles (each is what
# a process has). More keys take long to be taken where a request does.
FEW_WAITS = [(1, 1, 1), (100, 1, 1), (10000, 1, 1), (40, 1, 40), (100, 100, 1), (1000, 1000, 1)]
WAITING = {store: FEW_WAITS + [(10000, 10000, 1)] * (store in ('postgres', 'redis'))
           for store in STORES}
# So many processes at once.
CLIENTS = 1, 2, 8, 64
# Waits of the Node package in one line, as bench/node.js has it.
IN_LINE = 100000

# value in unit; peer: what it is held against, with its own number, or ''; ratio: value / peer, or
# None; target: the ratio's, or the value's where there is no peer; None: none. name: of the number
# that it is made of; part: of bench/run, which measures it.
Figure = collections.namedtuple('Figure', 'work value unit peer peer_value peer_unit ratio target '
                                'name part')
# Fewer say nothing about one of ten, of a hundred, or of a thousand.
ENOUGH = {'p50': 1, 'p90': 20, 'p99': 200, 'p999': 2000}


def amount(value, unit):
    digits = 0 if value == int(value) or value >= 100 else 1 if value >= 10 else 2
    return f'{value:.{digits}f} {unit}'.strip()


def times(ratio):
    """As words: two digits that say something, however small it is."""
    return f'{ratio:.2f} x' if ratio >= 0.1 or not ratio else f'{ratio:.2g} x'


def reached(figure):
    """None where there is no target."""
    if figure.target is None:
        return None
    return (figure.value if figure.ratio is None else figure.ratio) <= figure.target


def rounds_of(name, peer):
    """The name of their ratios, round by round: "A / B" with what A's and B's begin with alike."""
    alike = os.path.commonprefix([name, peer]).rfind(' ') + 1
    return f'{name} / {peer[alike:]}'


def ratio_of(found, name, peer, quantile='p50'):
    """The median of the ratios of the rounds that both were measured in, in turns: a machine may be
    quicker in some than in others. The ratio of the medians where there were no such. None: of
    nothing."""
    rounds = found.get(rounds_of(name, peer))
    if rounds:
        return rounds[quantile]
    other = found[peer][quantile]
    return found[name][quantile] / other if other else None


class Table:
    """rows: what was measured; missing: what has a target and wasn't; names: by part, the numbers
    that all of them are made of."""

    def __init__(self, found):
        self.found, self.part = found, ''
        self.rows, self.missing, self.names = [], [], collections.defaultdict(list)

    def has(self, *names):
        """Says, too, that they are wanted."""
        self.names[self.part] += names
        return all(name in self.found for name in names)

    def ratio(self, work, name, peer_name, peer, target=None):
        figure = Figure(work, None, None, peer_name, None, None, None, target, name, self.part)
        if self.has(name, peer):
            mine, other = self.found[name], self.found[peer]
            ratio = ratio_of(self.found, name, peer)
            figure = figure._replace(value=mine['p50'], unit=mine['unit'], ratio=ratio,
                                     peer_value=other['p50'], peer_unit=other['unit'])
            if ratio is not None or target is None:
                self.rows.append(figure)
                return
        if target is not None:
            self.missing.append(figure)

    def value(self, work, name, quantile='p50', target=None):
        figure = Figure(work, None, None, '', None, None, None, target, name, self.part)
        if self.has(name):
            mine = self.found[name]
            self.rows.append(figure._replace(value=mine[quantile], unit=mine['unit']))
        elif target is not None:
            self.missing.append(figure)


def goals(table, parts=None):
    """How many targets were reached, as words; of these parts, and of those that were measured."""
    of_all = [reached(row) for row in table.rows if row.target is not None]
    missing = [row for row in table.missing if parts is None or row.part in parts]
    text = f'{sum(of_all)} of {len(of_all) + len(missing)} targets reached'
    names = [row.work + (f' beside {row.peer}' if row.peer else '') for row in missing]
    return text + (f'; not measured: {"; ".join(names)}' if names else '')


def pairs(table):
    table.part = 'pairs'
    for how, text in ('single', ''), ('threads', ' (threads)'):
        # mem: is for threads. Where there is none but one, the C library's mutex isn't atomic.
        goal = {'flock': 0.12} if how == 'single' else {'mutex': 10}
        for peer, name in (('flock', 'flock(2)'), ('ofd', 'fcntl, OFD'), ('lmdb', 'LMDB'),
                           ('sqlite', 'SQLite'), ('robust mutex', 'robust mutex'),
                           ('bare row', 'a bare row')):
            table.ratio(f'file: acquire+release{text}', f'{how} file', name, f'{how} {peer}',
                        goal.get(peer))
        table.ratio(f'file: acquire+release, 1,000 keys{text}', f'{how} file, 1000 keys',
                    'flock(2)', f'{how} flock')
        table.ratio(f'mem: acquire+release{text}', f'{how} mem', 'mutex', f'{how} mutex',
                    goal.get('mutex'))
        table.ratio(f'mem: acquire+release{text}', f'{how} mem', 'compare-and-swap', f'{how} cas')
        table.ratio(f'mem: acquire+release, 1,000 keys{text}', f'{how} mem, 1000 keys', 'mutex',
                    f'{how} mutex')


def processes(table):
    table.part = 'handover'
    table.ratio('file: handover between processes', 'handover', 'futex', 'futex', 1.5)
    table.ratio('file: hf_release with a waiter', 'release', 'futex', 'futex')
    table.part = 'killed'
    for quantile, target in ('p50', None), ('p99', 20), ('max', None):
        table.value(f'file: holder killed to next, {quantile}', 'killed', quantile, target)
    table.part = 'spawn'
    for peer, name, target in (('flock true', 'flock(1)', 1.1), ('true', 'true', None)):
        table.ratio('holdfast run KEY -- true', 'holdfast run true', name, peer, target)


def parked(table):
    table.part = 'parked'
    for where in ('file: keys', 'file: one key', 'mem: keys', 'mem: one key'):
        for what, target in (('threads', 8), ('memory', 64), ('cpu a second', 1),
                             ('wakeups a second', 0.5), ('parked after', None),
                             ('served after', None)):
            table.value(f'{where.replace(":", ": parked waits,")}, {what}', f'{where} {what}',
                        'p50', target)


# Where many waits on keys of their own are measured beside few, and how many these are.
WAITED, WAITED_KEYS = ('mem', 'file', 'redis'), (1000, 100000)
HANDLES = {'one': 'by the handle that holds', 'two': 'by another one'}


def waits(table):
    table.part = 'waits'
    for store in WAITED:
        for how, text in HANDLES.items():
            keys_of = f'{store}: waits {how} '
            # How many there were says bench-waits, by the names.
            sizes = [int(match[1]) for match in (re.fullmatch(keys_of + r'(\d+) keys', name)
                                                 for name in table.found) if match]
            few, many = (min(sizes), max(sizes)) if len(sizes) > 1 else WAITED_KEYS
            for what, target in ('', 2), (', processor', None), (', close', None):
                table.ratio(f'{store}: {many:,} waits {text}{what}', f'{keys_of}{many} keys{what}',
                            f'{few:,} waits', f'{keys_of}{few} keys{what}', target)


KEYS = 1, 10, 10000, 1000000
# Ours; by LMDB; what its rows do.
LMDB = (('uniform', '', 'lmdb uniform', 'LMDB, rows that stay'),
        ('zipf', ', Zipf', 'lmdb zipf', 'LMDB, rows that stay'),
        ('uniform', '', 'lmdb going', 'LMDB, rows that go'))


def keys(table):
    table.part = 'keys'
    for url in 'file:', 'mem:':
        table.value(f'{url} acquire+release, 1 key', f'{url} 1 one')
        for n in KEYS[1:]:
            for how, text in ('uniform', ''), ('zipf', ', Zipf'):
                table.ratio(f'{url} acquire+release, {n:,} keys{text}', f'{url} {n} {how}',
                            'one of them', f'{url} {n} one')
            for how, text, peer, name in (() if url == 'mem:' else LMDB):
                table.ratio(f'file: acquire+release, {n:,} keys{text}', f'file: {n} {how}', name,
                            f'file: {n} {peer}')
            for what in 'idle', 'held':
                table.value(f'{url} {n:,} keys, bytes for one that is {what}',
                            f'{url} {n} {what}')


def python(table):
    table.part = 'python'
    table.value('Python: with store.lock() on file:', 'python: with', 'p50', 3)
    table.ratio('Python: with store.lock() on file:', 'python: with', 'filelock',
                'python: filelock', 0.05)
    table.ratio('Python: with store.lock() on file:', 'python: with', 'threading.Lock',
                'python: threading.Lock')


def node(table):
    table.part = 'node'
    # How long the line was says bench/node.js, by the names.
    length = max((int(name.split()[1]) for name in table.found
                  if re.fullmatch(r'node: \d+ in line: Mutex', name)), default=IN_LINE)
    line, lines = f'{length} in line', f'1 at each of {length}'
    for name in 'Mutex', 'KeyedMutex':
        for what, text in (('alone', 'alone'), ('1 in line', '1 in line'),
                           (line, f'{length:,} in line')):
            table.ratio(f'Node: {name}.runExclusive, {text}', f'node: {what}: {name}',
                        'async-mutex', f'node: {what}: async-mutex', 0.5)
        # As many promises live, for the collector as for the processor's caches.
        table.ratio(f'Node: {name}.runExclusive, {length:,} in line', f'node: {line}: {name}',
                    'as many in lines of one', f'node: {lines}: {name}', 1.1)
        table.ratio(f'Node: {name}.runExclusive, {length:,} in line', f'node: {line}: {name}',
                    'a bare array of promises', f'node: {line}: bare line')
    for url in 'mem', 'file':
        table.value(f'Node: store.run on {url}:', f'node: store {url}: run')


# What a pair is held against: such a row is replaced once, by the driver itself, on a connection of
# its own. And a handover: a release, by the same handle just before, which tells nobody.
DRIVERS_WRITE, UNHEARD = "its driver's write", 'a release nobody waits for'


def stores(table):
    for store, peers in STORES.items():
        table.part, same = store, store in SAME_WRITE
        pair = f'{store}: acquire+release'
        goal = None if store == 'sqlite' else 2.2   # nobody is asked there
        table.ratio(pair, pair, 'its library alone', f'{store}: raw', goal if same else None)
        table.ratio(pair, pair, DRIVERS_WRITE, f'{store}: write', None if same else goal)
        table.ratio(f'{pair}, a new key', f'{store}: unseen',
                    *(('its library alone', f'{store}: raw') if same else
                      (DRIVERS_WRITE, f'{store}: write')), goal and 3.3)
        table.ratio(f'{store}: a write of Holdfast', f'{store}: write', 'its library alone',
                    f'{store}: raw')
        table.ratio(f'{store}: a write by its library alone', f'{store}: raw', 'a bare request',
                    f'{store}: ping')
        table.ratio(f'{store}: handover between processes', f'{store}: handover',
                    UNHEARD, f'{store}: trip', None if store in SILENT else 4)
        for peer in peers:
            beside(table, store, peer)


def beside(table, store, peer):
    """A peer, each in turns with ours on the same server."""
    at = f'{store}: {peer.name}'
    table.ratio(f'{store}: acquire+release', f'{at} ours acquire+release', peer.name,
                f'{at} acquire+release')
    # There that is a process, start included.
    write = 'etcdctl put, a process' if peer.name == 'etcdctl lock' else 'a write by its library'
    table.ratio(f'{at}, acquire+release', f'{at} acquire+release', write, f'{at} raw')
    if peer.hands_over:
        table.ratio(f'{store}: handover between processes', f'{at} ours handover', peer.name,
                    f'{at} handover')


def clients(table):
    for store in ('file', *STORES):
        table.part = 'clients' if store == 'file' else store
        for what in 'own keys', 'one key':
            one = f'{store}: {what} 1'
            table.value(f'{store}: one process, pairs a second' +
                        ('' if what == 'own keys' else ', again'), one)
            for n in CLIENTS[1:]:
                table.ratio(f'{store}: {n} processes, {what}, pairs a second',
                            f'{store}: {what} {n}', 'one process', one)
                failed = f'{store}: {what}, failed of {n}'
                if failed in table.found and table.found[failed]['p50']:
                    table.value(f'{store}: {n} processes, {what}, failed pairs', failed)
            if what == 'one key':
                table.value(f'{store}: {n} processes, {what}, requests a pair',
                            f'{store}: {what}, requests of {n}')


def waiting(table):
    for store in STORES:
        table.part = store
        for waits, keys, handles in WAITING[store]:
            name = f'{store}: {waits} waits, {keys} keys, {handles} handles:'
            text = (f'{store}: {waits:,} waits' + (f' for {keys:,} keys' if keys > 1 else '') +
                    (f' of {handles} handles' if handles > 1 else ''))
            served = f'{name} served a second'
            table.value(f'{text}, requests a second',
                        served if served in table.found else f'{name} requests a second')
            table.value(f'{text}, CPU a second', f'{name} cpu a second')
            for what in ('threads', 'connections'):
                if waits in (1, 40, 10000):
                    table.value(f'{text}, {what}', f'{name} {what}')
            one = f'{store}: 1 waits, 1 keys, 1 handles: memory of the waits'
            all_of_them = f'{name} memory of the waits'
            if waits > 100 and table.has(one, all_of_them):
                more = table.found[all_of_them]['p50'] - table.found[one]['p50']
                table.rows.append(Figure(f'{text}, bytes for each', more * 1048576 / (waits - 1),
                                         'B', '', None, None, None, None, all_of_them, store))


def disk(table):
    table.part = 'disk'
    for store in DURABLE:
        on, beside_it = f'{store}: durable', 'a write on disk'
        if store == 'sqlite':   # only marks are on disk there
            table.ratio('sqlite: acquire+release, not on disk', f'{on} acquire+release', beside_it,
                        f'{on} raw')
        elif store != 'file':   # up to the server
            table.ratio(f'{store}: acquire+release, on disk', f'{on} acquire+release', beside_it,
                        f'{on} raw')
        table.ratio(f'{store}: an event begun and marked', f'{on} once', beside_it, f'{on} raw')


def figures(found, *more):
    """The table."""
    table = Table(found)
    for part in (pairs, processes, parked, waits, keys, clients, python, node, disk, stores,
                 waiting, *more):
        part(table)
    return table
