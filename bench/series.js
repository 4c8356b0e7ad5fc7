// What peers that are written in JavaScript measure and print: as bench.c does.
'use strict';

const show = (name, values, unit = 'us') => {
    values = [...values].sort((a, b) => a - b);
    const at = (q) => Number(values[Math.floor(q * (values.length - 1) + 0.5)].toPrecision(9));
    console.log(JSON.stringify({ name, unit, n: values.length, min: at(0), p50: at(0.5),
                                 p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1) }));
};

// Round by round.
const ratio = (name, ours, theirs) => show(name, ours.map((value, i) => value / theirs[i]), 'x');

const perRound = async (ms, once) => {
    const start = performance.now();
    let n = 0;
    for (; performance.now() - start < ms; n++) await once();
    return (performance.now() - start) / n * 1e3;
};

// Warms up, measures and prints a peer's pairs beside its bare writes.
const inTurns = async (pair, write, rounds, ms, warmMs) => {
    const pairs = [], writes = [];
    if (warmMs) for (const once of [pair, write]) await perRound(warmMs, once);
    for (let i = 0; i < rounds; i++) {
        pairs.push(await perRound(ms, pair));
        writes.push(await perRound(ms, write));
    }
    ratio('acquire+release / raw', pairs, writes);
    show('acquire+release', pairs);
    show('raw', writes);
};

module.exports = { show, ratio, perRound, inTurns };
