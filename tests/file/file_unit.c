/*
 * file_unit.c - the `file:` driver: rows, markers, chains, growth.
 */
#include "file_common.h"

#include "file/hints.h"

/* ---- rows ---- */

static void a_row_is_kept(void **state)
{
    hf_store *st = open_store(), *other = open_store();
    hf_row row, cur;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    get(st, "k", &cur);
    assert_int_equal(cur.rev, 0);
    fill_row(&row, 10, 1, 5);
    assert_int_equal(replace(st, "k", 0, &row, NULL), 0);
    get(other, "k", &cur);
    assert_true(hf_row_equal(&row, &cur));
    assert_string_equal(cur.party[1].owner, "owner-1");
    assert_string_equal(cur.party[1].note, "host pid 1 user cmd");

    row.rev = 20;
    assert_int_equal(replace(other, "k", 9, &row, &cur), HF_CONFLICT);
    assert_int_equal(cur.rev, 10);
    assert_int_equal(cur.n_queue, 5);
    assert_int_equal(replace(other, "k", 0, &row, NULL), HF_CONFLICT);
    assert_int_equal(replace(other, "k", 10, &row, NULL), 0);
    drv->close(st);
    drv->close(other);
    st = open_store();
    get(st, "k", &cur);
    assert_true(hf_row_equal(&row, &cur));
    drv->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

static void take_grants_what_is_free(void **state)
{
    hf_store *st = open_store();
    hf_row row, cur;
    hf_party p;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    fill_party(&p, 1, "note");
    assert_int_equal(take(st, "k", &p, &cur), 0);
    assert_int_equal(cur.rev, cur.token);
    assert_int_equal(cur.party[0].token, cur.token);
    assert_int_equal(cur.party[0].expires_us, cur.party[0].since_us + 1000000);
    assert_true(llabs(cur.party[0].since_us - hf__day_us()) < 5000000);
    get(st, "k", &row);
    assert_true(hf_row_equal(&row, &cur));
    uint64_t first = cur.token;
    assert_int_equal(take(st, "k", &p, &cur), HF_CONFLICT);
    assert_true(hf_row_equal(&row, &cur));
    fill_row(&row, first + 1, 0, 1);
    assert_int_equal(replace(st, "k", first, &row, NULL), 0);
    assert_int_equal(take(st, "k", &p, &cur), HF_CONFLICT);
    row.n_queue = 0;
    row.rev++;
    assert_int_equal(replace(st, "k", first + 1, &row, NULL), 0);
    p.lease_ms = 0;
    assert_int_equal(take(st, "k", &p, &cur), 0);
    assert_true(cur.token > first + 2);
    assert_int_equal(cur.party[0].expires_us, 0);
    drv->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

static void markers_are_kept_and_removed(void **state)
{
    hf_store *st = open_store();
    hf_row row, cur;
    hf_error err;
    hf_party p;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    fill_row(&row, 10, 0, 0);
    row.done_us = 99;
    row.keep_until_us = INT64_MAX;
    row.result_len = (uint16_t)snprintf(row.result, sizeof row.result, "paid");
    row.done_by_len = (uint8_t)snprintf(row.done_by, sizeof row.done_by, "me");
    assert_int_equal(replace(st, "event", 0, &row, NULL), 0);
    assert_int_equal(sync_event(st, &err), 0);
    for (int i = 0; i < 5; i++) { /* other writes leave it alone */
        row.rev++;
        assert_int_equal(replace(st, "event", row.rev - 1, &row, NULL), 0);
    }
    fill_party(&p, 3, "x");
    assert_int_equal(take(st, "event", &p, &cur), 0);
    assert_string_equal(cur.result, "paid");
    assert_string_equal(cur.done_by, "me");
    assert_int_equal(cur.done_us, 99);
    row.rev = cur.rev + 1;
    row.result_len = (uint16_t)snprintf(row.result, sizeof row.result, "paid twice");
    assert_int_equal(replace(st, "event", cur.rev, &row, NULL), 0);
    get(st, "event", &cur);
    assert_true(hf_row_equal(&row, &cur));
    row.rev++;
    row.done_us = 0;
    assert_int_equal(replace(st, "event", cur.rev, &row, NULL), 0);
    get(st, "event", &cur);
    assert_int_equal(cur.done_us, 0);
    drv->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

/* Each part of a marker counts; more than there is room for isn't stored in part. */
static void a_marker_is_what_was_written_last(void **state)
{
    static const char *const written[][2] = {
        {"paid", "me"},   {"paid", "me"},       {"void", "me"},    {"void", "we"},
        {"voided", "we"}, {"voided", "us2"},    {"voided", "us2"}, {"", "us2"},
        {"", ""},         {"at last", "nobody"}};
    hf_store *st = open_store();
    hf_rowkey key = key_of("event");
    hf_row row, cur;
    hf_error err;
    int64_t clock_us;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    fill_row(&row, 10, 0, 0);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        row.rev = 11 + i;
        row.done_us = i < 8 ? 99 : 100;
        row.keep_until_us = i < 9 ? INT64_MAX : 12345;
        row.result_len = (uint16_t)snprintf(row.result, sizeof row.result, "%s", written[i][0]);
        row.done_by_len = (uint8_t)snprintf(row.done_by, sizeof row.done_by, "%s", written[i][1]);
        assert_int_equal(replace(st, "event", i ? row.rev - 1 : 0, &row, NULL), 0);
        get(st, "event", &cur);
        assert_true(hf_row_equal(&row, &cur));
    }
    uint64_t seen = row.rev++;
    row.result_len = HF_RESULT_CAP;
    assert_int_equal(drv->replace(st, &key, seen, &row, NULL, &clock_us, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "file: replace 'event': a marker too long"));
    row.result_len = 0;
    row.done_by_len = HF_OWNER_CAP;
    assert_int_equal(drv->replace(st, &key, seen, &row, NULL, &clock_us, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "file: replace 'event': a marker too long"));
    get(st, "event", &cur);
    assert_int_equal(cur.rev, seen);
    assert_string_equal(cur.result, "at last");
    drv->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

static void keys_of_every_length(void **state)
{
    hf_store *st = open_store();
    char text[HF_KEY_CAP];
    hf_row row, cur;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    for (int pass = 0; pass < 2; pass++)
        for (size_t n = 1; n < HF_KEY_CAP; n++) {
            memset(text, 'k', n);
            text[n] = 0;
            fill_row(&row, n + 1, 1, 0);
            if (!pass) assert_int_equal(replace(st, text, 0, &row, NULL), 0);
            get(st, text, &cur);
            assert_true(hf_row_equal(&row, &cur));
        }
    drv->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

/* ---- many ---- */

enum { FULL = 4096, KEYS = 20000 };

static void a_full_queue_and_full_holders(void **state)
{
    hf_store *st = open_store();
    hf_row row, cur;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    fill_row(&row, 5, FULL, FULL);
    for (uint32_t i = 0; i < 2 * FULL; i++) { /* the largest there can be */
        row.party[i].owner_len = HF_OWNER_CAP - 1;
        memset(row.party[i].owner, 'o', HF_OWNER_CAP - 1);
        row.party[i].owner[HF_OWNER_CAP - 1] = 0;
        row.party[i].note_len = HF_NOTE_CAP - 1;
        memset(row.party[i].note, 'n', HF_NOTE_CAP - 1);
        row.party[i].note[HF_NOTE_CAP - 1] = 0;
    }
    for (uint32_t n = 1; n <= FULL; n *= 2) {
        row.rev++;
        row.n_holders = row.n_queue = n;
        for (uint32_t i = 0; i < 2 * n; i++) row.party[i].token = i < n ? 5 : 0;
        assert_int_equal(replace(st, "k", n == 1 ? 0 : row.rev - 1, &row, NULL), 0);
        get(st, "k", &cur);
        assert_true(hf_row_equal(&row, &cur));
    }
    /* And no more. */
    hf_rowkey key = key_of("k");
    hf_error err;
    int64_t clock_us;
    for (int i = 0; i < 2; i++) {
        row.n_holders = i ? FULL + 1 : 1;
        row.n_queue = i ? 1 : FULL + 1;
        assert_int_equal(drv->replace(st, &key, row.rev, &row, NULL, &clock_us, &err), HF_FULL);
        assert_non_null(strstr(err.text, "more than 4096 holders or waiters"));
    }
    row.n_holders = row.n_queue = 0;
    uint64_t seen = row.rev++;
    assert_int_equal(replace(st, "k", seen, &row, NULL), 0);
    get(st, "k", &cur);
    assert_true(hf_row_equal(&row, &cur));
    drv->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

static int count(void *arg, const hf_rowkey *key, hf_row *row)
{
    int n = 0;
    uint64_t *seen = arg;
    assert_int_equal(sscanf(key->text, "key/%d", &n), 1);
    assert_int_equal(row->rev, n + 1);
    ++*seen;
    return 0;
}

static void many_keys_grow_the_file(void **state)
{
    hf_store *st = open_store(), *other = open_store();
    hf_error err;
    int64_t clock_us;
    uint64_t seen = 0;
    char text[32];
    hf_row row, cur;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    for (int i = 0; i < KEYS; i++) {
        snprintf(text, sizeof text, "key/%d", i);
        fill_row(&row, (uint64_t)i + 1, 1, 0);
        assert_int_equal(replace(i % 2 ? st : other, text, 0, &row, NULL), 0);
    }
    for (int i = 0; i < KEYS; i++) {
        snprintf(text, sizeof text, "key/%d", i);
        get(i % 2 ? other : st, text, &cur);
        assert_int_equal(cur.rev, i + 1);
    }
    assert_int_equal(drv->scan(other, "key/", count, &seen, &clock_us, &err), 0);
    assert_int_equal(seen, KEYS);
    seen = 0;
    assert_int_equal(drv->scan(other, "key/1999", count, &seen, &clock_us, &err), 0);
    assert_int_equal(seen, 11);
    drv->close(st);
    drv->close(other);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

/* Makes texts whose hashes have this many low bits in common. */
static void colliding(char text[][32], int n, int bits)
{
    uint64_t mask = (UINT64_C(1) << bits) - 1, want = hf_key_hash("first", 5) & mask;
    snprintf(text[0], 32, "first");
    for (int have = 1, i = 0; have < n; i++) {
        snprintf(text[have], 32, "c%d", i);
        if ((hf_key_hash(text[have], strlen(text[have])) & mask) == want) have++;
    }
}
enum { BUCKET_BITS = 16, SET_BITS = 18 }; /* of the cache in hints.h */
_Static_assert((unsigned long)HF_FILE_BUCKETS *HF_SETS == 1 << SET_BITS, "a set");

static void a_bucket_with_many_keys(void **state)
{
    enum { N = 12 };
    static char text[N][32];
    hf_store *st = open_store();
    hf_rowkey key;
    hf_error err;
    hf_row row, cur;
    hf_party p;
    int64_t clock_us;
    uint64_t hint = 0, token;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    colliding(text, N, BUCKET_BITS);
    for (int i = 0; i < N - 1; i++) {
        fill_row(&row, (uint64_t)i + 1, 1, 0);
        assert_int_equal(replace(st, text[i], 0, &row, NULL), 0);
    }
    fill_party(&p, 1, "");
    key = key_of(text[3]);
    key.hint = &hint;
    assert_int_equal(drv->get(st, &key, &row, &clock_us, &err), 0);
    assert_int_not_equal(hint, 0);

    /* Deleted: gone, its cell taken by another key, the hint useless but harmless. */
    assert_int_equal(replace(st, text[3], 1, NULL, &cur), HF_CONFLICT);
    assert_int_equal(replace(st, text[3], 4, NULL, NULL), 0);
    assert_int_equal(drv->get(st, &key, &cur, &clock_us, &err), 0);
    assert_int_equal(cur.rev, 0);
    fill_row(&row, 1000, 1, 0);
    assert_int_equal(replace(st, text[N - 1], 0, &row, NULL), 0);
    assert_int_equal(drv->get(st, &key, &cur, &clock_us, &err), 0);
    assert_int_equal(cur.rev, 0);
    assert_int_equal(drv->acquire(st, &key, &p, 0, &cur, &clock_us, &err), 0);
    token = cur.token;
    get(st, text[N - 1], &cur);
    assert_int_equal(cur.rev, 1000);
    for (int i = 4; i < N - 1; i++) {
        get(st, text[i], &cur);
        assert_int_equal(cur.rev, i + 1);
    }

    /* A key that is made again has a greater rev than before. Deleting an absent row does
       nothing. */
    row.n_holders = 0;
    row.rev = row.token = token + 900000000;
    assert_int_equal(replace(st, text[3], token, &row, NULL), 0);
    assert_int_equal(replace(st, text[3], row.rev, NULL, NULL), 0);
    assert_int_equal(replace(st, text[3], 0, NULL, NULL), 0);
    assert_int_equal(take(st, text[3], &p, &cur), 0);
    assert_true(cur.token > row.rev);
    drv->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

/* A hint is that of the key, or none. Of keys that share a set, some are forgotten. */
static void hints_are_kept_for_some(void **state)
{
    enum { MANY = 3 * HF_WAYS };
    static struct hf__client c;
    hf_rowkey key = {.len = 1}, other = {.len = 1};
    (void)state;
    hf__hint_keep(&c, &key, 5, HF_LONG_CHAIN - 1);
    assert_true(!c.hints && !hf__hint_of(&c, &key));
    for (uint64_t i = 0; i < MANY; i++) {
        key.hash = i << (64 - HF_TAG) | 7; /* one bucket, one set */
        hf__hint_keep(&c, &key, 1000 + i, HF_LONG_CHAIN);
        assert_int_equal(hf__hint_of(&c, &key), 1000 + i);
        hf__hint_keep(&c, &key, 2000 + i, 1);
        assert_int_equal(hf__hint_of(&c, &key), 2000 + i);
        if (i + 1 != HF_WAYS) continue;
        for (uint64_t n = 0; n < HF_WAYS; n++) {
            other.hash = n << (64 - HF_TAG) | 7;
            assert_int_equal(hf__hint_of(&c, &other), 2000 + n);
        }
    }
    int known = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        key.hash = i << (64 - HF_TAG) | 7;
        uint64_t line = hf__hint_of(&c, &key);
        known += line != 0;
        assert_true(!line || line == 2000 + i);
    }
    assert_int_equal(known, HF_WAYS);
    /* Another bucket's, another set's. */
    other.hash = key.hash + 1;
    assert_int_equal(hf__hint_of(&c, &other), 0);
    other.hash = key.hash + HF_FILE_BUCKETS;
    assert_int_equal(hf__hint_of(&c, &other), 0);
    /* A key with a hint of its own doesn't use the shared cache. */
    uint64_t own = 77;
    key.hint = &own;
    assert_int_equal(hf__hint_of(&c, &key), 77);
    free((void *)c.hints);
}

/* Keys of a long chain are cached in a set that has room for fewer than all of them. */
static void keys_that_share_a_set(void **state)
{
    enum { LONG = 8, SHARE = HF_WAYS + 3 };
    static char chain[LONG][32], text[SHARE][32];
    hf_store *st = open_store(), *other = open_store();
    uint64_t token[SHARE];
    hf_row cur;
    hf_party p;
    (void)state;
    hf_row_init(&cur);
    fill_party(&p, 1, "");
    colliding(chain, LONG, BUCKET_BITS);
    colliding(text, SHARE, SET_BITS);
    for (int i = 1; i < LONG; i++) assert_int_equal(take(st, chain[i], &p, &cur), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SHARE; i++) {
            assert_int_equal(take(st, text[i], &p, &cur), 0);
            token[i] = cur.token;
        }
        for (int i = 0; i < SHARE; i++) {
            get(st, text[i], &cur);
            assert_int_equal(cur.token, token[i]);
            assert_int_equal(take(st, text[i], &p, &cur), HF_CONFLICT);
            assert_int_equal(cur.token, token[i]);
        }
        /* The others' cells are found where one's was, and each cell goes to another key. */
        for (int i = 0; i < SHARE; i++) {
            assert_int_equal(replace(other, text[i], token[i], NULL, NULL), 0);
            get(st, text[i], &cur);
            assert_int_equal(cur.rev, 0);
            assert_int_equal(replace(st, text[i], token[i], NULL, &cur), HF_CONFLICT);
            assert_int_equal(cur.rev, 0);
        }
        for (int i = SHARE; i-- > 0;) {
            assert_int_equal(take(other, text[i], &p, &cur), 0);
            assert_true(cur.token > token[i]);
            token[i] = cur.token;
        }
        for (int i = 0; i < SHARE; i++) {
            get(st, text[i], &cur);
            assert_int_equal(cur.token, token[i]);
            assert_int_equal(replace(st, text[i], token[i], NULL, NULL), 0);
        }
    }
    for (int i = 1; i < LONG; i++) assert_int_equal(take(other, chain[i], &p, &cur), HF_CONFLICT);
    drv->close(st);
    drv->close(other);
    hf_row_clear(&cur);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_row_is_kept, new_path),
        cmocka_unit_test_setup(take_grants_what_is_free, new_path),
        cmocka_unit_test_setup(markers_are_kept_and_removed, new_path),
        cmocka_unit_test_setup(a_marker_is_what_was_written_last, new_path),
        cmocka_unit_test_setup(keys_of_every_length, new_path),
        cmocka_unit_test_setup(a_full_queue_and_full_holders, new_path),
        cmocka_unit_test_setup(many_keys_grow_the_file, new_path),
        cmocka_unit_test_setup(a_bucket_with_many_keys, new_path),
        cmocka_unit_test(hints_are_kept_for_some),
        cmocka_unit_test_setup(keys_that_share_a_set, new_path),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
