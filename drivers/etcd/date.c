/*
 * date.c - see date.h.
 *
 * An HTTP date has whole seconds. So one date bounds the difference of the server's clock and the
 * local one only to within a second, and two processes might disagree by that much. Each further
 * date may narrow the bounds: those that agree with all dates are kept, as the core does with
 * clocks (core/state/clock.h). The first few dates are asked for soon after each other.
 */
#include "date.h"

#include "dial.h"
#include "http.h"
#include "os.h"
#include "transport.h"

enum {
    SECOND = 1000000,
    EVERY_US = 60 * SECOND,
    SOON_US = 310000, /* not a fraction of a second, so each request meets another part of one */
    CLOSE_US = 200000,
    CLOSE_TIMES = 8,
    STEP_US = 10 * SECOND, /* a date this much earlier means that the server's clock was set back */
    DRIFT_PPM = 500,
    LATELY_US = SECOND / 2
};

void hf__et_date_open(struct hf__et_date *date)
{
    pthread_mutex_init(&date->asking, NULL);
    pthread_mutex_init(&date->mu, NULL);
}

void hf__et_date_close(struct hf__et_date *date)
{
    pthread_mutex_destroy(&date->asking);
    pthread_mutex_destroy(&date->mu);
}

/* Returns by how much two clocks may have drifted apart since the date was asked for. */
static int64_t drift(const struct hf__et_date *date, int64_t local_us)
{
    return (local_us - date->asked_us) * DRIFT_PPM / SECOND;
}

void hf__et_date_told(struct hf__et_date *date, int64_t sent_us, int64_t received_us,
                      int64_t date_us)
{
    int64_t lo = date_us - received_us, hi = date_us + SECOND - sent_us;
    pthread_mutex_lock(&date->mu);
    int64_t far_us = drift(date, received_us);
    if (!date->known || lo >= date->hi_us + far_us || hi <= date->lo_us - far_us) {
        date->lo_us = lo;
        date->hi_us = hi;
        /* Dates that don't agree mean that a clock was set, or that members' clocks differ. In the
           second case asking soon again would go on for ever, so that is done once in EVERY_US. */
        if (!date->known || received_us - date->set_us >= EVERY_US) date->close = 0;
        date->set_us = received_us;
    } else {
        if (lo > date->lo_us - far_us)
            date->lo_us = lo;
        else
            date->lo_us -= far_us;
        if (hi < date->hi_us + far_us)
            date->hi_us = hi;
        else
            date->hi_us += far_us;
    }
    date->known = 1;
    date->asked_us = received_us;
    date->mute_until_us = 0;
    int close = date->hi_us - date->lo_us <= CLOSE_US;
    int soon = !close && date->close++ < CLOSE_TIMES;
    if (close) date->close = 0; /* drift moves the bounds apart again, and then it's asked again */
    date->due_us = received_us + (soon ? SOON_US : EVERY_US);
    pthread_mutex_unlock(&date->mu);
}

void hf__et_date_doubt(struct hf__et_date *date)
{
    pthread_mutex_lock(&date->mu);
    if (hf__local_us() - date->asked_us >= SECOND) date->due_us = 0;
    pthread_mutex_unlock(&date->mu);
}

int64_t hf__et_date_at(struct hf__et_date *date, int64_t revision)
{
    int64_t us = 0;
    pthread_mutex_lock(&date->mu);
    if (date->known) {
        int64_t now = hf__local_us();
        us = now + date->lo_us - drift(date, now);
        /* The part below a second is made from the cluster's revision, which each write raises by
           one. Each revision counts 16 µs, because a write that makes several grants raises the
           row's rev by as many. */
        us = us - us % SECOND + revision * 16 % SECOND;
        if (us < date->told_us && us > date->told_us - STEP_US) us = date->told_us;
        date->told_us = us;
    }
    pthread_mutex_unlock(&date->mu);
    return us;
}

/* ---- asking ---- */

static void look(struct hf__et_date *date, int *ret_known, int *ret_due)
{
    pthread_mutex_lock(&date->mu);
    *ret_known = date->known;
    *ret_due = !date->known || hf__local_us() >= date->due_us;
    pthread_mutex_unlock(&date->mu);
}

static int ask_one(void *arg, int fd, const char *endpoint, int64_t until_us, char why[HF_ET_WHY])
{
    struct hf__et_http *http = arg;
    int64_t sent_us = hf__local_us(), date_us;
    int rc = hf__et_ask_date(http, fd, endpoint, until_us, &date_us, why);
    if (!rc) hf__et_date_told(&http->date, sent_us, hf__local_us(), date_us);
    return rc;
}

/* Asks one of the endpoints for its date, and notes it. If a date is `known` already, waits for a
   second at most, and leaves http->at as it is. */
static int ask(struct hf__et_http *http, int known, char why[HF_ET_WHY])
{
    int64_t wait_us = known ? SECOND : http->io_timeout_ms * 1000;
    unsigned at = __atomic_load_n(&http->at, __ATOMIC_RELAXED);
    int rc = hf__et_dial(http, hf__local_us() + wait_us, ask_one, http, why);
    if (!rc && known) __atomic_store_n(&http->at, at, __ATOMIC_RELAXED);
    return rc;
}

/* Notes that no server gave a date, so that none is asked again for a while. */
static void not_told(struct hf__et_date *date)
{
    pthread_mutex_lock(&date->mu);
    date->due_us = date->mute_until_us = hf__local_us() + EVERY_US;
    pthread_mutex_unlock(&date->mu);
}

int hf__et_date_need(struct hf__et_http *http, hf_error *err)
{
    struct hf__et_date *date = &http->date;
    char why[HF_ET_WHY];
    int known, due, rc = 0;
    look(date, &known, &due);
    if (!due) return 0;
    if (known) {
        if (pthread_mutex_trylock(&date->asking)) return 0;
    } else {
        pthread_mutex_lock(&date->asking);
    }
    look(date, &known, &due); /* another thread may have asked meanwhile */
    if (due) rc = ask(http, known, why);
    if (rc && known) {
        not_told(date);
        rc = 0;
    }
    pthread_mutex_unlock(&date->asking);
    if (!rc) return 0;
    return hf_fail(err, rc, 0, "etcd: connect %s", why);
}

/* ---- where nothing else is left ---- */

/* Returns 1 if both bounds of the server's time are in the same second. *ret_us: the second of the
   upper bound. *ret_mute: 1 if no server gave a date lately. */
static int is_certain(struct hf__et_date *date, int64_t *ret_us, int *ret_mute)
{
    pthread_mutex_lock(&date->mu);
    int64_t now = hf__local_us(), far_us = drift(date, now);
    int64_t lo = now + date->lo_us - far_us, hi = now + date->hi_us + far_us - 1;
    *ret_us = hi - hi % SECOND;
    *ret_mute = now < date->mute_until_us;
    pthread_mutex_unlock(&date->mu);
    return lo / SECOND == hi / SECOND;
}

int64_t hf__et_date_of_row(struct hf__et_http *http, uint64_t rev, int64_t clock_us)
{
    struct hf__et_date *date = &http->date;
    char why[HF_ET_WHY];
    int64_t us, within_us = clock_us % SECOND;
    int mute;
    if (rev && (int64_t)rev + LATELY_US > clock_us) return clock_us;
    if (is_certain(date, &us, &mute)) return us + within_us;
    pthread_mutex_lock(&date->asking);
    if (!is_certain(date, &us, &mute) && !mute) {
        /* The server's date of this moment isn't earlier than one that it gave another client. */
        if (ask(http, 1, why))
            not_told(date);
        else
            us = hf__et_date_at(date, 0);
        us -= us % SECOND;
    }
    pthread_mutex_unlock(&date->asking);
    return us + within_us;
}
