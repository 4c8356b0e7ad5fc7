/*
 * sync.c - what has to be on disk: all of the file, or what one key needs after a power cut.
 *
 * A file with many keys in use has many dirty pages, and a sync of the whole file waits for all of
 * them. Recovery finds a key by its bucket's chain, so what a key needs is the bucket, the cells up
 * to its own, the heads of its bodies, and its markers: a few pages, which msync(2) puts on disk
 * alone (and what the file system has to know of them, for it is an fsync of a part). What is
 * synced so says nothing of the rest: space that was taken back waits for all of the file, as
 * before.
 */
#include "shared.h"

/* Parts that are closer than this are synced as one: each part costs a trip to the disk, as long as
   it takes to write some pages more. */
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

struct parts {  /* in lines */
    unsigned n; /* PARTS + 1: there were more */
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
        if (!cell) return HF_CORRUPT; /* it was there a moment ago */
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
    int rc = hf__marker_room(op, cell, &pair); /* the key is there, but may be damaged */
    if (!rc) add_lines(p, hf__offset_of(op->c, pair) / HF_LINE, 2 * HF_SECTOR / HF_LINE);
    return rc;
}

int hf__sync_key(const struct hf__op *op)
{
    struct hf__bucket *b = hf__bucket_at(op->c, op->key->hash);
    hf_error unsaid;
    /* An error here is reported by the next request for the key, which meets it again. */
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
