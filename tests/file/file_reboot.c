/*
 * file_reboot.c - the `file:` driver and power cuts, step by step: what the disk has when the power
 * fails is chosen here. file_power.c leaves it to chance.
 */
#include "file_seam.h"

enum { PARTIES = 12, START_US = 110000 /* no machine is quicker */ };

static unsigned char disk[SEAM_BYTES];
static int wholes; /* how often the whole file was synced */
static hf_row row;
static hf_error err;
static int64_t clock_us;
static hf_rowkey first, second, third; /* of one bucket */

/* ---- the disk ---- */

/* Puts the sectors of these bytes on disk, as they are now. */
static void reaches_disk(const void *at, size_t n)
{
    size_t from = (size_t)((const unsigned char *)at - seam.base) / HF_SECTOR * HF_SECTOR;
    size_t to = ((size_t)((const unsigned char *)at - seam.base) + n + HF_SECTOR - 1) / HF_SECTOR;
    memcpy(disk + from, seam.base + from, to * HF_SECTOR - from);
}

static void on_sync(void *arg, uint64_t line, uint64_t n)
{
    (void)arg;
    wholes += !n;
    if (n)
        reaches_disk(seam.base + line * HF_LINE, n * HF_LINE);
    else
        memcpy(disk, seam.base, SEAM_BYTES);
}

static hf_store *begin(int clients)
{
    seam_format(clients);
    seam.on_sync = on_sync;
    wholes = 0;
    memcpy(disk, seam.base, SEAM_BYTES);
    return seam.client[0].st;
}

/* Lets the power fail and return after after_us. */
static hf_store *reboot(int64_t after_us)
{
    hf_store *st = seam.client[0].st;
    const struct hf__op op = {hf__client_of(st), "recover", NULL, &err};
    struct hf__boot boot = {.boot_id = {1}};
    int64_t day_us = drv->caps.local->now(st) + after_us;
    memcpy(seam.base, disk, SEAM_BYTES);
    for (int i = 0; i < SEAM_CLIENTS; i++) seam.client[i].dead = 1;
    seam.on_sync = NULL;
    seam.now_us = 0;
    if (hf__recover(&op, &boot, day_us, SEAM_LINES)) fail_msg("%s", err.text);
    for (int i = 0; i < SEAM_CLIENTS; i++)
        if (seam.client[i].st) drv->close(seam.client[i].st);
    memset(seam.client, 0, sizeof seam.client);
    seam_open(0);
    return seam.client[0].st;
}

/* ---- rows ---- */

static void get(hf_store *st, const hf_rowkey *key)
{
    if (drv->get(st, key, &row, &clock_us, &err)) fail_msg("%s", err.text);
}

/* Writes the key's row, with that many parties, and with the result, if there is one. */
static void put(hf_store *st, const hf_rowkey *key, int64_t ahead_us, uint32_t parties,
                const char *result)
{
    get(st, key);
    uint64_t seen = row.rev;
    row.rev = row.token = hf_rev_next(seen, drv->caps.local->now(st) + ahead_us);
    row.n_holders = parties > 0;
    row.n_queue = parties ? parties - 1 : 0;
    for (uint32_t i = 0; i < parties; i++) {
        memset(&row.party[i], 0, sizeof row.party[i]);
        memcpy(row.party[i].id, &i, sizeof i);
        row.party[i].token = i ? 0 : row.rev;
        row.party[i].session = 1 << 16;
    }
    row.done_us = result ? 5 : 0;
    row.keep_until_us = result ? INT64_MAX : 0;
    row.result_len = row.done_by_len = 0;
    if (result) row.result_len = (uint16_t)snprintf(row.result, sizeof row.result, "%s", result);
    if (drv->replace(st, key, seen, &row, NULL, &clock_us, &err)) fail_msg("%s", err.text);
}

static void removes(hf_store *st, const hf_rowkey *key)
{
    get(st, key);
    if (drv->replace(st, key, row.rev, NULL, NULL, &clock_us, &err)) fail_msg("%s", err.text);
}

static void sync_all(hf_store *st)
{
    const struct hf__op op = {hf__client_of(st), "sync", NULL, &err};
    assert_int_equal(hf__sync(&op), 0);
}

/* The n-th cell of the bucket. */
static struct hf__cell *cell_at(hf_store *st, int n)
{
    struct hf__client *c = hf__client_of(st);
    uint64_t link = hf__bucket_at(c, first.hash)->head;
    while (n--) link = ((struct hf__cell *)hf__line_at(c, hf__unseal(link)))->next;
    return hf__line_at(c, hf__unseal(link));
}

static struct hf__marker *markers_of(hf_store *st, const struct hf__cell *cell)
{
    assert_true(cell->marker);
    return hf__line_at(hf__client_of(st), hf__unseal(cell->marker));
}

/* ---- tokens ---- */

/* A process that writes a key more than once in a microsecond gets ahead of the clock: never by
   more than a restart takes, unless the ceiling on disk says so. */
static void no_token_comes_twice(void **state)
{
    static const int64_t aheads_us[] = {0, 100000, 1000000, 59000000, 600000000};
    (void)state;
    for (size_t i = 0; i < sizeof aheads_us / sizeof *aheads_us; i++) {
        hf_store *st = begin(1);
        put(st, &first, 0, 1, NULL);
        sync_all(st);
        seam.now_us += INT64_C(3600000000);
        put(st, &first, aheads_us[i], 1, NULL);
        uint64_t token = row.token;
        st = reboot(START_US);
        put(st, &first, 0, 1, NULL);
        assert_true(row.token > token);
        seam_free();
    }
}

/* A rev below the ceiling costs no more than one at the clock's pace, and raising the ceiling
   doesn't sync the whole file. */
static void what_is_ahead_costs_no_more(void **state)
{
    long steps[2];
    (void)state;
    hf_store *st = begin(1);
    put(st, &first, 0, 1, NULL);
    for (int ahead = 0; ahead < 2; ahead++) {
        int64_t ahead_us = ahead ? 1000000 : 0;
        put(st, &first, ahead_us, 1, NULL);
        put(st, &first, ahead_us, 0, NULL);
        get(st, &first);
        uint64_t seen = row.rev;
        row.rev++;
        steps[ahead] = seam.steps;
        assert_int_equal(drv->replace(st, &first, seen, &row, NULL, &clock_us, &err), 0);
        steps[ahead] = seam.steps - steps[ahead];
    }
    assert_true(steps[0] > 0);
    assert_int_equal(steps[1], steps[0]);
    assert_int_equal(wholes, 0);
    seam_free();
}

/* ---- space ---- */

struct made {
    const hf_rowkey *key;
    uint32_t parties;
};

static void make(hf_store *st, void *arg)
{
    const struct made *made = arg;
    put(st, made->key, 0, made->parties, NULL);
}

/* A process that dies while it makes a cell with a long key leaves that key's text there. The text
   may be on disk when another cell begins in the middle of it. */
static void what_the_dead_began_is_nothing(void **state)
{
    long died = 0;
    (void)state;
    char *text = seam_key(2, 0, 500), *other_text = seam_key(3, 0, 0);
    hf_rowkey dead, other;
    assert_int_equal(hf_key_make(text, &dead, &err) | hf_key_make(other_text, &other, &err), 0);
    for (long at = 1;; at++) {
        hf_store *st = begin(2);
        put(st, &first, 0, 0, NULL);
        struct made made = {&dead, 0};
        if (!seam_run(1, at, make, &made)) break;
        died++;
        seam.running = 0;
        seam.stop_at = 0;
        put(st, &first, 0, 4, NULL); /* a larger body, the length of the text */
        put(st, &other, 0, 0, NULL);
        struct hf__client *c = hf__client_of(st);
        reaches_disk(hf__bucket_at(c, other.hash), sizeof(struct hf__bucket));
        st = reboot(1000000);
        get(st, &other);
        assert_int_equal(row.n_holders, 0);
        seam_free();
    }
    seam_free();
    assert_true(died > 20);
    free(text);
    free(other_text);
}

/* ---- markers ---- */

/* One of the two copies is another key's by then, and the removal that it recorded is gone. */
static void what_was_removed_stays_so(void **state)
{
    (void)state;
    for (int grows = 0; grows < 2; grows++) {
        hf_store *st = begin(1);
        put(st, &first, 0, 0, "first");
        removes(st, &first);
        sync_all(st);
        put(st, &second, 0, 0, "second"); /* in its cell */
        removes(st, &second);
        put(st, &first, 0, 0, NULL);
        struct hf__cell *cell = cell_at(st, 0);
        assert_false(cell->next);
        struct hf__marker *pair = markers_of(st, cell), *old = NULL;
        for (int i = 0; i < 2; i++) {
            const void *was = disk + ((unsigned char *)(pair + i) - seam.base);
            if (strstr(((const struct hf__marker *)was)->result, "first")) old = pair + i;
        }
        assert_non_null(old);
        if (grows) { /* to places that the disk doesn't know */
            put(st, &first, 0, 4, NULL);
            put(st, &first, 0, PARTIES, NULL);
        } else {
            for (int i = 0; i < 2; i++)
                reaches_disk(hf__line_at(hf__client_of(st), hf__unseal(cell->body[i]) >> 8), 1);
        }
        reaches_disk(cell, sizeof *cell);
        reaches_disk(old == pair ? pair + 1 : pair, HF_SECTOR);
        st = reboot(1000000);
        get(st, &first);
        assert_int_equal(row.done_us, 0);
        get(st, &second);
        assert_int_equal(row.done_us, 0);
        seam_free();
    }
}

static hf_row grown;

static int join_many(void *arg, hf_row *to)
{
    (void)arg;
    to->rev = to->token = hf_rev_next(to->rev, 0);
    to->n_holders = 1;
    to->n_queue = PARTIES - 1;
    for (uint32_t i = 0; i < PARTIES; i++) {
        memset(&to->party[i], 0, sizeof to->party[i]);
        memcpy(to->party[i].id, &i, sizeof i);
        to->party[i].token = i ? 0 : to->rev;
        to->party[i].session = 1 << 16;
    }
    return 1;
}

static void write_meanwhile(void *arg, uint64_t line, uint64_t n)
{
    on_sync(arg, line, n);
    if (n || wholes > 20) return;
    hf_row mine = row; /* called by the thread that syncs */
    hf_row_init(&row);
    assert_int_equal(hf_row_room(&row, 64), 0);
    seam.running = 1;
    put(seam.client[1].st, &first, 0, 1, NULL);
    seam.running = 0;
    hf_row_clear(&row);
    row = mine;
}

/* A larger body waits for the disk, and not for others to leave the row alone meanwhile. */
static void who_grows_a_body_gets_there(void **state)
{
    (void)state;
    hf_store *st = begin(2);
    put(st, &first, 0, 0, "first");
    put(st, &first, 0, 0, NULL);
    seam.on_sync = write_meanwhile;
    wholes = 0;
    hf_row_init(&grown);
    assert_int_equal(hf_row_room(&grown, 64), 0);
    assert_int_equal(drv->caps.local->update(st, &first, join_many, NULL, &grown, &err), 0);
    assert_in_range(wholes, 1, 3);
    hf_row_clear(&grown);
    seam_free();
}

/* The key was synced in its new cell. It may also be in the old one, whose deletion isn't on
   disk. */
static void a_key_is_in_one_cell(void **state)
{
    uint64_t lines;
    (void)state;
    hf_store *st = begin(1);
    put(st, &second, 0, 0, NULL);
    put(st, &first, 0, 0, "old");
    removes(st, &second);
    sync_all(st);
    removes(st, &first);
    put(st, &first, 0, 0, "new"); /* in the other key's cell, which comes before its own */
    assert_int_equal(drv->sync(st, &first, &err), 0);
    st = reboot(1000000);
    assert_null(seam_check(&lines));
    struct hf__cell *one = cell_at(st, 0), *two = cell_at(st, 1);
    assert_false(two->next);
    struct hf__body *body = hf__line_at(hf__client_of(st), hf__unseal(two->body[0]) >> 8);
    assert_int_equal(one->hash, first.hash);
    assert_true(hf__flags(body) & HF_BODY_VACANT);
    get(st, &first);
    assert_string_equal(row.result, "new");
    removes(st, &first);
    get(st, &first);
    assert_int_equal(row.done_us, 0);
    /* Nor if it is in the second cell again. */
    put(st, &third, 0, 0, NULL);
    put(st, &first, 0, 0, NULL);
    assert_int_equal(two->hash, first.hash);
    assert_int_equal(row.done_us, 0);
    sync_all(st);
    seam.on_sync = on_sync;
    memcpy(disk, seam.base, SEAM_BYTES);
    st = reboot(1000000);
    get(st, &first);
    assert_int_equal(row.done_us, 0);
    seam_free();
}

static int make_keys(void **state)
{
    (void)state;
    hf_rowkey *const keys[] = {&first, &second, &third};
    for (int i = 0; i < 3; i++)
        if (hf_key_make(seam_key(0, i, 0), keys[i], &err)) return -1;
    hf_row_init(&row);
    return hf_row_room(&row, 64);
}

static int drop_keys(void **state)
{
    const hf_rowkey *const keys[] = {&first, &second, &third};
    (void)state;
    for (int i = 0; i < 3; i++) free((void *)(uintptr_t)keys[i]->text);
    hf_row_clear(&row);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_token_comes_twice),
        cmocka_unit_test(what_is_ahead_costs_no_more),
        cmocka_unit_test(what_the_dead_began_is_nothing),
        cmocka_unit_test(who_grows_a_body_gets_there),
        cmocka_unit_test(what_was_removed_stays_so),
        cmocka_unit_test(a_key_is_in_one_cell),
    };
    return TEST_MAIN_WITH(tests, make_keys, drop_keys);
}
