/*
 * sweep.c - the conformance suite: makes the prefix of a trial's keys, and deletes what trials have
 * left. See conform.h.
 */
#include "conform.h"

#include "os.h"

#include <stdio.h>
#include <string.h>

static const char all_trials[] = "holdfast-conform/";

void hf__conform_prefix(char ret[HF_CONFORM_PREFIX_CAP])
{
    uint64_t r;
    hf__random(&r, sizeof r);
    snprintf(ret, HF_CONFORM_PREFIX_CAP, "%s%016llx/", all_trials, (unsigned long long)r);
}

enum {
    SWEEPS = 3,           /* more than one, because a killed process's write may come late */
    ABANDONED_S = 60 * 60 /* a row that was written so long ago belongs to no running trial */
};

struct sweep {
    const struct hf__con *con;
    const char *prefix;
    int64_t now_us;   /* the store's clock */
    int failed, left; /* the error of a deletion; how many deletions met a conflict */
    hf_error *err;
};

static int is_abandoned(const struct sweep *s, const hf_row *row)
{
    return row->rev + ABANDONED_S * UINT64_C(1000000) < (uint64_t)s->now_us;
}

static int sweep_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct sweep *s = arg;
    int64_t clock;
    int mine = !strncmp(key->text, s->prefix, strlen(s->prefix));
    if (!row || (!mine && !is_abandoned(s, row))) return 0;
    int rc = s->con->drv->replace(s->con->st, key, row->rev, NULL, NULL, &clock, s->err);
    if (rc < 0) s->failed = rc;
    if (rc > 0) s->left++;
    return rc < 0;
}

int hf__con_sweep(const struct hf__con *con, const char *prefix, hf_error *err)
{
    struct sweep s = {.con = con, .prefix = prefix, .left = 1, .err = err};
    hf_rowkey key = {.text = all_trials, .len = sizeof all_trials - 1};
    hf_row none;
    hf_row_init(&none);
    key.hash = hf_key_hash(key.text, key.len);
    s.now_us = hf__con_clock(con, &key, &none, err);
    int rc = s.now_us < 0 ? err->code : 0;
    for (int i = 0; i < SWEEPS && !rc && s.left; i++) {
        s.left = 0;
        rc = hf__con_scan(con, all_trials, sweep_one, &s, err);
        if (s.failed) rc = s.failed;
    }
    if (rc || !s.left) return rc;
    return hf_fail(err, HF_BUSY, 0, "rows under '%s' are still being written", prefix);
}

int hf__conform_sweep(const hf_driver *drv, const hf_url *url, const char *prefix, hf_error *err)
{
    struct hf__suite cfm = {.drv = drv, .url = url};
    int rc = hf__con_open(&cfm, &cfm.con, err);
    if (rc) return rc;
    rc = hf__con_sweep(&cfm.con, prefix, err);
    hf__con_close(&cfm.con);
    return rc;
}
