/*
 * holdfast.c - competitors by Holdfast and by what the machine itself has.
 *
 *     contend holdfast URL LEASE_MS
 *     contend 'flock(2)'|'OFD lock'|'robust mutex'|'futex' DIRECTORY LEASE_MS
 */
#include "../bench.h"
#include "competitor.h"

#include <stddef.h>
#include <string.h>

static hf *store;
static hf_lock *lock;
static hf_options options = HF_OPTIONS_INIT;

static void open_store(const char *url, long lease_ms)
{
    store = bench_open(url);
    options.lease_ms = lease_ms;
}

static void take(const char *key)
{
    hf_error err;
    bench_ok(hf_acquire(store, key, &options, &lock, &err), &err);
}

static int give(void)
{
    hf_error err;
    int rc = hf_release(lock, &err);
    if (rc != HF_LOST) bench_ok(rc, &err);
    return rc;
}

const struct competitor holdfast_competitor = {"holdfast", open_store, take, give};

int main(int argc, char **argv)
{
    if (argc != 4) bench_die("usage: contend HOW WHERE LEASE_MS");
    long lease_ms = bench_number(argv[3], 0, 3600000);
    const struct competitor *as = &holdfast_competitor;
    for (size_t i = 0; strcmp(as->name, argv[1]) != 0; i++) {
        as = local_competitors[i];
        if (!as) bench_die("'%s': no competitor", argv[1]);
    }
    return compete(as, argv[2], lease_ms);
}
