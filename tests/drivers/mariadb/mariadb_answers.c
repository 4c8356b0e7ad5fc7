/*
 * mariadb_answers.c - what the MariaDB driver makes of each kind of error: which errors say that a
 * write was not done.
 */
#include "mysay.h"
#include "os.h"
#include "test.h"

static hf_store *st;
static int64_t clock_us;

static int get(void)
{
    hf_row row;
    hf_row_init(&row);
    int rc = mariadb->get(st, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static int replaces(uint64_t seen)
{
    hf_row to, cur;
    hf_row_init(&to);
    hf_row_init(&cur);
    to.rev = to.token = seen + 1;
    to.done_us = 1;
    int rc = mariadb->replace(st, &key, seen, &to, &cur, &clock_us, &err);
    hf_row_clear(&cur);
    return rc;
}

static int replaces_with_others(void)
{
    hf_row to, cur;
    hf_error why = {0, 0, ""};
    hf_row_init(&to);
    hf_row_init(&cur);
    to.rev = to.token = 6;
    to.done_us = 1;
    hf_replace one = {.key = &key, .seen = 5, .row = &to, .cur = &cur, .err = &why};
    (void)mariadb->replace_many(st, &one, 1, hf__local_us() + 60000000);
    hf_row_clear(&cur);
    err = why;
    return one.result;
}

/* Replaces the row twice by one request. Returns the result of both; the second one may be UNKNOWN
   instead. */
static int replaces_two(void)
{
    hf_row to, cur[2];
    hf_error why[2] = {{0, 0, ""}, {0, 0, ""}};
    hf_replace two[2];
    hf_row_init(&to);
    to.rev = to.token = 6;
    to.done_us = 1;
    for (int i = 0; i < 2; i++) {
        hf_row_init(&cur[i]);
        two[i] = (hf_replace){&key, 5, &to, &cur[i], HF_UNKNOWN, 0, &why[i]};
    }
    (void)mariadb->replace_many(st, two, 2, hf__local_us() + 60000000);
    for (int i = 0; i < 2; i++) hf_row_clear(&cur[i]);
    if (two[1].result != HF_UNKNOWN) assert_int_equal(two[1].result, two[0].result);
    err = why[0];
    return two[0].result;
}

/* Numbers by which nothing was done have a code of their own. By any other, also one that no
   version has yet, a write may have been done; a read can be made again. */
static void each_error_has_its_code(void **state)
{
    static const struct {
        int number, reads, writes;
    } cases[] = {
        {1142, HF_DENIED, HF_DENIED},           /* the table may not be written */
        {1045, HF_DENIED, HF_DENIED},           /* access denied */
        {1021, HF_FULL, HF_FULL},               /* the disk is full */
        {1114, HF_FULL, HF_FULL},               /* the table is full */
        {1054, HF_CORRUPT, HF_CORRUPT},         /* no such column */
        {1406, HF_CORRUPT, HF_CORRUPT},         /* data too long */
        {1205, HF_UNAVAILABLE, HF_UNAVAILABLE}, /* a lock wasn't granted in time */
        {1040, HF_UNAVAILABLE, HF_UNAVAILABLE}, /* too many connections */
        {1290, HF_UNAVAILABLE, HF_UNAVAILABLE}, /* read-only */
        {1213, HF_UNAVAILABLE, HF_CONFLICT},    /* a deadlock, or overtaken in a cluster */
        {1062, HF_UNAVAILABLE, HF_CONFLICT},    /* the row is there */
        {1969, HF_UNAVAILABLE, HF_UNKNOWN},     /* max_statement_time */
        {1317, HF_UNAVAILABLE, HF_UNKNOWN},     /* interrupted */
        {1053, HF_UNAVAILABLE, HF_UNKNOWN},     /* shutting down */
        {1105, HF_UNAVAILABLE, HF_UNKNOWN},     /* unknown error */
        {1180, HF_UNAVAILABLE, HF_UNKNOWN},     /* during COMMIT */
        {1927, HF_UNAVAILABLE, HF_UNKNOWN},     /* the connection was killed */
        {9001, HF_UNAVAILABLE, HF_UNKNOWN},     /* of a proxy in front */
        {65000, HF_UNAVAILABLE, HF_UNKNOWN},    /* of a later version */
    };
    (void)state;
    said(my_opens("mariadb://u@HOST/db", 60000, &st), 0, NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        my_bad.number = cases[i].number;
        my_bad.at = 0;
        my_bad.part = "SELECT 0, ";
        said(get(), cases[i].reads, "told so");
        my_bad.part = "INSERT INTO";
        said(replaces(0), cases[i].writes, cases[i].writes == HF_CONFLICT ? NULL : "told so");
        my_bad.part = "UPDATE";
        said(replaces(5), cases[i].writes, cases[i].writes == HF_CONFLICT ? NULL : "told so");
        int many = cases[i].writes == HF_CONFLICT ? HF_UNAVAILABLE : cases[i].writes;
        said(replaces_with_others(), many, NULL);
        my_bad.part = NULL;
        said(get(), 0, NULL);
        said(replaces(5), 0, NULL);
        said(replaces_with_others(), 0, NULL);
    }
    mariadb->close(st);
}

/* The write was carried out, and the statement after it is refused. */
static void what_fails_behind_a_write_leaves_it_open(void **state)
{
    static const int numbers[] = {1142, 1021, 1205, 1213, 1062, 1146, 65000};
    (void)state;
    said(my_opens("mariadb://u@HOST/db", 60000, &st), 0, NULL);
    for (size_t i = 0; i < COUNT(numbers); i++) {
        my_bad.number = numbers[i];
        my_bad.at = 1;
        my_bad.part = "UPDATE";
        said(replaces(5), HF_UNKNOWN, "told so");
        said(replaces_with_others(), HF_UNKNOWN, NULL);
        my_bad.part = NULL;
        said(get(), 0, NULL);
    }
    mariadb->close(st);
}

/* Behind a pooler each request begins with the settings: if one is refused, nothing else is done.
 */
static void what_fails_at_a_setting_does_nothing(void **state)
{
    static const int numbers[][2] = {
        {1227, HF_DENIED}, {1290, HF_UNAVAILABLE}, {1053, HF_UNKNOWN}, {65000, HF_UNKNOWN}};
    (void)state;
    my_pooled = 1;
    said(my_opens("mariadb://u@HOST/db", 60000, &st), 0, NULL);
    for (size_t i = 0; i < 2 * COUNT(numbers); i++) {
        const int *n = numbers[i / 2];
        said(replaces(5), 0, NULL);
        said(replaces_with_others(), 0, NULL);
        my_bad = (struct my_error){.part = MY_SETTINGS, .at = i % 2, .number = n[0]};
        said(get(), n[1] == HF_UNKNOWN ? HF_UNAVAILABLE : n[1], "told so");
        said(replaces(5), n[1], "told so");
        said(replaces_with_others(), n[1], NULL);
        said(replaces_two(), n[1], NULL);
        my_bad.part = NULL;
    }
    my_pooled = 0;
    mariadb->close(st);
}

static int replaces_some(void) { return replaces(5); }
static int enters(void) { return mariadb->enter(st, &key, 7, 0, NULL, &err); }

/* After a fail-over the driver's connections lead to a replica, which some users may write. The
   first request there, of any kind, leaves that server: the next one looks for another. */
static void a_server_that_became_read_only_is_left(void **state)
{
    static int (*const request[])(void) = {get, replaces_some, enters, replaces_with_others,
                                           replaces_two};
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(request); i++) {
        int (*one)(void) = request[i / 2];
        my_pooled = i % 2;
        said(my_opens("mariadb://u@HOST/db", 60000, &st), 0, NULL);
        said(one(), 0, NULL);
        my_read_only = 1;
        said(one(), one == get ? HF_UNAVAILABLE : HF_UNKNOWN, "'k': the server is read-only");
        said(one(), HF_UNAVAILABLE, "mariadb: connect '");
        my_read_only = 0;
        said(one(), 0, NULL);
        mariadb->close(st);
    }
    my_pooled = 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_error_has_its_code),
        cmocka_unit_test(what_fails_behind_a_write_leaves_it_open),
        cmocka_unit_test(what_fails_at_a_setting_does_nothing),
        cmocka_unit_test(a_server_that_became_read_only_is_left),
    };
    if (!my_begin()) return 1;
    return TEST_MAIN(tests);
}
