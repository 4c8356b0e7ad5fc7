/*
 * look_queue.h - the dispatcher's queue of waits, by their next look. Under the mutex.
 */
#ifndef HF_LOOK_QUEUE_H
#define HF_LOOK_QUEUE_H

#include <stdint.h>

struct hf_wait;

/* When it is to look again, if nothing wakes it before; no later than then. By who drives it (also
   without the mutex), or while nobody looks for it. */
void hf__look_at(struct hf_wait *w, int64_t at_us);
void hf__look_by(struct hf_wait *w, int64_t at_us);
/* Puts the wait where the dispatcher finds it when it is to look next. To be called after any
   change of what that depends on. */
void hf__schedule(struct hf_wait *w);
/* Something may have come about it: the dispatcher, if it drives it, looks before all others. */
void hf__notify(struct hf_wait *w);
/* Something may have come about any key: it looks behind those that are due already. */
void hf__notify_in_turn(struct hf_wait *w);

#endif
