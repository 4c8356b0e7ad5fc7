/*
 * start_threads.c - starts the threads of a handle when they are first needed, and wakes them. What
 * they run is in core/threads (struct hf_above).
 */
#include "start_threads.h"

#include "handle.h"
#include "os.h"
#include "renewal_queue.h"
#include "thread.h"

#include <errno.h>
#include <unistd.h>

int hf__no_thread(const char *key, hf_error *err)
{
    return hf_fail(err, HF_NOMEM, EAGAIN,
                   "acquire '%.100s': start a thread: out of memory, or of threads", key);
}

/* ---- the dispatcher ---- */

int hf__need_dispatcher(hf *h)
{
    return hf__start_thread(h, &h->dispatcher_runs, &h->dispatcher, h->above->dispatcher, NULL);
}

void hf__interrupt(hf *h, uint8_t wakeup)
{
    if (h->port.caps.local)
        h->port.caps.local->interrupt(h->port.st, wakeup);
    else if (h->port.caps.notify)
        h->port.caps.notify->interrupt(h->port.st);
}

void hf__kick_dispatcher(hf *h)
{
    h->dispatcher_todo = 1;
    if (!h->dispatcher_runs) return;
    pthread_cond_signal(&h->dispatcher_cond);
    /* A dispatcher that doesn't sleep in the driver checks dispatcher_todo before it sleeps. */
    if (h->dispatcher_sleeps) hf__interrupt(h, HF_DISPATCHER_WAKEUP);
}

/* ---- the expiry monitor ---- */

int hf__need_monitor(hf *h)
{
    if (h->monitor_runs) return 0;
    if (h->monitor_fd < 0) h->monitor_fd = hf__wake_fd();
    if (h->monitor_fd < 0) return HF_UNAVAILABLE;
    return hf__start_thread(h, &h->monitor_runs, &h->monitor, h->above->monitor, NULL);
}

void hf__kick_monitor(hf *h, int64_t at_us)
{
    /* The first wait makes the monitor run once, so that it asks the store to report deaths. */
    int settled = h->deaths_reported || !h->port.caps.local || !h->port.caps.liveness;
    if (!h->monitor_runs || (at_us >= h->monitor_until_us && settled)) return;
    h->monitor_todo = 1;
    if (!h->monitor_sleeps) return;
    h->monitor_until_us = at_us;
    hf__wake(h->monitor_fd);
}

/* ---- the renewer ---- */

int hf__need_renewer(hf *h, hf_error *err)
{
    return hf__start_thread(h, &h->renewer_runs, &h->renewer, h->above->renewer, err);
}

/* Wakes the renewer only if the lock's renewal comes before the time until which it sleeps. So a
   loop of acquire and release doesn't wake a thread each time. */
void hf__kick_renewer(hf_lock *l)
{
    hf *h = l->h;
    if (!l->renewal.nth) hf__renew_at(l, l->renew_at_us);
    if (l->renew_at_us < h->renewer_until_us) pthread_cond_signal(&h->renewer_cond);
}

void hf__wake_renewer(hf *h) { pthread_cond_signal(&h->renewer_cond); }
