/*
 * mem_wakeups.c - mem: how waiters are woken, and which sessions live. A session is an open handle.
 */
#include "mem_rings.h"
#include "os.h"

#include <stdlib.h>

/* The longest single sleep: 60 s. While the machine is suspended the futex's timeout stands still,
   but CLOCK_BOOTTIME, by which the caller counts, goes on. */
static const int64_t NAP_US = 60 * 1000000;

static hf_store *of_session(const struct table *t, uint64_t session)
{
    uint64_t i = session & ((1 << SLOT_BITS) - 1);
    hf_store *st = i < t->slots ? t->slot[i] : NULL;
    return st && st->session == session ? st : NULL;
}

void hf__mm_ring_all(struct rings *r)
{
    if (!r->n) return;
    pthread_mutex_lock(&r->table->mu);
    for (uint32_t i = 0; i < r->n; i++) {
        hf_store *st = of_session(r->table, r->who[i].session);
        if (st && st->marks && !r->who[i].wakeup) hf__mark_key(st->marks, r->hash);
        if (st) hf__wakeup_post(&st->wakeup[r->who[i].wakeup]);
    }
    pthread_mutex_unlock(&r->table->mu);
    r->n = 0;
}

static int mm_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    (void)err;
    *ret = st->session;
    return 0;
}

static int mm_alive(hf_store *st, uint64_t session, hf_error *err)
{
    (void)err;
    pthread_mutex_lock(&st->table->mu);
    int lives = of_session(st->table, session) != NULL;
    pthread_mutex_unlock(&st->table->mu);
    return lives;
}

/* Makes the marks of wakeup 0. Without memory there are none, and each wakeup counts for every
   key. */
static void make_marks(hf_store *st)
{
    struct hf__key_marks *marks = calloc(1, sizeof *marks);
    pthread_mutex_lock(&st->table->mu);
    st->marks = marks;
    pthread_mutex_unlock(&st->table->mu);
    st->shared_wakeup.all = 1; /* earlier wakeups weren't marked */
}

int hf__mm_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret, hf_error *err)
{
    (void)err;
    if (!wakeup && n >= HF_MARKS_FROM && !st->marks) make_marks(st);
    ret->n[0] = hf__wakeup_count(&st->wakeup[wakeup]);
    ret->n[1] = 0;
    return 0;
}

int hf__mm_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                 hf_error *err)
{
    int64_t left = until_us - hf__local_us();
    (void)err;
    if (left > NAP_US) left = NAP_US;
    if (left > 0) hf__wakeup_sleep(&st->wakeup[wakeup], (uint32_t)since->n[0], left);
    return 0;
}

int hf__mm_next_event(hf_store *st, uint8_t wakeup, hf_key_event *ret)
{
    return hf__wakeup_event(&st->shared_wakeup, st->marks, hf__wakeup_count(&st->wakeup[wakeup]),
                            ret);
}

void hf__mm_interrupt(hf_store *st, uint8_t wakeup) { hf__wakeup_interrupt(&st->wakeup[wakeup]); }

static int mm_death_fd(hf_store *st)
{
    pthread_mutex_lock(&st->table->mu);
    if (st->death_fd < 0) st->death_fd = hf__wake_fd();
    int fd = st->death_fd;
    pthread_mutex_unlock(&st->table->mu);
    return fd;
}

static int mm_death_read(hf_store *st) { return hf__woken(mm_death_fd(st)); }

const hf_liveness_ops hf__mm_liveness = {
    .session = mm_session, .alive = mm_alive, .death_fd = mm_death_fd, .death_read = mm_death_read};
