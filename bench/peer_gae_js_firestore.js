// gae-js-firestore's MutexService, by gRPC: obtain and release, a bare conditional write of the
// same client. It can't wait for a mutex, so there is no handover.
//
//     node peer_gae_js_firestore.js URL ROUNDS ROUND_MS HANDOVERS WARM_MS
//
// prints a JSON object a line.
//
// The emulator is the one of FIRESTORE_EMULATOR_HOST.
'use strict';
const { Firestore } = require('@google-cloud/firestore');
const { loggingRequestStorage, runWithRequestStorage } = require('@mondomob/gae-js-core');
const { FirestoreLoader, MutexService, MutexUnavailableError, firestoreLoaderRequestStorage,
        firestoreProvider } = require('@mondomob/gae-js-firestore');
const { inTurns } = require('./series.js');

const [rounds, ms, , warmMs] = process.argv.slice(3).map(Number);
// Without any the client asks the network for some, before its first request.
const credentials = { client_email: 'peer@demo.example', private_key: '{}' };
const silent = () => undefined;

// Else it is no lock, whatever it costs.
async function refused(mutexes) {
    await mutexes.obtain('refused');
    const why = await mutexes.obtain('refused').catch((error) => error);
    if (!(why instanceof MutexUnavailableError)) throw new Error('had twice');
    await mutexes.release('refused');
}

// As in a request that the middleware of gae-js has prepared; but its log, of six lines a pair,
// goes nowhere.
async function measure(db) {
    loggingRequestStorage.set({ info: silent, warn: silent, error: silent });
    firestoreLoaderRequestStorage.set(new FirestoreLoader(db));
    const mutexes = new MutexService({ expirySeconds: 30 });
    await refused(mutexes);
    const row = db.doc('peer/k');
    let rev = 1, { writeTime } = await row.set({ rev });
    const pair = async () => {
        await mutexes.obtain('pairs');
        if ((await mutexes.release('pairs')).locked) throw new Error('not released');
    };
    const write = async () => {
        ({ writeTime } = await row.update({ rev: ++rev }, { lastUpdateTime: writeTime }));
    };
    await inTurns(pair, write, rounds, ms, warmMs);
}

async function main() {
    const db = new Firestore({ projectId: new URL(process.argv[2]).host, credentials });
    firestoreProvider.init(db);
    await runWithRequestStorage(() => measure(db));
    await db.terminate();
}

main().catch((error) => {
    console.error(error);
    process.exit(70);
});
