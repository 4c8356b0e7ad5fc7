/*
 * lost.c - a grant that is over before its holder gave it back: how the holder is told.
 */
#include "lost.h"

#include "deadline_list.h"
#include "handle.h"
#include "os.h"
#include "reason.h"
#include "renewal_queue.h"
#include "start_threads.h"

#include <sys/eventfd.h>
#include <unistd.h>

/* Under the mutex. The callback is called by the expiry monitor. */
void hf__mark_lost(hf_lock *l, enum hf_lost_by by)
{
    if (l->lost) return;
    uint64_t one = 1;
    l->lost = 1;
    l->lost_by = (uint8_t)by;
    if (by == HF_BY_TIME && (l->busy || (l->session && l->session->busy))) hf__note_no_answer(l);
    if (!l->pending_release)
        hf__renew_at(
            l,
            INT64_MAX); /* a pending release stays in the queue: what repeats it frees the lock */
    l->h->stats.lost++;
    ssize_t n = l->lost_fd >= 0 ? write(l->lost_fd, &one, sizeof one) : 0;
    (void)n; /* a full eventfd is readable too */
    if (l->on_lost) hf__set_deadline(l);
}

void hf__mark_expired(hf_lock *l)
{
    int capped = l->hold_until_us && hf__local_us() >= l->hold_until_us;
    hf__mark_lost(l, capped ? HF_BY_MAX_HOLD : HF_BY_TIME);
}

/* Calls the callback of a lost lock that has one, once, without the mutex. */
void hf__run_on_lost(hf_lock *l)
{
    hf *h = l->h;
    void (*tell)(void *, hf_lock *) = l->on_lost;
    void *arg = l->on_lost_arg;
    l->loss_reported = 1;
    l->telling = 1;
    l->teller = pthread_self();
    int freed = 0;
    l->freed = &freed;
    pthread_mutex_unlock(&h->mu);
    tell(arg, l);
    pthread_mutex_lock(&h->mu);
    if (freed) return; /* released by the callback */
    l->freed = NULL;
    l->telling = 0;
    pthread_cond_broadcast(&h->changed);
}

int hf_lost_fd(hf_lock *l)
{
    hf *h = l->h;
    if (hf__held_here(l, "lost", NULL)) return -1;
    pthread_mutex_lock(&h->mu);
    if (!l->lost && hf__need_monitor(h, NULL)) { /* nobody would ever make it readable */
        pthread_mutex_unlock(&h->mu);
        return -1;
    }
    if (l->lost_fd < 0) {
        l->lost_fd = hf__fd_above(eventfd(l->lost ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
        l->ask_at_us = 0;
        hf__set_deadline(l);
        hf__kick_monitor(h, 0);
    }
    int fd = l->lost_fd;
    pthread_mutex_unlock(&h->mu);
    return fd;
}

int hf_on_lost(hf_lock *l, void (*lost)(void *arg, hf_lock *lock), void *arg)
{
    hf *h = l->h;
    int rc = hf__held_here(l, "lost", NULL);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    if (lost) rc = hf__need_monitor(h, NULL); /* which would call it */
    if (!rc) {
        l->on_lost = lost;
        l->on_lost_arg = arg;
    }
    if (!rc && lost) {
        l->ask_at_us = 0;
        hf__set_deadline(l);
        hf__kick_monitor(h, 0);
    }
    pthread_mutex_unlock(&h->mu);
    return rc;
}
