/*
 * yield.h - room for others, where the row that is free is his who writes first.
 */
#ifndef HF_YIELD_H
#define HF_YIELD_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_port;
struct hf_wait;

/* Before a write of ours to that row: have we let it alone for long enough? */
int hf__yield_due(const struct hf_port *port, struct hf_entry *e, int64_t now_us);
/* Before the first look: 1: not yet, but at look_at_us. A try doesn't wait for anybody. */
int hf__yields_first(struct hf_wait *w);

#endif
