"""What processes cost that wait for a key, and get none. Used by bench/contend/measure."""
import os
import time


def of_threads(pid, name):
    """The sum of a number of all threads, by its name in their status."""
    total = 0
    for thread in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{thread}/status', encoding='utf-8') as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith(name + ':'))
    return total


def cpu_ms(pid):
    with open(f'/proc/{pid}/stat', encoding='utf-8') as file:
        fields = file.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf('SC_CLK_TCK')


def memory_kb(pid):
    """A page that several have counts for each by its share."""
    with open(f'/proc/{pid}/smaps_rollup', encoding='utf-8') as file:
        return sum(int(line.split()[1]) for line in file if line.startswith('Pss:'))


def sockets(pid):
    """Connections, and pairs by which threads wake each other."""
    folder = f'/proc/{pid}/fd'
    n = 0
    for fd in os.listdir(folder):
        try:
            n += os.readlink(os.path.join(folder, fd)).startswith('socket:')
        except FileNotFoundError:
            pass    # closed meanwhile
    return n


def family(pid):
    """The process, and those that it has started: the waiter may be a child."""
    found = [pid]
    for each in found:
        for thread in os.listdir(f'/proc/{each}/task'):
            with open(f'/proc/{each}/task/{thread}/children', encoding='utf-8') as file:
                found += map(int, file.read().split())
    return found


def cost(waiters, seconds):
    """{what: (unit, the mean of a waiter)}, over so many seconds."""
    pids = [each for pid in waiters for each in family(pid)]

    def so_far():
        return {'CPU': sum(map(cpu_ms, pids)),
                'wakeups': sum(of_threads(pid, 'voluntary_ctxt_switches') for pid in pids)}
    before, start = so_far(), time.monotonic()
    time.sleep(seconds)
    after, took = so_far(), time.monotonic() - start
    n = len(waiters)
    return {'CPU a second': ('ms', (after['CPU'] - before['CPU']) / took / n),
            'wakeups a second': ('/s', (after['wakeups'] - before['wakeups']) / took / n),
            'threads': ('', sum(len(os.listdir(f'/proc/{pid}/task')) for pid in pids) / n),
            'sockets': ('', sum(map(sockets, pids)) / n),
            'memory': ('MB', sum(map(memory_kb, pids)) / 1024 / n)}
