/*
 * lock_trips.c - the lock suite: what an uncontended acquisition costs at a store that has to be
 * asked. Where HOLDFAST_TEST_LOG names the log of the server, what it says that it was sent counts.
 */
#include "lock_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t sent(hf *h)
{
    const char *log = getenv("HOLDFAST_TEST_LOG");
    hf_stats s = {.size = sizeof s};
    char line[8192];
    uint64_t n = 0;
    if (!log) {
        OK(hf_get_stats(h, &s));
        return s.store_ops;
    }
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strstr(line, "LOG:  execute") != NULL;
    fclose(f);
    return n;
}

static void one_there_and_one_back(void **state)
{
    (void)state;
    enum { PAIRS = 20 };
    hf *a = suite_open();
    const char *key = suite_key("trips");
    hf_lock *lock;
    uint64_t before = sent(a);
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    assert_int_equal(sent(a) - before, 1); /* a key that this handle has never seen */
    OK(hf_release(lock, &suite_error));
    assert_int_equal(sent(a) - before, 2);
    for (int i = 0; i < PAIRS; i++) {
        OK(hf_acquire(a, key, NULL, &lock, &suite_error));
        OK(hf_release(lock, &suite_error));
    }
    assert_int_equal(sent(a) - before, 2 + 2 * PAIRS);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_there_and_one_back),
        cmocka_unit_test(a_refusal_is_one),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_trips");
}
