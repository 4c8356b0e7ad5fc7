/*
 * sync.c - syncs the file to disk: all of it, or what recovery needs of one key.
 *
 * A file with many keys in use has many dirty pages, and a sync of the whole file waits for all of
 * them. Recovery finds a key by its bucket's chain. So one key needs only the bucket, the cells up
 * to its own, the heads of its bodies, and its markers. These are a few pages, which msync(2)
 * writes alone, with the metadata that the filesystem needs for them. Such a sync doesn't count as
 * one of the whole file: space that was taken back (`stale`) isn't used again before that.
 */
#include "shared.h"

/* Parts with less than this many bytes between them are synced as one, because each sync waits for
   the disk about as long as some more pages take to be written. */
#ifndef HF_FILE_SYNC_GAP
#define HF_FILE_SYNC_GAP 65536
#endif
enum { PARTS = 8, GAP_LINES = HF_FILE_SYNC_GAP / HF_LINE };

int hf__sync(const struct hf__op *op)
{
    struct hf__alloc *a = HF_ALLOC(op->c);
    uint64_t stale = HF_LOAD("sync.stale", &a->stale), clean = HF_LOAD("sync.clean", &a->clean);
    int sys = (HF_AT("sync"), HF_ENV(op->c, sync)(op->c, 0, 0));
    if (sys) return hf__sync_failed(op, sys);
    if (clean != stale) HF_CAS("sync.done", &a->clean, &clean, stale);
    return 0;
}

struct parts {  /* parts of the file, in lines */
    unsigned n; /* PARTS + 1: too many for this array */
    struct {
        uint64_t first, end;
    } part[PARTS];
};

static void add_lines(struct parts *p, uint64_t first, uint64_t n)
{
    uint64_t end = first + n;
    for (unsigned i = 0; i < p->n && p->n <= PARTS; i++) {
        if (first > p->part[i].end + GAP_LINES || p->part[i].first > end + GAP_LINES) continue;
        if (first < p->part[i].first) p->part[i].first = first;
        if (end > p->part[i].end) p->part[i].end = end;
        return;
    }
    if (p->n < PARTS) {
        p->part[p->n].first = first;
        p->part[p->n].end = end;
    }
    if (p->n <= PARTS) p->n++;
}

/* Adds the pages that recovery reads to find the cell and its content. */
static int add_cell(const struct hf__op *op, struct hf__bucket *b, struct hf__cell *wanted,
                    struct parts *p)
{
    _Atomic uint64_t *link = &b->head;
    uint64_t at = hf__offset_of(op->c, b) / HF_LINE;
    struct hf__cell *cell;
    unsigned code;
    add_lines(p, at, 1);
    do {
        int rc = hf__follow(op, link, at, &cell);
        if (rc) return rc;
        if (!cell) return HF_CORRUPT; /* hf__find has just found it in this chain */
        uint64_t self = hf__unseal(cell->self);
        at = self >> 8;
        add_lines(p, at, 1 + (self & 0xff));
        link = &cell->next;
    } while (cell != wanted);
    for (int i = 0; i < 2; i++) {
        uint64_t line = hf__body_line(op, HF_LOAD("parts.body", &cell->body[i]), &code);
        if (!line) return HF_CORRUPT;
        add_lines(p, line, 1);
    }
    struct hf__marker *pair;
    if (!HF_LOAD("parts.marker", &cell->marker)) return 0;
    int rc = hf__marker_room(op, cell, &pair); /* the link exists; this checks and follows it */
    if (!rc) add_lines(p, hf__offset_of(op->c, pair) / HF_LINE, 2 * HF_SECTOR / HF_LINE);
    return rc;
}

int hf__sync_key(const struct hf__op *op)
{
    struct hf__bucket *b = hf__bucket_at(op->c, op->key->hash);
    hf_error unsaid;
    /* Errors here aren't reported: the whole file is synced instead, and the next request for the
       key meets the damage, too. */
    const struct hf__op quiet = {op->c, op->verb, op->key, &unsaid};
    struct hf__found f = {.cell = NULL};
    struct parts p = {0};
    int rc = hf__bucket_lock(&quiet, b);
    if (rc) return hf__sync(op);
    rc = hf__find(&quiet, b, &f);
    if (!rc && f.cell) rc = add_cell(&quiet, b, f.cell, &p);
    hf__bucket_unlock(op->c, b);
    if (rc || !p.n || p.n > PARTS) return hf__sync(op);
    for (unsigned i = 0; i < p.n; i++) {
        uint64_t first = p.part[i].first, n = p.part[i].end - first;
        int sys = (HF_AT("sync.part"), HF_ENV(op->c, sync)(op->c, first, n));
        if (sys) return hf__sync_failed(op, sys);
    }
    return 0;
}
