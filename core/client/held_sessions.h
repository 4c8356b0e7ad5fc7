/*
 * held_sessions.h - the sessions of a handle's locks and waits (stores with hf_session_ops). Under
 * the mutex.
 */
#ifndef HF_HELD_SESSIONS_H
#define HF_HELD_SESSIONS_H

#include "session.h"

struct hf_wait;

/* Called when a session has ended: marks its locks as lost, and makes its waits look. */
void hf__session_lost(hf *h, const struct hf_session *s);
/* Called when a session ends sooner than was known: moves the deadlines of its locks. */
void hf__session_ends_sooner(hf *h, const struct hf_session *s);

/* Asks the store about the sessions of this wait, because one of them may be dead, and takes the
   dead ones from the wait. Called with the mutex, which is released during requests. */
void hf__recheck_sessions(hf *h, struct hf_wait *w);
/* Makes the session that keeps the key taken for the rest of at_least_ms after a release; nothing
   keeps it alive. *ret stays as it is if that time is over. Called with the mutex, which is
   released during a request. Returns 0 or the error. */
int hf__session_for_rest(hf_lock *lock, struct hf_session **ret, hf_error *err);
/* Renews a hold that is bound to a session: gives it the session that it should have, and checks
   that the row still names the grant with it. by_hand: the holder has called hf_renew. The lock is
   seized. Called with the mutex, which is released during requests. Returns as hf_renew. */
int hf__session_renew(hf_lock *lock, uint32_t lease_ms, int by_hand, hf_row *row, hf_error *err);

#endif
