/*
 * port.h - the port: an opened store with its driver, its clock and its counters. The core calls
 * drivers through it.
 */
#ifndef HF_PORT_H
#define HF_PORT_H

#include "clock.h"
#include "holdfast_driver.h"

#include <pthread.h>

struct hf_port {
    const hf_driver *drv;
    hf_store *st;
    hf_caps caps;     /* of this store */
    uint64_t session; /* the handle's (hf_liveness_ops); 0: none */
    int64_t io_timeout_ms;
    int64_t closing_us;     /* local time at which hf_close or hf_close_begin began; 0: neither
                               did (atomic) */
    pthread_mutex_t serial; /* around calls, for stores without caps.threads */
    pthread_mutex_t mu;     /* protects clock */
    struct hf_clock clock;
    int64_t round_trip_us; /* how long a request takes on average; 0: not known (atomic) */
    uint64_t ops;          /* requests sent (atomic) */
};

/* Returns the store's clock at this moment. */
struct hf_time hf__port_now(struct hf_port *port);
/* Counts requests that the driver has made by itself. */
void hf__port_asked(struct hf_port *port, int times);
/* Adds a sample of the store's clock (0: none): a request was sent at local sent_us, and its reply,
   which came just now, says clock_us. */
void hf__port_clock(struct hf_port *port, int64_t sent_us, int64_t clock_us);

/* Lock and unlock a driver that doesn't allow several threads at once; do nothing for other
   drivers. For calls of a driver's operation that don't go through a function below. */
void hf__port_lock(struct hf_port *port);
void hf__port_unlock(struct hf_port *port);

/* These call the driver's operation of that name, take the store's clock from its reply, and count
   the request. */
int hf__port_get(struct hf_port *port, const hf_rowkey *key, hf_row *row, hf_error *err);
int hf__port_replace(struct hf_port *port, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur, hf_error *err);
/* Only if the driver has `acquire`. After a grant *row is complete. */
int hf__port_acquire(struct hf_port *port, const hf_rowkey *key, const hf_party *party,
                     uint32_t may_queue, hf_row *row, hf_error *err);
/* Only if the driver has `replace_many`. Returns 0, or why there was no connection. */
int hf__port_replace_many(struct hf_port *port, hf_replace *item, size_t n, int64_t until_us);
/* Only if the store has local operations with `update`. */
int hf__port_update(struct hf_port *port, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                    void *arg, hf_row *row, hf_error *err);
/* Returns how many times the store's clock was seen to be set. Then local times that were computed
   from it are wrong, and must be computed again. */
uint64_t hf__port_clock_jumps(struct hf_port *port);
/* Returns how long a request to the store takes on average; 0: not known. */
int64_t hf__port_round_trip_us(struct hf_port *port);

/* Only if the driver has `enter`. */
int hf__port_enter(struct hf_port *port, const hf_rowkey *key, uint64_t token, int alone,
                   const char *where, hf_error *err);
/*
 * Shows each row whose key has the prefix, as the driver's scan does. `see` may take long and call
 * the library: if calls of this driver are serialized, the rows are collected first, and shown
 * after the driver is unlocked.
 */
int hf__port_scan(struct hf_port *port, const char *prefix,
                  int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg,
                  hf_error *err);
/* These return 0 and do nothing if the driver doesn't have the operation. */
int hf__port_sync(struct hf_port *port, const hf_rowkey *key, hf_error *err);
int hf__port_inspect(struct hf_port *port, void (*say)(void *arg, int ok, const char *text),
                     void *arg, hf_error *err);
/* Returns 1, with the driver's warning in `ret`; 0: there is none. */
int hf__port_warning(struct hf_port *port, char *ret, size_t cap);

/* These call make, keep, left and end of caps.sessions, and count the requests. lease_make also
   takes the store's clock from the reply. */
int hf__port_lease_make(struct hf_port *port, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                        hf_error *err);
int hf__port_lease_keep(struct hf_port *port, uint64_t session, int64_t until_us, int64_t *ret_ms,
                        hf_error *err);
int hf__port_lease_left(struct hf_port *port, uint64_t session, int64_t *ret_ms, hf_error *err);
int hf__port_lease_end(struct hf_port *port, uint64_t session, hf_error *err);

/* Returns 1: the session lives, or the store has no hf_liveness_ops; 0: it is dead; negative: not
   known now. */
int hf__port_alive(struct hf_port *port, uint64_t session);

/* Returns 1 if the session of this party of a row that was read is dead. May ask the driver. */
int hf__port_dead(struct hf_port *port, const hf_party *p);

/* Sleeps for a random time around `us` (half to one and a half). */
void hf__pause(int64_t us);

#endif
