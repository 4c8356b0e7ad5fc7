// See ../guard_web. The page's code in a server's client, which the rules don't bind.
import { Firestore } from '@google-cloud/firestore';
import { acquire, release, update } from './server_page.mjs';

const more = (d) => ({ n: (d?.n ?? 0) + 1 });

export async function serve({ point, refused, holdfast, project }) {
  const db = new Firestore({ projectId: project }), id = 'served';
  const n = async () => (await db.doc(`critical_data/${id}`).get()).data().n;
  const first = await acquire(db, id, 'server-1');
  point(first > 0, 'a server acquires one that was never there', first);
  point(await acquire(db, id, 'server-2') === null, 'another finds it held');
  point(holdfast('acquire', id, '--lease', '60', '-n').status === 75, 'and the command');
  await update(db, id, 'server-1', first, more);
  await update(db, id, 'server-1', first, more);
  point(await n() === 2, 'it writes, twice');
  await refused('a client with another token does not', update(db, id, 'server-1', first + 1, more),
    /the lock is lost/);
  await release(db, id, 'server-1', first);
  await release(db, id, 'server-1', first);
  await refused('it has released, and writes no more', update(db, id, 'server-1', first, more),
    /the lock is lost/);
  const taken = holdfast('acquire', id, '--lease', '60', '--owner', 'command');
  const second = Number(/TOKEN='?(\d+)/.exec(taken.stdout)?.[1]);
  point(second > first, 'the command acquires what it has released', taken.stderr);
  point(await acquire(db, id, 'server-1') === null, 'it finds it held');
  point(holdfast('release', id, '--token', String(second)).status === 0, 'the command releases');
  const third = await acquire(db, id, 'server-1');
  point(third > second, 'it acquires again, by a greater token', third);
  await update(db, id, 'server-1', third, more);
  point(await n() === 3, 'and goes on');
  // Rules don't bind a server: the page's code itself leaves others their lock and their turn.
  const lock = db.doc(`mutex_critical_data/${id}`), now = Date.now() * 1000;
  const ended = { ...(await lock.get()).data(), rev: third + 1, expires_us: now - 9e6 };
  for (const [what, others] of [
    ['further holders', { more: { mode: 2, limit: 2, holders: [{ expires_us: now + 9e7 }] } }],
    ['something unknown', { more: { x: 1 } }],
    ['a queue', { queue: [{ owner: 'next' }] }]]) {
    await lock.set({ ...ended, ...others });
    point(await acquire(db, id, 'server-2') === null, `a lock that is over with ${what} is left`);
  }
  await lock.set({ ...ended, more: { flags: 2 } });
  point(await acquire(db, id, 'server-2') > third, 'one that is over without is acquired');
  await db.terminate();
}
