/*
 * known_row.c - the row of a key as this handle knows it without a read. See known_row.h.
 */
#include "known_row.h"

#include "handle.h"
#include "os.h"
#include "step.h"
#include "wait_schedule.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A row that was written less than this ago is probably still the present one. */
enum { LAST_ROW_US = 20000 };

/* ---- a row in little memory ---- */

/* `head` is what hf_row has before `party`. `bytes` are done_by and result, if the row has a
   marker; then, for each party, what hf_party has before `owner`, the owner and the note. Each text
   has its NUL. */
enum { ROW_HEAD = offsetof(hf_row, party), PARTY_HEAD = offsetof(hf_party, owner) };

struct hf_known_row {
    size_t cap; /* of bytes[] */
    uint32_t parties;
    char head[ROW_HEAD];
    char bytes[];
};

static size_t texts(const hf_party *p) { return (size_t)p->owner_len + p->note_len + 2; }

/* Returns the size of a copy of the row, or a number above `most` if it is larger than that. */
static size_t size_of(const hf_row *row, size_t most)
{
    size_t n = row->done_us ? (size_t)row->result_len + row->done_by_len + 2 : 0;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue && n <= most; i++)
        n += PARTY_HEAD + texts(&row->party[i]);
    return n;
}

static char *put(char *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return to + n;
}

static const char *get(const char *from, void *to, size_t n)
{
    memcpy(to, from, n);
    return from + n;
}

void hf__forget_row(struct hf_known_row **at)
{
    free(*at);
    *at = NULL;
}

void hf__keep_row(struct hf_known_row **at, const hf_row *row, size_t most)
{
    struct hf_known_row *k = *at;
    size_t n = row->rev ? size_of(row, most) : most + 1;
    if (n > most || (k && k->cap < n)) {
        hf__forget_row(at);
        k = NULL;
    }
    if (n > most) return;
    if (!k && !(k = malloc(sizeof *k + n))) return;
    if (!*at) k->cap = n;
    *at = k;
    k->parties = row->n_holders + row->n_queue;
    put(k->head, row, ROW_HEAD);
    char *to = k->bytes;
    if (row->done_us) {
        to = put(to, row->done_by, (size_t)row->done_by_len + 1);
        to = put(to, row->result, (size_t)row->result_len + 1);
    }
    for (uint32_t i = 0; i < k->parties; i++) {
        const hf_party *p = &row->party[i];
        to = put(to, p, PARTY_HEAD);
        to = put(to, p->owner, (size_t)p->owner_len + 1);
        to = put(to, p->note, (size_t)p->note_len + 1);
    }
}

int hf__show_row(const struct hf_known_row *k, hf_row *row)
{
    hf_row_clear(row);
    int rc = hf_row_room(row, k->parties);
    if (rc) return rc;
    uint32_t cap = row->cap;
    get(k->head, row, ROW_HEAD);
    row->cap = cap; /* of this row's own memory */
    const char *from = k->bytes;
    if (row->done_us) {
        from = get(from, row->done_by, (size_t)row->done_by_len + 1);
        from = get(from, row->result, (size_t)row->result_len + 1);
    }
    for (uint32_t i = 0; i < k->parties; i++) {
        hf_party *p = &row->party[i];
        from = get(from, p, PARTY_HEAD);
        from = get(from, p->owner, (size_t)p->owner_len + 1);
        from = get(from, p->note, (size_t)p->note_len + 1);
    }
    return 0;
}

/* ---- what is known ---- */

int hf__seems_over(hf *h, const hf_row *row) { return hf__holders_end(h, row) <= hf__local_us(); }

int hf__notified_row(const hf_lock *l, uint64_t rev, hf_row *row)
{
    hf *h = l->h;
    const hf_notify_ops *ops = h->port.caps.notify;
    if (!ops || !ops->payload || !rev || !ops->payload(h->port.st, &l->e->key, row)) return 0;
    if (row->rev >= rev && hf__find_grant(row, l->token) >= 0 && !hf__seems_over(h, row)) return 1;
    hf_row_clear(row);
    return 0;
}

int hf__known_row(const hf_lock *l, hf_row *row)
{
    return hf__notified_row(l, l->rev, row) || (l->row && !hf__show_row(l->row, row));
}

void hf__last_row_keep(hf *h, const struct hf_entry *e, const hf_row *row)
{
    h->last_row.e = NULL;
    if (h->port.caps.local || !(row->n_holders + row->n_queue)) return;
    hf__keep_row(&h->last_row.row, row, HF_KEPT_LAST);
    if (!h->last_row.row) return;
    h->last_row.e = e;
    h->last_row.us = hf__local_us();
}

/* Doesn't use the row for a request that the stored row may have already: the caller may repeat a
   request with a request_id. */
int hf__last_row_use(struct hf_wait *w, int waits, hf_row *row)
{
    hf *h = w->h;
    int is = 0;
    pthread_mutex_lock(&h->mu);
    if (h->last_row.e == w->e) {
        int usable =
            waits && !w->once && !w->named && hf__local_us() - h->last_row.us < LAST_ROW_US;
        is = usable && !hf__show_row(h->last_row.row, row);
        h->last_row.e = NULL;
    }
    pthread_mutex_unlock(&h->mu);
    return is;
}
