/*
 * open.c - hf_open, which gives the handle the threads of this folder as callbacks.
 */
#include "above.h"
#include "held_sessions.h"
#include "start_threads.h"
#include "thread.h"
#include "threads.h"

static const struct hf_sessions_above sessions_above = {.lost = hf__session_lost,
                                                        .ends_sooner = hf__session_ends_sooner,
                                                        .need_renewer = hf__need_renewer,
                                                        .wake_renewer = hf__wake_renewer,
                                                        .kick_keepers = hf__kick_keepers};

static const struct hf_above above = {.dispatcher = hf__dispatcher,
                                      .monitor = hf__expiry_monitor,
                                      .renewer = hf__renewer,
                                      .sessions = &sessions_above,
                                      .stop = hf__renewals_close};

int hf_open(const char *url, const hf_open_options *options, hf **ret, hf_error *err)
{
    HF_NOT_CANCELED;
    return hf__open_handle(url, options, &above, ret, err);
}
