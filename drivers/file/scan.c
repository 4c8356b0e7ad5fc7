/*
 * scan.c - shows all rows of a store, one after the other. Each is read under its bucket's lock, so
 * each is whole, but the rows are of different moments.
 */
#include "store.h"

#include <string.h>

/* Copies the key of a live cell, with a NUL. Returns 0 or HF_CORRUPT. */
static int scan_key(const struct hf__op *op, struct hf__cell *cell, char key[HF_KEY_CAP])
{
    uint64_t hash = HF_GET("scan.hash", cell->hash), word = HF_GET("scan.word", cell->key);
    size_t n = word >> 48;
    if (word != hf__key_word(hash, (uint32_t)n) || n >= HF_KEY_CAP ||
        (n + HF_LINE - 1) / HF_LINE > (hf__unseal(cell->self) & 0xff))
        return hf__damaged(op, cell, "the key of a cell");
    HF_COPY_OUT("scan.key", key, hf__cell_key(cell), n);
    key[n] = 0;
    return hf_key_hash(key, n) == hash ? 0
                                       : hf__damaged(op, hf__cell_key(cell), "the text of a key");
}

enum { ONE_DAMAGED = 16 };

/* Reads the cell that *link leads to: its key and row, if the cell is live; else key is "". Moves
 *link on, to NULL at the end of the chain. Takes the bucket's lock meanwhile. */
static int scan_one(const struct hf__op *op, struct hf__bucket *b, const char *prefix, size_t len,
                    _Atomic uint64_t **link, uint64_t *above, hf_row *row, char *key)
{
    struct hf__found f = {.cell = NULL};
    int named = 0, rc = hf__bucket_lock(op, b);
    if (rc) return rc;
    key[0] = 0;
    rc = hf__follow(op, *link, *above, &f.cell);
    int sound = !rc && f.cell ? hf__current(op, &f) : rc;
    if (!rc && f.cell && (sound == HF_CORRUPT || !(hf__flags(&f.head) & HF_BODY_VACANT))) {
        rc = scan_key(op, f.cell, key);
        named = !rc;
        if (!rc && strncmp(key, prefix, len)) key[0] = 0;
        if (!rc && key[0]) rc = sound ? sound : hf__decode(op, &f, row);
    } else {
        rc = sound;
    }
    /* Damage in one row doesn't end the scan, if the row's key and the next link are known. */
    int one =
        named && rc == HF_CORRUPT && !atomic_load_explicit(&op->c->broken, memory_order_acquire);
    hf__bucket_unlock(op->c, b);
    if (rc && !one) return hf__provide(op, rc, &f, 0, row);
    *above = f.cell ? hf__unseal(f.cell->self) >> 8 : 0;
    *link = f.cell ? &f.cell->next : NULL;
    return one ? ONE_DAMAGED : 0;
}

int hf__rows_scan(hf_store *st, const char *prefix,
                  int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                  int64_t *ret_clock_us, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "list", NULL, err};
    size_t len = strlen(prefix);
    char text[HF_KEY_CAP];
    hf_row row;
    int stop = 0, rc = hf__broken(&op);
    hf_row_init(&row);
    for (uint32_t i = 0; !rc && !stop && i < HF_FILE_BUCKETS; i++) {
        struct hf__bucket *b = hf__bucket_at(c, i);
        _Atomic uint64_t *link = &b->head;
        uint64_t above = 0, hint;
        if (!HF_LOAD("scan.head", &b->head)) continue;
        while (!rc && !stop && link) {
            _Atomic uint64_t *before = link;
            rc = scan_one(&op, b, prefix, len, &link, &above, &row, text);
            int damaged = rc == ONE_DAMAGED;
            if (damaged) rc = 0;
            if (rc || link == before || !text[0]) continue;
            hint = above;
            hf_rowkey key = {.text = text, .len = (uint32_t)strlen(text), .hint = &hint};
            key.hash = hf_key_hash(text, key.len);
            stop = see(arg, &key, damaged ? NULL : &row);
        }
    }
    hf_row_clear(&row);
    if (!rc) *ret_clock_us = HF_NOW(c) + c->offset_us;
    return rc;
}
