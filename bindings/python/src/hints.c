/*
 * hints.c - what other libraries call the options, and how they are written here.
 */
#include "ext.h"

#include <stdio.h>
#include <string.h>

/* The names in small letters without underscores, each between two spaces; the first one is the
   option's own. */
struct hint {
    const char *write, *names;
};

static const struct hint of_locks[] = {
    {"wait", " wait timeout blockingtimeout waittimeout acquiretimeout acquisitiontimeout "
             "lockwaittimeout maxwait maxwaittime waittime waitfor retry retries retrycount "
             "retrytimes maxretries maxattempts attempts acquireattemptslimit retrydelay "
             "retryinterval retryjitter retrytimeout sleep deadline "},
    {"wait=0", " blocking block nowait nonblocking trylock failfast "},
    {"lease", " lease ttl expire expires expiresin expiry expiration expirationtime expiretime "
              "locktimeout lockttl leasetime leaseduration duration ex stale maxage lifetime "
              "validity "},
    {"lease, in seconds", " px "},
    {"no_renew", " norenew autorenewal autorenew renew renewal autoextend autoextension extend "
                 "automaticextensionthreshold refreshinterval renewinterval heartbeat "
                 "heartbeatinterval keepalive watchdog "},
    {"recursive", " recursive reentrant domainreentrant "},
    {"limit", " limit maxholders value permits maxleases concurrency maxconcurrency capacity "},
    {"owner", " owner identifier id holder holderid ownerid clientid lockedby uuid "},
    {"note", " note comment metadata description reason "},
    {"request_id", " requestid request idempotencykey "},
    {"shared", " shared read readonly sharedlock exclusive "},
    {"detached", " detached "},
    {"unqueued", " unqueued "},
    {"max_hold", " maxhold atmostfor lockatmostfor maxholdtime maxoccupationtime "
                 "maxexecutiontime maxduration "},
    {"at_least", " atleast atleastfor lockatleastfor minhold minduration "},
    {NULL, NULL}};

/* For `once`, these names are looked up before those of lock options: in a library of events, a
   "time to live" may be for how long an event is remembered. */
static const struct hint of_once[] = {
    {"lease, or keep", " ttl expire expires expiresin expiry expiration expirationtime expiretime "
                       "locktimeout lockttl leasetime leaseduration duration ex stale maxage "
                       "lifetime validity "},
    {"keep", " keep keepfor retention "},
    {"at_most_once", " atmostonce "},
    {NULL, NULL}};

static const struct hint of_open[] = {
    {"io_timeout", " iotimeout timeout connecttimeout connectiontimeout requesttimeout "
                   "commandtimeout sockettimeout "},
    {"owner", " owner identifier id holder clientid ownerid name clientname "},
    {"note", " note comment metadata description "},
    {"existing", " existing mustexist create "},
    {NULL, NULL}};

static const char *find(const struct hint *table, const char *spelled)
{
    for (; table->write; table++)
        if (strstr(table->names, spelled)) return table->write;
    return NULL;
}

/* Writes " name ", in small letters without underscores; *ret_length: the length of the name.
   Returns 0 if it is too long, or has other characters. */
static int spell(PyObject *name, char *to, size_t cap, size_t *ret_length)
{
    size_t n = 0;
    Py_ssize_t length = PyUnicode_GetLength(name);
    to[n++] = ' ';
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 c = PyUnicode_ReadChar(name, i);
        if (c == '_') continue;
        if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
        if (((c < 'a' || c > 'z') && (c < '0' || c > '9')) || n + 3 > cap) return 0;
        to[n++] = (char)c;
    }
    *ret_length = n - 1;
    to[n++] = ' ';
    to[n] = 0;
    return 1;
}

static const char *find_in_all(int for_what, const char *spelled)
{
    const char *write = for_what == FOR_ONCE ? find(of_once, spelled) : NULL;
    return write ? write : find(for_what == FOR_OPEN ? of_open : of_locks, spelled);
}

int hint_read(PyObject *name, int for_what, char *ret, size_t cap)
{
    char spelled[64];
    size_t n;
    if (!spell(name, spelled, sizeof spelled, &n)) return 0;
    const char *write = find_in_all(for_what, spelled), *unit = "";
    static const char *const units[] = {"milliseconds", "millis", "ms"};
    for (size_t i = 0; !write && i < sizeof units / sizeof *units; i++) {
        size_t m = strlen(units[i]);
        if (n <= m || memcmp(spelled + 1 + n - m, units[i], m)) continue;
        spelled[1 + n - m] = ' ';
        spelled[2 + n - m] = 0;
        write = find_in_all(for_what, spelled);
        unit = ", in seconds";
        break;
    }
    if (!write) return 0;
    if (for_what != FOR_ACQUIRE)
        snprintf(ret, cap, "write %s%s", write, unit);
    else if (!strncmp(write, "wait", 4))
        snprintf(ret, cap, "write %s%s", write[4] ? "blocking=False" : "timeout", unit);
    else
        snprintf(ret, cap, "write store.lock(key, %.20s=...)", write);
    return 1;
}

PyObject *open_hint(PyObject *module, PyObject *name)
{
    char write[80];
    (void)module;
    if (PyUnicode_Check(name) && hint_read(name, FOR_OPEN, write, sizeof write))
        return PyUnicode_FromString(write);
    Py_RETURN_NONE;
}
