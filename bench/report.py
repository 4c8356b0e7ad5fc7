"""bench/report: the table and the plots of kept results; or the plots of bench/sim's numbers."""
import json
import os
import sys

import matplotlib
matplotlib.use('Agg')
from matplotlib import pyplot    # noqa: E402  (the backend comes first)

import contended    # noqa: E402
from figures import CLIENTS, SILENT, STORES, amount, figures, reached    # noqa: E402

OURS, OTHERS, LIMIT = '#1b6ca8', '#9aa5b1', '#d08c2e'
LEAST = 1e-3    # what a logarithmic axis shows for nothing
matplotlib.rcParams.update({'svg.hashsalt': 'holdfast', 'svg.fonttype': 'none', 'font.size': 9,
                            'axes.spines.top': False, 'axes.spines.right': False})


def save(figure, folder, name):
    figure.tight_layout()
    for kind, metadata in ('svg', {'Date': None}), ('png', {'Software': None}):
        figure.savefig(os.path.join(folder, f'{name}.{kind}'), dpi=120, metadata=metadata)
    pyplot.close(figure)
    return name


def bars(folder, name, title, label, found, line=None):
    """found: (text, value, colour), from top to bottom. None where there is nothing to show."""
    if not found:
        return None
    figure, axes = pyplot.subplots(figsize=(7.5, 0.9 + 0.27 * len(found)))
    places = range(len(found), 0, -1)
    axes.barh(places, [value for _, value, _ in found], color=[colour for *_, colour in found],
              height=0.7)
    axes.set_xscale('log')
    axes.set_yticks(list(places), [text for text, _, _ in found])
    for place, (_, value, _) in zip(places, found):
        text = f'{value:,.0f}' if value >= 100 else f'{value:.3g}' if value > LEAST else '0'
        axes.annotate(' ' + text, (value, place), va='center', fontsize=8)
    axes.set_ylim(0.2, len(found) + 0.8)
    if line:
        axes.axvline(line, color=LIMIT, linestyle='--', linewidth=1)
    axes.set_xlabel(label)
    axes.set_title(title, loc='left', fontsize=10)
    axes.margins(x=0.12)
    return save(figure, folder, name)


def one_process(folder, numbers):
    """Uncontended pairs."""
    shown = [('a compare-and-swap', 'threads cas', LIMIT),
             ('pthread mutex', 'threads mutex', OTHERS),
             ('robust mutex', 'threads robust mutex', OTHERS),
             ('Holdfast, mem:', 'threads mem', OURS),
             ('Holdfast, file:', 'single file', OURS), ('flock(2)', 'single flock', OTHERS),
             ('OFD lock', 'single ofd', OTHERS), ('LMDB put, delete', 'single lmdb', OTHERS),
             ('SQLite insert, delete', 'single sqlite', OTHERS),
             ('Holdfast, Python, file:', 'python: with', OURS),
             ('filelock (Python)', 'python: filelock', OTHERS),
             ('Holdfast, Node, Mutex', 'node: alone: Mutex', OURS),
             ('async-mutex (Node)', 'node: alone: async-mutex', OTHERS)]
    scale = {'ns': 1, 'us': 1000, 'µs': 1000, 'ms': 1e6}
    return bars(folder, 'pairs', 'acquire and release, nobody else wants it',
                'nanoseconds (median)',
                [(text, numbers[name]['p50'] * scale[numbers[name]['unit']], colour)
                 for text, name, colour in shown if name in numbers])


def on_stores(folder, numbers, what, title, base_of):
    found = []
    for store, peers in STORES.items():
        for who, prefix in [('Holdfast', ''), *((peer, peer + ' ') for peer, _, _ in peers)]:
            name, base = f'{store}: {prefix}{what}', base_of(store, prefix)
            if name in numbers and base in numbers and (what != 'handover' or store not in SILENT):
                found.append((f'{store}: {who}', numbers[name]['p50'] / numbers[base]['p50'],
                              OTHERS if prefix else OURS))
    return bars(folder, 'stores-' + what.split('+', 1)[0], title,
                'round trips of a bare write beside it (medians)', found)


def draw(axes, labels, found):
    """found: {text: [(x, y)]}, both axes logarithmic. labels: of x and y. False: there is none."""
    found = {text: [(x, y) for x, y in points if y > 0] for text, points in found.items()}
    found = {text: points for text, points in found.items() if len(points) > 1}
    for n, (text, points) in enumerate(found.items()):
        axes.plot(*zip(*points), marker='osv^Dx'[n % 6], markersize=4, linewidth=1.2, label=text)
    axes.set_xscale('log')
    axes.set_yscale('log')
    axes.set_xlabel(labels[0])
    axes.set_title(labels[1], loc='left', fontsize=10)
    return bool(found)


def lines(folder, name, labels, found):
    figure, axes = pyplot.subplots(figsize=(7.5, 4))
    if not draw(axes, labels, found):
        pyplot.close(figure)
        return None
    axes.legend(fontsize=8, frameon=False, loc='center left', bbox_to_anchor=(1, 0.5))
    return save(figure, folder, name)


# Of a point of bench/sim's.
SIMULATED = [('handover, median, ms', lambda x: x['handover_p50_ms']),
             ('requests a second', lambda x: x['ops_per_s']),
             ('longest wait / median', lambda x: x['wait_max_ms'] / (x['wait_p50_ms'] or 1e9))]
LOCKS = {'told': 'redis:', 'bell': 'postgres:', 'poll': 'sqlite:', 'redis-py': 'redis-py',
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
    return lines(folder, 'clients-' + what.split()[0],
                 ('processes', f'pairs a second, {title}'), found)


def limits(folder, numbers):
    """What a lock costs on a store between the least that can be asked and the disk."""
    found = []
    for store in STORES:
        for text, name, colour in (('a bare request', 'ping', LIMIT),
                                   ('a write by its library', 'raw', LIMIT),
                                   ('acquire and release', 'acquire+release', OURS),
                                   ('handover', 'handover', OURS),
                                   ('a write on disk', 'durable raw', OTHERS)):
            name = f'{store}: {name}'
            if name in numbers and (text != 'handover' or store not in SILENT):
                found.append((f'{store}: {text}', numbers[name]['p50'], colour))
    return bars(folder, 'limits', 'what stands between a lock and its store',
                'microseconds (median)', found)


def one_place(axes, numbers, place):
    """Handovers among more and more: medians, and lines up to the 99th of a hundred."""
    greys = iter([('#52606d', 's'), ('#9aa5b1', '^'), ('#cbd2d9', 'v'), ('#d08c2e', 'D')])
    for name in contended.PLACES[place]:
        colour, mark = (OURS, 'o') if name == contended.OURS else next(greys)
        found = [(n, numbers[of]) for n in contended.AMONG
                 for of in [f'{place}: {name} among {n}: handover'] if of in numbers]
        if not found:
            continue
        above = [max(0, number['p99'] - number['p50'])
                 if number['n'] >= contended.ENOUGH['p99'] else 0 for _, number in found]
        axes.errorbar([n for n, _ in found], [number['p50'] for _, number in found],
                      [[0] * len(found), above], color=colour, marker=mark, markersize=4,
                      linewidth=1, capsize=2, label=name)
    axes.set_xscale('log', base=2)
    axes.set_yscale('log')
    axes.set_xticks(contended.AMONG, [str(n) for n in contended.AMONG])
    axes.set_title(place, loc='left', fontsize=9)
    axes.legend(fontsize=6, frameon=False)


def among(folder, numbers):
    places = [place for place in contended.PLACES
              if any(name.startswith(f'{place}: {contended.OURS} among') for name in numbers)]
    if not places:
        return None
    columns = min(4, len(places))
    rows = -(-len(places) // columns)
    figure, all_axes = pyplot.subplots(rows, columns, squeeze=False, sharey=True,
                                       figsize=(max(7.5, 2.5 * columns), 0.6 + 2.4 * rows))
    for axes, place in zip(all_axes.flat, places):
        one_place(axes, numbers, place)
    for axes in list(all_axes.flat)[len(places):]:
        axes.set_axis_off()
    figure.suptitle('from one\'s giving up to the next one\'s having it, among 2, 8 and 64 '
                    '(microseconds; median, and up to p99)', fontsize=10, x=0.01, ha='left')
    return save(figure, folder, 'contended')


def of_all(folder, numbers, name, title, label, of, quantile):
    """The same number of each who takes part."""
    return bars(folder, name, title, label,
                [(f'{place}: {who}', max(numbers[found][quantile], LEAST),
                  OURS if who == contended.OURS else OTHERS)
                 for place, names in contended.PLACES.items() for who in names
                 for found in [f'{place}: {who}{of}'] if found in numbers])


def plots(folder, numbers, rows):
    def bare(store, prefix):
        raw = f'{store}: {prefix}raw'
        return raw if prefix or raw in numbers else f'{store}: write'

    def trip(store, prefix):
        return f'{store}: {prefix}raw' if prefix else f'{store}: trip'
    goals = [(row.work, (row.value if row.ratio is None else row.ratio) / row.target, OURS)
             for row in rows if row.target]
    drawn = [one_process(folder, numbers),
             on_stores(folder, numbers, 'acquire+release', 'acquire and release on a server', bare),
             on_stores(folder, numbers, 'handover', 'from one process to the next', trip),
             limits(folder, numbers),
             by_clients(folder, numbers, 'own keys', 'all at once, each on a key of its own'),
             by_clients(folder, numbers, 'one key', 'all at once, on one key'),
             among(folder, numbers),
             of_all(folder, numbers, 'fairness', 'among 64 who want it all the time',
                    'longest wait (medians of all waits)', ' among 64: longest', 'max'),
             of_all(folder, numbers, 'died', 'from a holder\'s SIGKILL to the next (leases of 1 s)',
                    'milliseconds (median)', ': died', 'p50'),
             bars(folder, 'targets', 'measured, as a part of the target', 'target = 1',
                  [(text, max(part, LEAST), colour) for text, part, colour in goals], line=1)]
    return [name for name in drawn if name]


def text_of(row):
    peer = f'{row.peer} {amount(row.peer_value, row.peer_unit)}' if row.peer else ''
    ratio = '' if row.ratio is None else f'{row.ratio:.2f} x'
    target = '' if row.target is None else f'≤ {row.target}{" x" if ratio else ""}'
    verdict = {None: '', True: 'reached', False: '**missed**'}[reached(row)]
    return [row.work, amount(row.value, row.unit), peer, ratio, target, verdict]


def write(path, lines):
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines) + '\n')


def many(numbers):
    """The table of those who want one key."""
    rows = contended.table(numbers)
    return ['', *('| ' + ' | '.join(row) + ' |'
                  for row in (contended.HEADS, ['---'] + ['--:'] * (len(contended.HEADS) - 1),
                              *rows))] if rows else []


def main():
    path = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(path))
    with open(path, encoding='utf-8') as file:
        kept = json.load(file)
    if 'parts' not in kept:
        return simulated(folder, kept)
    numbers = {name: number for part in kept['parts'].values()
               for name, number in part['numbers'].items()}
    rows = figures(numbers, contended.figures)
    os.makedirs(folder, exist_ok=True)
    drawn = plots(folder, numbers, rows)
    days = sorted({part['when'] for part in kept['parts'].values()})
    goals = [reached(row) for row in rows if row.target is not None]
    write(os.path.join(folder, 'README.md'), [
        f'# Holdfast {kept["release"]}, measured', '',
        f'On {kept["cpu"]}, {kept["processors"]} processors, '
        f'{" to ".join({days[0]: 1, days[-1]: 1})}. {sum(goals)} of {len(goals)} targets reached. '
        'Made by `bench/report`; the numbers are in results.json, the figures in figures.tsv too.',
        '',
        *(f'![{name}]({name}.svg)' for name in drawn), '',
        '| work | measured | beside it | ratio | target | |', '|---|--:|---|--:|--:|---|',
        *('| ' + ' | '.join(text_of(row)) + ' |' for row in rows), *many(numbers)])
    write(os.path.join(folder, 'figures.tsv'), ['\t'.join(rows[0]._fields if rows else [])] + [
        '\t'.join('' if field is None else f'{field:.6g}' if isinstance(field, float) else
                  str(field) for field in row) for row in rows])
    return 0


if __name__ == '__main__':
    sys.exit(main())
