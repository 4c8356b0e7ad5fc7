/*
 * conform_around.h - a driver around another one, `base`, some calls of which lie.
 */
#ifndef HF_CONFORM_AROUND_H
#define HF_CONFORM_AROUND_H

#include "holdfast_driver.h"

static hf_driver liar;
static hf_local_ops local; /* the liar's */
static hf_liveness_ops liveness;

#define TAKE(to, from, call) ((to)->call = (from)->call ? (from)->call : (to)->call)

/* Makes a driver that is as `base`, except for the operations that the other three have. */
static void make_around(const hf_driver *base, const hf_driver *lies, const hf_local_ops *in_local,
                        const hf_liveness_ops *in_liveness)
{
    liar = *base;
    TAKE(&liar, lies, open);
    TAKE(&liar, lies, close);
    TAKE(&liar, lies, get);
    TAKE(&liar, lies, replace);
    TAKE(&liar, lies, acquire);
    TAKE(&liar, lies, scan);
    TAKE(&liar, lies, sync);
    TAKE(&liar, lies, enter);
    local = *base->caps.local;
    TAKE(&local, in_local, now);
    TAKE(&local, in_local, update);
    TAKE(&local, in_local, wakeup_begin);
    TAKE(&local, in_local, sleep);
    liveness = *base->caps.liveness;
    TAKE(&liveness, in_liveness, session);
    TAKE(&liveness, in_liveness, alive);
    liar.caps.local = &local;
    liar.caps.liveness = &liveness;
}

#undef TAKE

#endif
