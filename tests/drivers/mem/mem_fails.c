/*
 * mem_fails.c - mem: (and the drivers around drivers) with each allocation of an operation failing
 * in turn: it says so, nothing has changed by it, nothing leaks, and it works when there is memory
 * again.
 */
#include "drivers.h"
#include "fakes/faults.h"
#include "faults/fails.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 40 };

static const hf_driver *const d = &hf__mem_driver;
static hf_url url;
static hf_store *st;
static hf_rowkey key; /* a key that is longer than a cell's own room */
static hf_row row, cur;
static hf_error err;
static int64_t clock_us;
static const hf_party me = {.id = {1}, .session = 1};

static uint64_t last_rev = UINT64_C(1) << 52; /* above every rev that comes from a clock */

/* Returns the rev of the present row; 0: it has no party. */
static uint64_t rev_now(void)
{
    hf_row now;
    hf_row_init(&now);
    fails_exempt(1);
    assert_int_equal(d->get(st, &key, &now, &clock_us, NULL), 0);
    fails_exempt(0);
    uint64_t rev = now.n_holders || now.done_us ? now.rev : 0;
    hf_row_clear(&now);
    return rev;
}

/* Prepares a row with n parties for the next write. */
static void fill(uint32_t n)
{
    assert_int_equal(hf_row_room(&row, n), 0);
    row.rev = row.token = ++last_rev;
    row.n_holders = n > 0;
    row.n_queue = n ? n - 1 : 0;
    for (uint32_t i = 0; i < n; i++) {
        row.party[i] = me;
        row.party[i].id[1] = (uint8_t)i;
    }
    row.party[0].token = row.token;
}

/* Stores a row with n parties at a key without one (0: stores nothing), as if there were memory.
   Then prepares a row of MANY for the next write. */
static void put(uint32_t n)
{
    fails_exempt(1);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    last_rev += 2; /* above the floor */
    assert_int_equal(d->get(st, &key, &cur, &clock_us, NULL), 0);
    assert_int_equal(d->replace(st, &key, cur.rev, NULL, NULL, &clock_us, NULL), 0);
    hf_row_clear(&cur);
    fill(n);
    if (n) assert_int_equal(d->replace(st, &key, 0, &row, NULL, &clock_us, NULL), 0);
    fill(MANY);
    fails_exempt(0);
}

/* ---- the operations: what is prepared for each, and what it is ---- */

static void nobody(void) { put(0); }
static void crowd(void) { put(MANY); }
static void two(void) { put(2); }

static int get(void) { return d->get(st, &key, &cur, &clock_us, &err); }
static int take(void) { return d->acquire(st, &key, &me, 0, &cur, &clock_us, &err); }
static int update(void) { return d->replace(st, &key, row.rev - 1, &row, &cur, &clock_us, &err); }
static int conflict(void) { return d->replace(st, &key, 3, &row, &cur, &clock_us, &err); }
static int insert(void) { return d->replace(st, &key, 0, &row, &cur, &clock_us, &err); }

static int seen;
static int see(void *arg, const hf_rowkey *k, hf_row *r)
{
    (void)arg, (void)k, (void)r;
    seen++;
    return 0;
}
static int scan(void)
{
    seen = 0;
    int rc = d->scan(st, "k", see, NULL, &clock_us, &err);
    if (!rc) assert_int_equal(seen, 1);
    return rc;
}
static int open_another(void)
{
    hf_url other;
    hf_store *more = NULL;
    assert_int_equal(hf_url_parse("mem:another", &other, NULL), 0);
    int rc = d->open(&other, 1000, &more, &(hf_caps){0}, &err);
    if (!rc) d->close(more);
    return rc;
}

static const struct op {
    const char *name;
    void (*prepare)(void);
    int (*run)(void);
    int good, at_least; /* the result without failures, and the least number of allocations whose
                           failure shows */
} ops[] = {{"get", crowd, get, 0, 1},
           {"take", nobody, take, 0, 2},
           {"take", crowd, take, HF_CONFLICT, 1},
           {"replace", two, update, 0, 1},
           {"replace", crowd, conflict, HF_CONFLICT, 1},
           {"replace", nobody, insert, 0, 3},
           {"scan", crowd, scan, 0, 2},
           {"open", crowd, open_another, 0, 60}};

static void each_allocation_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const struct op *op = &ops[i];
        int felt = 0, rc;
        const char *failed = "";
        for (long n = 1; failed; n++) {
            op->prepare();
            uint64_t rev = rev_now();
            err.text[0] = 0;
            fails_arm(n, 0);
            rc = op->run();
            failed = fails_disarm();
            if (rc == op->good) continue;
            felt++;
            if (!failed || rc != HF_NOMEM || !strstr(err.text, "mem: ") ||
                !strstr(err.text, "out of memory"))
                fail_msg("%s, call %ld: %d, %s", op->name, n, rc, err.text);
            if (rev_now() != rev) fail_msg("%s, call %ld: it was done", op->name, n);
        }
        if (felt < op->at_least) fail_msg("%s: only %d", op->name, felt);
    }
}

/* The table can't grow or shrink: it works, with longer chains. */
static void a_table_that_cant_grow_works(void **state)
{
    (void)state;
    enum { KEYS = 3000 };
    static uint64_t rev[KEYS];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < KEYS; i++) {
            char text[16];
            hf_rowkey k;
            snprintf(text, sizeof text, "many/%d", i);
            assert_int_equal(hf_key_make(text, &k, NULL), 0);
            fails_arm_one(1, "calloc", 0);
            int rc = round ? d->replace(st, &k, rev[i], NULL, NULL, &clock_us, &err)
                           : d->acquire(st, &k, &me, 0, &cur, &clock_us, &err);
            fails_disarm();
            assert_int_equal(rc, 0);
            rev[i] = cur.rev;
        }
}

/* Then it notifies no handle of deaths, and waiters look. */
static void without_descriptors_no_death_is_told(void **state)
{
    (void)state;
    hf_store *other = NULL;
    assert_int_equal(d->open(&url, 1000, &other, &(hf_caps){0}, &err), 0);
    fails_arm_one(1, "eventfd", 0);
    assert_int_equal(d->caps.liveness->death_fd(other), -1);
    assert_non_null(fails_disarm());
    int fd = d->caps.liveness->death_fd(other);
    assert_true(fd >= 0);
    assert_int_equal(d->caps.liveness->death_read(other), 0);
    d->close(other);
}

static void what_goes_around_a_store_needs_memory(void **state)
{
    static int (*const wraps[])(const hf_driver **, hf_store **, hf_caps *, const char *,
                                hf_error *) = {hf__wrap_fault, hf__wrap_trace};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const hf_driver *drv = d;
        hf_store *inner = st;
        hf_caps caps = d->caps;
        err.text[0] = 0;
        fails_arm(1, 0);
        assert_int_equal(wraps[i](&drv, &inner, &caps, i ? "stderr" : "", &err), HF_NOMEM);
        fails_disarm();
        assert_non_null(strstr(err.text, "out of memory"));
        assert_ptr_equal(drv, d);
        assert_ptr_equal(inner, st);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_fails),
        cmocka_unit_test(a_table_that_cant_grow_works),
        cmocka_unit_test(without_descriptors_no_death_is_told),
        cmocka_unit_test(what_goes_around_a_store_needs_memory),
    };
    char text[HF_KEY_CAP] = "k";
    memset(text + 1, 'x', 200);
    hf_row_init(&row);
    hf_row_init(&cur);
    long before = fails_blocks();
    if (hf_url_parse("mem:fails", &url, NULL) || hf_key_make(text, &key, &err) ||
        d->open(&url, 1000, &st, &(hf_caps){0}, &err))
        return 1;
    int bad = TEST_MAIN(tests);
    d->close(st);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    long left = fails_blocks() - before;
    if (left) fprintf(stderr, "%ld blocks are left\n", left);
    return bad || left;
}
