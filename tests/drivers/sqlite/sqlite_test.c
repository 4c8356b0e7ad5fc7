/*
 * sqlite_test.c - the driver sqlite with a file that other programs have written.
 */
#include "sqlite_own.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static int get(hf_store *st, hf_row *row) { return drv->get(st, &key, row, &clock_us, &err); }

static int take(hf_store *st, hf_row *row)
{
    hf_party p = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    return drv->acquire(st, &key, &p, 0, row, &clock_us, &err);
}

/* No client may write over a row that can't be read, whatever its rev seems to be. */
static void damaged_rows_stay(void **state)
{
    (void)state;
    static const char *const damage[] = {
        "rev = 0",        "rev = 'x'",          "rev = 0.5",       "rev = -7",
        "token = -1",     "token = 1e18",       "owner = x'6d65'", "queue = '{'",
        "request = 'me'", "more = '{\"a\":1}'", "done = '{}'",     "owner = '(ended)'",
    };
    for (size_t i = 0; i < COUNT(damage); i++) {
        hf_row row, cur;
        char sql[200];
        hf_store *st = opened();
        hf_row_init(&row);
        hf_row_init(&cur);
        said(take(st, &row), 0, NULL);
        snprintf(sql, sizeof sql, "UPDATE holdfast SET %s", damage[i]);
        writes(sql);
        if (get(st, &cur) != HF_CORRUPT) fail_msg("%s is no damage", damage[i]);
        said(take(st, &cur), HF_CORRUPT, "damaged");
        int rc = drv->replace(st, &key, 0, &row, &cur, &clock_us, &err);
        if (rc != HF_CORRUPT) fail_msg("%s: %d", damage[i], rc);
        said(drv->replace(st, &key, 0, &row, NULL, &clock_us, &err), HF_CONFLICT, NULL);
        said(drv->replace(st, &key, 0, NULL, NULL, &clock_us, &err), HF_CONFLICT, NULL);
        said(get(st, &cur), HF_CORRUPT, "damaged");
        writes("DELETE FROM holdfast");
        hf_row_clear(&row);
        hf_row_clear(&cur);
        drv->close(st);
    }
}

static int see(void *arg, const hf_rowkey *k, hf_row *row)
{
    (void)k;
    *(int *)arg += row ? 1 : 100;
    return 0;
}

/* A dropped table is made again by the first call that needs it. */
static void what_was_dropped_is_made_again(void **state)
{
    (void)state;
    static const char *const drop[] = {"DROP TABLE holdfast", "DROP TABLE holdfast_clock",
                                       "DELETE FROM holdfast_clock",
                                       "UPDATE holdfast_clock SET boot = 'another'"};
    for (size_t i = 0; i < 3 * COUNT(drop); i++) {
        hf_store *st = opened();
        hf_row row;
        int seen = 0;
        hf_row_init(&row);
        said(take(st, &row), 0, NULL);
        uint64_t rev = row.rev;
        writes(drop[i / 3]);
        if (i % 3 == 0) said(get(st, &row), 0, NULL);
        if (i % 3 == 1) said(take(st, &row), i / 3 ? HF_CONFLICT : 0, NULL);
        if (i % 3 == 2) said(drv->scan(st, "", see, &seen, &clock_us, &err), 0, NULL);
        writes("DELETE FROM holdfast");
        said(take(st, &row), 0, NULL);
        assert_true(row.rev > rev);
        writes("DELETE FROM holdfast");
        hf_row_clear(&row);
        drv->close(st);
    }
}

static int get_it(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    int rc = get(st, &row);
    hf_row_clear(&row);
    return rc;
}

static int take_it(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    int rc = take(st, &row);
    hf_row_clear(&row);
    return rc;
}

static int list_it(hf_store *st)
{
    int seen = 0;
    return drv->scan(st, "", see, &seen, &clock_us, &err);
}

static int enter_it(hf_store *st) { return drv->enter(st, &key, 7, 1, NULL, &err); }

static void names_of_files(void **state)
{
    (void)state;
    static const struct {
        const char *url, *says;
    } wrong[] = {
        {"sqlite://host/tmp/x", "no host"},
        {"sqlite://u@/tmp/x", "no host"},
        {"sqlite://:7/tmp/x", "no host"},
        {"sqlite://:p@/tmp/x", "no host"},
        {"sqlite:", "names no file"},
        {"sqlite:/tmp/", "names no file"},
        {"sqlite:/tmp/x?a=b", "unknown option"},
        {"sqlite:/tmp/x?table=", "table: not a name"},
        {"sqlite:/tmp/x?table=sqlite_x", "table: not a name"},
        {"sqlite:/tmp/x?table=main.holdfast", "table: not a name of 1 to 57 bytes without '.'"},
    };
    char text[600], long_name[80];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        hf_url url;
        hf_store *st = NULL;
        int rc = hf_url_parse(wrong[i].url, &url, &err);
        if (!rc) rc = drv->open(&url, 1000, &st, &(hf_caps){0}, &err);
        if (rc != HF_INVALID || !strstr(err.text, wrong[i].says))
            fail_msg("%s: %d, %s", wrong[i].url, rc, err.text);
    }
    for (int n = 58; n <= 64; n += 6) {
        hf_url url;
        hf_store *st = NULL;
        memset(long_name, 'n', sizeof long_name);
        snprintf(text, sizeof text, "%s?table=%.*s", url_text, n, long_name);
        said(hf_url_parse(text, &url, &err), 0, NULL);
        said(drv->open(&url, 1000, &st, &(hf_caps){0}, &err), HF_INVALID, "table: not a name");
    }
}

static void clocks_that_cant_be_set(void **state)
{
    (void)state;
    static const char *const after[] = {"UPDATE holdfast_clock SET boot = 'another'",
                                        "DELETE FROM holdfast_clock"};
    char sql[300];
    for (size_t i = 0; i < COUNT(after); i++) {
        hf_store *st = opened();
        writes("DELETE FROM holdfast");
        said(take_it(st), 0, NULL);
        snprintf(sql, sizeof sql,
                 "CREATE TRIGGER spoils AFTER INSERT ON holdfast_clock BEGIN %s; END", after[i]);
        writes(sql);
        writes(after[i]);
        said(get_it(st), HF_CORRUPT, "get 'k'");
        said(take_it(st), HF_CORRUPT, "acquire 'k'");
        writes("DROP TRIGGER spoils");
        said(get_it(st), 0, NULL);
        drv->close(st);
    }
}

static void keys_that_are_none(void **state)
{
    (void)state;
    static const char *const none[] = {"CAST(x'6b006b' AS TEXT)", "printf('%.600c', 'k')"};
    char sql[200];
    for (size_t i = 0; i < COUNT(none); i++) {
        hf_store *st = opened();
        writes("DELETE FROM holdfast");
        said(take_it(st), 0, NULL);
        snprintf(sql, sizeof sql, "UPDATE holdfast SET key = %s", none[i]);
        writes(sql);
        said(list_it(st), HF_CORRUPT, "a row whose key is not a legal one");
        drv->close(st);
    }
}

/* A table with a clock of another time namespace, or a database in another encoding, isn't used. */
static void tables_of_others(void **state)
{
    (void)state;
    hf_store *st = NULL;
    writes("UPDATE holdfast_clock SET timens = timens + 1");
    said(opens(&st), HF_UNSUPPORTED, "another time namespace");
    writes("UPDATE holdfast_clock SET timens = timens - 1");
    drv->close(opened());
    st = opened();
    writes("CREATE TABLE holdfast_enter (x TEXT)");
    said(enter_it(st), HF_CORRUPT, "logic error");
    writes("DROP TABLE holdfast_enter");
    said(enter_it(st), HF_UNSUPPORTED, "no guard is there");
    said(drv->enter(st, &key, 7, 1, "elsewhere", &err), HF_INVALID, "named by the key alone");
    drv->close(st);
}

/* The refusal says how to go on; also if such a table appears under an open store. */
static void a_table_of_format_1_is_refused(void **state)
{
    (void)state;
    static const char says[] = "this store has rows of format 1, and this version reads format 2. "
                               "Stop what uses the store and empty it: DROP TABLE \"holdfast\"";
    static const char old[] = "DROP TABLE holdfast; CREATE TABLE holdfast (key TEXT PRIMARY KEY, "
                              "format INTEGER, rev INTEGER, token INTEGER, owner TEXT, expires_us "
                              "INTEGER, granted INTEGER, others TEXT, queue TEXT)";
    hf_store *st = opened(), *more = NULL;
    writes(old);
    said(get_it(st), HF_CORRUPT, says);
    said(take_it(st), HF_CORRUPT, says);
    said(list_it(st), HF_CORRUPT, says);
    said(opens(&more), HF_CORRUPT, says);
    assert_null(more);
    writes("DROP TABLE holdfast");
    said(take_it(st), 0, NULL);
    writes("UPDATE holdfast SET format = 1"); /* one row of it */
    said(get_it(st), HF_CORRUPT, says);
    said(take_it(st), HF_CORRUPT, says);
    writes("DELETE FROM holdfast");
    said(get_it(st), 0, NULL);
    drv->close(st);
}

/* The log was moved: the waits are notified, because the next read finds that, or opens the files
   again. */
static void files_that_change_are_an_event(void **state)
{
    (void)state;
    char log[600], away[640];
    hf_event_count seen;
    hf_key_event event;
    hf_row row;
    hf_store *st = opened();
    writes("DELETE FROM holdfast");
    hf_row_init(&row);
    said(take(st, &row), 0, NULL);
    said(drv->caps.notify->flush(st, &seen, &err), 0, NULL);
    while (drv->caps.notify->next_event(st, &event)) continue;
    snprintf(log, sizeof log, "%s-wal", url_text + strlen("sqlite:"));
    snprintf(away, sizeof away, "%s-away", log);
    assert_int_equal(rename(log, away), 0);
    said(drv->caps.notify->sleep(st, &seen, INT64_MAX / 2, &err), 0, NULL);
    assert_true(drv->caps.notify->next_event(st, &event) && !event.mask);
    assert_int_equal(rename(away, log), 0);
    hf_row_clear(&row);
    drv->close(st);
}

static int64_t ceiling(void)
{
    sqlite3_stmt *s = NULL;
    assert_int_equal(
        sqlite3_prepare_v2(other, "SELECT ceiling_us FROM holdfast_clock", -1, &s, NULL), 0);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int64_t us = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return us;
}

/* A write to the disk for each new client would keep the database locked most of the time when many
   clients begin together. */
static void a_new_client_leaves_a_ceiling_that_is_high_enough(void **state)
{
    (void)state;
    hf_row row;
    writes("DELETE FROM holdfast");
    int64_t was = ceiling();
    hf_store *st = opened();
    hf_row_init(&row);
    said(take(st, &row), 0, NULL);
    assert_true(ceiling() == was);
    drv->close(st);
    /* A ceiling that is too low is raised before a rev passes it, also by a new client. */
    writes("UPDATE holdfast_clock SET ceiling_us = offset_us");
    st = opened();
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
    assert_true(ceiling() > clock_us);
    hf_row_clear(&row);
    drv->close(st);
}

/* Waiters behind others look without the queue, which grows with their number. */
static void a_waiter_sees_the_holder_alone(void **state)
{
    (void)state;
    const hf_notify_ops *notify = drv->caps.notify;
    hf_party behind = {.id = {2}, .lease_ms = 60000, .owner = "x", .owner_len = 1};
    hf_rowkey mine = key;
    hf_row row, seen;
    hf_store *st = opened();
    hf_row_init(&row);
    hf_row_init(&seen);
    writes("DELETE FROM holdfast");
    mine.who = behind.id;
    mine.in_line = 1;
    assert_false(notify->payload(st, &mine, &seen)); /* no row */
    said(take(st, &row), 0, NULL);
    uint64_t token = row.token;
    said(drv->acquire(st, &key, &behind, 10, &row, &clock_us, &err), 0, NULL);
    writes("UPDATE holdfast SET queue = queue || '{'"); /* not read, so not refused */
    assert_true(notify->payload(st, &mine, &seen));
    assert_true(!seen.rev && seen.n_holders == 1 && !seen.n_queue && seen.party[0].id[0] == 1);
    assert_true(seen.party[0].token == token && seen.party[0].expires_us);
    mine.in_line = 0;
    assert_false(notify->payload(st, &mine, &seen));
    mine.in_line = 1;
    writes("UPDATE holdfast SET more = '{\"a\":1}'");
    assert_false(notify->payload(st, &mine, &seen)); /* a read says what is wrong */
    hf_row_clear(&row);
    hf_row_clear(&seen);
    drv->close(st);
    writes("DELETE FROM holdfast");
}

int main(void)
{
    if (sqlite_begin()) return 1;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_rows_stay),
        cmocka_unit_test(what_was_dropped_is_made_again),
        cmocka_unit_test(names_of_files),
        cmocka_unit_test(clocks_that_cant_be_set),
        cmocka_unit_test(files_that_change_are_an_event),
        cmocka_unit_test(keys_that_are_none),
        cmocka_unit_test(a_new_client_leaves_a_ceiling_that_is_high_enough),
        cmocka_unit_test(a_waiter_sees_the_holder_alone),
        cmocka_unit_test(tables_of_others),
        cmocka_unit_test(a_table_of_format_1_is_refused),
    };
    int failed = TEST_MAIN(tests);
    sqlite3_close(other);
    return failed;
}
