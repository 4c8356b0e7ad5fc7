/*
 * etcd.c - fuzz: any bytes as a row, as a page of a listing, as what a watch tells.
 */
#include "fuzz.h"

#include "../../drivers/etcd/list.c"

static int see(void *arg, const hf_rowkey *key, hf_row *row)
{
    const char *flaw;
    (void)arg;
    /* Without a row: there is one, but damaged. */
    MUST(strlen(key->text) == key->len && (!row || !hf_row_check(row, &flaw)));
    return 0;
}

/* The waiter for that key is told of a row, of a whole grant, or of nothing. */
static void hear(hf_store *st, const hf_rowkey *key, const HfEt__WatchResponse *said, int ends,
                 hf_row *row)
{
    const char *flaw;
    if (!st->words && (hf__et_words_open(st) || hf__et_words_subscribe(st->words, key))) abort();
    hf__et_words_listen(st->words);
    (void)hf__et_words_receive(st, said, ends);
    if (hf__et_words_told(st->words, key, row) && row->rev) {
        MUST(!hf_row_check(row, &flaw));
    } else if (row->n_holders) {
        const hf_party *p = &row->party[0];
        MUST(row->n_holders == 1 && !row->n_queue && p->token == row->token);
        MUST(p->token && p->token <= INT64_MAX && p->since_us >= 0 && p->expires_us >= 0);
    }
    hf__et_words_forget(st->words);
}

/* A row, and a page of a listing. */
static void list(hf_store *st, const hf_rowkey *key, const HfEt__RangeResponse *range, hf_row *row)
{
    hf_error err = {0, 0, ""};
    struct scan s = {.st = st, .see = see, .err = &err};
    char *next = NULL;
    struct hf__et_group g = {0};
    fuzz_check_row(hf__et_group_read(range, 2, key, row, &g, "get", &err), row, err.text);
    hf__et_group_free(&g);
    hf_row_init(&s.row);
    (void)tell_page(&s, range, 2, &next);
    hf_row_clear(&s.row);
    free(next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static hf_store st = {.prefix = "p/", .n_prefix = 2};
    struct fuzz f = {data, size};
    uint8_t how = fuzz_byte(&f);
    hf_error err = {0, 0, ""};
    hf_rowkey key;
    hf_row row;
    const char *why = NULL;
    hf_row_init(&row);
    if (hf_key_make("k", &key, &err)) abort();
    if (how % 2) {
        const ProtobufCBinaryData bytes = {f.left, (uint8_t *)(uintptr_t)f.at};
        fuzz_check_row(hf__et_read_row(&bytes, &row, &why), &row, why);
    } else {
        int nomem;
        ProtobufCMessage *m =
            hf__et_unpack(&hf_et__range_response__descriptor, f.at, f.left, &nomem);
        if (m) list(&st, &key, (HfEt__RangeResponse *)m, &row);
        hf__et_free_message(m);
        m = hf__et_unpack(&hf_et__watch_response__descriptor, f.at, f.left, &nomem);
        if (m) hear(&st, &key, (HfEt__WatchResponse *)m, how & 2, &row);
        hf__et_free_message(m);
    }
    hf_row_clear(&row);
    return 0;
}
