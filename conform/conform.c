/*
 * conform.c - the conformance suite: its parts, one after the other. See conform.h.
 */
#include "conform.h"

#include "os.h"

#include <stdio.h>
#include <string.h>

static int sweep(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct hf__suite *cfm = arg;
    int64_t clock;
    if (row) (void)cfm->con.drv->replace(cfm->con.st, key, row->rev, NULL, NULL, &clock, NULL);
    return 0;
}

static const char *sweep_up(struct hf__suite *cfm)
{
    hf_error err = {0, 0, ""};
    HF_CHECK(!hf__con_scan(&cfm->con, cfm->prefix, sweep, cfm, &err), "%s", err.text);
    return NULL;
}

int hf__conform(const hf_driver *drv, const hf_url *url,
                void (*say)(void *arg, const char *promise, const char *why), void *arg)
{
    static const struct hf__check last[] = {{"it is swept up", 0, sweep_up}};
    struct hf__suite cfm = {.drv = drv, .url = url, .say = say, .arg = arg, .caps = drv->caps};
    hf_error err = {0, 0, ""};
    uint64_t r;
    hf__random(&r, sizeof r);
    snprintf(cfm.prefix, sizeof cfm.prefix, "holdfast-conform/%016llx/", (unsigned long long)r);
    cfm.in_memory = !strcmp(drv->name, "mem");
    /* What the store can is known once it is open; those that fork come while it isn't. */
    if (!cfm.in_memory && !hf__con_open(&cfm, &cfm.con, NULL)) {
        cfm.caps = cfm.con.caps;
        hf__con_close(&cfm.con);
    }
    if (!cfm.in_memory) hf__conform_processes(&cfm);
    if (hf__con_open(&cfm, &cfm.con, &err)) {
        say(arg, "it opens", err.text);
        return cfm.failed + 1;
    }
    cfm.caps = cfm.con.caps;
    hf__conform_rows(&cfm);
    hf__conform_replace(&cfm);
    hf__conform_handle(&cfm);
    if (!cfm.con.st) return cfm.failed; /* it couldn't be opened again, as was said */
    hf__conform_keys(&cfm);
    hf__conform_acquire(&cfm);
    hf__conform_update(&cfm);
    hf__conform_many(&cfm);
    hf__conform_notify(&cfm);
    hf__conform_threads(&cfm);
    hf__conform_run(&cfm, last, 1);
    hf__con_close(&cfm.con);
    return cfm.failed;
}
