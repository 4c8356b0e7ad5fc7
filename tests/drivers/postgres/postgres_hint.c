/*
 * postgres_hint.c - the driver postgres: two threads replace the row of one key. They share the
 * key's hint, a word of the handle, and no mutex guards it: the thread sanitizer says whether its
 * loads and stores are atomic.
 */
#include "pgsay.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>

enum { THREADS = 2, WRITES = 300 };

static uint64_t hint;
static pthread_barrier_t together;

struct writer {
    hf_store *st;
    pthread_t thread;
    int failed; /* how many of its replaces */
};

/* Releases the key and acquires it again, as if no other client wrote in between. The hint
   is read and written with each. */
static void *writes(void *arg)
{
    struct writer *w = arg;
    hf_rowkey k = key;
    hf_row next, there;
    int64_t clock = 0;
    hf_row_init(&next);
    hf_row_init(&there);
    k.hint = &hint;
    w->failed += hf_row_room(&next, 1) != 0;
    pthread_barrier_wait(&together);
    for (uint64_t rev = 1; !w->failed && rev <= WRITES; rev++) {
        next.rev = next.token = rev + 1;
        next.n_holders = rev % 2;
        next.party[0] = (hf_party){.id = {1}, .token = next.token, .owner = "me", .owner_len = 2};
        w->failed += pg->replace(w->st, &k, rev, &next, &there, &clock, NULL) != 0;
    }
    hf_row_clear(&next);
    hf_row_clear(&there);
    return NULL;
}

static void threads_share_a_hint(void **state)
{
    (void)state;
    struct writer writer[THREADS] = {0};
    const struct pg_rule rules[] = {{"queue = '' RETURNING (extract", "1769860800000017", 0},
                                    {"WITH w AS", pg_row_but("1|1769860800000017", "rev", "1"), 0}};
    hf_store *st = pg_opened("postgres://u@HOST/db?sslmode=disable&gssencmode=disable");
    pg_are(rules, COUNT(rules));
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        writer[i].st = st;
        assert_int_equal(pthread_create(&writer[i].thread, NULL, writes, &writer[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(writer[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) assert_int_equal(writer[i].failed, 0);
    assert_true(pg_asked("WITH w AS") > 0);
    pthread_barrier_destroy(&together);
    pg->close(st);
}

int main(void)
{
    if (!pg_begin()) return 1;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_hint),
    };
    return TEST_MAIN(tests);
}
