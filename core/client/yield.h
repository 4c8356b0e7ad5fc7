/*
 * yield.h - a handle that acquires one key in a loop pauses now and then, so that others get in.
 */
#ifndef HF_YIELD_H
#define HF_YIELD_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_port;
struct hf_wait;

/* Before this handle writes that row: has it left the row alone for long enough? Notes the write.
 */
int hf__yield_due(const struct hf_port *port, struct hf_entry *e, int64_t now_us);
/* Before the first look: 1: not yet, but at look_at_us. An attempt (wait 0) doesn't wait. */
int hf__yields_first(struct hf_wait *w);

#endif
