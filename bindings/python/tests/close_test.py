"""A store is closed soon although it doesn't answer, and an event is being marked as done.

Another process keeps the database of a `sqlite:` store locked.
"""
import subprocess
import sys
import tempfile
import threading
import time

import holdfast
from tap import PATIENCE, run_functions

LOCKER = '''
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
'''
SOON = 20    # a mark is tried for a minute


def a_mark_under_way_holds_up_no_close():
    with tempfile.TemporaryDirectory() as folder:
        store = holdfast.open(f'sqlite:{folder}/locks.db', io_timeout=1)
        runs, marks, ended = threading.Event(), threading.Event(), []

        def run():
            try:
                with store.once('event', lease=300):
                    runs.set()
                    marks.wait(PATIENCE)
            except holdfast.HoldfastError as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert runs.wait(PATIENCE)
        with subprocess.Popen([sys.executable, '-c', LOCKER, f'{folder}/locks.db'],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locker:
            locker.stdout.readline()
            asked = store.stats()['store_ops']
            marks.set()
            while store.stats()['store_ops'] == asked:
                time.sleep(0.01)
            began = time.monotonic()
            store.close()
            took = time.monotonic() - began
            locker.stdin.close()
        thread.join(PATIENCE)
        assert took < SOON, took
        assert len(ended) == 1, ended


if __name__ == '__main__':
    sys.exit(run_functions(globals(), sys.argv[1:]))
