/*
 * renewal_queue.h - which grants are to be renewed when, and the threads that do it.
 *
 * A grant waits in one queue by the time of its renewal. When that has come it goes to a second
 * queue, by the time at which the grant ends: the most urgent renewal is made first, however many
 * are late. Renewals that weren't answered have queues of their own, so that what hangs doesn't
 * stand before the others: see `enum hf_renewal_queue`.
 *
 * Where the store may block, worker threads make the renewals: one is started when the first is
 * due, others if that one cannot keep up, or if renewals remain unanswered. Where the driver has
 * `replace_many` a worker takes many renewals at once.
 *
 * The handle's mutex protects all of it.
 */
#ifndef HF_RENEWAL_QUEUE_H
#define HF_RENEWAL_QUEUE_H

#include "deadlines.h"
#include "holdfast.h"

#include <pthread.h>

/* A driver has connections for four workers (drivers/pool.h). */
enum { HF_RENEWAL_WORKERS = 4, HF_RENEWALS_AT_ONCE = 512 };
/* After so many unanswered attempts a renewal goes to the last queue. */
enum { HF_UNANSWERED_MOST = 3 };

enum hf_renewal_queue {
    HF_RENEWALS_DUE,      /* as always */
    HF_RENEWALS_DOUBTFUL, /* the last attempt wasn't answered: kept apart from those that were */
    HF_RENEWALS_LATE,     /* several attempts weren't answered; also pending releases */
    HF_RENEWAL_QUEUES
};

struct hf_renewal_worker {
    struct hf *h;
    pthread_t thread;
    struct hf_renew_batch *batch; /* NULL: it renews one by one */
    int cut;                      /* its last request hung: it may have no connection */
};

struct hf_renewals {
    struct hf_deadlines waiting;                /* locks by the time of their renewal */
    struct hf_deadlines due[HF_RENEWAL_QUEUES]; /* locks by the time at which they end */
    struct hf_renewal_worker worker[HF_RENEWAL_WORKERS];
    uint32_t workers, begun, idle; /* how many threads were started; have begun to run; wait for
                                      work */
    uint32_t first_idle;           /* 1: the first worker waits for work */
    uint32_t cut;                  /* how many workers may have no connection */
    int64_t try_at_us;   /* local: before it no thread is started, for the last try failed */
    pthread_cond_t work; /* there is some */
    uint32_t at_once;    /* so many renewals a worker takes at once: as many as the store answers in
                            good time */
};

/* Sets when the lock is to be renewed; INT64_MAX: not at all, or no longer. Under the mutex, as the
   next ones. */
void hf__renew_at(hf_lock *lock, int64_t at_us);
/* Plans the renewal for when a third of the lease, or of what is left of it, is over. It isn't the
   claim of a handover, unless the caller says so afterwards (`claims`). */
void hf__plan_renewal(hf_lock *lock);
/* Returns 1 if the lock is to be renewed, and no thread works on it. */
int hf__renewable(const hf_lock *lock);
/* Takes the lock out of its queue. The caller renews it, or puts it back. */
void hf__renewal_drop(hf_lock *lock);
/* Notes that `times` more renewals weren't answered. The next attempt has at most again_with
   renewals in one request, this one included. */
void hf__note_unanswered(hf_lock *lock, int times, uint32_t again_with);
/* Plans another attempt soon after a renewal that failed, but not in a hot loop. */
void hf__renewal_failed(hf_lock *lock, int rc, uint32_t among);
void hf__renewals_open(hf *h);

#endif
