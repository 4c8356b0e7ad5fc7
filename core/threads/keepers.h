/*
 * keepers.h - the threads that keep the sessions of a handle alive (stores with hf_session_ops).
 *
 * Each of them keeps one session at a time, so that a request that hangs delays no other session.
 * The first is started with the first session, another one whenever all others are at work and
 * there is a session that nobody is keeping. The handle's mutex protects all of it.
 */
#ifndef HF_KEEPERS_H
#define HF_KEEPERS_H

#include "session.h"

/* No thread is left but the caller's, and those that this ends. */
void hf__keepers_close(struct hf_sessions *all);
/* A session was made, or is to be kept at another time. Under the mutex. Returns 0: there is no
   thread that would keep it. */
int hf__kick_keepers(struct hf_sessions *all);

#endif
