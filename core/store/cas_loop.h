/*
 * cas_loop.h - the compare-and-set loop, which applies one event to the row in the store: get,
 * step, replace, and again after a conflict.
 *
 * The loop ends when the answer is true in the store, or when its time is over. After a lost reply
 * it sends the same write again, which either lands once or meets the row that it wrote before. A
 * read alone never proves that the write won't land later.
 */
#ifndef HF_CAS_LOOP_H
#define HF_CAS_LOOP_H

#include "port.h"

/*
 * Applies `event`, and fills in its now, dead, timeless, holders_cap, and queue_cap if that is 0.
 * `known`: *row is what the caller believes to be stored; otherwise the row is read first.
 * Afterwards *row is the row that is stored. until_us: the local time after which lost replies and
 * conflicts are not tried again (0: one attempt). On a store with `update`, an event on a row that
 * isn't known is a single update, unless it is TRY, ENQUEUE or PROMOTE.
 * Returns:
 *   0            *out is the answer.
 *   HF_UNKNOWN   the write may have landed, or may still land.
 *   HF_CONFLICT  other clients wrote first each time, until until_us. A newcomer to the queue gets
 *                this after a few conflicts (wait_schedule.c plans when to ask again). So does any
 *                event with as_seen, after the first. Otherwise TRY and ENQUEUE only.
 *   HF_UNBOUND   stores with hf_session_ops, TRY and ENQUEUE only: *out would be the answer, but a
 *                session is needed first: `party` needs one for a grant, the event one for a place
 *                in the queue. *row is what is stored.
 *   else         the store's error: nothing was written.
 */
#define HF_UNBOUND 2
int hf__cas_loop(struct hf_port *port, const hf_rowkey *key, struct hf_event *event, hf_row *row,
                 int known, int64_t until_us, struct hf_outcome *out, hf_error *err);

/*
 * Judges the result `rc` of a replace, for the loop and for callers that send the write in another
 * way. `next` is the row that was to be written; `row`, after a conflict, the current one. *mine: 1
 * if an earlier sending of the same write may have landed, or may land yet.
 * Returns:
 *   0            `next` is stored.
 *   HF_CONFLICT  another row is stored.
 *   HF_UNKNOWN   `next` may be stored; send the same write again. *mine is set.
 *   else         the error: nothing was written.
 */
int hf__cas_judge(int rc, const hf_row *row, const hf_row *next, int *mine);

/*
 * Reads the row as hf__port_get does, for a waiter in the queue or a request that only tries. On a
 * store with `update` the same call claims the key, if a handover has granted it to the event's
 * request.
 * Returns: 1: claimed, *out is the answer; 0: the row was read, no more; else the error.
 */
int hf__get_or_claim(struct hf_port *port, const hf_rowkey *key, struct hf_event *event,
                     hf_row *row, struct hf_outcome *out, hf_error *err);

#endif
