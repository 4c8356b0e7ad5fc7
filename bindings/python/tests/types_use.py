"""A typed program: types_test.py has mypy check it, strictly, and runs it. What is marked to be
ignored is wrong, and has to be found."""
import asyncio
import datetime
import pathlib
import tempfile
from typing import Callable, List, Optional

import holdfast


def held_for(store: holdfast.Store, key: str) -> float:
    with store.lock(key, wait=0, lease='30s', shared=False, request_id=None) as held:
        token: int = held.token
        owner: str = held.owner
        held.on_lost(lambda lock: print(lock.key))
        held.renew('1m')
        held.confirm()
        return held.left_ms if held.held and token and owner else 0.0


def looked_at(store: holdfast.Store) -> List[str]:
    info: holdfast.Info = store.peek('a')
    parties: List[holdfast.Party] = info.holders + info.waiters
    keys = [one.key for one in store] + [one.key for one in store.list('a')]
    return keys + [party.owner for party in parties]


def refused(call: Callable[[], object]) -> Optional[str]:
    try:
        call()
    except holdfast.LockUnavailable as error:
        code: str = error.code
        return error.key and code + error.text
    except (holdfast.InvalidArgument, TypeError):
        return None
    raise AssertionError('not refused')


async def tasks(store: holdfast.Store) -> str:
    async with holdfast.open('mem:typed') as other, other.lock('task') as held:
        async with store.once('event/task', keep='1d') as event:
            if event:
                event.result = 'done'
        freed = await store.acquire_async('free', wait=1)
        freed.release()
        await freed.store.close_async()
        return held.key


async def in_tasks(path: pathlib.Path) -> int:
    async with await holdfast.open_async(path) as store:
        async with store.watch() as watch:
            lock: holdfast.Lock = await store.acquire_async('a', lease=5)
            async for info in watch:
                assert info.holders
                break
        await lock.renew_async(datetime.timedelta(seconds=5))
        await lock.confirm_async()
        lock.on_lost(told)
        found: holdfast.Info = await store.peek_async('a')
        assert [one.key for one in await store.list_async()] == [found.key]
        token: int = lock.token
        await lock.release_async()
        return token


async def told(lock: holdfast.Lock) -> None:
    print(lock.key)


def main() -> None:
    with holdfast.open('mem:typed', owner='me', note=None, io_timeout=5) as store:

        @store.locked('user/{user}')
        def charge(user: int, amount: float) -> float:
            return amount

        amount: float = charge(7, amount=2.5)
        assert amount and held_for(store, 'a') > 0 and looked_at(store) is not None
        with store.watch('nothing') as watch:
            watch.close()
        done: bool = store.once('event', lambda event: 'sent').run
        assert done and store.stats()['acquired'] > 0
        lock: holdfast.Lock = store.acquire('a')
        nested: holdfast.Lock = store.acquire('a', recursive=True)
        nested.release()
        assert refused(lambda: store.acquire('a', wait=datetime.timedelta(0)))
        options: holdfast.Options = {'wait': 0, 'note': 'typed'}
        threads: holdfast.Locking = store.lock('threads', **options)
        got: bool = threads.acquire(timeout=1)
        left: float = lock.left
        assert got and threads.locked() and left > 0 and not store.peek('a').done
        threads.release()
        store.adopt('a', lock.token).release()
        refused(lambda: store.acquire(5))               # type: ignore[arg-type]
        refused(lambda: store.acquire('b', wayt=5))     # type: ignore[call-arg]
        refused(lambda: store.lock('b', shared='no'))   # type: ignore[arg-type]
        refused(lambda: charge(7, sum=5))               # type: ignore[call-arg]
        with tempfile.TemporaryDirectory() as folder:
            assert asyncio.run(in_tasks(pathlib.Path(folder) / 'locks')) > 0
        wrong: holdfast.Options = {'wait': []}          # type: ignore[typeddict-item]
        refused(lambda: store.acquire('b', **wrong))
        assert asyncio.run(tasks(holdfast.open('mem:typed'))) == 'task'
    print('done')


if __name__ == '__main__':
    main()
