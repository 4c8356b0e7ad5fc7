"""Many processes that want one key, and holders that are killed: the locks that take part, and the
table of what bench/contend/measure found. Used by bench/run and bench/report."""
import collections
import json
import os

from figures import ENOUGH, amount

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AMONG = 2, 8, 64
OURS = 'Holdfast'

# Of a lock: what finds it (None: it is there), its program and the program's first words; what it
# is told of the store (@: its URL); seconds (of handovers, one by one), µs that a key is kept for,
# and, among two, up to how many more, so that a polling lock looks at any time of its pause; the
# lease (ms, 0: none) with which holders are killed, None: they can't be.
Who = collections.namedtuple('Who', 'finder program where seconds hold_us spread_us lease_ms',
                             defaults=(None, None, '@', 5, 2000, 0, 1000))


def ours(**more):
    return Who(None, ['bench-contend', 'holdfast'], **more)


def local(name, lease_ms=0):
    return Who(None, ['bench-contend', name], '', 2, 100, 0, lease_ms)


PLACES = {
    'file': {OURS: ours(seconds=2, hold_us=100, lease_ms=0), 'futex': local('futex', None),
             'robust mutex': local('robust mutex'), 'flock(2)': local('flock(2)'),
             'OFD lock': local('OFD lock')},
    'sqlite': {OURS: ours()},
    'etcd': {OURS: ours(),
             'concurrency.Mutex': Who(['tools/bench-peers', 'go'], ['go/etcd.go']),
             'etcdctl lock': Who(None, ['contend/peer_etcdctl.py'], lease_ms=None)},
    'firestore': {OURS: ours(seconds=8, spread_us=200000)},
    # MongoDB itself looks once a minute for what has outlived its time: the lock of a holder of
    # mongoelector's that was killed isn't free before.
    'mongodb': {OURS: ours(),
                'mongoelector': Who(['tools/bench-peers', 'mongoelector'],
                                    ['contend/peer_mongoelector.py'], spread_us=250000,
                                    lease_ms=None)},
    'postgres': {OURS: ours(seconds=7),
                 'advisory locks': Who(None, ['bench-contend-advisory'], seconds=7, lease_ms=0)},
    'redis': {OURS: ours(),
              'redis-py': Who(['tools/bench-peers', 'redis-py'], ['contend/peer_redis_py.py'],
                              'socket', spread_us=100000),
              'redlock': Who(['tools/bench-peers', 'redlock'], ['contend/peer_redlock.js'],
                             'socket', spread_us=300000),
              'redsync': Who(['tools/bench-peers', 'go'], ['go/redsync.go'], 'socket',
                             spread_us=250000)},
}
SHOWN = 'p50', 'p99', 'p999'
# Who had it less often in its time has hardly begun: whose longest wait is beside what?
SERVED = 3


def plan(place, folder, smoke, command):
    """For bench/contend/measure; command(finder, program) is what starts a program."""
    who = []
    for name, how in PLACES[place].items():
        if smoke and how.finder:    # a smoke test fetches nothing
            continue
        where = how.where
        if place == 'file':
            where = f'file:{folder}/contend.holdfast' if where == '@' else folder
        who.append({'name': name, 'where': where, 'lease_ms': how.lease_ms,
                    'command': command(how.finder, *how.program),
                    'seconds': 0.3 if smoke else how.seconds, 'hold_us': how.hold_us,
                    'spread_us': how.spread_us})
    return json.dumps({'who': who, 'among': AMONG[:1] if smoke else AMONG, 'work_us': 20,
                       'seconds': 0.2 if smoke else 2, 'waiting': 0.2 if smoke else 3,
                       'pairs': 1 if smoke else 8,
                       'kills': 1 if smoke else 3})


def told(number, quantile):
    if number['n'] < ENOUGH[quantile]:
        return '-'
    value, unit = number[quantile], number['unit']
    return amount(value / 1e3, 'ms') if unit == 'us' and value >= 1e4 else amount(value, unit)


def lost(numbers, of):
    """Not to another one: when its time was over. On a machine with more to do than it can."""
    found = numbers.get(of + 'lost')
    return f', {found["p50"]} lost' if found else ''


def fairness(numbers, of):
    """The longest wait, in medians of all; None where half of them had it too seldom to say."""
    served, longest = numbers.get(of + 'served'), numbers.get(of + 'longest')
    return longest['max'] if served and longest and served['p50'] >= SERVED else None


HEADS = ['who', 'among', 'handover p50', 'p99', 'p99.9', 'n', 'held a second', 'by the same again',
         'longest wait', 'in medians']


def table(numbers):
    """Rows as HEADS says; all words."""
    rows = []
    for place, names in PLACES.items():
        for name in names:
            for n in AMONG:
                of = f'{place}: {name} among {n}: '
                if any(of + what not in numbers for what in ('handover', 'holds', 'again', 'wait')):
                    continue
                handover, longest = numbers[of + 'handover'], fairness(numbers, of)
                rows.append([f'{place}: {name}', str(n),
                             *(told(handover, quantile) for quantile in SHOWN),
                             str(handover['n']) + lost(numbers, of),
                             f'{numbers[of + "holds"]["p50"]:.0f}',
                             f'{numbers[of + "again"]["p50"]:.0f} %',
                             amount(numbers[of + 'wait']['max'] / 1e3, 'ms'),
                             '-' if longest is None else amount(longest, 'x')])
    return rows


# What waiting costs each of as many as there are beside the one that has the key.
COSTS = 'CPU a second', 'wakeups a second', 'threads', 'sockets', 'memory'
WAIT_HEADS = ['what one of 63 costs that wait', *COSTS]


def waits(numbers):
    """Rows as WAIT_HEADS says; all words."""
    rows = []
    for place, names in PLACES.items():
        for name in names:
            of = f'{place}: {name} among {AMONG[-1]}: waiting, '
            if all(of + what in numbers for what in COSTS):
                rows.append([f'{place}: {name}', *(amount(numbers[of + what]['p50'],
                                                          numbers[of + what]['unit'])
                                                   for what in COSTS)])
    return rows


def figures(of):
    """Into the table of all figures."""
    for place, names in PLACES.items():
        of.part = f'contend-{place}'
        peers = [name for name in names if name != OURS]
        for n in AMONG:
            ours_of = f'{place}: {OURS} among {n}: handover'
            for name in names:
                at = f'{place}: {name} among {n}: '
                of.has(*(at + what for what in ('again', 'wait', 'longest', 'served')))
                of.value(f'{place}: {name} among {n}, holds a second', at + 'holds')
                if n == AMONG[-1]:
                    of.has(*(f'{at}waiting, {what}' for what in COSTS))
            for name in peers:
                of.ratio(f'{place}: handover among {n}', ours_of, name,
                         f'{place}: {name} among {n}: handover')
            if not peers:
                of.value(f'{place}: handover among {n}', ours_of)
        died = f'{place}: {OURS}: died'
        work = (f'{place}: holder killed to next, with a lease of 1 s' if names[OURS].lease_ms
                else f'{place}: holder killed to next, of several')
        of.value(work, died)
        for name in peers:
            if names[name].lease_ms is not None:
                of.ratio(work, died, name, f'{place}: {name}: died')


def lines(numbers):
    """What the table shows and the figures don't: (work, value, unit)."""
    for place, names in PLACES.items():
        for name in names:
            for n in AMONG:
                of, text = f'{place}: {name} among {n}: ', f'{place}: {name} among {n}'
                for what in COSTS:
                    if f'{of}waiting, {what}' in numbers:
                        number = numbers[f'{of}waiting, {what}']
                        yield f'{text}, one that waits: {what}', number['p50'], number['unit']
                if of + 'again' in numbers and of + 'wait' in numbers:
                    yield f'{text}, by the same again', numbers[of + 'again']['p50'], '%'
                    yield f'{text}, longest wait', numbers[of + 'wait']['max'], 'us'
                longest = fairness(numbers, of)
                if longest is not None:
                    yield f'{text}, longest wait in medians', longest, 'x'
