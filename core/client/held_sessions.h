/*
 * held_sessions.h - the sessions that locks hold with and waits stand in line with. Under the
 * mutex.
 */
#ifndef HF_HELD_SESSIONS_H
#define HF_HELD_SESSIONS_H

#include "session.h"

struct hf_wait;

/* The session has ended, or ends sooner than was known: the grants and requests that are bound to
   it end with it. */
void hf__session_lost(hf *h, const struct hf_session *s);
void hf__session_ends_sooner(hf *h, const struct hf_session *s);

/* Asks the store about the sessions of this wait, because one of them may be dead. Called with the
   mutex, which is released during requests. */
void hf__recheck_sessions(hf *h, struct hf_wait *w);
/* Makes a session of its own, which isn't kept alive, for a hold that is released before
   at_least_ms is over. Makes none if that time is over. Called with the mutex, which is released
   during a request. */
int hf__session_for_rest(hf_lock *lock, struct hf_session **ret, hf_error *err);
/* Renews a hold that is bound to a session: gives it the session that it should have, and checks
   that the row still names it. The lock is seized. Called with the mutex, which is released during
   requests. */
int hf__session_renew(hf_lock *lock, uint32_t lease_ms, int by_hand, hf_row *row, hf_error *err);

#endif
