"""What callers get wrong is refused before anything is taken, or does no harm.

    misuse_test.py URL [NAME]
"""
import asyncio
import sys
import threading

import holdfast
from own import MORE, URL, key
from tap import PATIENCE, run_functions, until


# ---- afterwards ----

def a_callback_that_raises_keeps_no_other_from_being_told():
    with holdfast.open(URL) as store:
        said, told, kept = [], threading.Event(), []
        hook, threading.excepthook = threading.excepthook, said.append

        def fails(lock):
            raise error

        try:
            for error in KeyError('x'), SystemExit(3), KeyboardInterrupt():
                held = store.acquire(key(), lease=1)
                kept.append(held)   # dropped once the store is closed
                held.on_lost(fails)
                store.break_(held.key, held.token)
                until(lambda: said and said[-1].exc_value is error, 'not reported')
            assert said[0].thread.name == 'holdfast-lost'
            held = store.acquire(key(), lease=1)
            held.on_lost(lambda lock: told.set())
            store.break_(held.key, held.token)
            assert told.wait(PATIENCE)
        finally:
            threading.excepthook = hook


def a_callback_that_raises_in_a_loop_keeps_no_other_from_being_told():
    async def main():
        with holdfast.open(URL) as store:
            said, told = [], asyncio.Event()
            asyncio.get_running_loop().set_exception_handler(
                lambda loop, context: said.append(context['exception']))

            def fails(lock):
                raise KeyError('x')

            locks = [store.acquire(key(), lease=1) for _ in range(3)]
            for held, callback in zip(locks, (fails, fails, lambda lock: told.set())):
                held.on_lost(callback)
            for held in locks:      # the loop sees them together
                store.break_(held.key, held.token)
                until(lambda held=held: not held.held, 'never lost')
            await asyncio.wait_for(told.wait(), PATIENCE)
            while len(said) < 2:
                await asyncio.sleep(0.01)
    asyncio.run(main())


if __name__ == '__main__':
    sys.exit(run_functions(globals(), MORE))
