/*
 * port.h - a store in use: the driver, and what the core knows of the store beside it.
 */
#ifndef HF_PORT_H
#define HF_PORT_H

#include "clock.h"
#include "holdfast_driver.h"

#include <pthread.h>

/* A store in use: the driver, its clock as seen from here, and our session in it. */
struct hf_port {
    const hf_driver *drv;
    hf_store *st;
    hf_caps caps;     /* of this store */
    uint64_t session; /* 0: none */
    int64_t io_timeout_ms;
    int64_t closing_us;     /* local time at which hf_close or hf_close_begin began; 0: neither
                               did (atomic) */
    pthread_mutex_t serial; /* around calls, for stores without caps.threads */
    pthread_mutex_t mu;     /* protects clock */
    struct hf_clock clock;
    int64_t round_trip_us; /* how long a request takes on average; 0: not known */
    uint64_t ops;          /* requests sent (atomic) */
};

struct hf_time hf__port_now(struct hf_port *port);
/* Adds the requests that the driver has made by itself to the counts. */
void hf__port_asked(struct hf_port *port, int times);
/* Takes in the store's clock (0: none) from a reply that came just now to a request sent at
   sent_us. */
void hf__port_clock(struct hf_port *port, int64_t sent_us, int64_t clock_us);

/* Call these around each operation. They serialize the calls of a driver that doesn't allow several
   threads. */
void hf__port_lock(struct hf_port *port);
void hf__port_unlock(struct hf_port *port);

/* These call the driver's operation, serialize the calls, take in the clock, and count. */
int hf__port_get(struct hf_port *port, const hf_rowkey *key, hf_row *row, hf_error *err);
int hf__port_replace(struct hf_port *port, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur, hf_error *err);
/* Only if the driver has `acquire`. If *row is a grant, it is the whole row. */
int hf__port_acquire(struct hf_port *port, const hf_rowkey *key, const hf_party *party,
                     uint32_t may_queue, hf_row *row, hf_error *err);
/* Only if the driver has `replace_many`. Returns 0, or why there was no connection. */
int hf__port_replace_many(struct hf_port *port, hf_replace *item, size_t n, int64_t until_us);
/* Only if the store has local operations with `update`. */
int hf__port_update(struct hf_port *port, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                    void *arg, hf_row *row, hf_error *err);
/* Returns how often the store's clock was set. Times that were computed by it must then be computed
   again. */
uint64_t hf__port_clock_jumps(struct hf_port *port);
/* Returns how long a request to the store takes; 0: not known. */
int64_t hf__port_round_trip_us(struct hf_port *port);

int hf__port_enter(struct hf_port *port, const hf_rowkey *key, uint64_t token, int alone,
                   const char *where, hf_error *err);
/*
 * Shows each row whose key has the prefix, as the driver's scan does. `see` may take its time and
 * call the library: if calls of this driver are serialized, the rows are collected first and shown
 * when the store is free for other calls.
 */
int hf__port_scan(struct hf_port *port, const char *prefix,
                  int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg,
                  hf_error *err);
/* These return 0 and do nothing if the driver doesn't have the operation. */
int hf__port_sync(struct hf_port *port, const hf_rowkey *key, hf_error *err);
int hf__port_inspect(struct hf_port *port, void (*say)(void *arg, int ok, const char *text),
                     void *arg, hf_error *err);
/* Returns 1 and the driver's warning, or 0: there is none. */
int hf__port_warning(struct hf_port *port, char *ret, size_t cap);

/* These make requests about sessions (caps.sessions), count them, and take in the clock. */
int hf__port_lease_make(struct hf_port *port, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                        hf_error *err);
int hf__port_lease_keep(struct hf_port *port, uint64_t session, int64_t until_us, int64_t *ret_ms,
                        hf_error *err);
int hf__port_lease_left(struct hf_port *port, uint64_t session, int64_t *ret_ms, hf_error *err);
int hf__port_lease_end(struct hf_port *port, uint64_t session, hf_error *err);

/* Returns 1: the session lives, or this store doesn't know deaths; 0: it is dead; negative: not
   known now. */
int hf__port_alive(struct hf_port *port, uint64_t session);

/* Returns 1 if the session of this party, as it was read, is known to be dead. May ask the
   store. */
int hf__port_dead(struct hf_port *port, const hf_party *p);

/* Sleeps for a random time around `us` (half to one and a half). */
void hf__pause(int64_t us);

#endif
