"""What the measured numbers say: figures, each with what it is held against. Used by bench/run and
bench/report."""
import collections
import re

# Stores with a server (tests/servers/NAME starts it), and the peers that are measured on it: a
# name, what finds it (None: it is there), its program.
STORES = {
    'etcd': [('etcdctl lock', None, 'peer_etcdctl.py'),
             ('concurrency.Mutex', ['tools/bench-peers', 'go'], 'go/etcd.go')],
    'firestore': [('gae-js-firestore', ['tools/bench-peers', 'gae-js'],
                   'peer_gae_js_firestore.js')],
    'mongodb': [('mongo-locks', ['tools/bench-peers', 'mongo-locks'], 'peer_mongo_locks.js')],
    'postgres': [('advisory locks', None, 'bench-peer-advisory'),
                 ('ShedLock', ['tools/bench-peers', 'shedlock'], 'PeerShedlock.java')],
    'redis': [('redis-py', ['tools/bench-peers', 'redis-py'], 'peer_redis_py.py'),
              ('redlock', ['tools/bench-peers', 'redlock'], 'peer_redlock.js'),
              ('redsync', ['tools/bench-peers', 'go'], 'go/redsync.go')],
    'sqlite': [],
}
# Nobody is woken there: a handover takes as long as it takes until the other one looks.
SILENT = ['firestore', 'sqlite']
# Where a write is on disk when it is answered, if the server is started so.
DURABLE = ['file', 'sqlite', 'etcd', 'postgres', 'redis']
# There the write by the library alone is the driver's own, not one that tells and asks less.
SAME_WRITE = ['redis']
# Each connection is served by a process or a thread of its own. Whether that one is woken on its
# client's processor or on another decides what a round trip costs, by half, for as long as it stays
# there; so what is measured in turns has one processor, the server another.
APART = ['mongodb', 'postgres']

# What is measured of waiting on a server: waits, of so many keys, by so many handles (each is what
# a process has). More keys take long to be taken where a request does.
FEW_WAITS = [(1, 1, 1), (100, 1, 1), (10000, 1, 1), (40, 1, 40), (100, 100, 1), (1000, 1000, 1)]
WAITING = {store: FEW_WAITS + [(10000, 10000, 1)] * (store in ('postgres', 'redis'))
           for store in STORES}
# So many processes at once.
CLIENTS = 1, 2, 8, 64

# value in unit; peer: what it is held against, with its own number, or ''; ratio: value / peer, or
# None; target: the ratio's, or the value's where there is no peer; None: none.
Figure = collections.namedtuple('Figure', 'work value unit peer peer_value peer_unit ratio target')


def amount(value, unit):
    digits = 0 if value == int(value) or value >= 100 else 1 if value >= 10 else 2
    return f'{value:.{digits}f} {unit}'.strip()


def reached(figure):
    """None where there is no target."""
    if figure.target is None:
        return None
    return (figure.value if figure.ratio is None else figure.ratio) <= figure.target


class Table:
    def __init__(self, found):
        self.found = found
        self.rows = []

    def ratio(self, work, name, peer_name, peer, target=None, quantile='p50'):
        if name in self.found and peer in self.found:
            mine, other = self.found[name], self.found[peer]
            ratio = mine[quantile] / other[quantile] if other[quantile] else None
            # Of each round, if there is that: a machine may be quicker in some than in others.
            rounds = self.found.get(f'{name} / {peer.split(": ")[-1]}')
            if rounds:
                ratio = rounds[quantile]
            self.rows.append(Figure(work, mine[quantile], mine['unit'], peer_name,
                                    other[quantile], other['unit'], ratio,
                                    target if other[quantile] else None))

    def value(self, work, name, quantile='p50', target=None):
        if name in self.found:
            mine = self.found[name]
            self.rows.append(Figure(work, mine[quantile], mine['unit'], '', None, '', None, target))


def pairs(table):
    for how, text in ('single', ''), ('threads', ' (threads)'):
        # mem: is for threads. Where there is none but one, the C library's mutex isn't atomic.
        goal = {'flock': 0.12} if how == 'single' else {'mutex': 10}
        for peer, name in (('flock', 'flock(2)'), ('ofd', 'fcntl, OFD'), ('lmdb', 'LMDB'),
                           ('sqlite', 'SQLite'), ('robust mutex', 'robust mutex'),
                           ('bare row', 'a bare row')):
            table.ratio(f'file: acquire+release{text}', f'{how} file', name, f'{how} {peer}',
                        goal.get(peer))
        table.ratio(f'file: the same, 1,000 keys{text}', f'{how} file, 1000 keys', 'flock(2)',
                    f'{how} flock')
        table.ratio(f'mem: acquire+release{text}', f'{how} mem', 'mutex', f'{how} mutex',
                    goal.get('mutex'))
        table.ratio(f'mem: the same{text}', f'{how} mem', 'compare-and-swap', f'{how} cas')
        table.ratio(f'mem: the same, 1,000 keys{text}', f'{how} mem, 1000 keys', 'mutex',
                    f'{how} mutex')


def processes(table):
    table.ratio('file: handover between processes', 'handover', 'futex', 'futex', 1.5)
    table.ratio('file: hf_release with a waiter', 'release', 'futex', 'futex')
    for quantile, target in ('p50', None), ('p99', 20), ('max', None):
        table.value(f'file: holder killed to next, {quantile}', 'killed', quantile, target)
    for peer, name, target in (('flock true', 'flock(1)', 1.1), ('true', 'true', None)):
        table.ratio('holdfast run KEY -- true', 'holdfast run true', name, peer, target)


def parked(table):
    for where in ('file: keys', 'file: one key', 'mem: keys', 'mem: one key'):
        for what, target in (('threads', 8), ('memory', 64), ('cpu a second', 1),
                             ('wakeups a second', 0.5), ('parked after', None),
                             ('served after', None)):
            table.value(f'{where.replace(":", ": parked waits,")}, {what}', f'{where} {what}',
                        'p50', target)


KEYS = 1, 10, 10000, 1000000


def keys(table):
    for url in 'file:', 'mem:':
        table.value(f'{url} acquire+release, 1 key', f'{url} 1 one')
        for n in KEYS[1:]:
            for how, text in ('uniform', ''), ('zipf', ', Zipf'):
                table.ratio(f'{url} acquire+release, {n:,} keys{text}', f'{url} {n} {how}',
                            'one of them', f'{url} {n} one')
            for what in 'idle', 'held':
                table.value(f'{url} {n:,} keys, bytes for one that is {what}',
                            f'{url} {n} {what}')


def python(table):
    table.value('Python: with store.lock() on file:', 'python: with', 'p50', 3)
    table.ratio('Python: the same', 'python: with', 'filelock', 'python: filelock', 0.05)
    table.ratio('Python: the same', 'python: with', 'threading.Lock', 'python: threading.Lock')


def node(table):
    # How long the line was says bench/node.js, by the names.
    length = max((int(name.split()[1]) for name in table.found
                  if re.fullmatch(r'node: \d+ in line: Mutex', name)), default=1)
    line, lines = f'{length} in line', f'1 at each of {length}'
    for name in 'Mutex', 'KeyedMutex':
        for what, text in (('alone', 'alone'), ('1 in line', '1 in line'),
                           (line, f'{length:,} in line')):
            table.ratio(f'Node: {name}.runExclusive, {text}', f'node: {what}: {name}',
                        'async-mutex', f'node: {what}: async-mutex', 0.5)
        # As many promises live, for the collector as for the processor's caches.
        table.ratio('Node: the same', f'node: {line}: {name}', 'as many in lines of one',
                    f'node: {lines}: {name}', 1.1)
        table.ratio('Node: the same', f'node: {line}: {name}', 'a bare array of promises',
                    f'node: {line}: bare line')
    for url in 'mem', 'file':
        table.value(f'Node: store.run on {url}:', f'node: store {url}: run')


def stores(table):
    for store, peers in STORES.items():
        same = store in SAME_WRITE and f'{store}: raw' in table.found
        pair = f'{store}: acquire+release'
        goal = None if store == 'sqlite' else 2.2   # nobody is asked there
        table.ratio(pair, pair, 'its library alone', f'{store}: raw', goal if same else None)
        table.ratio(pair, pair, 'a write', f'{store}: write', None if same else goal)
        table.ratio(f'{pair}, a new key', f'{store}: unseen',
                    *(('its library alone', f'{store}: raw') if same else
                      ('a write', f'{store}: write')), goal and 3.3)
        table.ratio(f'{store}: a write of Holdfast', f'{store}: write', 'its library alone',
                    f'{store}: raw')
        table.ratio(f'{store}: a write by its library alone', f'{store}: raw', 'a bare request',
                    f'{store}: ping')
        table.ratio(f'{store}: handover between processes', f'{store}: handover',
                    'a round trip', f'{store}: trip', None if store in SILENT else 4)
        for peer, _, _ in peers:
            table.ratio(f'{store}: {peer}, acquire+release', f'{store}: {peer} acquire+release',
                        'its library alone', f'{store}: {peer} raw')
            table.ratio(f'{store}: {peer}, handover', f'{store}: {peer} handover',
                        'a round trip', f'{store}: {peer} raw')


def clients(table):
    for store in ('file', *STORES):
        for what in 'own keys', 'one key':
            one = f'{store}: {what} 1'
            table.value(f'{store}: one process, pairs a second' if what == 'own keys' else
                        f'{store}: the same, again', one)
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
            one = table.found.get(f'{store}: 1 waits, 1 keys, 1 handles: memory of the waits')
            all_of_them = table.found.get(f'{name} memory of the waits')
            if one and all_of_them and waits > 100:
                each = (all_of_them['p50'] - one['p50']) * 1048576 / (waits - 1)
                table.rows.append(Figure(f'{text}, bytes for each', each, 'B', '', None, '', None,
                                         None))


def disk(table):
    for store in DURABLE:
        on, beside = f'{store}: durable', 'a write on disk'
        if store == 'sqlite':   # only marks are on disk there
            table.ratio('sqlite: acquire+release', 'sqlite: acquire+release', beside, f'{on} raw')
        elif store != 'file':   # up to the server
            table.ratio(f'{store}: acquire+release, on disk', f'{on} acquire+release', beside,
                        f'{on} raw')
        table.ratio(f'{store}: an event begun and marked', f'{on} once', beside, f'{on} raw')


def figures(found, *more):
    table = Table(found)
    for part in (pairs, processes, parked, keys, clients, python, node, disk, stores, waiting,
                 *more):
        part(table)
    return table.rows
