/*
 * body.c - turns bodies into rows and back. The done marker isn't in the body, but in a pair of
 * sectors of its cell.
 */
#include "shared.h"
#include "sum.h"

static void no_row(hf_row *row)
{
    row->rev = row->token = 0;
    row->done_us = row->keep_until_us = 0;
    row->n_holders = row->n_queue = 0;
}

/* Reads one party at *at, and moves *at beyond it. Returns 0 or HF_CORRUPT. */
static int get_party(const unsigned char **at, const unsigned char *end, hf_party *to)
{
    const unsigned char *p = *at;
    if (end - p < HF_PARTY_FIXED) return HF_CORRUPT;
    HF_COPY_OUT("party.fixed", to, p, HF_PARTY_FIXED);
    size_t size = HF_PARTY_BYTES(to->owner_len, to->note_len);
    if (to->owner_len >= HF_OWNER_CAP || (size_t)(end - p) < size) return HF_CORRUPT;
    HF_COPY_OUT("party.owner", to->owner, p + HF_PARTY_FIXED, to->owner_len);
    HF_COPY_OUT("party.note", to->note, p + HF_PARTY_FIXED + to->owner_len, to->note_len);
    to->owner[to->owner_len] = to->note[to->note_len] = 0;
    *at = p + size;
    return 0;
}

static int get_marker(const struct hf__op *op, const struct hf__found *f, struct hf__marker *m)
{
    struct hf__marker *pair;
    char key[HF_KEY_CAP];
    uint32_t len = (uint32_t)(f->cell->key >> 48);
    if (!HF_LOAD("marker.link", &f->cell->marker))
        return hf__damaged(op, &f->cell->marker, "the link to a marker");
    int rc = hf__marker_room(op, f->cell, &pair);
    if (rc) return rc;
    pair += f->head.marker_seq & 1;
    HF_COPY_OUT("marker.get", m, pair, sizeof *m);
    if (len >= HF_KEY_CAP) return hf__damaged(op, &f->cell->key, "the length of a key");
    HF_COPY_OUT("marker.key", key, hf__cell_key(f->cell), len);
    if (m->seq != f->head.marker_seq || m->sum != hf__marker_sum(m, key, len, f->cell->hash))
        return hf__damaged(op, pair, "a done marker");
    return 0;
}

int hf__decode_marker(const struct hf__op *op, const struct hf__found *f, hf_row *row)
{
    struct hf__marker m;
    row->done_us = row->keep_until_us = 0;
    if (HF_LIKELY(!(hf__flags(&f->head) & HF_BODY_MARKED))) return 0;
    int rc = get_marker(op, f, &m);
    if (rc) return rc;
    row->done_us = m.done_us;
    row->keep_until_us = m.keep_until_us;
    row->result_len = m.result_len;
    row->done_by_len = m.done_by_len;
    memcpy(row->result, m.result, sizeof row->result);
    memcpy(row->done_by, m.done_by, sizeof row->done_by);
    return 0;
}

int hf__decode(const struct hf__op *op, const struct hf__found *f, hf_row *row)
{
    const char *why;
    if (!f->cell) {
        no_row(row);
        return 0;
    }
    uint32_t n = hf__holders(&f->head) + hf__waiters(&f->head);
    if (n > row->cap) return HF_NEED_PARTIES;
    const unsigned char *p = (const unsigned char *)(f->at + 1), *end = p + hf__used(&f->head);
    row->n_holders = row->n_queue = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (get_party(&p, end, &row->party[i])) return hf__damaged(op, p, "a party of a row");
        sum = hf__sum_next(sum, hf__party_word_of(&row->party[i]));
    }
    if (hf__sum_bits(sum) != f->head.extent >> 40 << 40)
        return hf__damaged(op, f->at + 1, "a holder or waiter of a row");
    int rc = hf__decode_marker(op, f, row);
    if (rc) return rc;
    row->rev = f->head.rev;
    row->token = f->head.token;
    row->n_holders = hf__holders(&f->head);
    row->n_queue = hf__waiters(&f->head);
    if (HF_LIKELY(!hf_row_check(row, &why))) return 0;
    no_row(row);
    return hf__damaged(op, f->at, why);
}

size_t hf__encoded_size(const hf_row *row)
{
    size_t n = sizeof(struct hf__body);
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++)
        n += HF_PARTY_BYTES(row->party[i].owner_len, row->party[i].note_len);
    return n;
}

/* ---- the done marker ---- */

static int same_marker(const struct hf__marker *m, const hf_row *row)
{
    return m->done_us == row->done_us && m->keep_until_us == row->keep_until_us &&
           m->result_len == row->result_len && m->done_by_len == row->done_by_len &&
           !memcmp(m->result, row->result, row->result_len) &&
           !memcmp(m->done_by, row->done_by, row->done_by_len);
}

int hf__put_marker(const struct hf__op *op, const struct hf__found *f, const hf_row *row,
                   uint64_t rev, struct hf__body *head)
{
    struct hf__marker m, *pair;
    int rc, marked = hf__flags(&f->head) & HF_BODY_MARKED, marks = row && row->done_us != 0;
    head->marker_seq = f->head.marker_seq;
    if (HF_LIKELY(!marked && !marks)) return 0;
    if (marks && (row->result_len >= HF_RESULT_CAP || row->done_by_len >= HF_OWNER_CAP))
        return hf_fail(op->err, HF_INVALID, 0, "file: %s '%s': a marker too long", op->verb,
                       op->key->text);
    if (marks) head->extent |= (uint64_t)HF_BODY_MARKED << 32;
    if (marked && marks) {
        rc = get_marker(op, f, &m);
        if (rc || same_marker(&m, row)) return rc;
    }
    /*
     * This write overwrites the copy with the marker before the current one. If the power fails
     * while the disk writes that sector, the sector may be torn; then the current marker must be on
     * disk. (The removal of a marker doesn't wait for the disk: a power cut may then bring an older
     * marker back, whose time is over, too.)
     */
    int is_durable = f->durable_of == f->cell && f->durable_marker == head->marker_seq;
    if (marks && head->marker_seq > 1 && !is_durable) return HF_NEED_SYNC;
    rc = hf__marker_room(op, f->cell, &pair);
    if (rc) return rc;
    memset(&m, 0, sizeof m);
    m.seq = ++head->marker_seq;
    m.rev = rev;
    if (marks) {
        m.done_us = row->done_us;
        m.keep_until_us = row->keep_until_us;
        m.result_len = row->result_len;
        m.done_by_len = row->done_by_len;
        memcpy(m.result, row->result, row->result_len);
        memcpy(m.done_by, row->done_by, row->done_by_len);
    }
    m.sum = hf__marker_sum(&m, op->key->text, op->key->len, op->key->hash);
    HF_COPY_IN("marker.put", pair + (m.seq & 1), &m, sizeof m);
    return 0;
}

/* ---- waiters to be woken ---- */

/* Posts and notes the wakeups that this write owes: to each party that holds in *row but waits in
   the current body; and to the first waiter, if it has to plan its next look again. The old and the
   new list of parties have the same order, so the search for a party goes on where the last one was
   found. */
void hf__ring_granted(const struct hf__op *op, const struct hf__found *f, const hf_row *row,
                      struct hf__owed *owed)
{
    const unsigned char *first = (const unsigned char *)(f->at + 1), *p = first;
    const unsigned char *end = first + hf__used(&f->head);
    hf_party old;
    int64_t end_us = 0; /* hf_row_end of the row before this write */
    for (uint32_t i = 0; i < hf__holders(&f->head) && end - p >= HF_PARTY_FIXED; i++) {
        HF_COPY_OUT("granted.held", &old, p, HF_PARTY_FIXED);
        if (!(old.flags & HF_PARTY_UNCLAIMED) && old.expires_us &&
            (!end_us || old.expires_us < end_us))
            end_us = old.expires_us;
        p += HF_PARTY_BYTES(old.owner_len, old.note_len);
    }
    first = p;
    if (row->n_queue) {
        const hf_party *head = &row->party[row->n_holders];
        int64_t end_now_us = hf_row_end(row);
        int anew = end_now_us != end_us;
        if (!anew && end_now_us && hf__waiters(&f->head) && end - p >= HF_PARTY_FIXED) {
            /* If another waiter is the first now, its plan is late: waiters further back look a
               little later after that end than the first one. */
            HF_COPY_OUT("granted.first", &old, p, HF_PARTY_FIXED);
            anew = memcmp(old.id, head->id, sizeof old.id) != 0;
        }
        if (anew) hf__ring(op, head->session, head->wakeup, op->key->hash, owed);
    }
    for (uint32_t i = 0, at = 0; i < row->n_holders; i++) {
        const hf_party *now = &row->party[i];
        for (uint32_t seen = 0; now->session && seen < hf__waiters(&f->head); seen++, at++) {
            if (at == hf__waiters(&f->head) || end - p < HF_PARTY_FIXED) at = 0, p = first;
            if (end - p < HF_PARTY_FIXED) return;
            HF_COPY_OUT("granted.waited", &old, p, HF_PARTY_FIXED);
            p += HF_PARTY_BYTES(old.owner_len, old.note_len);
            if (memcmp(old.id, now->id, sizeof old.id)) continue;
            hf__ring(op, now->session, now->wakeup, op->key->hash, owed);
            at++;
            break;
        }
    }
}
