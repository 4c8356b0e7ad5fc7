"""bench/report: the table and the plots of kept results; or the plots of bench/sim's numbers."""
import os
import sys

import matplotlib
matplotlib.use('Agg')
from matplotlib import pyplot    # noqa: E402  (the backend comes first)

import contended    # noqa: E402
from figures import (CLIENTS, ENOUGH, SILENT, STORES, amount, figures, goals,    # noqa: E402
                     reached, times)
from kept import is_kept, numbers_of, read    # noqa: E402
from plainly import Bad    # noqa: E402

OURS, OTHERS, LIMIT = '#1b6ca8', '#59636e', '#b8621b'
LEAST = 1e-3    # what a logarithmic axis shows for nothing
US = {'ns': 1e-3, 'us': 1, 'ms': 1e3}
matplotlib.rcParams.update({'svg.hashsalt': 'holdfast', 'svg.fonttype': 'none', 'font.size': 9,
                            'axes.spines.top': False, 'axes.spines.right': False})


def save(figure, folder, name):
    figure.tight_layout()
    for kind, metadata in ('svg', {'Date': None}), ('png', {'Software': None}):
        figure.savefig(os.path.join(folder, f'{name}.{kind}'), dpi=120, metadata=metadata)
    pyplot.close(figure)
    return name


def short(value):
    return f'{value:,.0f}' if value >= 100 else f'{value:.3g}' if value > LEAST else '0'


def dots(folder, name, title, label, found, line=None):
    """found: (text, value, colour), from top to bottom; value None: what stands above the next
    ones. A logarithmic axis begins anywhere, so that the length of a bar would say nothing. None
    where there is nothing to show."""
    if not any(value is not None for _, value, _ in found):
        return None
    figure, axes = pyplot.subplots(figsize=(7.5, 1 + 0.25 * len(found)))
    places = range(len(found), 0, -1)
    axes.set_xscale('log')
    axes.set_yticks(list(places), [text for text, _, _ in found])
    for place, tick, (_, value, colour) in zip(places, axes.get_yticklabels(), found):
        if value is None:
            tick.set_fontweight('bold')
            continue
        axes.axhline(place, color='#dde1e6', linewidth=0.6, zorder=0)
        axes.plot([value], [place], marker='o' if colour == OURS else 's', color=colour,
                  markersize=6)
        axes.annotate(short(value), (value, place), xytext=(7, 0), textcoords='offset points',
                      va='center', fontsize=8,
                      bbox={'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.6})
    axes.set_ylim(0.4, len(found) + 0.6)
    axes.tick_params(axis='y', length=0)
    if line:
        axes.axvline(line, color=LIMIT, linestyle='--', linewidth=1)
    axes.set_xlabel(label)
    axes.set_title(title, loc='left', fontsize=10)
    axes.margins(x=0.15)
    return save(figure, folder, name)


def grouped(groups, numbers):
    """groups: {what stands above: [(text, name, colour)]}; in microseconds."""
    found = []
    for head, rows in groups.items():
        there = [(f'{text}', numbers[name]['p50'] * US[numbers[name]['unit']], colour)
                 for text, name, colour in rows if name in numbers]
        found += [(head, None, None), *there] if there else []
    return found


def one_process(folder, numbers):
    """Uncontended pairs: what was measured under the same conditions stands together."""
    ways = [('Holdfast, file:', 'file', OURS), ('Holdfast, mem:', 'mem', OURS),
            ('compare-and-swap', 'cas', LIMIT), ('pthread mutex', 'mutex', OTHERS),
            ('robust mutex', 'robust mutex', OTHERS), ('flock(2)', 'flock', OTHERS),
            ('OFD lock', 'ofd', OTHERS), ('LMDB put, delete', 'lmdb', OTHERS),
            ('SQLite insert, delete', 'sqlite', OTHERS)]
    groups = {head: [(text, f'{how} {name}', colour) for text, name, colour in ways]
              for head, how in (('a process with one thread', 'single'),
                                ('a process with several threads', 'threads'))}
    groups['Python'] = [('Holdfast, file:', 'python: with', OURS),
                        ('filelock', 'python: filelock', OTHERS),
                        ('threading.Lock', 'python: threading.Lock', OTHERS)]
    groups['Node (processor time)'] = [('Mutex', 'node: alone: Mutex', OURS),
                                       ('KeyedMutex', 'node: alone: KeyedMutex', OURS),
                                       ('async-mutex', 'node: alone: async-mutex', OTHERS)]
    return dots(folder, 'pairs', 'acquire and release, nobody else wants it',
                'microseconds a pair (median)', grouped(groups, numbers))


def on_stores(folder, numbers, what, title):
    """Ours and each peer's, as they were measured in turns on the same server."""
    groups = {}
    for store, peers in STORES.items():
        for peer in peers:
            at = f'{store}: {peer.name}'
            if f'{at} ours {what}' in numbers and f'{at} {what}' in numbers:
                groups[f'{store}, in turns with {peer.name}'] = [
                    ('Holdfast', f'{at} ours {what}', OURS), (peer.name, f'{at} {what}', OTHERS)]
    return dots(folder, 'stores-' + what.split('+', 1)[0], title, 'microseconds (median)',
                grouped(groups, numbers))


def draw(axes, labels, found):
    """found: {text: [(x, y)]}, both axes logarithmic. labels: of x and y. False: there is none."""
    found = {text: [(x, y) for x, y in points if y > 0] for text, points in found.items()}
    found = {text: points for text, points in found.items() if len(points) > 1}
    for n, (text, points) in enumerate(found.items()):
        axes.plot(*zip(*points), marker='osv^DxP*'[n % 8], markersize=4, linewidth=1.2, label=text)
    axes.set_xscale('log')
    axes.set_yscale('log')
    axes.set_xlabel(labels[0])
    axes.set_title(labels[1], loc='left', fontsize=10)
    return bool(found)


# Of a point of bench/sim's.
SIMULATED = [('handover, median, ms', lambda x: x['handover_p50_ms']),
             ('requests a second', lambda x: x['ops_per_s']),
             ('longest wait / median', lambda x: x['wait_max_ms'] / (x['wait_p50_ms'] or 1e9))]
LOCKS = {'told': 'redis:', 'bell': 'postgres:', 'poll': 'mariadb:', 'redis-py': 'redis-py',
         'redlock': 'node-redlock', 'redsync': 'redsync'}
SIM_PLOTS = [('one-key', 'crowd', 'one key, within a data centre'),
             ('one-key-world', 'world', 'one key, from five regions'),
             ('many-keys', 'keys', '10,000 keys, from five regions')]


def simulated(folder, kept):
    """Handover, what the store has to do, fairness, by the number of clients."""
    for name, table, title in SIM_PLOTS:
        found = {}
        for point in kept[table]:
            text = LOCKS[point['how']]
            if table == 'keys':
                text += ', Zipf' if point['zipf'] else ', uniform'
            found.setdefault(text, []).append(point)
        figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.8))
        for axes, (label, value) in zip(panels, SIMULATED):
            draw(axes, ('clients', label), {text: [(x['clients'], value(x)) for x in points]
                                            for text, points in found.items()})
        figure.suptitle(title, x=0.01, ha='left', fontsize=10)
        panels[-1].legend(fontsize=8, frameon=False, loc='center left', bbox_to_anchor=(1, 0.5))
        save(figure, folder, name)
    return 0


def by_clients(folder, numbers, what, title):
    found = {f'{store}:': [(n, numbers[f'{store}: {what} {n}']['p50']) for n in CLIENTS
                           if f'{store}: {what} {n}' in numbers] for store in ('file', *STORES)}
    figure, axes = pyplot.subplots(figsize=(7.5, 4))
    if not draw(axes, ('processes at once', title), found):
        pyplot.close(figure)
        return None
    axes.set_xscale('log', base=2)
    axes.set_xticks(CLIENTS, [str(n) for n in CLIENTS])
    axes.minorticks_off()
    axes.set_ylabel('pairs a second, all together')
    failed = [(n, value, numbers[name]['p50']) for text, points in found.items()
              for n, value in points for name in [f'{text} {what}, failed of {n}']
              if name in numbers and numbers[name]['p50']]
    for n, value, how_many in failed:
        axes.annotate(f'{how_many:.0f} failed', (n, value), xytext=(-8, -14), fontsize=7,
                      textcoords='offset points', ha='right', color='#b00020')
    if failed:
        axes.plot([n for n, *_ in failed], [value for _, value, _ in failed], 'x', markersize=11,
                  color='#b00020', label='some pairs failed')
    axes.legend(fontsize=8, frameon=False, loc='center left', bbox_to_anchor=(1, 0.5))
    return save(figure, folder, 'clients-' + what.split()[0])


def limits(folder, numbers):
    """What a lock costs on a store between the least that can be asked and the disk."""
    groups = {}
    for store in STORES:
        rows = [('a bare request', 'ping', LIMIT), ('a write by its library alone', 'raw', LIMIT),
                ("a write by Holdfast's driver", 'write', LIMIT),
                ('acquire and release', 'acquire+release', OURS)]
        if store not in SILENT:
            rows += [('a release nobody waits for', 'trip', LIMIT), ('handover', 'handover', OURS)]
        rows += [('a write on disk', 'durable raw', OTHERS)]
        groups[store] = [(text, f'{store}: {name}', colour) for text, name, colour in rows]
    return dots(folder, 'limits', 'what stands between a lock and its store',
                'microseconds (median)', grouped(groups, numbers))


MARKS = [('#b8321b', 's'), ('#3b7d4f', '^'), ('#7a5195', 'v'), ('#7a5c00', 'D')]


def one_place(axes, numbers, place):
    """Handovers among more and more, side by side: medians, and lines up to the 99th of a hundred,
    which a dash ends."""
    names = [name for name in contended.PLACES[place]
             if any(f'{place}: {name} among {n}: handover' in numbers for n in contended.AMONG)]
    others = iter(MARKS)
    for at, name in enumerate(names):
        colour, mark = (OURS, 'o') if name == contended.OURS else next(others)
        aside = (at - (len(names) - 1) / 2) * 0.15
        found = [(i + aside, numbers[of]) for i, n in enumerate(contended.AMONG)
                 for of in [f'{place}: {name} among {n}: handover'] if of in numbers]
        axes.plot([x for x, _ in found], [number['p50'] for _, number in found], mark,
                  color=colour, markersize=5, label=name)
        for x, number in found:
            if number['n'] >= ENOUGH['p99']:
                axes.plot([x, x], [number['p50'], number['p99']], color=colour, linewidth=1.2)
                axes.plot([x], [number['p99']], '_', color=colour, markersize=7)
    axes.set_yscale('log')
    axes.set_xticks(range(len(contended.AMONG)), [str(n) for n in contended.AMONG])
    axes.set_xlim(-0.5, len(contended.AMONG) - 0.5)
    axes.grid(axis='y', color='#e4e7eb', linewidth=0.6)
    axes.set_title(place, loc='left', fontsize=9)
    axes.set_xlabel('processes')
    axes.legend(fontsize=7, frameon=False, loc='upper center', bbox_to_anchor=(0.5, -0.22))


def among(folder, numbers):
    places = [place for place in contended.PLACES
              if any(name.startswith(f'{place}: {contended.OURS} among') for name in numbers)]
    if not places:
        return None
    columns = min(4, len(places))
    rows = -(-len(places) // columns)
    figure, all_axes = pyplot.subplots(rows, columns, squeeze=False, sharey=True,
                                       figsize=(max(7.5, 2.8 * columns), 0.6 + 3.4 * rows))
    for axes, place in zip(all_axes.flat, places):
        one_place(axes, numbers, place)
    for axes in list(all_axes.flat)[len(places):]:
        axes.set_axis_off()
    for axes in all_axes[:, 0]:
        axes.set_ylabel('microseconds')
    figure.suptitle("from one's giving up to the next one's having it: median, and up to p99 "
                    f'(where there are {ENOUGH["p99"]} at least)', fontsize=10, x=0.01, ha='left')
    return save(figure, folder, 'contended')


def fairness(folder, numbers):
    found = [(f'{place}: {who}', longest, OURS if who == contended.OURS else OTHERS)
             for place, names in contended.PLACES.items() for who in names
             for longest in [contended.fairness(numbers, f'{place}: {who} among 64: ')]
             if longest is not None]
    return dots(folder, 'fairness', 'among 64 that want it all the time: the longest wait',
                'longest wait / median of all waits', found)


def died(folder, numbers):
    """What ends the hold of the dead stands beside each: a lease, or the end of a process or of a
    connection."""
    found = []
    for place, names in contended.PLACES.items():
        for who, how in names.items():
            name = f'{place}: {who}: died'
            if name in numbers:
                by = f'lease of {how.lease_ms / 1000:.0f} s' if how.lease_ms else 'no lease'
                found.append((f'{place}: {who} ({by})', numbers[name]['p50'],
                              OURS if who == contended.OURS else OTHERS))
    return dots(folder, 'died', 'from a holder\'s SIGKILL to the next one\'s having it',
                'milliseconds (median)', found)


def targets(folder, table):
    found = []
    for row in table.rows:
        if row.target:
            part = (row.value if row.ratio is None else row.ratio) / row.target
            text = row.work + (f' / {row.peer}' if row.peer else '')
            found.append((text, max(part, LEAST), OURS))
    return dots(folder, 'targets', 'measured, as a part of the target', 'measured / target', found,
                line=1)


def plots(folder, numbers, table):
    drawn = [one_process(folder, numbers),
             on_stores(folder, numbers, 'acquire+release',
                       'acquire and release on a server, nobody else wants it'),
             on_stores(folder, numbers, 'handover', 'from one process to the next on a server'),
             limits(folder, numbers),
             by_clients(folder, numbers, 'own keys', 'all at once, each on a key of its own'),
             by_clients(folder, numbers, 'one key', 'all at once, on one key'),
             among(folder, numbers), fairness(folder, numbers), died(folder, numbers),
             targets(folder, table)]
    return [name for name in drawn if name]


def text_of(row):
    peer = f'{row.peer} {amount(row.peer_value, row.peer_unit)}' if row.peer else ''
    ratio = '' if row.ratio is None else times(row.ratio)
    target = '' if row.target is None else f'≤ {row.target}{" x" if ratio else ""}'
    verdict = {None: '', True: 'reached', False: '**missed**'}[reached(row)]
    return [row.work, amount(row.value, row.unit), peer, ratio, target, verdict]


def write(path, lines):
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines) + '\n')


def many(heads, rows):
    """A table of locks that many processes want."""
    return ['', *('| ' + ' | '.join(row) + ' |'
                  for row in (heads, ['---'] + ['--:'] * (len(heads) - 1), *rows))] if rows else []


# What a reader of this page alone has to know of it.
NOTES = [
    'In the plots ours are blue dots, others grey squares, limits orange ones; dashed is the '
    'target, and 0 stands at the left edge. A lock that served half of 64 less than '
    f'{contended.SERVED} times isn\'t in `fairness`: there is hardly a median.', '',
    'A ratio is the median of the rounds\' ratios where both were measured in rounds, in turns; of '
    'the medians elsewhere (many processes at once, 100,000 in line). What it is beside: '
    '*its driver\'s write* replaces such a row once, by Holdfast\'s driver on a connection of its '
    'own; *its library alone* does the same conditional write by the store\'s own library; *a '
    'release nobody waits for* is one of another key by the same handle, just before. Beside a '
    'peer stands what ours took in turns with it, on the same server.', '',
    '`mongodb` is mongo-java-server, a stand-in, and `firestore` an emulator, both in memory. No '
    'server waits for its disk, but for what is *on disk* and for events.']


def provenance(parts):
    """Which commits it was measured at, and which parts at which; those before that was noted have
    none."""
    by = {}
    for name, part in sorted(parts.items()):
        by.setdefault(part.get('commit') or 'not noted', []).append(name)
    if len(by) == 1:
        return f'Commit: {next(iter(by))}.'
    return 'Commits: ' + '; '.join(f'{commit} ({", ".join(names)})'
                                   for commit, names in sorted(by.items())) + '.'


def tab_separated(numbers, table):
    """One figure a line, with more of its quantiles where there are enough for them."""
    fields = 'work value unit peer peer_value peer_unit ratio target n p90 p99 p999'.split()
    lines = []
    for row in table.rows:
        number = numbers[row.name]
        more = {what: number.get(what) for what in ('p90', 'p99', 'p999')
                if number['n'] >= ENOUGH[what]}
        lines.append({**row._asdict(), **more, 'n': number['n']})
    lines += [dict(zip(fields, line)) for line in contended.lines(numbers)]
    return ['\t'.join(fields)] + ['\t'.join(
        '' if line.get(field) is None else f'{line[field]:.6g}' if isinstance(line[field], float)
        else str(line[field]) for field in fields) for line in lines]


def report(path, folder):
    kept = read(path)
    if isinstance(kept, dict) and 'parts' not in kept and {t for _, t, _ in SIM_PLOTS} <= set(kept):
        os.makedirs(folder, exist_ok=True)
        return simulated(folder, kept)
    if not is_kept(kept) or not kept['parts']:
        raise Bad(f'{path}: not what bench/run writes')
    numbers = numbers_of(kept)
    table = figures(numbers, contended.figures)
    os.makedirs(folder, exist_ok=True)
    drawn = plots(folder, numbers, table)
    days = sorted({part['when'] for part in kept['parts'].values()})
    smoke = 'A --smoke run: the numbers say nothing. ' if kept.get('smoke') else ''
    write(os.path.join(folder, 'README.md'), [
        f'# Holdfast {kept["release"]}, measured', '',
        f'{smoke}On {kept["cpu"]}, {kept["processors"]} processors, '
        f'{" to ".join({days[0]: 1, days[-1]: 1})}. {provenance(kept["parts"])} {goals(table)}. '
        'Made by `bench/report`; the numbers are in results.json, the figures in figures.tsv too.',
        '', *NOTES, '',
        *(f'![{name}]({name}.svg)' for name in drawn), '',
        '| work | measured | beside it | ratio | target | |', '|---|--:|---|--:|--:|---|',
        *('| ' + ' | '.join(text_of(row)) + ' |' for row in table.rows),
        *many(contended.HEADS, contended.table(numbers)),
        *many(contended.WAIT_HEADS, contended.waits(numbers))])
    write(os.path.join(folder, 'figures.tsv'), tab_separated(numbers, table))
    return 0


def main():
    if len(sys.argv) not in (2, 3):
        print('report: usage: bench/report FILE.json [OUT]', file=sys.stderr)
        return 64
    path = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(path))
    try:
        return report(path, folder)
    except Bad as error:
        print(f'report: {error}', file=sys.stderr)
        return error.status
    except OSError as error:
        print(f'report: {error.filename or folder}: {error.strerror}', file=sys.stderr)
        return 73
    except (KeyError, TypeError, ValueError) as error:
        print(f'report: {path}: not such numbers: {type(error).__name__} {error}', file=sys.stderr)
        return 65


if __name__ == '__main__':
    sys.exit(main())
