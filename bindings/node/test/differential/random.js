// Scripts for record.js, made from a seed.
'use strict';

// Returns: a function that gives the next whole number below `n`.
function numbers(seed) {
    let state = seed >>> 0; // mulberry32
    return (n) => {
        state = (state + 0x6d2b79f5) >>> 0;
        let x = state;
        x = Math.imul(x ^ (x >>> 15), x | 1);
        x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
        return ((x ^ (x >>> 14)) >>> 0) % n;
    };
}

const PLAIN = ['Mutex', 'Mutex mine', 'Semaphore 1', 'Semaphore 2', 'Semaphore 3 mine',
    'Semaphore 0', 'Semaphore -2', 'withTimeout 1000 Mutex', 'withTimeout 1000 mine Semaphore 2',
    'withTimeout 2000 withTimeout 1000 Semaphore 3', 'withTimeout 1000 Semaphore 1 mine'];
const TIMED = ['withTimeout 50 Mutex', 'withTimeout 50 mine Mutex mine', 'withTimeout 0 Mutex',
    'withTimeout 50 Semaphore 1', 'withTimeout 50 mine Semaphore 2', 'tryAcquire Mutex',
    'tryAcquire mine Mutex', 'tryAcquire Semaphore 1', 'tryAcquire mine Semaphore 3',
    'tryAcquire withTimeout 50 Semaphore 2', 'withTimeout 50 tryAcquire Semaphore 1'];
const KINDS = ['plain', 'none', 'throw', 'reject', 'async', 'thenable', 'gate', 'gate', 'gate',
    'release', 'cancel'];
// In async-mutex a hold of a Mutex that `release` has ended is released a second time by its own
// releaser, and two hold the mutex then. So a script of a Mutex has either releasers or `release`.
const MANUAL = ['acquire', 'acquire', 'wait', 'release', 'release', 'cancel', 'tick'];
const STEPS = ['acquire', 'acquire', 'acquire', 'run', 'run', 'run', 'wait', 'wait', 'free',
    'free', 'free', 'open', 'open', 'release', 'cancel', 'value', 'tick', 'tick'];

class Maker {
    #count = 0;
    #acquired = [];
    #gates = [];

    constructor(below, lock, heavy) {
        this.below = below;
        this.weighted = lock.includes('Semaphore');
        this.heavy = heavy && this.weighted;
        this.manual = !this.weighted && below(3) === 0;
        this.list = this.manual ? MANUAL : this.weighted ? STEPS
            : STEPS.filter((step) => step !== 'release' && step !== 'value');
        // In async-mutex waitForUnlock of a decorated lock isn't told of the inner lock's timeout.
        if (/(withTimeout|tryAcquire) .*(withTimeout|tryAcquire)/.test(lock))
            this.list = this.list.filter((step) => step !== 'wait');
        this.kinds = this.weighted ? KINDS : KINDS.filter((kind) => kind !== 'release');
    }

    of(list) {
        return list[this.below(list.length)];
    }

    how() {
        const weight = this.heavy && this.below(2) ? ` w${1 + this.below(4)}` : '';
        return weight + (this.below(3) ? '' : ` p${this.below(5) - 2}`);
    }

    step() {
        const { below } = this;
        const what = this.of(this.list);
        const name = `${what[0]}${this.#count++}`;
        switch (what) {
        case 'acquire':
            this.#acquired.push(name);
            return `acquire ${name}${this.how()}${this.manual || below(4) ? '' : ' free'}`;
        case 'run': {
            const kind = this.of(this.kinds);
            if (kind === 'gate') this.#gates.push(name);
            return `run ${name} ${kind}${this.how()}`;
        }
        case 'wait': return `wait ${name}${this.how()}`;
        case 'free': return this.#acquired.length ? `free ${this.of(this.#acquired)}` : 'cancel';
        case 'open': return this.#gates.length ? `open ${this.of(this.#gates)}` : 'cancel';
        case 'release': return this.heavy && below(2) ? `release w${1 + below(3)}` : 'release';
        case 'value': return `value ${below(7) - 2}`;
        case 'tick': return `tick ${1 + below(4)}`;
        default: return what;
        }
    }

    steps(n) {
        let text = '';
        for (let i = 0; i < n; i++) text += this.step() + (this.below(3) ? '; ' : ' | ');
        return text;
    }
}

// Returns: a lock and a script. `timed`: all weights are 1, and each round ends when every wait has
// timed out; `cancel` then rids async-mutex of the requests that have timed out.
function random(seed, timed) {
    const below = numbers(seed);
    const lock = timed ? TIMED[below(TIMED.length)] : PLAIN[below(PLAIN.length)];
    const maker = new Maker(below, lock, !timed);
    if (!timed) {
        const steps = maker.steps(8 + below(30));
        return [lock, `${steps}| ${maker.manual ? 'release | '.repeat(30) : 'finish |'}`];
    }
    const rounds = Array.from({ length: 3 },
        () => `${maker.steps(4 + below(10))}| pass 10 | pass 100 | cancel |`);
    return [lock, rounds.join(' ')];
}

module.exports = { random };
