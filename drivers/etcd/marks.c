/*
 * marks.c - what this handle has put beside rows, for each key and session of its own: so that only
 * that is taken away again, and a letter is put only once.
 *
 * A table by hash, in which a session of 0 ends a search. What a mark says may be out of date, for
 * others take keys away, too: then a key is taken away that isn't there.
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
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Those of sessions that have ended aren't taken over. `own`: those that haven't, in order. */
static int grow(struct hf__et_marks *m, const uint64_t *own, size_t n_own)
{
    struct hf__et_marks to = {.places = 16};
    while (to.places < 4 * (m->n + 1)) to.places *= 2;
    to.at = calloc(to.places, sizeof *to.at);
    if (!to.at) return HF_NOMEM;
    for (size_t i = 0; i < m->places; i++) {
        const struct hf__et_mark *k = &m->at[i];
        if (!k->session || !bsearch(&k->session, own, n_own, sizeof *own, compare)) continue;
        to.at[place_of(&to, k->hash, k->session)] = *k;
        to.n++;
    }
    free(m->at);
    *m = to;
    return 0;
}

int hf__et_marks_room(hf_store *st)
{
    struct hf__et_marks *m = &st->marks;
    if (m->places && (m->n + st->n_own) * 2 <= m->places) return 0;
    uint64_t *own = malloc((st->n_own + 1) * sizeof *own);
    if (!own) return HF_NOMEM;
    memcpy(own, st->own, st->n_own * sizeof *own);
    qsort(own, st->n_own, sizeof *own, compare);
    size_t n = m->n;
    m->n += st->n_own; /* as if all of them were there: room for each of the next write */
    int rc = grow(m, own, st->n_own);
    if (rc) m->n = n;
    free(own);
    return rc;
}

void hf__et_mark_set(struct hf__et_marks *m, uint64_t hash, uint64_t session, int letter)
{
    struct hf__et_mark *k = &m->at[place_of(m, hash, session)];
    if (!k->session) m->n++;
    k->hash = hash;
    k->session = session;
    k->letter |= (uint8_t)letter;
}

void hf__et_mark_drop(struct hf__et_marks *m, uint64_t hash, uint64_t session)
{
    size_t i = m->places ? place_of(m, hash, session) : 0;
    if (!m->places || !m->at[i].session) return;
    /* Those behind it go on being found: each is put anew. */
    m->at[i].session = 0;
    m->n--;
    for (size_t n = (i + 1) & (m->places - 1); m->at[n].session; n = (n + 1) & (m->places - 1)) {
        struct hf__et_mark k = m->at[n];
        m->at[n].session = 0;
        m->at[place_of(m, k.hash, k.session)] = k;
    }
}
