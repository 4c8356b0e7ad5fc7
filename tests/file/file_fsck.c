/*
 * file_fsck.c - see file_fsck.h. Knows the layout (shared.h), shares no code with the driver.
 *
 * Everything that can be reached is entered in a list of pieces: no two may overlap, none may lie
 * beyond the end of what is in use, and what no piece covers is lost. Only bodies that were too
 * small may be lost: a body of 2^k units can have left 2^k - 1 behind.
 */
#include "file_fsck.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIECES_CAP = 4096, PADDING = HF_SECTOR / HF_LINE - 1 };

struct piece {
    uint64_t from, to;
};

static struct piece pieces[PIECES_CAP];
static size_t n_pieces;

__attribute__((format(printf, 2, 3))) static int wrong(struct fsck *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->why, sizeof f->why, format, args);
    va_end(args);
    return -1;
}

static int by_place(const void *a, const void *b)
{
    uint64_t x = ((const struct piece *)a)->from, y = ((const struct piece *)b)->from;
    return x < y ? -1 : x > y;
}

static int piece(struct fsck *f, uint64_t from, uint64_t n, uint64_t end)
{
    if (from + n > end || from < HF_AT_HEAP / HF_LINE)
        return wrong(f, "a piece at line %llu lies beyond what is in use",
                     (unsigned long long)from);
    if (n_pieces == PIECES_CAP) return wrong(f, "more pieces than the check can hold");
    pieces[n_pieces++] = (struct piece){from, from + n};
    return 0;
}

static uint64_t value(const _Atomic uint64_t *word, int *sound)
{
    uint64_t w = atomic_load(word);
    if (!hf__sealed(w)) *sound = 0;
    return hf__unseal(w);
}

static int check_cell(struct fsck *f, const unsigned char *base, uint64_t line, uint64_t end)
{
    const struct hf__cell *cell = (const void *)(base + line * HF_LINE);
    int sound = hf__sealed(cell->self);
    uint64_t self = hf__unseal(cell->self), seq = value(&cell->seq, &sound);
    if (!sound || self >> 8 != line)
        return wrong(f, "the cell at line %llu is damaged", (unsigned long long)line);
    if (piece(f, line, 1 + (self & 0xff), end)) return -1;
    for (int i = 0; i < 2; i++) {
        uint64_t link = value(&cell->body[i], &sound);
        unsigned code = (unsigned)(link & 0xff);
        if (!sound || code >= HF_BODY_CODES)
            return wrong(f, "a body's link of the cell at line %llu is damaged",
                         (unsigned long long)line);
        if (piece(f, link >> 8, HF_BODY_LINES(code), end)) return -1;
        f->outgrown += HF_BODY_LINES(code) - HF_BODY_LINES(0);
        if ((seq & 1) != (uint64_t)i) continue;
        const struct hf__body *b = (const void *)(base + (link >> 8) * HF_LINE);
        if (b->check != hf__body_check(b, cell->self) || b->token > b->rev)
            return wrong(f, "the current body of the cell at line %llu is damaged",
                         (unsigned long long)line);
        f->vacant += hf__flags(b) & HF_BODY_VACANT;
    }
    uint64_t marker = value(&cell->marker, &sound);
    if (!sound) return wrong(f, "a marker's link is damaged");
    f->outgrown += marker ? PADDING : 0;
    f->cells++;
    return marker ? piece(f, marker, 2 * HF_SECTOR / HF_LINE, end) : 0;
}

/* Returns the end of what is in use, if an allocation is under way whose lines aren't linked
   yet. */
static uint64_t under_way(const unsigned char *base, const struct hf__alloc *a, uint64_t end,
                          int *sound)
{
    if (!atomic_load(&a->intent_bump)) return end;
    uint64_t before = value(&a->intent_bump, sound), at = value(&a->intent_word, sound) * 8;
    value(&a->intent_link, sound);
    if (!*sound || before > end || at >= end * HF_LINE) return end;
    uint64_t link = atomic_load((const _Atomic uint64_t *)(const void *)(base + at));
    return link == atomic_load(&a->intent_link) ? end : before;
}

int fsck(const unsigned char *base, uint64_t lines, struct fsck *f)
{
    const struct hf__alloc *a = (const void *)(base + HF_AT_ALLOC);
    const struct hf__bucket *b = (const void *)(base + HF_AT_BUCKETS);
    int sound = 1;
    memset(f, 0, sizeof *f);
    n_pieces = 0;
    uint64_t end = value(&a->bump, &sound), limit = value(&a->limit, &sound);
    if (!sound || end > limit || limit > lines) return wrong(f, "the allocator is damaged");
    if (atomic_load(&a->intent_bump) && !atomic_load(&a->lock))
        return wrong(f, "an allocation is under way, but nobody is at it");
    f->locked = atomic_load(&a->lock) != 0;
    for (uint32_t i = 0; i < HF_FILE_BUCKETS; i++, b++) {
        uint64_t above = 0;
        f->locked += atomic_load(&b->lock) != 0;
        const _Atomic uint64_t *link = &b->head;
        while (atomic_load(link)) {
            uint64_t line = value(link, &sound);
            if (!sound || line <= above || line >= end)
                return wrong(f, "the chain of bucket %u is damaged", i);
            if (check_cell(f, base, line, end)) return -1;
            above = line;
            link = &((const struct hf__cell *)(const void *)(base + line * HF_LINE))->next;
        }
    }
    qsort(pieces, n_pieces, sizeof *pieces, by_place);
    uint64_t at = HF_AT_HEAP / HF_LINE;
    for (size_t i = 0; i < n_pieces; at = pieces[i++].to) {
        if (pieces[i].from < at)
            return wrong(f, "line %llu belongs to two pieces", (unsigned long long)pieces[i].from);
        f->lost_lines += pieces[i].from - at;
    }
    /* Space that nothing leads to yet isn't lost if the process that takes over the lock frees it.
     */
    uint64_t used = under_way(base, a, end, &sound);
    if (!sound) return wrong(f, "the intent of an allocation is damaged");
    f->lost_lines += used > at ? used - at : 0;
    if (f->lost_lines > f->outgrown)
        return wrong(f, "%llu lines are lost", (unsigned long long)f->lost_lines);
    return 0;
}
