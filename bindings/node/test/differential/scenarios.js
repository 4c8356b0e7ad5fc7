// What a program may do with the locks of async-mutex: a name and a script of record.js each. The
// scripts of `any` suit every lock that admits one at a time, those of `counted` take weights.
// What is released after a timeout is released `quiet`: in async-mutex the request that has timed
// out has the lock then, for a few microtasks.
'use strict';
const ANY = ['Mutex', 'Semaphore 1', 'withTimeout 500 Mutex', 'withTimeout 500 Semaphore 1'];
const COUNTED = ['Semaphore 2', 'withTimeout 500 Semaphore 2'];
const TRIED = ['tryAcquire Mutex', 'tryAcquire Semaphore 1', 'withTimeout 0 Mutex',
    'withTimeout 0 Semaphore 1'];
const LIMITED = ['withTimeout 50 Mutex', 'withTimeout 50 mine Mutex', 'withTimeout 50' +
        ' Semaphore 1',
    'withTimeout 50 mine Semaphore 1'];

const any = {
    'acquire a free lock': 'acquire a |',
    'acquire in order': 'acquire a; acquire b; acquire c | free a | free b | free c |',
    'a releaser works once': 'acquire a; acquire b; acquire c | free a; free a | free a |' +
        ' free b |',
    'a late releaser leaves the next holder alone': 'acquire a; acquire b | free a | free a |',
    'release at the grant': 'acquire a free; acquire b free; acquire c free |',
    'release at the grant, another asks between': 'acquire a free | acquire b; free a;' +
        ' acquire c |',
    'priorities of acquire': 'acquire a; acquire b p-1; acquire c p1; acquire d | free a |' +
        ' free c | free d | free b |',
    'equal priorities keep their order': 'acquire a; acquire b p1; acquire c p1; acquire d p1' +
        ' | free a | free b | free c |',
    'zero is the default priority': 'acquire a; acquire b p0; acquire c; acquire d p0 | free' +
        ' a | free b | free c |',
    'fractions and large priorities': 'acquire a; acquire b p0.5; acquire c p0.25; acquire d' +
        ' p1000000000; acquire e p-0.5 | free a | free d | free b | free c | free e |',
    'infinite priorities': 'acquire a; acquire b p-Infinity; acquire c; acquire d pInfinity |' +
        ' free a | free d | free c |',
    'a priority is of no use to the first': 'acquire a p-5; acquire b p5 | free a |',
    'a later request with a higher priority passes': 'acquire a; acquire b | acquire c p1 |' +
        ' free a | free c |',
    'the value of a function': 'run r |',
    'no value': 'run r none |',
    'a function that throws': 'run r throw |',
    'a promise that is rejected': 'run r reject |',
    'an asynchronous function': 'run r async |',
    'a thenable': 'run r thenable |',
    'functions in order': 'run r; run s; run t |',
    'functions of all kinds in order': 'run r async; run s; run t throw; run u reject; run v' +
        ' thenable; run w none |',
    'asynchronous before plain': 'run r async; run s; run t async; run u |',
    'a rejection frees the lock': 'run r reject; acquire a | free a |',
    'an exception frees the lock': 'run r throw; acquire a | free a |',
    'held until the promise is settled': 'run r gate; acquire a | | open r | free a |',
    'a function never runs before the call returns': 'run r; wait w |',
    'priorities of runExclusive': 'run r gate; run s p-1; run t p1; run u | open r |',
    'acquire and runExclusive share the line': 'acquire a; run r; acquire b; run s | free a |' +
        ' free b |',
    'acquire and runExclusive with priorities': 'acquire a; run r p-1; acquire b p1; run s p2' +
        ' | free a | free b |',
    'waitForUnlock of a free lock': 'wait w | wait x; wait y |',
    'waitForUnlock of a held lock': 'acquire a; wait w; wait x | free a |',
    'waitForUnlock takes nothing': 'acquire a; wait w | free a | acquire b | free b |',
    'waitForUnlock while others take over': 'acquire a; acquire b; wait w | free a | free b |',
    'waitForUnlock, then a request behind it': 'acquire a; wait w | free a; acquire b;' +
        ' wait x |',
    'waitForUnlock before a request of a lower priority': 'acquire a; acquire b; wait w p1 |' +
        ' free a |',
    'waitForUnlock behind a request of a higher priority': 'acquire a; acquire b; wait w p-1 |' +
        ' free a | free b |',
    'waitForUnlock behind a request of the same priority': 'acquire a; acquire b p1;' +
        ' wait w p1 | free a | free b |',
    'waitForUnlock of several priorities': 'acquire a; acquire b; wait u p-1; wait v; wait w' +
        ' p1; wait x p2 | free a | free b |',
    'waitForUnlock as the line drains': 'acquire a; acquire b p2; acquire c p0; wait w p1;' +
        ' wait v p3 | free a | free b | free c |',
    'waitForUnlock in the order of priorities': 'acquire a; wait u p-1; wait v p2; wait w;' +
        ' wait x p2 | free a |',
    'waitForUnlock during a function': 'run r gate; wait w | open r |',
    'waitForUnlock between two functions': 'run r async; wait w p1; run s; wait x |',
    'release without a releaser': 'acquire a; acquire b | release | release |',
    'release of a free lock, never held': 'wait w; wait x |',
    'release with nobody behind': 'acquire a | release | acquire b |',
    'release in the turn of the request': 'acquire a; acquire b; release | release |',
    'release of all in one turn': 'acquire a; acquire b; acquire c; release; release; release |',
    'cancel of nobody': 'cancel | acquire a; cancel |',
    'cancel rejects all that wait, in order': 'acquire a; acquire b; run r; acquire c; cancel |',
    'cancel leaves the holder': 'acquire a; acquire b | cancel | free a | acquire c |',
    'cancel leaves a running function': 'run r gate; run s | cancel | open r |',
    'cancel leaves waitForUnlock': 'acquire a; wait w; acquire b; cancel | free a |',
    'cancel twice': 'acquire a; acquire b; cancel; cancel |',
    'cancel, then a request': 'acquire a; acquire b; cancel; acquire c | free a |',
    'cancel before the news of the grant': 'acquire a; acquire b; free a | cancel; free a;' +
        ' cancel |',
    'cancel inside a function': 'run r cancel; run s; acquire a |',
    'cancel with priorities': 'acquire a; acquire b p-1; acquire c p1; run r p2; cancel |',
    'a canceled request never locks': 'acquire a; run r; cancel; free a | wait w |',
    'release at the grant, cancel behind': 'acquire a; acquire b free; run r; cancel; free a |',
    'a released lock is free at once': 'acquire a | free a; acquire b; free a |',
    'tasks of one turn': 'run r; acquire a free; wait w; run s async; acquire b free; wait x' +
        ' p1 |',
    'microtasks between': 'acquire a; run r; wait w; tick 1; tick 1; tick 1; free a; tick 1;' +
        ' tick 1; tick 1; tick 1 |',
    'microtasks after a function': 'run r async; acquire a; tick 4; tick 1; tick 1; tick 1;' +
        ' free a; tick 1; wait w; tick 1 |',
};

const counted = {
    'so many at a time': 'acquire a; acquire b; acquire c | free a | free b | free c |',
    'the value at the grant': 'acquire a; acquire b w1; run r | free a; free b |',
    'weights': 'acquire a w2; acquire b | free a | free b |',
    'a weight as given back': 'acquire a w2 | free a | acquire b; acquire c | free b; free c |',
    'a heavy one isn\'t passed by its equals': 'acquire a; acquire b w2; acquire c | free a |' +
        ' free b |',
    'a light one with a priority passes a heavy one': 'acquire a w3; acquire b w1 p1; acquire' +
        ' c |',
    'a heavy one with a priority stands first': 'acquire a; acquire b; acquire c p-1; acquire' +
        ' d w2 p1 | free a | free b | free d |',
    'heavier than all': 'acquire a w5; acquire b | value 5 | free a |',
    'the same that is canceled': 'acquire a w5; acquire b | cancel | acquire c w2 |',
    'fractions of a weight': 'acquire a w0.5; acquire b w0.5; acquire c w1.5 | free a | free b |',
    'a weight of 0': 'acquire a w0 | run r w0 | wait w w0 | release w0 |',
    'a weight below 0': 'acquire a w-1 | run r w-1 | wait w w-1 | release w-1 |',
    'an infinite negative weight': 'acquire a w-Infinity | run r w-Infinity |',
    'a bad weight beside good ones': 'acquire a; acquire b w-2; acquire c; acquire d w0 p1;' +
        ' acquire e | free a |',
    'a function with a weight': 'run r gate w2; run s | open r |',
    'a function with a weight that throws': 'run r throw w2; acquire a w2 | free a |',
    'functions of weights and priorities': 'run r gate w2; run s gate w1; run t gate w2 p1;' +
        ' run u w1 p-1 | open r | open t | open s |',
    'functions side by side': 'run r async; run s; run t async; run u throw; run v |',
    'functions of one turn side by side': 'run r; run s; run t; run u; acquire a; wait w |',
    'release adds': 'release | release w2 | acquire a w5 |',
    'release by its weight serves several': 'acquire a w2; acquire b; acquire c | release w2 |',
    'release by its weight serves a heavy one': 'acquire a w2; acquire b w4 | release w2 |' +
        ' release w2 |',
    'release and a releaser': 'acquire a w2; acquire b | release; free a | free b |',
    'setValue wakes': 'value 0; acquire a; acquire b w2; acquire c w4 | value 3 | value 4 |',
    'setValue to less, with holders': 'acquire a; acquire b | value -1; free a; acquire c |' +
        ' free b | release |',
    'setValue to what is held': 'acquire a | value 0 | free a |',
    'setValue to more than one needs': 'acquire a w2; acquire b | value 10 |',
    'setValue of a free one': 'value 7 | acquire a w7 | free a |',
    'setValue to a fraction': 'value 0.5; acquire a; acquire b w0.5 p1 | value 1.5 |',
    'setValue with a heavy one ahead': 'value 0; acquire a w4; acquire b w8 | value 4 |',
    'isLocked below and at zero': 'value 0 | value -3 | release w3 | release |',
    'waitForUnlock while there is enough': 'acquire a; wait w; wait x w2 | free a |',
    'waitForUnlock by weights': 'acquire a w2; wait w; wait x w2 | release | release |',
    'waitForUnlock: the heaviest hears it first': 'acquire a w2; wait v; wait w w2; wait x;' +
        ' wait y w2 p1; wait z p1 | free a |',
    'waitForUnlock behind a heavy one': 'acquire a w3 p1; wait w w1 p2; wait x w1 p1; wait y' +
        ' | value 3 | free a |',
    'waitForUnlock between priorities': 'acquire a w2 p2; acquire b w2 p0; wait w w2 p1 |' +
        ' free a | free b |',
    'waitForUnlock for more than there is': 'wait w w3 | release | release |',
    'waitForUnlock behind two heavy ones': 'acquire a w2; acquire b w2; wait w | release w2 |' +
        ' release w2 |',
    'waitForUnlock as several are served': 'acquire a w2; acquire b; acquire c p-1; wait w' +
        ' p-2; wait x | value 3 |',
    'cancel of all weights': 'acquire a w2; acquire b w2; run r w1; acquire c w5; cancel |' +
        ' free a |',
    'release inside a function': 'run r release; run s; acquire a w3 |',
    'cancel inside a function': 'run r cancel w2; run s; acquire a w2 |',
    'microtasks between': 'acquire a; run r; run s async; wait w; tick 1; tick 1; free a;' +
        ' tick 1; tick 1; acquire b; tick 1; tick 1 |',
};

// Of other sizes, and of one that is made by `mine`: the error of cancel.
const named = [
    ['Semaphore 0', 'of 0', 'acquire a; wait w | release | free a | value 3 |'],
    ['Semaphore 0', 'of 0, a function', 'run r; run s | release |'],
    ['Semaphore -2', 'of less than 0', 'acquire a; wait w | release w2 | release w2 | free a |'],
    ['Semaphore -2', 'of less, by setValue', 'run r; acquire a w3 | value 3 | free a |'],
    ['Semaphore 0.5', 'of a half', 'acquire a w0.5; acquire b w0.5 | free a | wait w |'],
    ['Semaphore 5', 'of five', 'acquire a w2; acquire b w2; acquire c w2; run r w1 p1 | free' +
        ' a |'],
    ['Mutex mine', 'cancel', 'acquire a; acquire b; run r; cancel |'],
    ['Semaphore 1 mine', 'cancel', 'acquire a; acquire b; run r; cancel |'],
    ['withTimeout 500 Mutex mine', 'cancel', 'acquire a; acquire b; run r; cancel |'],
    ['withTimeout 500 Semaphore 1 mine', 'cancel', 'acquire a; acquire b; run r; cancel |'],
    ['withTimeout 500 mine Mutex', 'cancel', 'acquire a; acquire b; run r; cancel |'],
    ['tryAcquire mine Mutex', 'rejects', 'acquire a; acquire b; run r; wait w | pass 1 | free' +
        ' a quiet |'],
    ['tryAcquire mine Semaphore 2', 'rejects', 'acquire a w2; acquire b; run r; wait w | pass' +
        ' 1 |'],
    ['withTimeout 50 mine Semaphore 2', 'a heavy one', 'acquire a w3 | pass 50 |'],
    ['withTimeout 50 Semaphore 2', 'bad weights', 'acquire a w0 | run r w-1 | wait w w0 |' +
        ' pass 50 |'],
    ['withTimeout 90 withTimeout 50 Semaphore 1', 'the earlier', 'acquire a; acquire b | pass' +
        ' 50 | pass 50 |'],
    ['withTimeout 50 withTimeout 90 Semaphore 1', 'the earlier', 'acquire a; run r | pass 50' +
        ' | pass 50 |'],
    ['withTimeout 50 tryAcquire Semaphore 1', 'the earlier', 'acquire a; acquire b | pass 1 |' +
        ' pass 50 |'],
    ['tryAcquire withTimeout 50 Semaphore 1', 'the earlier', 'acquire a; acquire b | pass 1 |' +
        ' pass 50 |'],
];

const limited = {
    'in time': 'acquire a; acquire b | pass 49 | free a | pass 50 |',
    'too late': 'acquire a; acquire b | pass 49 | pass 1 | free a quiet |',
    'a function too late never runs': 'acquire a; run r | pass 50 | free a quiet |',
    'a function in time': 'acquire a; run r | pass 49; free a | pass 50 |',
    'the time isn\'t that of the function': 'run r gate | pass 500 | open r |',
    'the time isn\'t that of the hold': 'acquire a | pass 500 | free a |',
    'waitForUnlock too late': 'acquire a; wait w | pass 50 | free a |',
    'waitForUnlock in time': 'acquire a; wait w | pass 49 | free a | pass 50 |',
    'several at once': 'acquire a; acquire b; run r; wait w; acquire c | pass 50 |',
    'one after the other': 'acquire a; acquire b | pass 20 | run r | pass 20 | wait w | pass' +
        ' 20 | pass 20 | pass 20 |',
    'cancel before': 'acquire a; acquire b | cancel | pass 50 |',
    'cancel after': 'acquire a; acquire b | pass 50 | cancel |',
    'a request after one that was too late': 'acquire a; acquire b | pass 50 | acquire c;' +
        ' free a | free c |',
    'priorities, all too late': 'acquire a; acquire b p-1; acquire c p1; run r p2 | pass 50 |',
};

const tried = {
    'free': 'acquire a | free a | run r | wait w |',
    'held': 'acquire a; acquire b | pass 1 | free a quiet |',
    'held, a function': 'acquire a; run r | pass 1 | free a quiet |',
    'held, waitForUnlock': 'acquire a; wait w | pass 1 | free a |',
    'given back in the same turn': 'acquire a; acquire b; free a | pass 1 |',
    'given back as soon as it is granted': 'acquire a free; acquire b; run r; wait w | pass 1 |',
    'functions of one turn': 'run r; run s; run t async | pass 1 |',
    'two, while a function runs': 'run r gate; run s; acquire a | pass 1 | open r |',
    'cancel in the same turn': 'acquire a; acquire b; cancel | pass 1 |',
    'again after a failure': 'acquire a; acquire b | pass 1 | free a quiet | acquire c |',
};

const scenarios = [...named];
for (const [locks, table] of [[ANY, any], [COUNTED, counted], [LIMITED, limited], [TRIED, tried]])
    for (const [name, script] of Object.entries(table))
        for (const lock of locks) scenarios.push([lock, name, script]);

module.exports = { scenarios };
