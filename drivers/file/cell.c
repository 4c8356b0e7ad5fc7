/*
 * cell.c - the cells of a bucket: chains, search, creation. space.c allocates the space for them.
 *
 * Chains are append-only, and space is allocated from the bottom of the file to its top. So every
 * link of a chain leads to a greater offset, which is checked: no damage can make a chain endless.
 * A cell, a body or a marker is filled before the link to it is stored.
 */
#include "marks.h"
#include "sum.h"

uint64_t hf__key_word(uint64_t hash, uint32_t len)
{
    return (uint64_t)len << 48 | ((hash ^ len) * HF_SEAL_FACTOR) >> 16;
}

uint64_t hf__sum(const void *p, size_t len, uint64_t seed)
{
    const unsigned char *s = p;
    uint64_t h = seed ^ HF_SEAL_FACTOR, w;
    for (; len; s += 8, len -= len < 8 ? len : 8) {
        w = 0;
        memcpy(&w, s, len < 8 ? len : 8);
        h = (h ^ w) * UINT64_C(0xbf58476d1ce4e5b9);
        h ^= h >> 29;
    }
    return h ^ h >> 32;
}

uint64_t hf__marker_sum(const struct hf__marker *m, const char *key, uint32_t len, uint64_t hash)
{
    return hf__sum(m, offsetof(struct hf__marker, sum), hf__sum(key, len, hash));
}

/* ---- bounds ---- */

int hf__follow(const struct hf__op *op, _Atomic uint64_t *link, uint64_t above,
               struct hf__cell **ret)
{
    /* Pairs with the store in hf__allocation_end: the cell was filled before. */
    uint64_t word = HF_LOAD("follow", link), line = hf__unseal(word);
    *ret = NULL;
    if (!word) return 0;
    if (!hf__sealed(word) || line <= above) return hf__damaged(op, link, "the link to a cell");
    int rc = hf__reach(op, line, 1);
    if (rc && rc != HF_CORRUPT) return rc;
    if (rc) return hf__damaged(op, link, "a link beyond the end");
    struct hf__cell *cell = hf__line_at(op->c, line);
    uint64_t self = HF_GET("follow.self", cell->self), key_lines = hf__unseal(self) & 0xff;
    if (!hf__sealed(self) || hf__unseal(self) >> 8 != line || !key_lines ||
        key_lines > HF_KEY_CAP / HF_LINE)
        return hf__damaged(op, &cell->self, "the head of a cell");
    rc = hf__reach(op, line, 1 + key_lines); /* the file may have grown since this client looked */
    if (rc == HF_CORRUPT) return hf__damaged(op, cell, "a cell cut off");
    if (rc) return rc;
    *ret = cell;
    return 0;
}

uint64_t hf__body_line(const struct hf__op *op, uint64_t link, unsigned *ret_code)
{
    uint64_t value = hf__unseal(link);
    unsigned code = (unsigned)(value & 0xff);
    if (!hf__sealed(link) || code >= HF_BODY_CODES ||
        hf__reach(op, value >> 8, HF_BODY_LINES(code)))
        return 0;
    *ret_code = code;
    return value >> 8;
}

int hf__current(const struct hf__op *op, struct hf__found *f)
{
    struct hf__cell *cell = f->cell;
    unsigned code;
    /* Pairs with the store in hf__publish: the body that seq names is complete. */
    f->seq = HF_LOAD("current.seq", &cell->seq);
    if (!hf__sealed(f->seq)) return hf__damaged(op, &cell->seq, "the sequence of a cell");
    _Atomic uint64_t *link = &cell->body[hf__unseal(f->seq) & 1];
    uint64_t line = hf__body_line(op, HF_LOAD("current.link", link), &code);
    if (!line) return hf__damaged(op, link, "the link to a body");
    f->at = hf__line_at(op->c, line);
    f->head = HF_GET("current.head", *f->at);
    const struct hf__body *h = &f->head;
    if (h->check != hf__body_check(h, cell->self) || !hf__likely_head(h) ||
        hf__used(h) > (HF_BODY_LEAST << code) - sizeof *h)
        return hf__damaged(op, f->at, "the head of a body");
    return 0;
}

/* ---- looking a key up ---- */

/* Returns 1 if this live cell has the key, 0 if not, or an error. */
static int same_key(const struct hf__op *op, struct hf__cell *cell, uint64_t word)
{
    uint32_t len = (uint32_t)(word >> 48);
    char text[HF_KEY_CAP];
    if (len >= HF_KEY_CAP || (len + HF_LINE - 1) / HF_LINE > (hf__unseal(cell->self) & 0xff))
        return hf__damaged(op, &cell->key, "the length of a key");
    if (len == op->key->len && HF_SAME("find.key", hf__cell_key(cell), op->key->text, len))
        return 1;
    /* Two keys with one hash are very rare. It is likelier that the cell's key is damaged, and was
       the key that is looked for. */
    HF_COPY_OUT("find.text", text, hf__cell_key(cell), len);
    if (hf_key_hash(text, len) != op->key->hash)
        return hf__damaged(op, hf__cell_key(cell), "the text of a key");
    return 0;
}

int hf__find(const struct hf__op *op, struct hf__bucket *b, struct hf__found *f)
{
    uint64_t above = 0;
    _Atomic uint64_t *link = &b->head;
    for (f->links = 1;; f->links++) {
        int rc = hf__follow(op, link, above, &f->cell);
        if (rc || !f->cell) return rc;
        uint64_t hash = HF_GET("find.hash", f->cell->hash);
        uint64_t word = HF_GET("find.word", f->cell->key);
        int whole = word == hf__key_word(hash, (uint32_t)(word >> 48));
        if (!whole || hash == op->key->hash) {
            rc = hf__current(op, f);
            if (rc) return rc;
            /* The key of a vacant cell isn't read: a client may have died while it wrote the key.
             */
            int live = !(hf__flags(&f->head) & HF_BODY_VACANT);
            if (live && !whole) return hf__damaged(op, f->cell, "the key of a cell");
            if (live) rc = same_key(op, f->cell, word);
            if (rc) return rc < 0 ? rc : 0;
        }
        above = hf__unseal(f->cell->self) >> 8;
        link = &f->cell->next;
    }
}

/* ---- making things ---- */

/* Returns the size code of the smallest body that holds `need` bytes; HF_BODY_CODES: none does. */
static unsigned code_for(size_t need)
{
    unsigned code = 0;
    while (code < HF_BODY_CODES && ((size_t)HF_BODY_LEAST << code) < need) code++;
    return code;
}

static int too_large(const struct hf__op *op)
{
    return hf_fail(op->err, HF_FULL, 0, "file: %s '%s': too many holders and waiters", op->verb,
                   op->key->text);
}

int hf__body_room(const struct hf__op *op, const struct hf__found *f, size_t need,
                  struct hf__body **ret)
{
    _Atomic uint64_t *link = &f->cell->body[~hf__unseal(f->seq) & 1];
    unsigned code = 0;
    uint64_t line = hf__body_line(op, HF_LOAD("room.link", link), &code);
    if (!line) return hf__damaged(op, link, "the link to a body");
    if (need > (size_t)HF_BODY_LEAST << code) {
        struct hf__piece p;
        code = code_for(need);
        if (code == HF_BODY_CODES) return too_large(op);
        /* If a cell has markers, one whole body must always be on disk: it says which marker
           counts. */
        int is_durable = f->at == f->durable_at[0] || f->at == f->durable_at[1];
        if (HF_LOAD("room.marker", &f->cell->marker) && !is_durable) return HF_NEED_SYNC;
        int rc = hf__allocation_begin(op, HF_BODY_LINES(code), 1, (int)code, link, &p);
        if (rc) return rc;
        hf__allocation_end(op->c, &p); /* no client reads a body that isn't current */
        line = p.line;
    }
    *ret = hf__line_at(op->c, line);
    return 0;
}

int hf__marker_room(const struct hf__op *op, struct hf__cell *cell, struct hf__marker **ret)
{
    uint64_t link = HF_LOAD("marker.link", &cell->marker), line = hf__unseal(link);
    if (!link) {
        struct hf__piece p;
        int rc = hf__allocation_begin(op, 2 * HF_SECTOR / HF_LINE, HF_SECTOR / HF_LINE, -1,
                                      &cell->marker, &p);
        if (rc) return rc;
        hf__allocation_end(op->c, &p);
        line = p.line;
    } else if (!hf__sealed(link) || line % (HF_SECTOR / HF_LINE) ||
               hf__reach(op, line, 2 * HF_SECTOR / HF_LINE)) {
        return hf__damaged(op, &cell->marker, "the link to a marker");
    }
    *ret = hf__line_at(op->c, line);
    return 0;
}

struct hf__key_marks *hf__marks_of(const struct hf__op *op, struct hf__slot *s, int *ret_missed)
{
    uint64_t link = HF_LOAD("marks.link", &s->marks), line = hf__unseal(link);
    *ret_missed = link && (!hf__sealed(link) || hf__reach(op, line, HF_MARKS_LINES));
    return link && !*ret_missed ? hf__line_at(op->c, line) : NULL;
}

int hf__marks_room(const struct hf__op *op, struct hf__slot *s)
{
    struct hf__piece p;
    if (HF_LOAD("marks.made", &s->marks))
        return 0; /* a former session in this slot has made the marks */
    int rc = hf__allocation_begin(op, HF_MARKS_LINES, 1, -1, &s->marks, &p);
    if (rc == HF_NEED_SPACE) {
        rc = hf__space(op, sizeof(struct hf__key_marks));
        if (!rc) rc = hf__allocation_begin(op, HF_MARKS_LINES, 1, -1, &s->marks, &p);
    }
    if (rc) return rc;
    /* The space isn't zero if it was taken back from a dead client that had written to it. */
    struct hf__key_marks *m = hf__line_at(op->c, p.line);
    for (int i = 0; i < HF_MARK_LEAVES / 64; i++) HF_STORE("marks.some", &m->some[i], 0);
    for (int i = 0; i < HF_MARK_LEAVES; i++) HF_STORE("marks.leaf", &m->leaf[i], 0);
    hf__allocation_end(op->c, &p);
    return 0;
}

/* Finds a vacant cell of the bucket with room for a key of key_lines lines: f->cell, or NULL if
   there is none. Then *ret_end is the last link of the chain, to append to. */
static int find_vacant(const struct hf__op *op, struct hf__bucket *b, uint64_t key_lines,
                       struct hf__found *f, _Atomic uint64_t **ret_end)
{
    uint64_t above = 0;
    *ret_end = &b->head;
    for (;;) {
        int rc = hf__follow(op, *ret_end, above, &f->cell);
        if (rc || !f->cell) return rc;
        rc = hf__current(op, f);
        if (rc) return rc;
        uint64_t self = hf__unseal(f->cell->self);
        if (hf__flags(&f->head) & HF_BODY_VACANT && (self & 0xff) >= key_lines) return 0;
        above = self >> 8;
        *ret_end = &f->cell->next;
    }
}

static void name_cell(struct hf__cell *cell, const hf_rowkey *key)
{
    HF_PUT("name.hash", cell->hash, key->hash);
    HF_PUT("name.word", cell->key, hf__key_word(key->hash, key->len));
    HF_COPY_IN("name.text", hf__cell_key(cell), key->text, key->len);
}

/*
 * A row that is made again must not repeat a rev that it had before it was deleted. The vacant cell
 * keeps the last rev, but may be reused for another key. So the bucket keeps the greatest rev of
 * its deleted rows, the floor: 53 bits of rev, and 11 bits of a hash as a check.
 */
static uint64_t floor_word(uint64_t rev) { return rev << 11 | (rev * HF_SEAL_FACTOR) >> 53; }

static int floor_of(const struct hf__op *op, struct hf__bucket *b, uint64_t *ret)
{
    uint64_t word = HF_LOAD("floor", &b->floor);
    *ret = word >> 11;
    return floor_word(*ret) == word ? 0 : hf__damaged(op, &b->floor, "the floor of a bucket");
}

int hf__floor_raise(const struct hf__op *op, struct hf__bucket *b, uint64_t rev)
{
    uint64_t floor;
    int rc = floor_of(op, b, &floor);
    if (!rc && rev > floor) HF_STORE("floor.raise", &b->floor, floor_word(rev));
    return rc;
}

/* Raises the rev of the found cell, which the next write exceeds, to the bucket's floor. */
static int floor_apply(const struct hf__op *op, struct hf__bucket *b, struct hf__found *f)
{
    uint64_t floor;
    int rc = floor_of(op, b, &floor);
    if (!rc && f->head.rev < floor) f->head.rev = floor;
    return rc;
}

int hf__cell_make(const struct hf__op *op, struct hf__bucket *b, struct hf__found *f, size_t need)
{
    uint64_t key_lines = (op->key->len + HF_LINE - 1) / HF_LINE;
    _Atomic uint64_t *end;
    struct hf__piece p;
    unsigned code = code_for(need);
    int rc = find_vacant(op, b, key_lines, f, &end);
    if (!rc && code == HF_BODY_CODES) rc = too_large(op);
    if (rc) return rc;
    if (f->cell) {
        name_cell(f->cell, op->key);
        return floor_apply(op, b, f);
    }
    uint64_t body_lines = HF_BODY_LINES(code);
    rc = hf__allocation_begin(op, 1 + key_lines + 2 * body_lines, 1, -1, end, &p);
    if (rc) return rc;
    uint64_t body = p.line + 1 + key_lines;
    struct hf__cell *cell = hf__line_at(op->c, p.line);
    HF_PUT("make.empty", cell->self, 0);
    HF_STORE("make.next", &cell->next, 0);
    HF_STORE("make.seq", &cell->seq, 0);
    HF_STORE("make.body", &cell->body[0], hf__seal(body << 8 | code));
    HF_STORE("make.body", &cell->body[1], hf__seal((body + body_lines) << 8 | code));
    HF_STORE("make.marker", &cell->marker, 0);
    name_cell(cell, op->key);
    /* Written as the last word of its line: if a power cut comes before, `self` is 0, and recovery
       sees that the cell isn't whole. */
    atomic_thread_fence(memory_order_release);
    HF_PUT("make.self", cell->self, hf__seal(p.line << 8 | key_lines));
    f->cell = cell;
    f->seq = 0;
    f->at = hf__line_at(op->c, body);
    f->head = (struct hf__body){.extent = (uint64_t)HF_BODY_VACANT << 32};
    hf__put_head(cell, f->at, &f->head);
    hf__put_head(cell, hf__line_at(op->c, body + body_lines), &f->head); /* recovery reads both */
    hf__allocation_end(op->c, &p);
    return floor_apply(op, b, f);
}
