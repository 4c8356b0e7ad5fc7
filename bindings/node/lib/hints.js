// What other libraries call the options, and how they are written here.
'use strict';

const LOCK = {
    wait: 'timeout blockingtimeout waittimeout acquiretimeout acquisitiontimeout lockwaittimeout ' +
        'maxwait maxwaittime waittime waitfor retry retries retrycount retrytimes maxretries ' +
        'maxattempts attempts acquireattemptslimit retrydelay retryinterval retryjitter ' +
        'retrytimeout sleep deadline',
    'wait: 0': 'blocking block nowait nonblocking trylock failfast',
    lease: 'ttl expire expires expiresin expiry expiration expirationtime expiretime locktimeout ' +
        'lockttl leasetime leaseduration duration ex px stale maxage lifetime validity',
    noRenew: 'autorenewal autorenew renew renewal autoextend autoextension extend ' +
        'automaticextensionthreshold refreshinterval renewinterval heartbeat heartbeatinterval ' +
        'keepalive watchdog',
    recursive: 'reentrant domainreentrant',
    limit: 'maxholders value permits maxleases concurrency maxconcurrency capacity',
    owner: 'identifier id holder holderid ownerid clientid lockedby uuid',
    note: 'comment metadata description reason',
    requestId: 'request idempotencykey',
    shared: 'read readonly sharedlock exclusive',
    maxHold: 'atmostfor lockatmostfor maxholdtime maxoccupationtime maxexecutiontime maxduration',
    atLeast: 'atleastfor lockatleastfor minhold minduration',
    signal: 'abortsignal abort abortcontroller cancelsignal',
    keep: 'keepfor retention',
};
const OPEN = {
    ioTimeout: 'timeout connecttimeout connectiontimeout requesttimeout commandtimeout ' +
        'sockettimeout',
    owner: 'identifier id holder clientid ownerid name clientname',
    note: 'comment metadata description',
    existing: 'mustexist create',
};

const spelled = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, '');

function find(table, names, plain) {
    const own = [...names].find((name) => spelled(name) === plain);
    if (own) return own;
    const [right] = Object.entries(table).find(([right, others]) =>
        names.has(right.replace(/:.*/, '')) && others.split(' ').includes(plain)) ?? [];
    return right;
}

// Returns how the option with another library's name is written here; `names` are the options there
// are.
function hint(name, names, doing) {
    const table = doing === 'open' ? OPEN : LOCK, plain = spelled(name);
    const right = find(table, names, plain) ??
        find(table, names, plain.replace(/(in)?(ms|millis|milliseconds)$/, ''));
    // In a library of events a time to live is how long an event is remembered.
    return right === 'lease' && doing === 'once' ? 'lease, or keep' : right;
}

module.exports = { hint };
