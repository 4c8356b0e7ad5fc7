/*
 * waiting.c - reads from the store which holder is in the way, and shows it on a terminal while
 * this process waits.
 *
 * A read takes as long as the store takes to answer. So a thread of its own reads and writes the
 * live line, and doesn't delay the grant.
 */
#include "cli.h"

#include "holdfast_driver.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void owner_mark(const char *owner, char *to, size_t cap)
{
    snprintf(to, cap, ":%016llx", (unsigned long long)hf_key_hash(owner, strlen(owner)));
}

/* Returns 1 if the grant `p` is in the list of outer runs' tokens. A grant of another key or store
   may have the same token, but then another owner. So the mark of p's owner must follow the token;
   or p must be `owner`'s, if that isn't NULL. */
static int listed(const char *list, const char *owner, const hf_party_info *p)
{
    char mark[20], *end;
    owner_mark(p->owner, mark, sizeof mark);
    for (const char *s = list; s && *s; s = end) {
        unsigned long long n = strtoull(s, &end, 10);
        if (end == s) break;
        size_t len = strcspn(end, " ");
        int his = len ? !strncmp(end, mark, len) : !owner || !strcmp(owner, p->owner);
        if (n == p->token && his) return 1;
        end += len;
    }
    return 0;
}

static int is_own(const hf_party_info *p)
{
    return listed(getenv("HOLDFAST_TOKEN"), getenv("HOLDFAST_OWNER"), p) ||
           listed(getenv("HOLDFAST_OUTER"), NULL, p);
}

/* Returns 1 if a request can't be granted beside `n` holders of this mode and limit. */
static int excluded(enum hf_mode mode, uint32_t limit, const hf_party_info *holder, size_t n,
                    uint32_t least)
{
    if (mode == HF_EXCLUSIVE || mode != holder->mode) return 1;
    return mode == HF_LIMITED && n >= (limit < least ? limit : least);
}

/* Finds the grants of outer runs. They last until this process has ended, other holders don't. */
static void look_for_own(struct looking *l, const hf_info *info)
{
    const hf_party_info *own = NULL;
    uint32_t least = UINT32_MAX;
    size_t n = 0;
    for (size_t i = 0; i < info->n_holders; i++) {
        if (!is_own(&info->parties[i])) continue;
        own = &info->parties[i];
        if (own->limit < least) least = own->limit;
        n++;
    }
    l->own = n > 0;
    if (!own || !l->options) return;
    l->shut_out = excluded(l->options->mode, l->options->limit, own, n, least);
    for (size_t i = 0; i < info->n_waiters; i++) {
        const hf_party_info *p = &info->parties[info->n_holders + i];
        l->shut_out |= excluded(p->mode, p->limit, own, n, least);
    }
}

static int look_at(void *arg, const hf_info *info)
{
    struct looking *l = arg;
    l->holders = info->n_holders;
    l->waiters = info->n_waiters;
    if (info->n_holders) {
        describe(&info->parties[0], l->holder, sizeof l->holder);
        show_time(info->parties[0].since_us, l->since, sizeof l->since);
        l->left_ms = info->parties[0].left_ms;
    }
    look_for_own(l, info);
    for (size_t i = 0; l->note && i < info->n_waiters && !l->place; i++)
        if (!strcmp(info->parties[info->n_holders + i].note, l->note)) l->place = i + 1;
    return 0;
}

const char *find_busy(hf *store, const struct want *want, const char *only, struct looking *ret)
{
    for (size_t i = 0; i < want->n; i++) {
        struct looking l = {.note = want->note};
        if (only && strcmp(only, want->keys[i]) != 0) continue;
        if (hf_peek(store, want->keys[i], look_at, &l, NULL) || !(l.holders || l.place)) continue;
        *ret = l;
        return want->keys[i];
    }
    return NULL;
}

int held_outside(hf *store, const struct want *want)
{
    struct looking l = {.own = 0};
    for (size_t i = 0; i < want->n && !l.own; i++)
        if (hf_peek(store, want->keys[i], look_at, &l, NULL)) l.own = 0;
    return l.own;
}

const char *waited_for_in_vain(hf *store, const struct want *want)
{
    for (size_t i = 0; i < want->n; i++) {
        struct looking l = {.options = &want->options};
        if (!hf_peek(store, want->keys[i], look_at, &l, NULL) && l.shut_out) return want->keys[i];
    }
    return NULL;
}

/* ---- the line ---- */

static struct {
    pthread_t thread;
    int runs, stop_fd, stopped; /* stopped: see output_stop */
    hf *store;
    const struct want *want;
    const char *key; /* the one that is waited for; atomic */
} line = {.stop_fd = -1};

/* Shows the live line. The end of it, which a narrow terminal cuts, is the least important. */
static void show_line(void)
{
    struct looking l = {.note = line.want->note};
    char place[64] = "", more[40] = "", left[32], lease[64] = "";
    const char *key = __atomic_load_n(&line.key, __ATOMIC_RELAXED);
    find_busy(line.store, line.want, key, &l);
    if (l.place) snprintf(place, sizeof place, "place %zu of %zu in line; ", l.place, l.waiters);
    if (l.holders > 1) snprintf(more, sizeof more, " and %zu more", l.holders - 1);
    if (l.holders && l.left_ms != HF_FOREVER) {
        show_left(l.left_ms, left, sizeof left);
        snprintf(lease, sizeof lease, " (lease: %s left)", left);
    }
    if (l.holders)
        live_show(&line.stopped, "%swaiting for '%s'%s, held by %s%s since %s UTC", place, key,
                  lease, l.holder, more, l.since);
    else
        live_show(&line.stopped, "%swaiting for '%s'", place, key);
}

static void *line_thread(void *arg)
{
    struct pollfd fd = {line.stop_fd, POLLIN, 0};
    (void)arg;
    do show_line();
    while (poll(&fd, 1, 1000) == 0);
    return NULL;
}

void waiting_line_begin(hf *store, const struct want *want, const char *key)
{
    __atomic_store_n(&line.key, key, __ATOMIC_RELAXED);
    if (line.runs || want->quiet || !live_possible()) return;
    line.store = store;
    line.want = want;
    line.stop_fd = eventfd(0, EFD_CLOEXEC);
    if (line.stop_fd >= 0) line.runs = !start_thread(&line.thread, line_thread, NULL);
}

void waiting_line_end(void)
{
    uint64_t one = 1;
    if (!line.runs) return;
    output_stop(&line.stopped);
    live_erase();
    ssize_t n = write(line.stop_fd, &one, sizeof one);
    (void)n; /* an empty eventfd takes it */
}

int waiting_line_ended(void)
{
    if (line.runs && !pthread_tryjoin_np(line.thread, NULL)) line.runs = 0;
    return !line.runs;
}

void waiting_line_join(void)
{
    if (line.runs) pthread_join(line.thread, NULL);
    line.runs = 0;
}
