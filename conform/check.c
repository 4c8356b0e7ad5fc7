/*
 * check.c - the conformance suite: makes a check (again, if an outage cut it short), and reports
 * its result. See conform.h.
 */
#include "conform.h"

#include <stdatomic.h>

/* Makes one check. Returns NULL if it passes, otherwise the reason. */
static const char *make_check(struct hf__suite *cfm, const struct hf__check *check)
{
    if (cfm->no_reply) atomic_store(cfm->no_reply, 0);
    return check->check(cfm);
}

void hf__conform_run(struct hf__suite *cfm, const struct hf__check *check, size_t n)
{
    for (size_t i = 0; i < n && !cfm->away.code; i++) {
        unsigned has = (cfm->caps.threads ? HF_NEEDS_THREADS : 0) |
                       (cfm->caps.local ? HF_NEEDS_LOCAL : 0) |
                       (cfm->caps.liveness ? HF_NEEDS_LIVENESS : 0);
        if (check[i].needs & ~has) continue;
        const char *why = make_check(cfm, &check[i]);
        if (why && cfm->no_reply && atomic_load(cfm->no_reply)) {
            int rc = hf__conform_sweep(cfm->drv, cfm->url, cfm->prefix, &cfm->away);
            if (rc == HF_UNAVAILABLE || rc == HF_UNKNOWN) return;
            cfm->away.code = 0;
            if (!rc) why = make_check(cfm, &check[i]);
        }
        if (why) cfm->failed++;
        cfm->say(cfm->arg, check[i].text, why);
    }
}
