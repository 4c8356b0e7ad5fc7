"""The table bindings/cases.json, whose head says how it is read.

    cases_test.py TABLE URL [async] [NAME]

With "async" what can be done in asyncio is.
"""
import asyncio
import contextlib
import json
import math
import os
import sys
import time

import holdfast
from tap import PATIENCE, run, scratch_url


SHORT = int(os.environ.get('HOLDFAST_TEST_LEASE_MS', '3000'))
WORDS = {'short': f'{SHORT}ms', 'longer': f'{SHORT + 1000}ms'}


def times(value):
    """A string, ["x", 3] for "xxx", "short" for a lease that the store keeps, "longer" for a
    second more than that."""
    if isinstance(value, list):
        return value[0] * value[1]
    return WORDS.get(value, value)


class Case:
    def __init__(self, steps, url, prefix, in_asyncio):
        self.steps, self.url, self.prefix, self.in_asyncio = steps, url, prefix, in_asyncio
        self.stores, self.named, self.tokens = {}, {}, {}

    async def play(self):
        try:
            for number, step in enumerate(self.steps, 1):
                try:
                    await self.step(step)
                except BaseException as error:
                    raise AssertionError(f'step {number}: {step}: {error!r}') from error
        finally:
            for what in self.named.values():
                if isinstance(what, asyncio.Task):
                    what.cancel()
                    await asyncio.wait([what])
            for store in self.stores.values():
                store.close()

    async def step(self, step):
        expected, code, text = step.get('expect', 'OK'), 'OK', ''
        try:
            await getattr(self, 'do_' + step['do'])(step)
        except holdfast.HoldfastError as error:
            code, text = error.code, str(error)
            assert text and '\n' not in text, text
            assert text == error.text
            assert type(error) is not holdfast.HoldfastError
        except asyncio.CancelledError:
            code = 'CANCELED'
        assert code == expected, f'{code} instead of {expected}: {text}'
        assert step.get('says', '') in text, text

    # -- what steps say --

    def store(self, step):
        name = step['by']
        if name not in self.stores:
            self.stores[name] = holdfast.open(self.url)
        return self.stores[name]

    def key(self, step):
        return times(step['raw_key']) if 'raw_key' in step else self.prefix + step['key']

    def options(self, step):
        return {name: times(value) for name, value in step.get('options', {}).items()}

    def token(self, of):
        return of if isinstance(of, int) else 0 if of is None else self.tokens[of]

    def note(self, step, lock):
        name = step.get('as', '-')
        self.named[name], self.tokens[name] = lock, lock.token
        assert 0 < lock.token < 1 << 53
        assert 'key' not in step or lock.key == self.key(step)
        compare = step.get('token', {})
        if 'above' in compare:
            assert lock.token > self.tokens[compare['above']]
        if 'same' in compare:
            assert lock.token == self.tokens[compare['same']]

    def check(self, shows, info):
        for name, should in shows.items():
            if name == 'used':
                assert (info.rev > 0) == should
            elif name in ('holders', 'waiters'):
                assert len(getattr(info, name)) == should, getattr(info, name)
            elif name == 'done':
                assert (info.done_us > 0) == should
            elif name == 'result':
                assert info.result == should, info.result
            elif name == 'key':
                assert info.key == self.prefix + should
            elif name == 'token':
                assert info.token == self.token(should)
            else:
                assert name == 'parties', name
        for party, should in zip(info.holders + info.waiters, shows.get('parties', [])):
            for name, value in should.items():
                if name == 'token':
                    value = self.token(value)
                assert getattr(party, name) == value, (name, party)
        assert len(info.holders + info.waiters) >= len(shows.get('parties', []))

    def lock(self, step):
        named = self.named[step['lock']]
        return named[0].lock if isinstance(named, tuple) else named     # of an event

    # -- steps --

    async def do_open(self, step):
        self.stores[step['as']] = holdfast.open(step.get('url', self.url), **self.options(step))

    async def do_close(self, step):
        self.stores.pop(step['store']).close()

    async def do_acquire(self, step):
        store, key, options = self.store(step), self.key(step), self.options(step)
        if self.in_asyncio:
            self.note(step, await store.acquire_async(key, **options))
        else:
            self.note(step, store.acquire(key, **options))

    async def do_start(self, step):
        task = asyncio.create_task(
            self.store(step).acquire_async(self.key(step), **self.options(step)))
        self.named[step['as']] = task
        await asyncio.sleep(0)

    async def do_queue(self, step):
        end = time.monotonic() + PATIENCE
        while len(self.store(step).peek(self.key(step)).waiters) != step['n']:
            assert time.monotonic() < end
            await asyncio.sleep(0.005)

    async def do_settle(self, step):
        self.note(step, await asyncio.wait_for(self.named.pop(step['wait']), PATIENCE))

    async def do_cancel(self, step):
        self.named[step['wait']].cancel()

    async def do_release(self, step):
        self.lock(step).release()

    async def do_renew(self, step):
        self.lock(step).renew(step.get('lease'))

    async def do_confirm(self, step):
        self.lock(step).confirm()

    async def do_lost(self, step):
        lost = asyncio.Event()
        self.lock(step).on_lost(lambda lock: lost.set())
        await asyncio.wait_for(lost.wait(), PATIENCE)

    async def do_left(self, step):
        lock = self.lock(step)
        is_so = 'ever' if lock.left_ms == math.inf else 'some' if lock.left_ms > 0 else 'none'
        assert is_so == step['is'], lock.left_ms
        assert lock.held == (is_so != 'none')

    async def do_adopt(self, step):
        self.note(step, self.store(step).adopt(self.key(step), self.token(step['of'])))

    async def do_break(self, step):
        self.store(step).break_(self.key(step), self.token(step['of']))

    async def begin(self, step):
        """The event, and what ends it as the end of its block would: end(failed)."""
        event = self.store(step).once(self.key(step), **self.options(step))
        if self.in_asyncio:
            stack = contextlib.AsyncExitStack()
            await stack.enter_async_context(event)

            async def end(failed):
                await stack.__aexit__(*([RuntimeError, RuntimeError(), None] if failed else
                                        [None] * 3))
        else:
            event.__enter__()

            async def end(failed):
                event.__exit__(*([RuntimeError, RuntimeError(), None] if failed else [None] * 3))
        return event, end

    async def do_once(self, step):
        deadline = time.monotonic() + PATIENCE
        while True:
            event, end = await self.begin(step)
            state = 'RUN' if event else 'DONE'
            if step.get('until', state) == state or time.monotonic() > deadline:
                break
            await end(False)
            await asyncio.sleep(0.05)
        assert state == step.get('state', step.get('until', state)), state
        if event:
            self.note(step, event.lock)
            self.named[step['as']] = (event, end)
        else:
            assert event.done_us > 0
            for name, should in step.get('shows', {}).items():
                assert getattr(event, name) == should, event.__dict__

    async def do_finish(self, step):
        event, end = self.named.pop(step['event'])
        event.result = step.get('result', '')
        await end(False)

    async def do_fail(self, step):
        await self.named.pop(step['event'])[1](True)

    async def do_peek(self, step):
        info = self.store(step).peek(self.key(step))
        self.check(step.get('shows', {}), info)

    async def do_list(self, step):
        listed = sorted(info.key for info in self.store(step).list(self.prefix + step['prefix']))
        assert listed == sorted(self.prefix + key for key in step['shows']), listed

    async def do_watch(self, step):
        with self.store(step).watch(self.prefix + step['prefix']) as watch:
            if self.in_asyncio:
                async for info in watch:
                    break
            else:
                for info in watch:
                    break
        self.check(step['shows'], info)

    async def do_prune(self, step):
        assert self.store(step).prune(step['idle']) >= 0

    async def do_stats(self, step):
        stats = self.store(step).stats()
        for name, should in step['shows'].items():
            assert stats[name] == should, stats


def main():
    table, url, *more = sys.argv[1:]
    in_asyncio = 'async' in more
    patterns = [word for word in more if word != 'async']
    url = scratch_url(url)
    with open(table, encoding='utf-8') as file:
        cases = json.load(file)['cases']
    tests = []
    for number, case in enumerate(cases):
        if in_asyncio and 'thread' in case.get('needs', []):
            continue    # a task isn't a thread
        prefix = f'cases/{os.getpid()}-{int(time.time()) % 1000000}/{number}/'
        play = Case(case['steps'], url, prefix, in_asyncio)
        if all(pattern in case['name'] for pattern in patterns):
            tests.append((case['name'], lambda play=play: asyncio.run(play.play())))
    return run(tests)


if __name__ == '__main__':
    sys.exit(main())
