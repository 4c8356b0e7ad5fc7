/*
 * backoff.h - how long one of a crowd lets pass before it asks again. Pure: no clock, no chance.
 *
 * Every write to a key's row makes all others that are on their way meet a conflict. Who holds, was
 * handed the key, or stands in line and has something to do must get through: it asks again at
 * once, always. Who only wants to get in line can wait, and has to, for a thousand of them leave no
 * gap in which a holder could give the key back. So it lets pass a random part of a window that
 * doubles with each refusal, in units of how long a request takes: as Ethernet does, and for the
 * same reason. A slow store makes itself heard by that length.
 */
#ifndef HF_BACKOFF_H
#define HF_BACKOFF_H

#include <stdint.h>

/* Refused for the nth time (from 1), because others always wrote first; a request takes
   round_trip_us; `dice` is random. */
int64_t hf__backoff_conflict_us(unsigned nth, int64_t round_trip_us, uint32_t dice);

/* Told for the nth time (from 1) that the queue is full; poll_us: between two looks of who waits.
 */
int64_t hf__backoff_full_us(unsigned nth, int64_t poll_us, uint32_t dice);

/* How many may stand in a queue with `cap` places for one who was told so nth times to join them.
   The last quarter is for those who were: else who has just given the key back would take the place
   that this has freed, again and again, before any of those who look seldom by now. */
uint32_t hf__backoff_room(uint32_t cap, unsigned nth);

#endif
