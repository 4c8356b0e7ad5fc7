/*
 * outage_judge.c - what the parties wrote down, held against what was promised; see outage.h.
 *
 * Promised is: no two believe at one time, and tokens grow in the order of grants. A store that has
 * been emptied or set back has forgotten whom it granted a key, so that it grants it to a second
 * one while the first, whom nobody can tell, believes until its next renewal. There it is promised
 * that no token is ever given twice or falls, and that the first one learns of it within its lease.
 */
#include "outage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_key_and_time(const void *a, const void *b)
{
    const struct hold *x = a, *y = b;
    if (x->key != y->key) return x->key - y->key;
    return x->first_us < y->first_us ? -1 : x->first_us > y->first_us;
}

static void wrong(struct verdict *v, const char *what, const struct hold *a, const struct hold *b)
{
    int64_t t = a->asked_us;
    if (*v->why) return;
    snprintf(v->why, sizeof v->why,
             "key %d: %s: party %d: token %llu, asked 0, believed %lld to %lld us; party %d: token "
             "%llu, asked %lld, believed %lld to %lld us",
             a->key, what, a->party, (unsigned long long)a->token, (long long)(a->first_us - t),
             (long long)(a->last_us - t), b->party, (unsigned long long)b->token,
             (long long)(b->asked_us - t), (long long)(b->first_us - t),
             (long long)(b->last_us - t));
}

/* Returns 1 if one of the two grants was made before the store forgot, and still counted, so that
   the other one is allowed beside it. */
static int forgotten(const struct hold *a, const struct hold *b, const struct window *w, int n)
{
    int64_t asked = a->asked_us < b->asked_us ? a->asked_us : b->asked_us;
    int64_t both = a->first_us > b->first_us ? a->first_us : b->first_us;
    for (int i = 0; i < n; i++)
        if (asked <= w[i].to_us && both >= w[i].from_us &&
            both <= w[i].to_us + outage_lease_ms * 1000)
            return 1;
    return 0;
}

static void judge_pair(const struct hold *a, const struct hold *b, const struct window *windows,
                       int n, struct verdict *v)
{
    /* The order of two grants is certain if one was asked for after the other was returned. */
    if (b->token == a->token) wrong(v, "a token was given twice", a, b);
    if (b->token < a->token && a->first_us < b->asked_us) wrong(v, "a token fell", a, b);
    int may = forgotten(a, b, windows, n);
    if (b->first_us < a->last_us) {
        v->pairs += may;
        if (!may) wrong(v, "two believed at one time", a, b);
    }
    if (b->token < a->token && !may) wrong(v, "a token fell", a, b);
}

/* A holder that believed before the store forgot must have learnt of the loss, unless it
   released. */
static void judge_windows(const struct hold *a, const struct window *windows, int n,
                          struct verdict *v)
{
    for (int i = 0; i < n; i++)
        if (windows[i].all && a->first_us < windows[i].from_us &&
            a->last_us > windows[i].to_us + outage_lease_ms * 1000)
            wrong(v, "a grant that the store had forgotten was believed for more than its lease", a,
                  a);
}

void outage_judge(const struct window *windows, int n_windows, uint64_t floor[OUTAGE_KEYS],
                  struct verdict *v)
{
    uint32_t n = 0, all = world->n_holds < OUTAGE_HOLDS ? world->n_holds : OUTAGE_HOLDS;
    uint64_t highest[OUTAGE_KEYS];
    memset(v, 0, sizeof *v);
    memcpy(highest, floor, sizeof highest);
    for (int i = 0; i < OUTAGE_PARTIES; i++) {
        const struct party *p = &world->party[i];
        for (int k = 0; k < COUNTED; k++) v->count[k] += p->count[k];
        if (*p->odd && !*v->why) snprintf(v->why, sizeof v->why, "%s", p->odd);
    }
    /* Grants that were over before they were believed don't count. */
    for (uint32_t i = 0; i < all; i++)
        if (world->hold[i].first_us) world->hold[n++] = world->hold[i];
    qsort(world->hold, n, sizeof *world->hold, by_key_and_time);
    for (uint32_t i = 0; i < n; i++) {
        const struct hold *a = &world->hold[i];
        if (a->token <= floor[a->key]) wrong(v, "a token fell since the last scene", a, a);
        if (a->token > highest[a->key]) highest[a->key] = a->token;
        judge_windows(a, windows, n_windows, v);
        for (uint32_t j = i + 1; j < n && world->hold[j].key == a->key; j++)
            judge_pair(a, &world->hold[j], windows, n_windows, v);
        if (i + 1 < n && a[1].key == a->key) v->changes += a[1].party != a->party;
    }
    memcpy(floor, highest, sizeof highest);
}
