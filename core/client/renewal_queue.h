/*
 * renewal_queue.h - which grants are to be renewed when, and the threads that do it.
 *
 * A lock is in the queue `waiting`, in the order of renewal times, until its time has come. Then it
 * goes to a queue in the order of the times at which the grants end, so that the most urgent
 * renewal is made first, however many are late. Renewals that weren't answered have queues of their
 * own, because they may hang again and delay the others: see `enum hf_renewal_queue`.
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
    HF_RENEWALS_DUE,      /* the last attempt was answered, or there was none */
    HF_RENEWALS_DOUBTFUL, /* the last attempt wasn't answered */
    HF_RENEWALS_LATE,     /* HF_UNANSWERED_MOST attempts weren't answered; also pending releases */
    HF_RENEWAL_QUEUES
};

struct hf_renewal_worker {
    struct hf *h;
    pthread_t thread;
    struct hf_renew_batch *batch; /* NULL: it renews one by one */
    int cut;                      /* 1: its last request hung, so it may have no connection */
};

struct hf_renewals {
    struct hf_deadlines waiting;                /* locks by the time of their renewal */
    struct hf_deadlines due[HF_RENEWAL_QUEUES]; /* locks by the time at which they end */
    struct hf_renewal_worker worker[HF_RENEWAL_WORKERS];
    uint32_t workers, begun, idle; /* how many threads were started; have begun to run; wait for
                                      work */
    uint32_t first_idle;           /* 1: the first worker waits for work */
    uint32_t cut;                  /* how many workers may have no connection */
    int64_t try_at_us;   /* local: before it no thread is started, because the last try failed */
    pthread_cond_t work; /* signalled when a queue has work */
    uint32_t at_once;    /* how many renewals a worker takes for one request: as many as the store
                            answers in time */
};

/* Sets when the lock is to be renewed; INT64_MAX: not at all, or no longer. Under the mutex, as the
   next ones. */
void hf__renew_at(hf_lock *lock, int64_t at_us);
/* Plans the next renewal: after a third of the lease, or of what is left of it if that is sooner.
   Clears `claims`. */
void hf__plan_renewal(hf_lock *lock);
/* Returns 1 if the lock is to be renewed (or its release to be repeated), and no thread has seized
   it. */
int hf__renewable(const hf_lock *lock);
/* Takes the lock out of its queue. The caller renews it, or puts it back. */
void hf__renewal_drop(hf_lock *lock);
/* Notes that `times` more renewals weren't answered. The request of the next attempt has at most
   again_with renewals, this one included. */
void hf__note_unanswered(hf_lock *lock, int times, uint32_t again_with);
/* Returns the pause after a renewal that failed, in µs: a twelfth of the lease, 500 ms at most, 500
   ms without a lease. */
int64_t hf__renewal_pause_us(const hf_lock *lock);
/* Plans another attempt, after that pause, for a renewal that failed with `rc`. `among`: how many
   renewals the request had. */
void hf__renewal_failed(hf_lock *lock, int rc, uint32_t among);
/* Initializes h->renewals. */
void hf__renewals_open(hf *h);

#endif
