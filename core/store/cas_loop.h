/*
 * cas_loop.h - the compare-and-set loop: one event carried to the store and back. Get, step,
 * replace, again.
 *
 * The loop ends when the answer is true in the store, or when the store couldn't be made to say so
 * before the deadline. It resolves lost replies by sending the same write again, which either lands
 * once or meets its own row; it never concludes from a mere read that a write won't land.
 */
#ifndef HF_CAS_LOOP_H
#define HF_CAS_LOOP_H

#include "port.h"

/*
 * Carries `event` (its now, dead and caps are filled in here; a queue_cap that is there stays).
 * `row` is what the caller believes to be stored if `known`, else it is read first; afterwards it
 * is the row that is stored. until_us: local time after which lost replies and refusals are not
 * tried again (0: one attempt). Where the store has `update`, an event on a row that isn't known is
 * one attempt, unless it asks for the key: such a store has no replies to lose, and has waited
 * itself for as long as it may.
 * Returns:
 *   0            *out is the answer.
 *   HF_UNKNOWN   the write may have landed, or may still land.
 *   HF_CONFLICT  TRY and ENQUEUE only: others always wrote first, until then; of a newcomer, a few
 *                times. wait_schedule.c says when to ask again.
 *   HF_UNBOUND   stores with hf_session_ops, TRY and ENQUEUE only: *out would be the answer, but a
 *                session is needed first (`party`'s for a grant, the event's for a place in the
 *                queue); `row` is what is stored.
 *   else         the store's error: nothing was written.
 */
#define HF_UNBOUND 2
int hf__cas_loop(struct hf_port *port, const hf_rowkey *key, struct hf_event *event, hf_row *row,
                 int known, int64_t until_us, struct hf_outcome *out, hf_error *err);

/*
 * The part of the loop that judges what came of its write, for callers that send the write in
 * another way. `row` is the current row after a conflict, `next` what was to be written, *mine
 * whether an earlier sending of the same write may have landed or may land yet. Returns 0: it is
 * stored. HF_CONFLICT: another row is. HF_UNKNOWN: it may be; the same write is to be sent again,
 * which lands once or meets its own row (*mine is set). Else the error: nothing was written.
 */
int hf__cas_judge(int rc, const hf_row *row, const hf_row *next, int *mine);

/*
 * For a waiter in the queue, or a request that only tries: reads the row, as hf__port_get. A grant
 * that was handed over to the event's request is claimed in the same call where the store can
 * (`update`). Returns 1: it was claimed, and *out is the answer. 0: *row was read, no more. Else
 * the error.
 */
int hf__get_or_claim(struct hf_port *port, const hf_rowkey *key, struct hf_event *event,
                     hf_row *row, struct hf_outcome *out, hf_error *err);

#endif
