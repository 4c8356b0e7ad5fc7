/*
 * mixed_book.c - the holds, and what each says of itself; see mixed.h.
 *
 * A hold is written down after it was granted and struck out before it is given back, so what
 * stands in the book together and is believed is held together. The belief counts, for a lease may
 * run out in between: the hold that is asked first still held when the other began.
 */
#include "mixed.h"

#include "lock_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On a store with a server a waiter that is granted a key may hold it for half a claim at first. */
enum { HANDED_MS = SUITE_CLAIM_MS / 2 };
/* What another clock, or one that counts in seconds, may show beyond a lease. */
enum { CLOCK_MS = 2000 };

struct book {
    pthread_mutex_t mu;
    struct hold *first;
    uint64_t last[HF_LIMITED + 1]; /* the greatest token of each mode */
    uint64_t *token;
    size_t n, cap;
};
static struct book books[KEYS] = {{.mu = PTHREAD_MUTEX_INITIALIZER},
                                  {.mu = PTHREAD_MUTEX_INITIALIZER},
                                  {.mu = PTHREAD_MUTEX_INITIALIZER}};

static _Noreturn __attribute__((format(printf, 2, 3))) void bad(const struct hold *hold,
                                                                const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wrong(hold->by, hold->asked, keys[hold->key], "token %llu: %s", (unsigned long long)hold->token,
          text);
}

static uint64_t greatest(const struct book *b)
{
    uint64_t last = 0;
    for (int mode = 0; mode <= HF_LIMITED; mode++)
        if (b->last[mode] > last) last = b->last[mode];
    return last;
}

uint64_t book_last(int key)
{
    struct book *b = &books[key];
    pthread_mutex_lock(&b->mu);
    uint64_t last = greatest(b);
    pthread_mutex_unlock(&b->mu);
    return last;
}

static int together(const hf_options *a, const hf_options *b)
{
    return a->mode == b->mode && a->mode != HF_EXCLUSIVE;
}

/* Those in the book that are believed admit it, and its token is greater than those of the ones
   that it can't be together with, all of whom were before it. */
static void judge(const struct book *b, const struct hold *hold, uint64_t last)
{
    const hf_options *o = &hold->asked->o;
    const struct hold *against = NULL;
    uint32_t holders = 1, limit = o->limit;
    uint64_t earlier = last;
    for (const struct hold *x = b->first; x; x = x->next) {
        if (hf_left_ms(x->lock) <= 0) continue;
        holders++;
        if (x->asked->o.limit < limit) limit = x->asked->o.limit;
        if (!together(o, &x->asked->o)) against = x;
    }
    for (int mode = 0; mode <= HF_LIMITED; mode++)
        if ((mode != (int)o->mode || mode == HF_EXCLUSIVE) && b->last[mode] > earlier)
            earlier = b->last[mode];
    if (hf_left_ms(hold->lock) <= 0) return;
    if (against)
        bad(hold, "thread %d holds it, too, in mode %d with token %llu", against->by->number,
            (int)against->asked->o.mode, (unsigned long long)against->token);
    if (o->mode == HF_LIMITED && holders > limit)
        bad(hold, "%u holders, limit %u", (unsigned)holders, (unsigned)limit);
    if (hold->token <= earlier)
        bad(hold, "token %llu was given before", (unsigned long long)earlier);
}

static void note_token(struct book *b, uint64_t token)
{
    if (b->n == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 1024;
        b->token = realloc(b->token, b->cap * sizeof *b->token);
        if (!b->token) abort();
    }
    b->token[b->n++] = token;
}

static int64_t first_lease(const hf_options *o)
{
    return o->lease_ms ? o->lease_ms : suite_has_sessions() ? INT64_MAX : DEFAULT_MS;
}

void book_in(struct hold *hold, int64_t asked_ms, uint64_t last)
{
    const hf_options *o = &hold->asked->o;
    const struct store *s = &stores[hold->store];
    struct book *b = &books[hold->key];
    int sessions = suite_has_sessions();
    hold->token = hf_token(hold->lock);
    hold->lease_ms = first_lease(o);
    hold->cap_ms = o->max_hold_ms ? o->max_hold_ms : INT64_MAX;
    hold->since_ms = asked_ms;
    hold->sure_ms = !sessions ? HANDED_MS : o->lease_ms == short_ms ? short_ms : INT64_MAX;
    if (!hold->token || hold->token >> 53) bad(hold, "no token");
    if (strcmp(hf_key(hold->lock), keys[hold->key])) bad(hold, "key '%s'", hf_key(hold->lock));
    if (strcmp(hf_owner(hold->lock), o->owner ? o->owner : s->owner))
        bad(hold, "owner '%s'", hf_owner(hold->lock));
    pthread_mutex_lock(&b->mu);
    judge(b, hold, last);
    if (hold->token > b->last[o->mode]) b->last[o->mode] = hold->token;
    note_token(b, hold->token);
    hold->next = b->first;
    b->first = hold;
    pthread_mutex_unlock(&b->mu);
    look_left(hold, hold->lock);
}

void book_out(struct hold *hold)
{
    struct book *b = &books[hold->key];
    pthread_mutex_lock(&b->mu);
    struct hold **at = &b->first;
    while (*at != hold) at = &(*at)->next;
    *at = hold->next;
    pthread_mutex_unlock(&b->mu);
}

static int by_number(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

void book_close(void)
{
    for (int i = 0; i < KEYS; i++) {
        struct book *b = &books[i];
        if (b->first) wrong(NULL, NULL, keys[i], "a hold is left in the book");
        if (b->n) qsort(b->token, b->n, sizeof *b->token, by_number);
        for (size_t j = 1; j < b->n; j++)
            if (b->token[j] == b->token[j - 1])
                wrong(NULL, NULL, keys[i], "token %llu was given twice",
                      (unsigned long long)b->token[j]);
        free(b->token);
        b->token = NULL;
    }
}

/* ---- one hold ---- */

/* The hold was reported as over. That is right only if its process stood still for as long as the
   lease; somewhat less counts, for clocks may differ. */
static void is_over(struct hold *hold, const char *what)
{
    int64_t held_ms = suite_ms() - hold->since_ms;
    if (hold->sure_ms == INT64_MAX || held_ms < hold->sure_ms * 9 / 10)
        bad(hold, "%s: it is lost after %lld ms", what, (long long)held_ms);
    if (!hold->over) count(&lost);
    hold->over = 1;
}

int goes_on(struct hold *hold, const char *what, int rc, const hf_error *err)
{
    if (hold->over && rc != HF_LOST) bad(hold, "%s: %s, lost as it is", what, hf_code_name(rc));
    if (!rc) return 1;
    if (err->code != rc) bad(hold, "%s: %s, error %d", what, hf_code_name(rc), err->code);
    if (rc != HF_LOST) bad(hold, "%s: %s: %s", what, hf_code_name(rc), err->text);
    is_over(hold, what);
    return 0;
}

void look_left(struct hold *hold, const hf_lock *lock)
{
    int64_t left = hf_left_ms(lock), most = hold->lease_ms, first = first_lease(&hold->asked->o);
    /* Where a lease is a session's the one that asks again brings its own. */
    if (lock == hold->twin && !hold->adopted && !suite_has_sessions() && first > most) most = first;
    /* The store doesn't know of max_hold_ms, nor does an adopted lock. */
    if (!(lock == hold->twin && hold->adopted) && hold->cap_ms < most) most = hold->cap_ms;
    if (left <= 0)
        is_over(hold, "left");
    else if (left > most || (left == INT64_MAX) != (most == INT64_MAX))
        bad(hold, "%lld ms are left, not at most %lld", (long long)left, (long long)most);
    else if (hold->over)
        bad(hold, "%lld ms are left, lost as it is", (long long)left);
}

struct shown {
    const struct hold *hold;
    int found;
};

static void look_at_party(const struct hold *hold, const hf_party_info *p)
{
    const hf_options *o = &hold->asked->o;
    const struct store *s = &stores[hold->store];
    const char *owner = o->owner ? o->owner : s->owner, *note = o->note ? o->note : s->note;
    int64_t most = hold->lease_ms;
    if (strcmp(p->owner, owner)) bad(hold, "owner '%s' is shown, not '%s'", p->owner, owner);
    if (strcmp(p->note, note)) bad(hold, "note '%s' is shown, not '%s'", p->note, note);
    if (p->mode != o->mode || p->limit != o->limit)
        bad(hold, "mode %d, limit %u are shown", (int)p->mode, (unsigned)p->limit);
    if (most == INT64_MAX ? p->left_ms != HF_FOREVER
                          : p->left_ms <= 0 || p->left_ms > most + CLOCK_MS)
        bad(hold, "a lease of %lld ms is shown, not of %lld", (long long)p->left_ms,
            (long long)most);
    if (!p->claimed && suite_has_sessions()) bad(hold, "it is shown as not claimed");
}

static int see(void *arg, const hf_info *info)
{
    struct shown *shown = arg;
    const struct hold *hold = shown->hold;
    const hf_options *o = &hold->asked->o;
    int against = 0;
    for (size_t i = 0; i < info->n_holders; i++) {
        const hf_party_info *p = &info->parties[i];
        if (p->token == hold->token) shown->found = 1;
        if (p->token == hold->token) look_at_party(hold, p);
        if (p->mode != o->mode || info->n_holders > (p->limit ? p->limit : 1000)) against = 1;
    }
    for (size_t i = 0; i < info->n_waiters; i++)
        if (info->parties[info->n_holders + i].token) bad(hold, "a waiter has a token");
    if (!shown->found) return 0;
    if (against || (o->mode == HF_EXCLUSIVE && info->n_holders > 1))
        bad(hold, "%zu holders are shown, or of other modes", info->n_holders);
    if (info->token < hold->token || strcmp(info->key, keys[hold->key]))
        bad(hold, "key '%s', token %llu are shown", info->key, (unsigned long long)info->token);
    return 0;
}

void look_shown(struct hold *hold, int store)
{
    struct shown shown = {hold, 0};
    hf_error err = {0, 0, ""};
    int rc = hf_peek(stores[store].h, keys[hold->key], see, &shown, &err);
    if (rc) bad(hold, "peek: %s: %s", hf_code_name(rc), err.text);
    if (!shown.found) is_over(hold, "peek");
}

void extend(struct hold *hold, int64_t ms)
{
    const hf_options *o = &hold->asked->o;
    hf_error err = {0, 0, ""};
    int64_t before_ms = suite_ms(), first_ms = first_lease(o);
    int rc = hf_renew(hold->lock, ms, &err);
    /* A background renewal gives the lease that was asked for, before and after this call. */
    int renewed = first_ms != INT64_MAX && !(o->flags & (HF_NO_RENEW | HF_DETACHED));
    int slow = suite_ms() - before_ms >= short_ms / 4;
    if ((rc == HF_UNKNOWN || rc == HF_UNAVAILABLE) && !suite_has_sessions() && slow)
        ms = hold->lease_ms > ms ? hold->lease_ms : ms; /* it may have been done */
    else if (!goes_on(hold, "renew", rc, &err))
        return;
    if (!ms) ms = first_ms;
    hold->lease_ms = renewed && first_ms > ms ? first_ms : ms;
    if (suite_has_sessions()) {
        hold->since_ms = before_ms;
        hold->sure_ms = (ms < first_ms ? ms : first_ms) <= short_ms ? short_ms : INT64_MAX;
    }
    look_left(hold, hold->lock);
}
