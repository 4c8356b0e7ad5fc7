/*
 * five.c - a driver with the five required operations alone, those of sqlite: the scheme "five".
 *
 * It promises nothing: no group, no threads, no notification. So a store that is written by the
 * guide alone has to pass what this one passes. Two calls at the same time on one store end the
 * process: the library serializes the calls of a driver that is not for several threads.
 */
#undef HF_DRIVERS_BUILT_IN /* sqlite's own driver is a hidden symbol, this one is the module's */
#include "holdfast_driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

extern const hf_driver hf__sqlite_driver;
#define BASE (&hf__sqlite_driver)

struct hf_store {
    hf_store *base;
    atomic_int calls; /* under way */
};

static hf_store *enter(hf_store *st)
{
    if (atomic_fetch_add(&st->calls, 1)) {
        fprintf(stderr, "five: two calls at once\n");
        abort();
    }
    return st->base;
}

static int leave(hf_store *st, int rc)
{
    atomic_fetch_sub(&st->calls, 1);
    return rc;
}

static int fi_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    hf_caps own = BASE->caps;
    hf_store *st = calloc(1, sizeof *st);
    (void)caps;
    if (!st) return hf_fail(err, HF_NOMEM, 0, "five: open '%s': out of memory", url->safe);
    int rc = BASE->open(url, io_timeout_ms, &st->base, &own, err);
    if (rc)
        free(st);
    else
        *ret = st;
    return rc;
}

static void fi_close(hf_store *st)
{
    BASE->close(enter(st));
    free(st);
}

static int fi_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    return leave(st, BASE->get(enter(st), key, row, ret_clock_us, err));
}

static int fi_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    return leave(st, BASE->replace(enter(st), key, seen, row, cur, ret_clock_us, err));
}

static int fi_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                   int64_t *ret_clock_us, hf_error *err)
{
    return leave(st, BASE->scan(enter(st), prefix, see, arg, ret_clock_us, err));
}

HF_DRIVER_ENTRY(five) = {
    .abi = HF_DRIVER_ABI,
    .name = "five",
    .about = "for tests: the five required operations of sqlite",
    .caps = {.queue_cap = 64, .holders_cap = 64, .queues = 1},
    .open = fi_open,
    .close = fi_close,
    .get = fi_get,
    .replace = fi_replace,
    .scan = fi_scan,
};
