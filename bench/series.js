// What peers that are written in JavaScript measure and print: as bench.c does.
'use strict';

exports.show = (name, values) => {
    values.sort((a, b) => a - b);
    const at = (q) => Number(values[Math.floor(q * (values.length - 1) + 0.5)].toFixed(3));
    console.log(JSON.stringify({ name, unit: 'us', n: values.length, min: at(0), p50: at(0.5),
                                 p90: at(0.9), p99: at(0.99), max: at(1) }));
};

exports.perRound = async (ms, once) => {
    const start = performance.now();
    let n = 0;
    for (; performance.now() - start < ms; n++) await once();
    return (performance.now() - start) / n * 1e3;
};
