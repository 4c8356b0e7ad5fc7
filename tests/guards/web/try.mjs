// See ../guard_web. Users alice and bob, each with a database of their own, as in two browsers.
import { execFileSync, spawnSync } from 'node:child_process';
import { webcrypto } from 'node:crypto';
import { initializeApp } from 'firebase/app';
import {
  connectFirestoreEmulator, deleteDoc, doc, getDoc, getFirestore, setDoc, setLogLevel, updateDoc,
} from 'firebase/firestore';

globalThis.crypto ??= webcrypto;
const { acquire, update, release } = await import('./page.mjs');
const { serve } = await import('./server.mjs');
const PROJECT = 'demo-holdfast', { FIRESTORE_EMULATOR_HOST: HOST, HOLDFAST } = process.env;
let points = 0, failures = 0;

function point(good, what, shown = '') {
  failures += !good;
  console.log(`${good ? 'ok' : 'not ok'} ${++points} - ${what}`);
  if (!good) console.log(`# ${shown}`);
}

async function refused(what, promise, why) {
  const error = await promise.then(() => null, (e) => e);
  point(error && why.test(`${error.code} ${error.message}`), what, error);
}

// The command; as a server's, which rules don't bind.
function holdfast(...words) {
  return spawnSync(HOLDFAST, words, {
    encoding: 'utf8', input: '',
    env: { ...process.env,
      HOLDFAST_STORE: `firestore://${PROJECT}?collection=mutex_critical_data` },
  });
}

function as(user) {
  const db = getFirestore(initializeApp({ projectId: PROJECT, apiKey: 'none' }, user));
  const [host, port] = HOST.split(':');
  connectFirestoreEmulator(db, host, Number(port), { mockUserToken: { sub: user } });
  return db;
}

setLogLevel('silent');
const rules = execFileSync(HOLDFAST, ['guard', 'firestore', '--lock', 'mutex_critical_data',
  '--data', 'critical_data', '--token-field', 'token'], { encoding: 'utf8' });
const put = await fetch(`http://${HOST}/emulator/v1/projects/${PROJECT}:securityRules`, {
  method: 'PUT', headers: { 'Content-Type': 'application/json', Authorization: 'Bearer owner' },
  body: JSON.stringify({ rules: { files: [{ name: 'firestore.rules', content: rules }] } }),
});
point(put.ok, 'the rules are understood', put.status);

const alice = as('alice'), bob = as('bob'), id = 'seat-42';
const more = (d) => ({ n: (d?.n ?? 0) + 1 }), n = async (db) => (await getDoc(
  doc(db, 'critical_data', id))).data().n;

const first = await acquire(alice, id, 'alice');
point(first > 0, 'alice acquires', first);
point(await acquire(bob, id, 'bob') === null, 'bob finds it held');
point(await acquire(alice, id, 'alice') === null, 'and so does alice elsewhere');
point(holdfast('acquire', id, '--lease', '60', '-n').status === 75, 'and the command');
await update(alice, id, 'alice', first, more);
await update(alice, id, 'alice', first, more);
point(await n(alice) === 2, 'alice writes, twice');
await refused('bob doesn\'t as alice', update(bob, id, 'alice', first, more), /permission-denied/);
await refused('nor by her token', update(bob, id, 'bob', first, more), /the lock is lost/);
await refused('nor by one of his own', update(bob, id, 'bob', first + 1, more), /the lock is lost/);
await refused('nor past the transaction', setDoc(doc(bob, 'critical_data', id),
  { n: 9, token: first }), /permission-denied/);
await refused('nor takes it', updateDoc(doc(bob, 'mutex_critical_data', id), { owner: 'bob' }),
  /permission-denied/);
await refused('nor deletes it', deleteDoc(doc(bob, 'mutex_critical_data', id)),
  /permission-denied/);
await refused('nor takes a free one as alice', acquire(bob, 'another', 'alice'),
  /permission-denied/);
await release(alice, id, 'alice', first);
await release(alice, id, 'alice', first);
await refused('alice has released, and writes no more', update(alice, id, 'alice', first, more),
  /the lock is lost/);

// A server's client, and then bob.
const taken = holdfast('acquire', id, '--lease', '60', '--owner', 'server');
const second = Number(/TOKEN='?(\d+)/.exec(taken.stdout)?.[1]);
point(second > first, 'the command acquires what she has released', taken.stderr);
point(await acquire(bob, id, 'bob') === null, 'bob finds it held');
point(holdfast('release', id, '--token', String(second)).status === 0, 'the command releases');
const third = await acquire(bob, id, 'bob');
point(third > second, 'bob acquires, by a greater token', third);

// While bob's update is under way, the lock goes over to another: nothing of it lands.
let asked = 0;
await refused('what is overtaken between its reading and its writing is lost as a whole',
  update(bob, id, 'bob', third, (d) => {
    if (asked++ === 0) holdfast('break', id, '--token', String(third));
    return more(d);
  }), /the lock is lost|permission-denied|aborted|failed-precondition/);
point(asked > 0 && await n(alice) === 2, 'and the counter is what was accepted', await n(alice));
const fourth = await acquire(alice, id, 'alice');
await update(alice, id, 'alice', fourth, more);
point(await n(bob) === 3, 'alice goes on from there');
// As the page says: to renew.
await updateDoc(doc(alice, 'mutex_critical_data', id),
  { rev: fourth + 1, expires_us: (Date.now() + 90000) * 1000 });
await update(alice, id, 'alice', fourth, more);
point(await n(bob) === 4, 'and writes after a renewal');
await serve({ point, refused, holdfast, project: PROJECT });
console.log(`1..${points}`);
process.exit(failures ? 1 : 0);
