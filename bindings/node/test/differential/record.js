// Runs a script on the locks of one library and records what a program could observe.
//
// A script is text. Steps are separated by `;`, and `|` lets all pending microtasks run. The
// recorder knows these steps:
//
//     acquire NAME [wN] [pN] [free]   with a weight, a priority; `free` releases when it is granted
//     run NAME [KIND] [wN] [pN]       runExclusive with a function of this KIND (see `functions`)
//     wait NAME [wN] [pN]             waitForUnlock
//     free NAME [quiet]               calls the releaser of that acquire
//     open NAME                       ends that run, if its kind is `gate`
//     release [wN]   cancel   value N   pass MS   tick N   finish
//
// After each step it writes down the state of the lock, unless the step is `quiet`.
//
// A lock is named by the words of the calls that make it: `Semaphore 2`, `withTimeout 50 Mutex`,
// `tryAcquire mine Semaphore 1 mine`; `mine` gives an error of the caller's own.
'use strict';
const mine = new Error('mine');

// A clock that only `pass` moves. It replaces the timers of the process until `restore`.
class Clock {
    #now = 0;
    #id = 0;
    #timers = new Map();
    #real = { setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout };

    constructor() {
        globalThis.setTimeout = (call, ms = 0) => {
            // Node takes 1 ms for what it doesn't take.
            const at = this.#now + (ms >= 1 && ms < 2 ** 31 ? ms : 1);
            this.#timers.set(++this.#id, { at, call });
            return this.#id;
        };
        globalThis.clearTimeout = (id) => this.#timers.delete(id);
    }

    async pass(ms) {
        const end = this.#now + ms;
        for (;;) {
            const due = [...this.#timers].filter(([, { at }]) => at <= end)
                .sort(([a, one], [b, other]) => one.at - other.at || a - b)[0];
            if (!due) break;
            this.#timers.delete(due[0]);
            this.#now = due[1].at;
            due[1].call();
            await settled();
        }
        this.#now = end;
    }

    restore() {
        Object.assign(globalThis, this.#real);
    }
}

const ticks = async (n) => {
    for (let i = 0; i < n; i++) await null;
};
const settled = () => new Promise((resolve) => setImmediate(resolve));

function make(library, words) {
    const [what, ...rest] = words;
    if (what === 'Mutex') return new library.Mutex(rest[0] && mine);
    if (what === 'Semaphore') return new library.Semaphore(Number(rest[0]), rest[1] && mine);
    const ms = what === 'withTimeout' ? [Number(rest.shift())] : [];
    const error = rest[0] === 'mine' ? rest.shift() && mine : undefined;
    return library[what](make(library, rest), ...ms, error);
}

// What a function under the lock does, by the KIND of a run.
const functions = {
    plain: () => 'value',
    none: () => undefined,
    throw: () => {
        throw mine;
    },
    reject: () => Promise.reject(mine),
    async: async () => {
        await ticks(3);
        return 'async';
    },
    thenable: () => ({ then: (resolve) => resolve('then') }),
    gate: (run) => run.gate,
    release: (run) => run.lock.release(),
    cancel: (run) => run.cancel(),
};

class Recorder {
    trace = [];
    #asked = new Map();

    constructor(library, made) {
        this.library = library;
        this.clock = new Clock();
        this.lock = make(library, made.split(' '));
        this.weighted = made.includes('Semaphore');
    }

    name(error) {
        const { library } = this;
        for (const name of ['E_CANCELED', 'E_TIMEOUT', 'E_ALREADY_LOCKED'])
            if (error === library[name]) return name;
        if (error === mine) return 'mine';
        return /invalid weight \S+: must be positive/.exec(error?.message)?.[0] ?? String(error);
    }

    say(text) {
        this.trace.push(text);
    }

    state(after) {
        const { lock } = this;
        this.say(`${after} [${lock.isLocked() ? 'locked' : 'free'}${
            this.weighted ? ` ${lock.getValue()}` : ''}]`);
    }

    // Follows a promise; what isn't one is said so.
    follow(name, call, granted = () => '') {
        const promise = call();
        if (typeof promise?.then !== 'function') return this.say(`${name}: no promise`);
        return promise.then((got) => this.say(`${name}: ${granted(got) ?? got}`),
            (error) => this.say(`${name}: rejected with ${this.name(error)}`));
    }

    // Weight and priority as this lock takes them; those behind what is given are left out.
    args(words) {
        const number = (letter) => {
            const word = words.find((each) => each.startsWith(letter) && /\d|I/.test(each));
            return word && Number(word.slice(1));
        };
        const all = this.weighted ? [number('w'), number('p')] : [number('p')];
        while (all.length && all[all.length - 1] === undefined) all.pop();
        return all;
    }

    acquire(name, ...words) {
        const asked = {};
        this.#asked.set(name, asked);
        this.follow(name, () => this.lock.acquire(...this.args(words)), (got) => {
            const [value, release] = this.weighted ? got : [undefined, got];
            asked.release = release;
            if (words.includes('free')) release();
            return this.weighted ? `granted at ${value}` : 'granted';
        });
    }

    run(name, ...words) {
        const run = { lock: this.lock, cancel: () => this.cancel() };
        run.gate = new Promise((resolve, reject) => Object.assign(run, { resolve, reject }));
        this.#asked.set(name, run);
        const kind = words.find((word) => word in functions) ?? 'plain';
        this.follow(name, () => this.lock.runExclusive((...got) => {
            this.say(`${name}: runs with ${got}`);
            return functions[kind](run);
        }, ...this.args(words)), (value) => `returned ${value}`);
    }

    wait(name, ...words) {
        this.follow(name, () => this.lock.waitForUnlock(...this.args(words)),
            (got) => `unlocked ${got}`);
    }

    free(name) {
        this.#asked.get(name)?.release?.();
    }

    open(name) {
        this.#asked.get(name)?.resolve?.('opened');
    }

    release(...words) {
        this.lock.release(...this.args(words));
    }

    // After cancel a Semaphore of async-mutex wakes those of waitForUnlock with the next setValue
    // or release only.
    cancel() {
        this.lock.cancel();
        if (this.weighted && this.library.wakesLate) this.lock.setValue(this.lock.getValue());
    }

    // Calls each releaser and opens each gate, those of what is granted meanwhile included.
    async finish() {
        for (const { release, resolve } of this.#asked.values()) {
            release?.();
            resolve?.('opened');
            await settled();
        }
    }

    value(n) {
        this.lock.setValue(Number(n));
    }

    pass(ms) {
        return this.clock.pass(Number(ms));
    }

    tick(n) {
        return ticks(Number(n));
    }

    // No microtask runs between this step and the next, unless the step itself takes time.
    step(text) {
        const [what, ...words] = text.split(' ');
        let over;
        try {
            over = this[what](...words);
        } catch (error) {
            this.say(`throws ${this.name(error)}`);
        }
        if (!words.includes('quiet')) this.state(text);
        return over;
    }
}

// Returns: the trace, one line for each observation.
async function record(library, made, script) {
    const recorder = new Recorder(library, made);
    try {
        for (const part of script.split('|')) {
            for (const text of part.split(';').map((each) => each.trim()).filter(Boolean)) {
                const over = recorder.step(text);
                if (over) await over;
            }
            await settled();
            recorder.state('|');
        }
    } finally {
        recorder.clock.restore();
    }
    return recorder.trace;
}

module.exports = { record };
