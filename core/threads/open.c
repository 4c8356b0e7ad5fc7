/*
 * open.c - opening a store: a handle whose threads are those of this folder.
 */
#include "above.h"
#include "pump.h"
#include "renewals.h"
#include "threads.h"

static const struct hf_above above = {.pump = hf__pump,
                                      .tender = hf__tender,
                                      .renewer = hf__renewer,
                                      .leads = hf__pump_leads,
                                      .lead = hf__pump_lead,
                                      .stop = hf__renewals_close};

int hf_open(const char *url, const hf_open_options *options, hf **ret, hf_error *err)
{
    return hf__open_handle(url, options, &above, ret, err);
}
