/*
 * outage_party.c - a process that asks for keys, holds them and gives them back; see outage.h.
 */
#include "outage.h"

#include "os.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEEP_MS = 3600000,
    BOUND_MS = 300000,
    TOLD_MS = 25000,
    FOREVER_BOUND_MS = 600000,
    REOPEN_AFTER = 20
};

static struct party *me;
static int my_number;
static hf_error err;
_Atomic int64_t *outage_step_s;

static void begin(const char *what, int64_t ms)
{
    me->doing = what;
    __atomic_store_n(&me->late_us, outage_us() + ms * 1000, __ATOMIC_SEQ_CST);
}

static void odd(const char *what, int rc)
{
    if (*me->odd) return;
    snprintf(me->odd, sizeof me->odd, "party %d: %s: %s: %s", my_number, what, hf_code_name(rc),
             err.text);
}

/* Counts an answer. Only these may be given while a store comes and goes. */
static void note(const char *what, int rc)
{
    __atomic_store_n(&me->late_us, 0, __ATOMIC_SEQ_CST);
    if (rc == HF_BUSY || rc == HF_TIMEOUT)
        me->count[REFUSALS]++;
    else if (rc == HF_LOST)
        me->count[LOSSES]++;
    else if (rc == HF_UNKNOWN)
        me->count[UNKNOWNS]++;
    else if (rc == HF_UNAVAILABLE)
        me->count[AWAYS]++;
    else if (rc)
        odd(what, rc);
}

/* Holds the lock until until_us or the end of the test, or until it learns that the lock is lost.
   Notes the first and the last moment at which it believed to hold. */
static void hold_on(hf_lock *lock, struct hold *hold, int64_t until_us)
{
    struct pollfd told = {outage_below(2) ? hf_lost_fd(lock) : -1, POLLIN, 0};
    for (;;) {
        int64_t before = outage_us();
        int64_t left = hf_left_ms(lock);
        int64_t after = outage_us();
        if (left <= 0) break;
        if (!hold->first_us) __atomic_store_n(&hold->first_us, after, __ATOMIC_RELEASE);
        __atomic_store_n(&hold->last_us, before, __ATOMIC_RELEASE);
        if (before >= until_us || __atomic_load_n(&world->stop, __ATOMIC_RELAXED)) return;
        usleep(400);
    }
    hold->lost = 1;
    if (told.fd >= 0 && poll(&told, 1, TOLD_MS) != 1) odd("a lost lock wasn't told", 0);
}

static void hold_and_release(hf_lock *lock, int key, int64_t asked_us)
{
    uint32_t at = __atomic_fetch_add(&world->n_holds, 1, __ATOMIC_SEQ_CST);
    if (at >= OUTAGE_HOLDS) _exit(0);
    struct hold *hold = &world->hold[at];
    hold->key = key;
    hold->party = my_number;
    hold->asked_us = asked_us;
    hold->token = hf_token(lock);
    me->count[GRANTS]++;
    int64_t ms = outage_below(key ? 20 : 4) ? (int64_t)outage_below(60) : outage_lease_ms * 13 / 5;
    int64_t until_us = outage_us() + ms * 1000;
    __atomic_store_n(&me->holds_until_us, until_us, __ATOMIC_RELEASE);
    hold_on(lock, hold, until_us);
    __atomic_store_n(&me->holds_until_us, 0, __ATOMIC_RELEASE);
    begin("release", BOUND_MS);
    int rc = hf_release(lock, &err);
    note("release", rc);
    if (hold->lost && !rc) odd("a lost lock was given back", rc);
    if (rc == HF_LOST) hold->lost = 1;
}

static void ask(hf *h)
{
    static const int64_t waits[] = {0, 0, 300, 2000, 2000, 5000, 5000, HF_FOREVER};
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock = NULL;
    int key = (int)outage_below(OUTAGE_KEYS);
    o.lease_ms = outage_lease_ms;
    o.wait_ms = waits[outage_below(sizeof waits / sizeof *waits)];
    if (!my_number && outage_below(10)) o.wait_ms = 0; /* sees each outage */
    int64_t asked_us = outage_us();
    begin("acquire", o.wait_ms == HF_FOREVER ? FOREVER_BOUND_MS : o.wait_ms + BOUND_MS);
    int rc = hf_acquire(h, outage_key(key), &o, &lock, &err);
    note("acquire", rc);
    if (!rc) hold_and_release(lock, key, asked_us);
    usleep((useconds_t)(1000 + outage_below(20000)));
}

/* ---- a clock on the wall ---- */

/* Loads stepped.c in front of all libraries, the party's own and those of the drivers. */
int outage_step_clocks(char **argv)
{
    const char *library = getenv("HOLDFAST_TEST_STEPPED");
    outage_step_s = (_Atomic int64_t *)dlsym(RTLD_DEFAULT, "hf_test_step_s");
    if (outage_step_s) {
        unsetenv("LD_PRELOAD"); /* the server's control must not have it */
        int64_t before_us = hf__day_us();
        *outage_step_s = 1000;
        int in_front = hf__day_us() > before_us + 900000000;
        *outage_step_s = 0;
        return in_front ? 0 : 70;
    }
    if (!library || getenv("LD_PRELOAD")) {
        fprintf(stderr, "outage: $HOLDFAST_TEST_STEPPED: not the library of stepped.c\n");
        return 64;
    }
    setenv("LD_PRELOAD", library, 1);
    execv("/proc/self/exe", argv);
    return 71;
}

/* Steps it by a year, either way, and back. */
static void ask_by_a_wrong_clock(hf *h)
{
    static const int64_t year_s = 365 * 86400;
    *outage_step_s = ((int64_t)outage_below(3) - 1) * year_s;
    ask(h);
}

/* ---- events ---- */

static int run_event(hf_lock *lock, struct event *e, int64_t asked_us)
{
    char result[24];
    uint64_t token = hf_token(lock);
    me->count[GRANTS]++;
    int64_t finished_us = __atomic_load_n(&e->finished_us, __ATOMIC_ACQUIRE);
    if (finished_us && finished_us < asked_us) odd("an event that was done ran again", 0);
    usleep((useconds_t)(20000 + outage_below(60000)));
    snprintf(result, sizeof result, "%llu", (unsigned long long)token);
    begin("finish", BOUND_MS);
    int rc = hf_once_finish(lock, result, KEEP_MS, &err);
    note("finish", rc);
    if (rc) return 0;
    uint64_t none = 0;
    if (!__atomic_compare_exchange_n(&e->token, &none, token, 0, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        odd("an event was finished twice", 0);
    __atomic_store_n(&e->finished_us, outage_us(), __ATOMIC_RELEASE);
    return 1;
}

/* The next event: 1 when it is done. */
static int service(hf *h, int number)
{
    struct event *e = &world->event[number];
    hf_options o = HF_OPTIONS_INIT;
    hf_once once;
    char key[40];
    snprintf(key, sizeof key, "outage/event/%d", number);
    o.lease_ms = outage_lease_ms;
    o.wait_ms = 2000;
    int64_t asked_us = outage_us();
    begin("once", o.wait_ms + BOUND_MS);
    int rc = hf_once_begin(h, key, KEEP_MS, &o, &once, &err);
    note("once", rc);
    if (rc) return 0;
    if (once.lock) return run_event(once.lock, e, asked_us);
    me->count[DONES]++;
    uint64_t token = __atomic_load_n(&e->token, __ATOMIC_ACQUIRE);
    if (token && strtoull(once.result, NULL, 10) != token) odd("an event has another result", 0);
    return 1;
}

/* ---- a life ---- */

static int stopped(void) { return __atomic_load_n(&world->stop, __ATOMIC_RELAXED); }

/* Opens, does so a few times, closes, opens again. */
static _Noreturn void live(int number, void (*act)(hf *h))
{
    hf_open_options oo = HF_OPEN_OPTIONS_INIT;
    oo.io_timeout_ms = IO_MS;
    my_number = number;
    me = &world->party[number];
    while (!stopped()) {
        hf *h;
        begin("open", BOUND_MS);
        int rc = hf_open(outage_url, &oo, &h, &err);
        note("open", rc);
        if (rc) usleep(50000);
        for (int i = 0; !rc && i < REOPEN_AFTER && !stopped(); i++) act(h);
        begin("close", BOUND_MS);
        if (!rc) hf_close(h);
        note("close", 0);
    }
    _exit(0);
}

static void service_next(hf *h)
{
    static int next;
    if (next < OUTAGE_EVENTS)
        next += service(h, next);
    else
        usleep(5000);
    me->through = next == OUTAGE_EVENTS;
}

void party_run(int number) { live(number, ask); }
void party_stepped(int number) { live(number, ask_by_a_wrong_clock); }
void party_service(int number) { live(number, service_next); }
