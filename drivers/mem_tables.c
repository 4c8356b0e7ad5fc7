/*
 * mem_tables.c - mem: the stores of this process by name, opened and closed; what a fork leaves of
 * them.
 */
#include "mem_tables.h"

#include "os.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t hf__mm_day_offset_us;

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct table *tables;
static uint64_t sessions_made, last_floor;
static pthread_once_t started = PTHREAD_ONCE_INIT;

static void before_fork(void) { pthread_mutex_lock(&registry); }
static void after_fork(void) { pthread_mutex_unlock(&registry); }

/* The child of a fork starts with no stores. The parent's stores may be in the middle of a change,
   and the threads that make the changes don't exist in the child. Inherited handles are dead; what
   they point to isn't freed. */
static void in_child(void)
{
    tables = NULL;
    pthread_mutex_unlock(&registry);
}

static void start(void)
{
    hf__mm_day_offset_us = hf__day_us() - hf__local_us();
    pthread_atfork(before_fork, after_fork, in_child);
}

static void free_chain(struct cell *c)
{
    for (struct cell *next; c; c = next) {
        next = c->next;
        if (c->row.rev > last_floor) last_floor = c->row.rev;
        free_cell(c);
    }
}

static void free_table(struct table *t)
{
    for (int i = 0; i < SHARDS; i++) {
        struct shard *s = &t->shard[i];
        if (s->floor > last_floor) last_floor = s->floor;
        for (uint32_t b = 0; s->bucket && b < s->buckets; b++) free_chain(s->bucket[b]);
        free_chain(s->spare);
        free(s->bucket);
    }
    pthread_mutex_destroy(&t->mu);
    free(t->slot);
    free(t->name);
    free(t);
}

static struct table *new_table(const char *name)
{
    struct table *t = aligned_alloc(CACHE_LINE, sizeof *t);
    if (!t) return NULL;
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->mu, NULL);
    t->name = strdup(name);
    int whole = t->name != NULL;
    for (int i = 0; i < SHARDS; i++) {
        struct shard *s = &t->shard[i];
        s->bucket = calloc(FEWEST_BUCKETS, sizeof(struct cell *));
        s->buckets = FEWEST_BUCKETS;
        s->floor = last_floor;
        if (!s->bucket) whole = 0;
    }
    if (whole) return t;
    free_table(t);
    return NULL;
}

/* Takes a slot of the table for the handle, which gives it a session. The caller holds t->mu. */
static int enter(struct table *t, hf_store *st)
{
    uint32_t i = 0;
    while (i < t->slots && t->slot[i]) i++;
    if (i == 1 << SLOT_BITS) return HF_FULL;
    if (i == t->slots) {
        uint32_t n = i ? i * 2 : 8;
        hf_store **more = realloc(t->slot, n * sizeof *more);
        if (!more) return HF_NOMEM;
        memset(more + i, 0, (n - i) * sizeof *more);
        t->slot = more;
        t->slots = n;
    }
    t->slot[i] = st;
    st->session = ++sessions_made << SLOT_BITS | i;
    return 0;
}

/* Finds the table of this name or makes it, and enters the handle. The caller holds the
   registry's mutex, and calls leave_table if this fails. */
static int join_table(const char *name, hf_store *st)
{
    struct table *t = tables;
    while (t && strcmp(t->name, name)) t = t->next;
    if (!t) {
        t = new_table(name);
        if (!t) return HF_NOMEM;
        t->next = tables;
        tables = t;
    }
    st->table = t;
    t->refs++;
    pthread_mutex_lock(&t->mu);
    int rc = enter(t, st);
    pthread_mutex_unlock(&t->mu);
    return rc;
}

/* Gives up one use of the table. The last user frees it. The caller holds the registry's mutex. */
static void leave_table(hf_store *st)
{
    struct table *t = st->table, **at = &tables;
    if (!t || --t->refs) return;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    free_table(t);
}

int hf__mm_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                hf_error *err)
{
    (void)caps;
    (void)io_timeout_ms;
    if (url->host[0] || url->user[0] || url->password[0] || url->port || url->query[0])
        return hf_fail(err, HF_INVALID, 0, "mem: open '%s': write mem: or mem:NAME", url->safe);
    pthread_once(&started, start);
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "mem: open '%s': out of memory", url->safe);
    st->death_fd = -1;
    st->fork_generation = hf__fork_generation();
    pthread_mutex_lock(&registry);
    int rc = join_table(url->path, st);
    if (rc) leave_table(st);
    pthread_mutex_unlock(&registry);
    if (rc) {
        free(st);
        return hf_fail(err, rc, 0, "mem: open '%s': %s", url->safe, hf_code_text(rc));
    }
    *ret = st;
    return 0;
}

void hf__mm_close(hf_store *st)
{
    struct table *t = st->table;
    if (st->fork_generation == hf__fork_generation()) {
        pthread_mutex_lock(&t->mu);
        t->slot[st->session & ((1 << SLOT_BITS) - 1)] = NULL;
        for (uint32_t i = 0; i < t->slots; i++)
            if (t->slot[i] && t->slot[i]->death_fd >= 0) hf__wake(t->slot[i]->death_fd);
        pthread_mutex_unlock(&t->mu);
        pthread_mutex_lock(&registry);
        leave_table(st);
        pthread_mutex_unlock(&registry);
    }
    /* Closed last: as long as the slot named this handle, another thread might write to the
       descriptor, whose number may belong to another file soon after it is closed. */
    if (st->death_fd >= 0) close(st->death_fd);
    free(st->marks);
    free(st);
}
