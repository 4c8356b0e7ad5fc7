/*
 * conform.c - the conformance suite: makes its groups of checks one after the other, then deletes
 * the rows that are left. See conform.h.
 */
#include "conform.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const char *sweep_up(struct hf__suite *cfm)
{
    hf_error err = {0, 0, ""};
    HF_CHECK(!hf__con_sweep(&cfm->con, cfm->prefix, &err), "%s", hf__why(cfm, &err));
    return NULL;
}

static void make_checks(struct hf__suite *cfm)
{
    static const struct hf__check last[] = {{"the rows of the suite are deleted", 0, sweep_up}};
    hf_error err = {0, 0, ""};
    cfm->in_memory = !strcmp(cfm->drv->name, "mem");
    /* Opens and closes the store to learn its capabilities. The checks that fork run while it is
       closed. */
    if (!cfm->in_memory && !hf__con_open(cfm, &cfm->con, NULL)) {
        cfm->caps = cfm->con.caps;
        hf__con_close(&cfm->con);
    }
    if (!cfm->in_memory) hf__conform_processes(cfm);
    if (cfm->away.code) return;
    int rc = hf__con_open(cfm, &cfm->con, &err);
    if (rc == HF_UNAVAILABLE) {
        cfm->away = err;
        return;
    }
    if (rc) {
        cfm->failed++;
        cfm->say(cfm->arg, "it opens", err.text);
        return;
    }
    cfm->caps = cfm->con.caps;
    hf__conform_rows(cfm);
    hf__conform_replace(cfm);
    hf__conform_handle(cfm);
    if (!cfm->con.st) return; /* the store couldn't be opened again, which was reported */
    hf__conform_keys(cfm);
    hf__conform_acquire(cfm);
    hf__conform_update(cfm);
    hf__conform_many(cfm);
    hf__conform_notify(cfm);
    hf__conform_threads(cfm);
    hf__conform_run(cfm, last, 1);
    hf__con_close(&cfm->con);
}

int hf__conform(const hf_driver *drv, const hf_url *url, const char *prefix,
                void (*say)(void *arg, const char *promise, const char *why), void *arg,
                hf_error *err)
{
    struct hf__suite cfm = {.drv = drv, .url = url, .say = say, .arg = arg, .caps = drv->caps};
    snprintf(cfm.prefix, sizeof cfm.prefix, "%s", prefix);
    cfm.no_reply =
        mmap(NULL, sizeof *cfm.no_reply, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (cfm.no_reply == MAP_FAILED) return hf_fail(err, HF_NOMEM, 0, "no memory to share");
    make_checks(&cfm);
    munmap((void *)cfm.no_reply, sizeof *cfm.no_reply);
    if (!cfm.away.code) return cfm.failed;
    if (err) *err = cfm.away;
    return HF_UNAVAILABLE;
}
