"""Forks: a store opened before one, in the child and in the parent.

    fork_test.py URL [NAME]
"""
import asyncio
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback

import holdfast
from own import MORE, PRIVATE, URL, free, key
from tap import PATIENCE, run_functions, until


def _in_a_child(function):
    """Its status: 0 if it returned."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def after_a_fork_only_locks_are_dead():
    def child():
        nonlocal held, block, watch, store, waits
        for what in held.confirm, held.renew, held.release, block.__exit__:
            try:
                what()
                raise AssertionError(what)
            except holdfast.LockLost:
                pass
        assert not held.held
        for _ in range(3):      # the store opens itself anew
            with store.lock(name + '/child', wait=0) as mine:
                mine.confirm()
                assert not free(mine.key)
        if not PRIVATE:
            assert store.peek(name).holders
            try:
                store.acquire(name, wait=0.02).release()
                raise AssertionError('two hold it')
            except holdfast.LockUnavailable:
                pass
        elif store.acquire(name, wait=0).release():     # another process's memory
            raise AssertionError('not released')

        async def main():
            async with store.lock(name + '/async', wait=5):
                await asyncio.sleep(0)
            await asyncio.gather(*[one(store) for _ in range(5)])

        async def one(store):
            async with store.lock(name + '/many'):
                await asyncio.sleep(0)

        asyncio.run(main())
        told = threading.Event()
        with store.lock(name + '/lost', lease=10) as lost:    # as s3: needs
            lost.on_lost(lambda lock: told.set())
            store.break_(lost.key, lost.token)
            assert told.wait(60)
            lost.__exit__(RuntimeError, None, None)
        assert not _in_a_child(lambda: store.acquire(name + '/deep', wait=0).release())
        watch.close()
        held = block = watch = waits = None
        gc.collect()
        store.close()
        store = None
        gc.collect()

    with holdfast.open(URL) as store, holdfast.open(URL) as other:
        name = key()
        held = store.acquire(name)
        block = store.lock(name + '/block')
        block.__enter__()
        # A pending wait, a watch and threads, which aren't there in the child.
        watch, got = store.watch(), []
        theirs = other.acquire(name + '/waited')
        waits = threading.Thread(target=lambda: got.append(store.acquire(theirs.key)))
        waits.start()
        until(lambda: other.peek(theirs.key).waiters, 'nobody waits')
        for _ in range(3):
            assert not _in_a_child(child)
        watch.close()
        held.confirm()
        assert not free(name)
        held.release()
        block.__exit__(None, None, None)
        theirs.release()
        waits.join(PATIENCE)
        got[0].release()
        assert free(theirs.key)


def a_child_of_busy_threads_works():
    """Whatever its parent's other threads were doing at that moment."""
    over = []

    def busy(n):
        while not over:
            with store.lock(f'{name}/{n}'):
                pass

    with holdfast.open(URL) as store:
        name = key()
        threads = [threading.Thread(target=busy, args=(n % 2,)) for n in range(4)]
        for one in threads:
            one.start()
        try:
            for n in range(10):
                assert not _in_a_child(lambda n=n: (
                    signal.alarm(60), store.acquire(f'{name}/child/{n}', wait=30).release()))
        finally:
            over.append(1)
            for one in threads:
                one.join()


STORE = None


def _module_level(name, file):
    """What a module-level @store.locked does in a worker."""
    @STORE.locked(name)
    def add():
        with open(file, 'r+', encoding='utf-8') as at:
            n = int(at.read())
            at.seek(0)
            at.write(str(n + 1))

    for _ in range(10):
        add()


def _keeping(name):
    global kept
    kept = STORE.acquire(name)      # and ends


def a_store_opened_before_workers_are_forked():
    global STORE
    if PRIVATE:
        return
    context = multiprocessing.get_context('fork')
    with holdfast.open(URL) as STORE, tempfile.NamedTemporaryFile('w', suffix='.n') as file:
        file.write('0')
        file.flush()
        name = key()
        STORE.acquire(name).release()
        workers = [context.Process(target=_module_level, args=(name, file.name))
                   for _ in range(4)]
        for one in workers:
            one.start()
        for one in workers:
            one.join(PATIENCE)
            assert one.exitcode == 0, one.exitcode
        with open(file.name, encoding='utf-8') as said:
            assert said.read() == '40'
        one = context.Process(target=_keeping, args=(name,))
        one.start()
        one.join(PATIENCE)
        assert one.exitcode == 0 and free(name)     # the child's stores are closed at its end


def _child(url, name, method):
    with holdfast.open(url) as store:
        for _ in range(5):
            with store.lock(name):
                with open(method, 'r+', encoding='utf-8') as file:
                    n = int(file.read())
                    file.seek(0)
                    file.write(str(n + 1))


def _abandoning_child(url, name):
    global kept
    kept = holdfast.open(url).acquire(name)     # and ends


def multiprocessing_forks_and_spawns():
    if PRIVATE:
        return
    for method in 'fork', 'spawn':
        with holdfast.open(URL) as store, tempfile.NamedTemporaryFile('w', suffix='.n') as file:
            file.write('0')
            file.flush()
            name = key()
            context = multiprocessing.get_context(method)
            children = [context.Process(target=_child, args=(URL, name, file.name))
                        for _ in range(3)]
            with store.lock(name):
                for one in children:
                    one.start()
            for one in children:
                one.join(PATIENCE)
                assert one.exitcode == 0, one.exitcode
            with open(file.name, encoding='utf-8') as said:
                assert said.read() == '15'
            one = context.Process(target=_abandoning_child, args=(URL, name))
            one.start()
            one.join(PATIENCE)
            assert one.exitcode == 0 and free(name)


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
