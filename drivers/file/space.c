/*
 * space.c - the space of the file: which lines it has, allocation, growth.
 *
 * An allocation first notes what it will do: the intent. A client that takes the allocator's lock
 * over from a dead client reads the intent. If the link was not stored, it takes the space back.
 */
#include "shared.h"

#include <errno.h>

enum { GROW_LINES = HF_FILE_GROW / HF_LINE, PAGE_LINES = 4096 / HF_LINE };

int hf__damaged(const struct hf__op *op, const volatile void *at, const char *what)
{
    /* If the store is known to be broken (the file may be gone), that is the error instead. */
    if (atomic_load_explicit(&op->c->broken, memory_order_acquire)) return hf__broken(op);
    return hf_fail(op->err, HF_CORRUPT, 0,
                   "file: %s '%.100s': '%.200s' is damaged: %s at offset %llu", op->verb,
                   op->key ? op->key->text : "", op->c->path, what,
                   (unsigned long long)hf__offset_of(op->c, at));
}

int hf__reach(const struct hf__op *op, uint64_t line, uint64_t n)
{
    struct hf__client *c = op->c;
    const char *why;
    if (hf__has(c, line, n)) return 0;
    uint64_t word = HF_LOAD("reach.limit", &HF_ALLOC(c)->limit), limit = hf__unseal(word);
    if (!hf__sealed(word)) return hf__damaged(op, &HF_ALLOC(c)->limit, "the file's size");
    if (limit > c->lines)
        return hf_fail(op->err, HF_FULL, 0, "file: %s: '%s' has outgrown this process's mapping",
                       op->verb, c->path);
    if (HF_ENV(c, same_file)(c, &why)) {
        hf__break(c, HF_CORRUPT, why);
        return hf__broken(op);
    }
    /* Relaxed: see hf__has. */
    atomic_store_explicit(&c->limit, limit, memory_order_relaxed);
    return hf__has(c, line, n) ? 0 : HF_CORRUPT;
}

/* Completes or undoes the allocation of a dead client, from which the allocator's lock was taken
   over. */
static int settle_intent(const struct hf__op *op)
{
    struct hf__alloc *a = HF_ALLOC(op->c);
    uint64_t bump = HF_LOAD("intent.bump", &a->intent_bump);
    if (!bump) return 0;
    uint64_t where = HF_LOAD("intent.word", &a->intent_word), at = hf__unseal(where) * 8;
    uint64_t link = HF_LOAD("intent.link", &a->intent_link);
    if (!hf__sealed(bump) || !hf__sealed(where) || !hf__sealed(link) || at < HF_AT_SLOTS ||
        (at >= HF_AT_HEAP && hf__reach(op, at / HF_LINE, 1)) || hf__reach(op, hf__unseal(bump), 1))
        return hf__damaged(op, &a->intent_bump, "the intent of an allocation");
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(op->c->base + at);
    if (HF_LOAD("intent.done", word) != link) {
        /*
         * The dead client may have written a cell there. After a power cut that cell must not be
         * taken for one that is made there later. So the first word of each of its lines is set to
         * 0, which no cell has, and the file is synced before the space is used again (`stale`).
         */
        uint64_t line = hf__unseal(bump), now = HF_LOAD("intent.now", &a->bump);
        uint64_t n = hf__sealed(now) && hf__unseal(now) > line ? hf__unseal(now) - line : 1;
        if (hf__reach(op, line, n)) return hf__damaged(op, &a->bump, "the end of what is in use");
        for (uint64_t i = 0; i < n; i++) {
            _Atomic uint64_t *began = hf__line_at(op->c, line + i);
            if (i == 0 || HF_LOAD("intent.began", began)) HF_STORE("intent.wipe", began, 0);
        }
        HF_STORE("intent.stale", &a->stale, HF_LOAD("intent.often", &a->stale) + 1);
        HF_STORE("intent.back", &a->bump, bump);
    }
    HF_STORE("intent.clear", &a->intent_bump, 0);
    return 0;
}

int hf__allocation_begin(const struct hf__op *op, uint64_t lines, uint64_t align, int code,
                         _Atomic uint64_t *at, struct hf__piece *ret)
{
    struct hf__client *c = op->c;
    struct hf__alloc *a = HF_ALLOC(c);
    int rc = hf__lock(op, &a->lock);
    if (rc < 0) return rc;
    if (rc == HF_TAKEN_OVER) rc = settle_intent(op);
    uint64_t bump = HF_LOAD("alloc.bump", &a->bump), limit = HF_LOAD("alloc.limit", &a->limit);
    uint64_t line = (hf__unseal(bump) + align - 1) / align * align;
    if (!rc && (!hf__sealed(bump) || hf__unseal(bump) < HF_AT_HEAP / HF_LINE))
        rc = hf__damaged(op, &a->bump, "the end of what is in use");
    if (!rc && (!hf__sealed(limit) || hf__unseal(limit) < hf__unseal(bump)))
        rc = hf__damaged(op, &a->limit, "the file's size");
    if (!rc && HF_LOAD("alloc.stale", &a->stale) != HF_LOAD("alloc.clean", &a->clean))
        rc = HF_NEED_SYNC;
    if (!rc && line + lines > hf__unseal(limit)) rc = HF_NEED_SPACE;
    if (!rc) rc = hf__reach(op, line, lines);
    if (rc) {
        hf__unlock(c, &a->lock);
        return rc;
    }
    ret->line = line;
    ret->at = at;
    ret->link = hf__seal(code < 0 ? line : line << 8 | (unsigned)code);
    HF_STORE("alloc.word", &a->intent_word, hf__seal(hf__offset_of(c, at) / 8));
    HF_STORE("alloc.link", &a->intent_link, ret->link);
    HF_STORE("alloc.intent", &a->intent_bump, bump); /* from here on the intent counts */
    HF_STORE("alloc.advance", &a->bump, hf__seal(line + lines));
    return 0;
}

void hf__allocation_end(struct hf__client *c, const struct hf__piece *p)
{
    HF_STORE("alloc.publish", p->at, p->link); /* release order: the lines were filled before */
    HF_STORE("alloc.clear", &HF_ALLOC(c)->intent_bump, 0);
    hf__unlock(c, &HF_ALLOC(c)->lock);
}

int hf__space(const struct hf__op *op, size_t need)
{
    struct hf__client *c = op->c;
    struct hf__alloc *a = HF_ALLOC(c);
    uint64_t limit = HF_LOAD("space.limit", &a->limit), bump = HF_LOAD("space.bump", &a->bump);
    if (!hf__sealed(limit)) return hf__damaged(op, &a->limit, "the file's size");
    if (!hf__sealed(bump)) return hf__damaged(op, &a->bump, "the end of what is in use");
    /* A new cell has two bodies, each of `need` bytes rounded up to a power of two: at most 4 times
       `need`. 64 lines are for the rest. */
    uint64_t has = hf__unseal(limit), least = hf__unseal(bump) + 4 * need / HF_LINE + 64;
    uint64_t good = has + (has / 4 > GROW_LINES ? has / 4 : GROW_LINES);
    if (least < has) return 0; /* another client has made the file grow meanwhile */
    least = (least + PAGE_LINES - 1) / PAGE_LINES * PAGE_LINES;
    good = good < least ? least : good / PAGE_LINES * PAGE_LINES;
    if (good > c->lines) good = least;
    if (least > c->lines)
        return hf_fail(op->err, HF_FULL, 0, "file: %s '%s': '%s' has reached its greatest size",
                       op->verb, op->key ? op->key->text : "", c->path);
    int sys = (HF_AT("space.grow"), HF_ENV(c, grow)(c, good));
    int full = sys == ENOSPC || sys == EDQUOT || sys == EFBIG;
    if (full && good > least) sys = (HF_AT("space.grow"), HF_ENV(c, grow)(c, good = least));
    if (sys)
        return hf_fail(op->err, full ? HF_FULL : HF_UNAVAILABLE, sys,
                       "file: %s '%.100s': growing '%s': %s", op->verb,
                       op->key ? op->key->text : "", c->path,
                       sys == ETIMEDOUT ? "the process that grows it is stopped, or takes too long"
                                        : strerror(sys));
    while (hf__unseal(limit) < good)
        if (HF_CAS("space.raise", &a->limit, &limit, hf__seal(good))) break;
    return 0;
}
