/*
 * backoff.h - how long a newcomer among many lets pass before it asks again. Pure: no clock, no
 * chance.
 *
 * Every write to a key's row makes all others that are on their way meet a conflict. A holder, a
 * granted waiter, and a queued waiter with something to write must get through: they ask again at
 * once, always. A newcomer that only wants to enter the queue can wait, and has to: a thousand of
 * them leave no gap in which a holder could release the key. So it lets pass a random part of a
 * window that doubles with each refusal, in units of how long a request takes: as Ethernet does,
 * and for the same reason. So the window follows the pace of the store.
 */
#ifndef HF_BACKOFF_H
#define HF_BACKOFF_H

#include <stdint.h>

/* Returns the pause after the nth refusal (from 1) because others wrote first. A request takes
   round_trip_us; `dice` is random. */
int64_t hf__backoff_conflict_us(unsigned nth, int64_t round_trip_us, uint32_t dice);

/* Returns the pause after the nth answer in a row (from 1) that the queue is full. poll_us: the
   time between two looks of a waiter. */
int64_t hf__backoff_full_us(unsigned nth, int64_t poll_us, uint32_t dice);

/* How many places of `cap` may be taken for a newcomer to enter the queue that was told nth times
   that it is full. The last quarter is for newcomers that were: else a client that has just
   released the key would take the place that this has freed, again and again, before any newcomer
   that looks seldom by now. */
uint32_t hf__backoff_room(uint32_t cap, unsigned nth);

#endif
