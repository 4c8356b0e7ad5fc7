#!/usr/bin/env python3
"""What bench/report makes of kept results: the table, the figures, the plots; always the same."""
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..'))
from points import end, point  # noqa: E402

REPORT = os.path.join(HERE, '..', '..', 'bench', 'report')
SAMPLE = os.path.join(HERE, 'bench_sample.json')
ROWS = ['| file: acquire+release | 50 ns | flock(2) 1000 ns | 0.05 x | ≤ 0.12 x | reached |',
        '| file: holder killed to next, p99 | 30 ms |  |  | ≤ 20 | **missed** |',
        '| redis: acquire+release | 90 us | its library alone 45 us | 2.00 x | ≤ 2.2 x | reached |',
        '| redis: handover between processes | 150 us | a release nobody waits for 50 us | 3.00 x '
        '| ≤ 4 x | reached |',
        '| etcd: acquire+release | 200 us | its library alone 80 us | 2.25 x |  |  |',
        "| etcd: acquire+release | 200 us | its driver's write 100 us | 2.00 x | ≤ 2.2 x "
        '| reached |',
        "| etcd: acquire+release, a new key | 300 us | its driver's write 100 us | 3.00 x "
        '| ≤ 3.3 x | reached |',
        '| etcd: a write of Holdfast | 100 us | its library alone 80 us | 1.25 x |  |  |',
        '| etcd: a write by its library alone | 80 us | a bare request 40 us | 2.00 x |  |  |',
        '| etcd: acquire+release, on disk | 900 us | a write on disk 400 us | 2.25 x |  |  |',
        '| etcd: an event begun and marked | 1600 us | a write on disk 400 us | 4.00 x |  |  |',
        '| redis: one process, pairs a second | 8000 /s |  |  |  |  |',
        '| redis: 64 processes, own keys, pairs a second | 12000 /s | one process 8000 /s '
        '| 1.50 x |  |  |',
        '| redis: 64 processes, one key, pairs a second | 400 /s | one process 8000 /s '
        '| 0.05 x |  |  |',
        '| redis: 64 processes, one key, failed pairs | 3 |  |  |  |  |',
        '| redis: 64 processes, one key, requests a pair | 40 |  |  |  |  |',
        '| redis: 10,000 waits, requests a second | 0.25 |  |  |  |  |',
        '| redis: 10,000 waits, CPU a second | 0.50 ms |  |  |  |  |',
        '| redis: 10,000 waits, threads | 2 |  |  |  |  |',
        '| redis: 10,000 waits, connections | 3 |  |  |  |  |',
        '| redis: 10,000 waits, bytes for each | 1049 B |  |  |  |  |',
        '| file: an event begun and marked | 300 us | a write on disk 100 us | 2.90 x |  |  |',
        '| etcd: acquire+release | 200 us | etcdctl lock 16000 us | 0.02 x |  |  |',
        '| etcd: handover between processes | 300 us | etcdctl lock 3000 us | 0.10 x |  |  |',
        '| etcd: etcdctl lock, acquire+release | 16000 us | etcdctl put, a process 15000 us '
        '| 1.07 x |  |  |',
        '| redis: handover among 8 | 250 us | redis-py 50000 us | 0.005 x |  |  |',
        '| redis: holder killed to next, with a lease of 1 s | 800 ms |  |  |  |  |',
        '| redis: holder killed to next, with a lease of 1 s | 800 ms | redis-py 1000 ms | 0.80 x '
        '|  |  |',
        '| redis: Holdfast among 8, holds a second | 1234 /s |  |  |  |  |',
        '| redis: Holdfast | 8 | 250 us | 400 us | 12.3 ms | 3000 | 1234 | 1 % | 5 ms | 3.50 x |',
        '| redis: redis-py | 8 | 50 ms | - | - | 150 | 1234 | 1 % | 5 ms | - |']
LINES = ['redis: acquire+release\t90\tus\tits library alone\t45\tus\t2\t2.2\t3\t\t\t',
         'redis: Holdfast among 8, holds a second\t1234\t/s\t\t\t\t\t\t1\t\t\t',
         'redis: handover among 8\t250\tus\tredis-py\t50000\tus\t0.005\t\t3000\t1\t400\t12345',
         'redis: Holdfast among 8, longest wait in medians\t3.5\tx\t\t\t\t\t\t\t\t\t']
PLOTS = ['clients-one', 'clients-own', 'contended', 'died', 'fairness', 'limits', 'pairs',
         'stores-acquire', 'stores-handover', 'targets']


def marks_in(svg):
    """Where each mark stands, to the pixel or so."""
    used = xml.dom.minidom.parseString(svg).getElementsByTagName('use')
    return [(round(float(mark.getAttribute('x') or 0)), round(float(mark.getAttribute('y') or 0)))
            for mark in used]


SIMULATED = os.path.join(HERE, '..', '..', 'bench', 'results', 'sim')
SIM_PLOTS = ['many-keys', 'one-key', 'one-key-world']


def report(folder, numbers=SAMPLE):
    done = subprocess.run([REPORT, numbers, folder],
                          capture_output=True, text=True, check=False)
    print(''.join(f'# {line}\n' for line in done.stderr.splitlines()), end='')
    point(done.returncode == 0, 'it makes a report')
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), 'rb') as file:
            found[name] = file.read()
    return found


def text_in(svg):
    texts = xml.dom.minidom.parseString(svg).getElementsByTagName('text')
    return [''.join(node.data for node in text.childNodes if node.nodeType == node.TEXT_NODE)
            for text in texts]


def simulated():
    """The plots of the simulation that are kept are those of the numbers that are."""
    with tempfile.TemporaryDirectory() as folder:
        found = report(folder, os.path.join(SIMULATED, 'numbers.json'))
    point(set(found) == {f'{p}.{k}' for p in SIM_PLOTS for k in ('svg', 'png')},
          f'nothing but {SIM_PLOTS}')
    for name in SIM_PLOTS:
        with open(os.path.join(SIMULATED, f'{name}.svg'), 'rb') as file:
            kept = file.read()
        # Another processor may round the last digit of a coordinate.
        point(text_in(found[f'{name}.svg']) == text_in(kept) and
              marks_in(found[f'{name}.svg']) == marks_in(kept), f'{name}.svg is kept as it is made')
        point({'handover, median, ms', 'requests a second', 'longest wait / median'} <=
              set(text_in(kept)), f'{name}.svg shows handover, requests, fairness')
    with open(os.path.join(HERE, '..', '..', 'doc', 'sizing.md'), encoding='utf-8') as file:
        page = file.read()
    point(all(f'(../bench/results/sim/{name}.svg)' in page for name in SIM_PLOTS),
          'doc/sizing.md shows them')


def refuses():
    """By one line."""
    with tempfile.TemporaryDirectory() as folder:
        bad = os.path.join(folder, 'bad.json')
        for words, status, text in (((), 64, None), ((SAMPLE, folder, folder), 64, None),
                                    ((bad,), 66, None), ((bad, folder), 65, '{"parts": '),
                                    ((bad, folder), 65, '{"a":1}'), ((bad, folder), 65, '[1]'),
                                    ((SAMPLE, '/proc/none'), 73, None),
                                    ((SAMPLE, '/dev/null'), 73, None)):
            if text:
                with open(bad, 'w', encoding='utf-8') as file:
                    file.write(text)
            done = subprocess.run([REPORT, *words], capture_output=True, text=True, check=False)
            point(done.returncode == status and done.stderr.startswith('report: ') and
                  len(done.stderr.splitlines()) == 1, f'refused: {words[1:]} {text}', done.stderr)
    done = subprocess.run([REPORT, '--help'], capture_output=True, text=True, check=False)
    point(done.returncode == 0 and 'FILE.json [OUT]' in done.stdout, 'help')


def main():
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        found = report(one)
        again = report(other)
    names = {'README.md', 'figures.tsv'} | {f'{p}.{k}' for p in PLOTS for k in ('svg', 'png')}
    point(set(found) == names, f'nothing but {sorted(names)}')
    table = found['README.md'].decode().splitlines()
    for row in ROWS:
        point(row in table, row)
    page = found['README.md'].decode()
    point('5 of 53 targets reached; not measured: mem: acquire+release (threads) beside mutex; '
          in page, 'how many targets were reached, and which were not measured')
    point('Commits: abc1234 (killed); not noted (contend-redis, disk, etcd, pairs, redis).'
          in page and 'mongo-java-server' in page, 'what it was measured at, and on')
    point('On A Processor, 2 processors, 2026-01-02 to 2026-01-03.' in
          found['README.md'].decode(), 'the processor and the days')
    lines = found['figures.tsv'].decode().splitlines()
    for line in LINES:
        point(line in lines, f'the figures, one a line: {line}')
    point(not any('redis-py among 8, longest wait in medians' in line for line in lines),
          'fairness says nothing where half of them were hardly served')
    for name in PLOTS:
        point(found[f'{name}.png'].startswith(b'\x89PNG\r\n\x1a\n'), f'{name}.png is one')
    point('etcd, in turns with etcdctl lock' in text_in(found['stores-acquire.svg']) and
          'a write on disk' in text_in(found['limits.svg']) and
          'redis:' in text_in(found['clients-own.svg']) and
          'redis-py' in text_in(found['contended.svg']) and
          'redis: redis-py (lease of 1 s)' in text_in(found['died.svg']) and
          'redis: redis-py' not in text_in(found['fairness.svg']) and
          {'1', '2', '8', '64', '3 failed'} <= set(text_in(found['clients-one.svg'])) and
          'a process with one thread' in text_in(found['pairs.svg']), 'plots whose words are text')
    point(found == again, 'the same results make the same files')
    simulated()
    refuses()
    return end()


if __name__ == '__main__':
    sys.exit(main())
