"""What peers that are written in Python print: as bench.c does."""
import json


def show(name, values):
    values.sort()
    n = len(values)

    def quantile(q):
        return round(values[int(q * (n - 1) + 0.5)], 3)
    print(json.dumps({'name': name, 'unit': 'us', 'n': n, 'min': quantile(0), 'p50': quantile(.5),
                      'p90': quantile(.9), 'p99': quantile(.99), 'max': quantile(1)}))
