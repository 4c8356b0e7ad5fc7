/*
 * lock_trips.c - the lock suite: what an uncontended acquisition costs at a store that has to be
 * asked. Where HOLDFAST_TEST_LOG names the log of the server, its lines with HOLDFAST_TEST_LOG_MARK
 * are what counts; or HOLDFAST_TEST_COUNT is a command that tells how many there were.
 * HOLDFAST_TEST_TRIPS: how many requests a key takes that was never seen (1).
 */
#include "lock_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t told_by(const char *command)
{
    char line[64] = "";
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(pclose(f), 0);
    return strtoull(line, NULL, 10);
}

static uint64_t sent(hf *h)
{
    const char *log = getenv("HOLDFAST_TEST_LOG"), *mark = getenv("HOLDFAST_TEST_LOG_MARK");
    const char *count = getenv("HOLDFAST_TEST_COUNT");
    hf_stats s = {.size = sizeof s};
    char line[8192];
    uint64_t n = 0;
    if (count) return told_by(count);
    if (!log) {
        OK(hf_get_stats(h, &s));
        return s.store_ops;
    }
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strstr(line, mark) != NULL;
    fclose(f);
    return n;
}

static void one_there_and_one_back(void **state)
{
    (void)state;
    enum { PAIRS = 20 };
    hf *a = suite_open();
    const char *key = suite_key("trips");
    const char *first_text = getenv("HOLDFAST_TEST_TRIPS");
    uint64_t first = first_text ? strtoull(first_text, NULL, 10) : 1;
    hf_lock *lock;
    uint64_t before = sent(a);
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    assert_int_equal(sent(a) - before, first); /* a key that this handle has never seen */
    OK(hf_release(lock, &suite_error));
    assert_int_equal(sent(a) - before, first + 1);
    for (int i = 0; i < PAIRS; i++) {
        OK(hf_acquire(a, key, NULL, &lock, &suite_error));
        OK(hf_release(lock, &suite_error));
    }
    assert_int_equal(sent(a) - before, first + 1 + 2 * PAIRS);
    hf_close(a);
}

static void a_refusal_is_one(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("refused");
    hf_lock *lock, *x;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    uint64_t before = sent(b);
    IS(HF_BUSY, hf_acquire(b, key, &try, &x, &suite_error));
    assert_int_equal(sent(b) - before, 1);
    hf_close(a);
    hf_close(b);
}

/* Where there is a guard, or a word for its absence. */
static void entering_is_one(void **state)
{
    (void)state;
    hf *a = suite_open();
    hf_lock *lock;
    OK(hf_acquire(a, suite_key("enters"), NULL, &lock, &suite_error));
    const char *where = hf_enter(lock, NULL, &suite_error) == HF_INVALID ? "suite_trips/7" : NULL;
    uint64_t before = sent(a);
    int rc = hf_enter(lock, where, &suite_error);
    assert_true(rc == HF_OK || rc == HF_UNSUPPORTED);
    if (rc) /* nothing, or one that found none */
        assert_in_range(sent(a) - before, 0, 1);
    else
        assert_int_equal(sent(a) - before, 1);
    OK(hf_release(lock, &suite_error));
    hf_close(a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_there_and_one_back),
        cmocka_unit_test(a_refusal_is_one),
        cmocka_unit_test(entering_is_one),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_trips");
}
