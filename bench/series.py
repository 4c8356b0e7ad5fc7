"""What peers that are written in Python measure and print: as bench.c does."""
import json
import time


def show(name, values, unit='us'):
    values = sorted(values)
    n = len(values)

    def quantile(q):
        return float(f'{values[int(q * (n - 1) + 0.5)]:.9g}')
    print(json.dumps({'name': name, 'unit': unit, 'n': n, 'min': quantile(0), 'p50': quantile(.5),
                      'p90': quantile(.9), 'p99': quantile(.99), 'p999': quantile(.999),
                      'max': quantile(1)}), flush=True)


def ratio(name, ours, theirs):
    """Round by round."""
    show(name, [a / b for a, b in zip(ours, theirs, strict=True)], 'x')


def per_round(once, ms):
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < ms / 1000:
        once()
        n += 1
    return (time.perf_counter() - start) / n * 1e6


def in_turns(pair, write, rounds, ms, warm_ms):
    """Warms up, measures and prints a peer's pairs beside its bare writes."""
    pairs, writes = [], []
    for once in pair, write:
        if warm_ms:
            per_round(once, warm_ms)
    for _ in range(rounds):
        pairs.append(per_round(pair, ms))
        writes.append(per_round(write, ms))
    ratio('acquire+release / raw', pairs, writes)
    show('acquire+release', pairs)
    show('raw', writes)
