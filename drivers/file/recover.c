/*
 * recover.c - the header, and what is done once after a reboot.
 *
 * While the machine runs, nothing needs recovery: see lock.c and cell.c. A reboot ends every
 * process, so it voids holds, queues and lock words. If the power failed, the file is any mixture
 * of old and new sectors. What was synced must be found again; what wasn't may be missing:
 *   - A cell line that was never written is zero; the chain ends in front of it. Chains are
 *     append-only, so the cells behind it are newer, and were not synced either.
 *   - Of a cell's bodies only the heads count (rev and token). Each lies within one sector.
 *   - Of a cell's two markers the valid one with the greater number counts. Each is one sector. A
 *     marker that no published body had named is removed.
 * Recovery doesn't overwrite what it would need to begin again, writes the boot block last, and no
 * other client uses the store before that. So it may be killed and begun again at any point.
 */
#include "store.h"

#include "os.h"

#include <stdlib.h>

/* A power cut may take back the writes of this many microseconds. The store's clock jumps over that
   time, so that lost revs don't repeat. */
enum { UNWRITTEN_US = 60000000, CEILING_STEP_US = 60000000 };
static const int64_t AHEAD_CAP_US = INT64_C(3600000000);

static const char magic[8] = "HOLDFAST";

/* ---- the header ---- */

void hf__format(void *base, uint64_t lines, unsigned mode, const struct hf__boot *boot)
{
    struct hf__static s;
    struct hf__boot b = *boot;
    memset(&s, 0, sizeof s);
    memcpy(s.magic, magic, sizeof s.magic);
    s.format = HF_FILE_FORMAT;
    s.byte_order = 0x01020304;
    s.slots = HF_FILE_SLOTS;
    s.buckets = HF_FILE_BUCKETS;
    s.wakeups = HF_FILE_WAKEUPS;
    s.mode = mode;
    hf__random(s.id, sizeof s.id);
    s.created_us = hf__local_us() + boot->offset_us;
    s.sum = hf__sum(&s, offsetof(struct hf__static, sum), 0);
    b.seq = 1;
    b.sum = hf__sum(&b, offsetof(struct hf__boot, sum), 1);
    memcpy(base, &s, sizeof s);
    memcpy((char *)base + HF_AT_BOOT, &b, sizeof b);
    memcpy((char *)base + HF_AT_BOOT + HF_SECTOR, &b, sizeof b);
    struct hf__alloc *a = (struct hf__alloc *)(void *)((char *)base + HF_AT_ALLOC);
    atomic_init(&a->bump, hf__seal(HF_AT_HEAP / HF_LINE));
    atomic_init(&a->limit, hf__seal(lines));
}

const char *hf__static_wrong(const struct hf__static *s)
{
    if (memcmp(s->magic, magic, sizeof magic)) return "is no store (its first bytes are others)";
    if (s->sum != hf__sum(s, offsetof(struct hf__static, sum), 0))
        return "is damaged: the header at offset 0";
    if (s->format != HF_FILE_FORMAT) return "has a format that this version doesn't know";
    if (s->byte_order != 0x01020304 || s->slots != HF_FILE_SLOTS || s->buckets != HF_FILE_BUCKETS ||
        s->wakeups != HF_FILE_WAKEUPS)
        return "has a geometry that this version doesn't know";
    return NULL;
}

int hf__boot_read(const struct hf__op *op, struct hf__boot *ret)
{
    const struct hf__boot *at = (const void *)(op->c->base + HF_AT_BOOT);
    struct hf__boot b;
    int found = 0;
    for (int i = 0; i < 2; i++) {
        HF_COPY_OUT("boot", &b, at + i, sizeof b);
        if (b.sum != hf__sum(&b, offsetof(struct hf__boot, sum), 1)) continue;
        if (!found || b.seq > ret->seq) *ret = b;
        found = 1;
    }
    return found ? 0 : hf__damaged(op, at, "the boot block");
}

/* ---- the ceiling ---- */

int hf__raise_ceiling(const struct hf__op *op, uint64_t rev)
{
    struct hf__client *c = op->c;
    _Atomic uint64_t *at = &HF_ALLOC(c)->ceiling;
    uint64_t want = (rev + CEILING_STEP_US) / 1000000 + 1, word = HF_LOAD("ceiling", at);
    if (!hf__sealed(word)) return hf__damaged(op, at, "the ceiling of revs");
    while (hf__unseal(word) < want)
        if (HF_CAS("ceiling.raise", at, &word, hf__seal(want))) break;
    /* Only this page is synced. After a sync of the whole file each write to a page would cost a
       page fault again. */
    int sys = (HF_AT("ceiling.sync"), HF_ENV(c, sync)(c, HF_AT_ALLOC / HF_LINE, 1));
    if (sys) return hf__sync_failed(op, sys);
    atomic_store_explicit(&c->ceiling_us, want * 1000000, memory_order_relaxed);
    return 0;
}

/* ---- after a reboot ---- */

struct recovery {
    const struct hf__op *op;
    uint64_t lines;       /* of the file */
    uint64_t end;         /* the first line after everything that is in use */
    uint64_t rev;         /* the greatest rev of all rows */
    unsigned char *taken; /* a bit for each line that a cell, a body or a marker uses */
};

/* Marks the lines as used. Returns HF_CORRUPT if one of them is used already. */
static int claim(struct recovery *r, uint64_t line, uint64_t n, const volatile void *link)
{
    if (line < HF_AT_HEAP / HF_LINE || line >= r->lines || n > r->lines - line)
        return hf__damaged(r->op, link, "a link beyond the end");
    for (uint64_t i = line; i < line + n; i++) {
        if (r->taken[i / 8] & 1 << i % 8)
            return hf__damaged(r->op, link, "a link to what belongs to another");
        r->taken[i / 8] |= (unsigned char)(1 << i % 8);
    }
    if (line + n > r->end) r->end = line + n;
    return 0;
}

/* Reads the head of a body. Returns 1 if it is whole and was written for this cell. */
static int head_of(const struct hf__cell *cell, const struct hf__body *at, struct hf__body *ret)
{
    *ret = *at;
    return ret->check == hf__body_check(ret, cell->self) && ret->token <= ret->rev &&
           ret->rev < UINT64_C(1) << 53;
}

static void wipe(void *at, size_t len)
{
    for (uint64_t *p = at, *end = p + len / sizeof *p; p < end; p++)
        if (*p) *p = 0; /* a page of zeros isn't written, so it needn't go to disk */
}

/* Returns the newest valid marker of the cell's key that counts, or NULL. `newest` is the newest
   body whose head is whole; all_whole: the heads of both bodies are. */
static const struct hf__marker *newest_marker(const struct hf__marker *pair, struct hf__cell *cell,
                                              const struct hf__body *newest, int all_whole)
{
    const char *key = hf__cell_key(cell);
    uint32_t len = (uint32_t)(cell->key >> 48);
    const struct hf__marker *found = NULL;
    for (const struct hf__marker *m = pair; m < pair + 2; m++) {
        if (found && m->seq <= found->seq) continue;
        if (!m->seq || m->sum != hf__marker_sum(m, key, len, cell->hash)) continue;
        /* A marker counts from the moment when a body that names it is published. If both bodies
           are whole and neither names it, its writer died before. If one body is lost, that body
           may have named the marker, unless the other body is newer than the marker. */
        if (m->seq > newest->marker_seq && (all_whole || m->rev <= newest->rev)) continue;
        /* A marker whose number the newest body has reached counts only if that body has a marker,
           and it is this one or the next. So a removed marker doesn't count again, even if the body
           that removed it is gone because the cell was reused for another key. */
        int is_marked = hf__flags(newest) & HF_BODY_MARKED && m->seq + 1 >= newest->marker_seq;
        if (m->seq <= newest->marker_seq && !is_marked) continue;
        found = m;
    }
    return found;
}

static int recover_cell(struct recovery *r, struct hf__cell *cell)
{
    struct hf__body head, newest = {.extent = (uint64_t)HF_BODY_VACANT << 32};
    const struct hf__marker *mark = NULL;
    uint64_t self = hf__unseal(cell->self), line = self >> 8;
    uint32_t len = (uint32_t)(cell->key >> 48);
    unsigned code;
    int whole = 0, rc = claim(r, line, 1 + (self & 0xff), cell);
    if (!rc && !hf__sealed(cell->seq)) rc = hf__damaged(r->op, &cell->seq, "a cell's sequence");
    for (int i = 0; !rc && i < 2; i++) {
        uint64_t at = hf__body_line(r->op, cell->body[i], &code);
        if (!at) return hf__damaged(r->op, &cell->body[i], "the link to a body");
        rc = claim(r, at, HF_BODY_LINES(code), &cell->body[i]);
        if (rc || !head_of(cell, hf__line_at(r->op->c, at), &head)) continue;
        whole++;
        if (head.rev > newest.rev || !newest.check) newest = head;
    }
    int key_whole = len && len < HF_KEY_CAP && (len + HF_LINE - 1) / HF_LINE <= (self & 0xff) &&
                    cell->key == hf__key_word(cell->hash, len) &&
                    hf_key_hash(hf__cell_key(cell), len) == cell->hash;
    uint64_t link = cell->marker;
    if (!rc && link) {
        if (!hf__sealed(link) || hf__unseal(link) % (HF_SECTOR / HF_LINE))
            return hf__damaged(r->op, &cell->marker, "the link to a marker");
        rc = claim(r, hf__unseal(link), 2 * HF_SECTOR / HF_LINE, &cell->marker);
    }
    if (rc) return rc;
    if (link) {
        struct hf__marker *pair = hf__line_at(r->op->c, hf__unseal(link));
        if (key_whole) mark = newest_marker(pair, cell, &newest, whole == 2);
        /* A marker that doesn't count now is wiped, so that it doesn't count later: after the next
           power cut, which may take a body with it, or when the cell has this key again. By then a
           client has been told that the event isn't done. */
        for (int i = 0; i < 2; i++)
            if (pair + i != mark) wipe(pair + i, sizeof *pair);
    }
    int done = mark && mark->done_us;
    struct hf__body now = {.rev = mark && mark->rev > newest.rev ? mark->rev : newest.rev,
                           .token = newest.token,
                           .marker_seq = mark ? mark->seq : newest.marker_seq};
    uint64_t flags = 0;
    if (!key_whole || (!done && hf__flags(&newest) & HF_BODY_VACANT)) flags = HF_BODY_VACANT;
    if (key_whole && done) flags = HF_BODY_MARKED;
    now.extent = flags << 32;
    now.check = hf__body_check(&now, cell->self);
    if (now.rev > r->rev) r->rev = now.rev;
    *(struct hf__body *)hf__line_at(r->op->c, hf__unseal(cell->body[0]) >> 8) = now;
    cell->seq = 0;
    return 0;
}

static struct hf__body *recovered_body(const struct recovery *r, struct hf__cell *cell)
{
    return hf__line_at(r->op->c, hf__unseal(cell->body[0]) >> 8);
}

static int is_live(const struct recovery *r, struct hf__cell *cell)
{
    return !(hf__flags(recovered_body(r, cell)) & HF_BODY_VACANT);
}

/* Makes `cell` vacant if an earlier cell of the chain has the same key. That happens if a row was
   deleted and made again in another cell, and the deletion didn't reach the disk. The first cell is
   kept, because a search finds it; and when a key is synced, all cells before its own in the chain
   are synced, too, so none of them has the key. */
static void drop_second(struct recovery *r, struct hf__bucket *b, struct hf__cell *cell)
{
    struct hf__cell *first = hf__line_at(r->op->c, hf__unseal(b->head));
    if (!is_live(r, cell)) return;
    for (; first != cell; first = hf__line_at(r->op->c, hf__unseal(first->next))) {
        if (first->hash != cell->hash || first->key != cell->key || !is_live(r, first) ||
            memcmp(hf__cell_key(first), hf__cell_key(cell), cell->key >> 48))
            continue;
        struct hf__body *body = recovered_body(r, cell);
        if (cell->marker) wipe(hf__line_at(r->op->c, hf__unseal(cell->marker)), 2 * HF_SECTOR);
        body->extent = (uint64_t)HF_BODY_VACANT << 32;
        body->check = hf__body_check(body, cell->self);
        return;
    }
}

static int recover_bucket(struct recovery *r, uint32_t i)
{
    struct hf__client *c = r->op->c;
    struct hf__bucket *b = hf__bucket_at(c, i);
    _Atomic uint64_t *link = &b->head;
    uint64_t above = 0;
    b->lock = b->debt = 0;
    b->floor = 0; /* the recovered clock, and so every later rev, is above all old revs */
    while (*link) {
        uint64_t line = hf__unseal(*link);
        if (!hf__sealed(*link) || line <= above || line >= r->lines)
            return hf__damaged(r->op, link, "the link to a cell");
        struct hf__cell *cell = hf__line_at(c, line);
        uint64_t self = hf__unseal(cell->self);
        if (!cell->self) { /* the cell never reached the disk */
            *link = 0;
            break;
        }
        if (!hf__sealed(cell->self) || self >> 8 != line || !(self & 0xff) ||
            (self & 0xff) > HF_KEY_CAP / HF_LINE || (cell->hash & (HF_FILE_BUCKETS - 1)) != i)
            return hf__damaged(r->op, cell, "the head of a cell");
        int rc = recover_cell(r, cell);
        if (rc) return rc;
        drop_second(r, b, cell);
        above = line;
        link = &cell->next;
    }
    return 0;
}

static int recover_all(struct recovery *r)
{
    struct hf__client *c = r->op->c;
    struct hf__alloc *a = HF_ALLOC(c);
    for (uint32_t i = 0; i < HF_FILE_BUCKETS; i++) {
        int rc = recover_bucket(r, i);
        if (rc) return rc;
    }
    for (uint32_t i = 0; i < HF_FILE_SLOTS; i++) {
        struct hf__slot *s = hf__slot_at(c, i);
        if (!hf__sealed(s->generation)) s->generation = 0;
        /* Written only if need be: an untouched page needn't go to disk. */
        if (s->marks || s->missed) s->marks = s->missed = 0;
    }
    if (!hf__sealed(a->ceiling)) return hf__damaged(r->op, &a->ceiling, "the ceiling of revs");
    a->lock = a->intent_bump = a->intent_word = a->intent_link = a->stale = a->clean = 0;
    a->bump = hf__seal(r->end);
    /* Lines that were never linked are cleared, so that they don't look like a cell later. */
    wipe(hf__line_at(c, r->end), (size_t)(r->lines - r->end) * HF_LINE);
    return 0;
}

int hf__recover(const struct hf__op *op, struct hf__boot *now, int64_t wall_us, uint64_t lines)
{
    struct hf__client *c = op->c;
    struct hf__boot old, *at = (struct hf__boot *)(void *)(c->base + HF_AT_BOOT);
    struct recovery r = {op, lines, HF_AT_HEAP / HF_LINE, 0, calloc(lines / 8 + 1, 1)};
    int sys, rc = hf__boot_read(op, &old);
    if (!r.taken) rc = hf_fail(op->err, HF_NOMEM, 0, "file: open '%s': out of memory", c->path);
    if (!rc) {
        /* The file may have grown, and cells may lie there, although the limit in the header
           doesn't say so. */
        HF_ALLOC(c)->limit = hf__seal(lines);
        atomic_store_explicit(&c->limit, lines, memory_order_relaxed);
        rc = recover_all(&r);
    }
    free(r.taken);
    if (rc) return rc;
    int64_t floor_us = (int64_t)r.rev + UNWRITTEN_US;
    int64_t ceiling_us = (int64_t)hf__unseal(HF_ALLOC(c)->ceiling) * 1000000;
    if (floor_us < ceiling_us) floor_us = ceiling_us;
    /* The cells may have lost all tokens of the last boot. Its clock was ahead of the time of day
       by ahead_us, so the new clock must be, too. */
    int64_t day_us = wall_us + old.ahead_us;
    if (floor_us < day_us || floor_us >= INT64_C(1) << 52) floor_us = day_us;
    now->ahead_us = floor_us - wall_us <= AHEAD_CAP_US ? floor_us - wall_us : 0;
    now->seq = old.seq + 1;
    now->offset_us = floor_us - HF_NOW(c);
    now->sum = hf__sum(now, offsetof(struct hf__boot, sum), 1);
    /* Everything else is synced before one copy of the boot block is written, which says that the
       store is recovered. The second copy needs no sync. */
    sys = HF_ENV(c, sync)(c, 0, 0);
    int older = at[0].sum == hf__sum(at, offsetof(struct hf__boot, sum), 1) && at[0].seq == old.seq;
    if (!sys) at[older] = *now;
    if (!sys) sys = HF_ENV(c, sync)(c, 0, 0);
    if (sys) return hf__sync_failed(op, sys);
    at[!older] = *now;
    return 0;
}
