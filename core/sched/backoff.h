/*
 * backoff.h - how long a newcomer pauses before it asks again, if many clients want one key. Pure:
 * no clock; the caller passes the random numbers.
 *
 * Each write of a key's row makes all other writes of that row that are on their way fail with a
 * conflict. A holder, a granted waiter, and a queued waiter with something to write have to get
 * through: they ask again at once. A newcomer that only wants to enter the queue pauses: a thousand
 * newcomers without pauses would leave no gap in which the holder could release the key. The pause
 * is a random part of a window that doubles with each refusal, as in Ethernet. The window begins
 * with the time that one request takes, so it follows the pace of the store.
 */
#ifndef HF_BACKOFF_H
#define HF_BACKOFF_H

#include <stdint.h>

/* Returns the pause in µs after the nth conflict (from 1). A request takes round_trip_us; `dice` is
   a random number. */
int64_t hf__backoff_conflict_us(unsigned nth, int64_t round_trip_us, uint32_t dice);

/* Returns the pause in µs after the nth answer in a row (from 1) that the queue is full. poll_us:
   the time between two looks of a waiter. */
int64_t hf__backoff_full_us(unsigned nth, int64_t poll_us, uint32_t dice);

/* Returns how many waiters a queue of `cap` places may have for a newcomer to enter it; the
   newcomer has been told `nth` times that the queue is full. The last quarter of the places is only
   for newcomers that were told so. Otherwise a client that has just released the key would take the
   place that became free, again and again, before newcomers that ask seldom by now. Queues of fewer
   than 64 places reserve none. */
uint32_t hf__backoff_room(uint32_t cap, unsigned nth);

#endif
