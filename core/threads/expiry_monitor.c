/*
 * expiry_monitor.c - the thread that sees leases and claims end, and peers die. What it does then
 * is in lock_monitor.c (locks) and wait_monitor.c (waits and claims).
 */
#include "expiry_monitor.h"

#include "handle.h"
#include "lock_monitor.h"
#include "os.h"
#include "wait_monitor.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

enum { DEATH_LOOKS = 11 };

/* The notice of a death may come a little before the store knows of it: how long after the notice
   the store is asked again. */
static const int64_t death_look_after_us[DEATH_LOOKS] = {
    0, 300, 1000, 3000, 10000, 30000, 100000, 300000, 1000000, 3000000, 10000000};

static void monitor_sleep(hf *h, struct pollfd *fds, int64_t until)
{
    int64_t left = until == INT64_MAX ? -1 : until - hf__local_us();
    if (until != INT64_MAX && left < 0) left = 0;
    struct timespec t = {left / 1000000, left % 1000000 * 1000};
    h->monitor_sleeps = 1;
    pthread_mutex_unlock(&h->mu);
    ppoll(fds, 2, left < 0 ? NULL : &t, NULL);
    pthread_mutex_lock(&h->mu);
    h->monitor_sleeps = 0;
    uint64_t n;
    if (read(h->monitor_fd, &n, sizeof n) < 0) return; /* it was not woken */
}

void *hf__expiry_monitor(void *arg)
{
    hf *h = arg;
    struct pollfd fds[2] = {{h->monitor_fd, POLLIN, 0}, {-1, POLLIN, 0}};
    int64_t look_at = 0, death_at = 0;
    const hf_liveness_ops *liveness = h->port.caps.liveness;
    int looks = 0;
    pthread_mutex_lock(&h->mu);
    while (h->closing < HF_CLOSING_THREADS) {
        if (h->port.caps.local && liveness && !h->deaths_told && h->at_store) {
            /* From here on deaths are told. One look finds those that died before. */
            int can = liveness->death_fd != NULL;
            fds[1].fd = can ? liveness->death_fd(h->port.st) : -1;
            h->deaths_told = !can || fds[1].fd >= 0 ? 1 : -1;
            hf__look_after_waits(h);
        }
        if (fds[1].revents & POLLIN) {
            fds[1].revents = 0;
            if (liveness->death_read(h->port.st)) {
                death_at = look_at = hf__local_us();
                looks = 0;
            }
        }
        if (looks < DEATH_LOOKS && death_at && hf__local_us() >= look_at) {
            hf__look_for_deaths(h);
            look_at = ++looks < DEATH_LOOKS ? death_at + death_look_after_us[looks] : INT64_MAX;
        }
        h->monitor_todo = 0; /* a wakeup from here on asks for another round */
        h->monitor_until_us = INT64_MAX;
        int64_t until = looks < DEATH_LOOKS && death_at ? look_at : INT64_MAX, waits = INT64_MAX;
        until = hf__min64(until, hf__tend_locks(h));
        if (h->port.caps.local) waits = hf__tend_waits(h);
        until = hf__min64(until, hf__min64(waits, hf__tend_claims(h)));
        if (h->closing == HF_CLOSING_THREADS || h->monitor_todo) continue;
        h->monitor_until_us = until;
        monitor_sleep(h, fds, until);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}
