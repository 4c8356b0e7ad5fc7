/*
 * held_sessions.h - the sessions that locks hold with and waits stand in line with. Under the
 * mutex.
 */
#ifndef HF_HELD_SESSIONS_H
#define HF_HELD_SESSIONS_H

#include "session.h"

struct hf_wait;

/* It is over; it ends sooner than was said before: so are, and do, what hangs on it. */
void hf__session_lost(hf *h, const struct hf_session *s);
void hf__session_ends_sooner(hf *h, const struct hf_session *s);

/* The store says that a session which this wait wrote with is dead. The mutex is dropped. */
void hf__recheck_sessions(hf *h, struct hf_wait *w);
/* For a hold that is released but kept taken for what is left of at_least_ms: a session of its own,
   which isn't kept alive. None if that time is over. The mutex is dropped. */
int hf__session_for_rest(hf_lock *lock, struct hf_session **ret, hf_error *err);
/* The renewal of such a hold: the session that it should have, and a look whether it is still
   there. The mutex is dropped; the lock is seized. */
int hf__session_renew(hf_lock *lock, uint32_t lease_ms, int by_hand, hf_row *row, hf_error *err);

#endif
