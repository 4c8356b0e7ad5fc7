/*
 * marks.c - notes which keys this handle has put beside rows, a mark for each row and session. So
 * it deletes only keys that it has put, and puts an inbox only once.
 *
 * The marks are in a hash table with open addressing; a session of 0 ends a search. A mark may be
 * out of date, because other clients delete keys, too: then the delete finds nothing. A mark that
 * could not be made for lack of memory does no harm: etcd deletes the key when the session's lease
 * ends.
 */
#include "etcd.h"

#include <stdlib.h>
#include <string.h>

static size_t place_of(const struct hf__et_marks *m, uint64_t hash, uint64_t session)
{
    size_t i = (hash ^ session * UINT64_C(0x9e3779b97f4a7c15)) & (m->places - 1);
    while (m->at[i].session && (m->at[i].session != session || m->at[i].hash != hash))
        i = (i + 1) & (m->places - 1);
    return i;
}

struct hf__et_mark *hf__et_mark(const struct hf__et_marks *m, uint64_t hash, uint64_t session)
{
    size_t i = m->places ? place_of(m, hash, session) : 0;
    return m->places && m->at[i].session ? &m->at[i] : NULL;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = ((const struct hf__et_own *)b)->session;
    return (x > y) - (x < y);
}

/* Makes the table larger, and drops the marks of sessions that have ended. `own`: the sessions that
   haven't, sorted. */
static void grow(struct hf__et_marks *m, const struct hf__et_own *own, size_t n_own)
{
    struct hf__et_marks to = {.places = 16};
    while (to.places < 4 * (m->n + 1)) to.places *= 2;
    to.at = calloc(to.places, sizeof *to.at);
    if (!to.at) return;
    for (size_t i = 0; i < m->places; i++) {
        const struct hf__et_mark *k = &m->at[i];
        if (!k->session || !bsearch(&k->session, own, n_own, sizeof *own, compare)) continue;
        to.at[place_of(&to, k->hash, k->session)] = *k;
        to.n++;
    }
    free(m->at);
    *m = to;
}

static int by_session(const void *a, const void *b)
{
    return compare(&((const struct hf__et_own *)a)->session, b);
}

/* Makes room for one more mark. Returns 1; 0: out of memory. Half of the places stay free, so that
   a search ends. */
static int has_room(hf_store *st)
{
    struct hf__et_marks *m = &st->marks;
    if ((m->n + 1) * 2 <= m->places) return 1;
    struct hf__et_own *own = malloc((st->n_own + 1) * sizeof *own);
    if (own) {
        if (st->n_own) memcpy(own, st->own, st->n_own * sizeof *own);
        qsort(own, st->n_own, sizeof *own, by_session);
        grow(m, own, st->n_own);
        free(own);
    }
    return m->n + 1 < m->places;
}

void hf__et_mark_set(hf_store *st, uint64_t hash, uint64_t session, enum hf__et_inbox_state inbox)
{
    struct hf__et_mark *k = hf__et_mark(&st->marks, hash, session);
    if (!k && !has_room(st)) return;
    if (!k) {
        k = &st->marks.at[place_of(&st->marks, hash, session)];
        *k = (struct hf__et_mark){.hash = hash, .session = session};
        st->marks.n++;
    }
    if (inbox == HF_ET_PUT || k->inbox == HF_ET_NO_INBOX) k->inbox = inbox;
}

void hf__et_mark_drop(struct hf__et_marks *m, uint64_t hash, uint64_t session)
{
    size_t i = m->places ? place_of(m, hash, session) : 0;
    /* PUT: another thread has put the key again meanwhile. */
    if (!m->places || !m->at[i].session || m->at[i].inbox == HF_ET_PUT) return;
    /* The marks that follow in the run are inserted again, so that a search still finds them. */
    m->at[i].session = 0;
    m->n--;
    for (size_t n = (i + 1) & (m->places - 1); m->at[n].session; n = (n + 1) & (m->places - 1)) {
        struct hf__et_mark k = m->at[n];
        m->at[n].session = 0;
        m->at[place_of(m, k.hash, k.session)] = k;
    }
}
