/*
 * port.c - the calls of a driver's operations. Each takes the store's clock from the reply, is
 * serialized if need be, and is counted. See port.h.
 */
#include "port.h"

#include "os.h"

#include <time.h>

/* Stores with hf_session_ops: a reading that is earlier than the last one by more than this means
   that the store's clock was set back. By less: it is from an old reply, and is ignored. */
enum { COARSE_STEP_US = 10000000 };

void hf__pause(int64_t us)
{
    uint32_t r;
    hf__random(&r, sizeof r);
    us = us / 2 + (int64_t)((uint64_t)us * r >> 32);
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

struct hf_time hf__port_now(struct hf_port *port)
{
    if (port->caps.local) {
        int64_t now = port->caps.local->now(port->st);
        return (struct hf_time){now, now};
    }
    pthread_mutex_lock(&port->mu);
    struct hf_time t = hf__clock_at(&port->clock, hf__local_us());
    /* The value that was read, not extrapolated: revs are made from it, and all clients have to use
       the store's own values. */
    if (port->caps.sessions) t.lo_us = port->clock.lo_us;
    pthread_mutex_unlock(&port->mu);
    return t;
}

void hf__port_clock(struct hf_port *port, int64_t sent_us, int64_t clock_us)
{
    int64_t received_us = hf__local_us(), resolution_us = port->caps.clock_resolution_us;
    struct hf_clock *k = &port->clock;
    pthread_mutex_lock(&port->mu);
    if (!port->caps.sessions)
        hf__clock_add(k, sent_us, received_us, clock_us, resolution_us ? resolution_us : 1000);
    else if (clock_us > k->lo_us || (clock_us && clock_us < k->lo_us - COARSE_STEP_US))
        *k = (struct hf_clock){1, clock_us, received_us, clock_us, received_us, 0};
    pthread_mutex_unlock(&port->mu);
}

void hf__port_asked(struct hf_port *port, int times)
{
    /* Relaxed: a statistic. */
    if (times > 0) __atomic_fetch_add(&port->ops, (uint64_t)times, __ATOMIC_RELAXED);
}

void hf__port_lock(struct hf_port *port)
{
    if (!port->caps.threads) pthread_mutex_lock(&port->serial);
}

void hf__port_unlock(struct hf_port *port)
{
    if (!port->caps.threads) pthread_mutex_unlock(&port->serial);
}

/* Begins a request: counts it, and locks the driver if its calls are serialized. Returns the local
   time, for end(); 0 on a local store, which needs none. */
static int64_t begin(struct hf_port *port)
{
    /* Relaxed: a statistic. */
    __atomic_fetch_add(&port->ops, 1, __ATOMIC_RELAXED);
    if (port->caps.local) return 0;
    hf__port_lock(port);
    return hf__local_us();
}

/* Adds the time of an answered request to the moving average. Relaxed: of two at the same moment
   one may be left out. */
static void note_trip(struct hf_port *port, int64_t us)
{
    int64_t was = hf__port_round_trip_us(port);
    __atomic_store_n(&port->round_trip_us, was ? was + (us - was) / 8 : us + 1, __ATOMIC_RELAXED);
}

/* Adds the time of several replaces to the average. No single one took longer, but each may have
   been shorter, because they may have waited for each other. So a time above the average is left
   out. */
static void note_trip_of_many(struct hf_port *port, const hf_replace *item, size_t n, int64_t us)
{
    size_t answered = 0;
    for (size_t i = 0; i < n; i++) answered += item[i].clock_us != 0;
    if (!n || answered < n) return;
    if (n == 1 || us < hf__port_round_trip_us(port)) note_trip(port, us);
}

static void end(struct hf_port *port, int64_t sent_us, int64_t clock_us)
{
    if (port->caps.local) return;
    hf__port_unlock(port);
    hf__port_clock(port, sent_us, clock_us);
    if (clock_us) note_trip(port, hf__local_us() - sent_us);
}

/* Fills *err and returns the code, for a required operation that the driver lacks. */
static int has_no(const struct hf_port *port, const char *operation, hf_error *err)
{
    return hf_fail(err, HF_UNSUPPORTED, 0, "driver '%s': it has no '%s'", port->drv->name,
                   operation);
}

int hf__port_get(struct hf_port *port, const hf_rowkey *key, hf_row *row, hf_error *err)
{
    if (!port->drv->get) return has_no(port, "get", err);
    int64_t clock_us = 0, sent_us = begin(port);
    int rc = port->drv->get(port->st, key, row, &clock_us, err);
    end(port, sent_us, clock_us);
    /* Without a clock no lease would ever be over, and a wait would never end. */
    int clockless = !rc && !clock_us && !port->caps.local && !port->caps.sessions;
    return clockless ? hf_fail(err, HF_UNSUPPORTED, 0, "driver '%s': its 'get' tells no clock",
                               port->drv->name)
                     : rc;
}

int hf__port_replace(struct hf_port *port, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur, hf_error *err)
{
    if (!port->drv->replace) return has_no(port, "replace", err);
    int64_t clock_us = 0, sent_us = begin(port);
    int rc = port->drv->replace(port->st, key, seen, row, cur, &clock_us, err);
    end(port, sent_us, clock_us);
    return rc;
}

int hf__port_replace_many(struct hf_port *port, hf_replace *item, size_t n, int64_t until_us)
{
    for (size_t i = 0; i < n; i++) {
        item[i].result = HF_UNKNOWN; /* stays for an item that the driver doesn't answer */
        item[i].clock_us = 0;
    }
    hf__port_asked(port, (int)n - 1);
    int64_t sent_us = begin(port);
    int rc = port->drv->replace_many(port->st, item, n, until_us);
    hf__port_unlock(port);
    note_trip_of_many(port, item, n, hf__local_us() - sent_us);
    /* Adds all readings: the earliest gives the best upper bound of the clock now, the latest the
       best lower bound. */
    for (size_t i = 0; i < n; i++)
        if (item[i].clock_us) hf__port_clock(port, sent_us, item[i].clock_us);
    return rc;
}

int hf__port_update(struct hf_port *port, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                    void *arg, hf_row *row, hf_error *err)
{
    begin(port);
    return port->caps.local->update(port->st, key, step, arg, row, err);
}

uint64_t hf__port_clock_jumps(struct hf_port *port)
{
    pthread_mutex_lock(&port->mu);
    uint64_t n = port->clock.jumps;
    pthread_mutex_unlock(&port->mu);
    return n;
}

int64_t hf__port_round_trip_us(struct hf_port *port)
{
    return __atomic_load_n(&port->round_trip_us, __ATOMIC_RELAXED);
}

int hf__port_acquire(struct hf_port *port, const hf_rowkey *key, const hf_party *party,
                     uint32_t may_queue, hf_row *row, hf_error *err)
{
    int64_t clock_us = 0, sent_us = begin(port);
    int rc = port->drv->acquire(port->st, key, party, may_queue, row, &clock_us, err);
    end(port, sent_us, clock_us);
    if (!rc && !row->n_queue) hf__row_taken(row, party);
    return rc;
}

int hf__port_enter(struct hf_port *port, const hf_rowkey *key, uint64_t token, int alone,
                   const char *where, hf_error *err)
{
    int64_t sent_us = begin(port);
    int rc = port->drv->enter(port->st, key, token, alone, where, err);
    end(port, sent_us, 0);
    return rc;
}

int hf__port_lease_make(struct hf_port *port, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                        hf_error *err)
{
    int64_t clock_us = 0, sent_us = begin(port);
    int rc = port->caps.sessions->make(port->st, lease_ms, ret, ret_ms, &clock_us, err);
    end(port, sent_us, clock_us);
    return rc;
}

int hf__port_lease_keep(struct hf_port *port, uint64_t session, int64_t until_us, int64_t *ret_ms,
                        hf_error *err)
{
    int64_t sent_us = begin(port);
    int rc = port->caps.sessions->keep(port->st, session, until_us, ret_ms, err);
    end(port, sent_us, 0);
    if (!rc) note_trip(port, hf__local_us() - sent_us);
    return rc;
}

int hf__port_lease_left(struct hf_port *port, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    int64_t sent_us = begin(port);
    int rc = port->caps.sessions->left(port->st, session, ret_ms, err);
    end(port, sent_us, 0);
    return rc;
}

int hf__port_lease_end(struct hf_port *port, uint64_t session, hf_error *err)
{
    int64_t sent_us = begin(port);
    int rc = port->caps.sessions->end(port->st, session, err);
    end(port, sent_us, 0);
    return rc;
}

int hf__port_alive(struct hf_port *port, uint64_t session)
{
    if (!port->caps.liveness) return 1;
    hf__port_lock(port);
    int rc = port->caps.liveness->alive(port->st, session, NULL);
    hf__port_unlock(port);
    return rc;
}

int hf__port_dead(struct hf_port *port, const hf_party *p)
{
    if (p->flags & HF_PARTY_DEAD) return 1;
    if (!port->caps.liveness || !p->session || p->session == port->session) return 0;
    return hf__port_alive(port, p->session) == 0;
}
