/*
 * conform_notify.c - the conformance suite finds each way in which notifications break their rules
 * (conform/notify.c). The store is `mem:`, which notifies by its wakeup 0, where all parties wait.
 */
#include "conform.h"
#include "drivers.h"
#include "key_marks.h"
#include "os.h"
#include "test.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static const hf_driver *base = &hf__mem_driver;
static hf_driver liar;

static enum lie {
    HONEST,
    NO_MEMORY,
    NO_FLUSH,
    NO_SLEEP,
    NO_EVENT,
    OTHER_KEY,
    WITHOUT_END,
    NOT_AGAIN,  /* a key that was unsubscribed from is dead */
    NOT_QUEUED, /* so is one whose request is in the queue */
    FIRST_KEYS, /* of many keys, some are dropped */
    FORGETS_INTERRUPTS,
    SLEEPS_ON, /* a running sleep doesn't see an interruption */
    OVERSLEEPS,
    LIES
} lie;
static int is_lost; /* the subscription */
static int events;
static _Atomic int sleeps;

/* ---- the clock, which goes on where nothing else would ---- */

static _Atomic int64_t ahead_s;
int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
    int rc = __real_clock_gettime(id, ret);
    ret->tv_sec += ahead_s;
    return rc;
}

/* ---- notifications ---- */

static int no(hf_error *err) { return hf_fail(err, HF_DENIED, 0, "liar: denied"); }

static int subscribe(hf_store *st, const hf_rowkey *key)
{
    (void)st;
    is_lost |= lie == NOT_QUEUED && key->in_line;
    return lie == NO_MEMORY ? HF_NOMEM : 0;
}

static void unsubscribe(hf_store *st, const hf_rowkey *key)
{
    (void)st, (void)key;
    is_lost = lie == NOT_AGAIN;
}

static int flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    return lie == NO_FLUSH ? no(err)
                           : base->caps.local->wakeup_begin(st, 0, HF_MARKS_FROM, ret, err);
}

static int sleep_until(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    const int64_t nap_us = hf__local_us() + 100000;
    if (lie == NO_SLEEP) return no(err);
    sleeps = 1;
    int rc = 0;
    while (!rc && hf__local_us() < nap_us && hf__local_us() < until_us)
        rc = base->caps.local->sleep(st, 0, since, until_us < nap_us ? until_us : nap_us, err);
    sleeps = 0;
    /* Nothing comes any more, for that is the lie. */
    if (lie != HONEST && hf__local_us() >= nap_us)
        ahead_s += (until_us - hf__local_us()) / 1000000 + 1;
    if (lie == OVERSLEEPS) ahead_s += 10;
    return rc;
}

static int next_event(hf_store *st, hf_key_event *ret)
{
    int is = base->caps.local->next_event(st, 0, ret);
    if (lie == WITHOUT_END) return 1;
    if (is && lie == OTHER_KEY) *ret = (hf_key_event){1, UINT64_MAX};
    events += is;
    if (is && lie == FIRST_KEYS && events % 8 == 0) *ret = (hf_key_event){1, UINT64_MAX};
    return is && !is_lost && lie != NO_EVENT;
}

static void interrupt(hf_store *st)
{
    if (lie != (sleeps ? SLEEPS_ON : FORGETS_INTERRUPTS)) base->caps.local->interrupt(st, 0);
}

static const hf_notify_ops notify = {.subscribe = subscribe,
                                     .unsubscribe = unsubscribe,
                                     .flush = flush,
                                     .sleep = sleep_until,
                                     .next_event = next_event,
                                     .interrupt = interrupt};

/* ---- tests ---- */

static int told;
static char first_why[400];

static void say(void *arg, const char *promise, const char *why)
{
    (void)arg, (void)promise;
    told++;
    if (why && !first_why[0]) snprintf(first_why, sizeof first_why, "%s", why);
}

/* How many promises aren't kept. */
static int examine(enum lie of)
{
    hf_url url;
    static unsigned runs;
    assert_int_equal(hf_url_parse("mem:notify", &url, NULL), 0);
    struct hf__suite cfm = {.drv = &liar, .url = &url, .say = say, .caps = liar.caps};
    snprintf(cfm.prefix, sizeof cfm.prefix, "holdfast-conform/%u/", ++runs);
    assert_int_equal(hf__con_open(&cfm, &cfm.con, NULL), 0);
    lie = of;
    is_lost = told = events = 0;
    first_why[0] = 0;
    hf__conform_notify(&cfm);
    lie = HONEST;
    hf__con_close(&cfm.con);
    assert_int_equal(told, 3);
    return cfm.failed;
}

static void make(void)
{
    liar = *base;
    liar.caps.local = NULL;
    liar.caps.notify = &notify;
}

static void an_honest_store_passes(void **state)
{
    (void)state;
    make();
    if (examine(HONEST)) fail_msg("%s", first_why);
}

static void each_broken_rule_is_found(void **state)
{
    (void)state;
    static const struct {
        enum lie lie;
        const char *why;
    } cases[] = {{NO_MEMORY, "out of memory"},
                 {NO_FLUSH, "flush: liar: denied"},
                 {NO_SLEEP, "sleep: liar: denied"},
                 {NO_EVENT, "way 0: no event of key 0 of 1 came"},
                 {OTHER_KEY, "way 0: no event of key 0 of 1 came"},
                 {WITHOUT_END, "without end"},
                 {NOT_AGAIN, "subscribed in way 1: no event"},
                 {NOT_QUEUED, "subscribed in way 1: no event"},
                 {FIRST_KEYS, "of 40 came"},
                 {FORGETS_INTERRUPTS, "although it was interrupted"},
                 {SLEEPS_ON, "although it was interrupted"},
                 {OVERSLEEPS, "slept on"}};
    make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!examine(cases[i].lie) || !strstr(first_why, cases[i].why))
            fail_msg("lie %d: '%s' instead of '%s'", (int)cases[i].lie, first_why, cases[i].why);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_store_passes),
        cmocka_unit_test(each_broken_rule_is_found),
    };
    return TEST_MAIN(tests);
}
