/*
 * staged.h - a store in memory whose driver answers what a test wants it to: see staged.c.
 *
 * Link with --wrap=hf__driver: it is the driver of URLs `staged:NAME`. All of them are one store.
 * What a test cues happens to handles of any NAME but `rival`.
 */
#ifndef HF_STAGED_H
#define HF_STAGED_H

#include "handle.h"
#include "holdfast.h"

enum stage_op {
    S_OPEN,
    S_GET,
    S_SWAP,
    S_ACQUIRE,
    S_SCAN,
    S_SYNC,
    S_ENTER,
    S_SESSION,
    S_ALIVE,
    S_MAKE,
    S_KEEP,
    S_LEFT,
    S_END,
    S_LISTEN,
    S_WATCH,
    S_OPS
};

/* INSTEAD: the call isn't made, and returns the code. ALTHOUGH: the call is made, and returns the
   code all the same (its reply is lost). */
enum stage_way { INSTEAD, ALTHOUGH };

/* What a staged store has: groups of operations, a watch of keys; or no queue unless asked for. */
enum stage_has {
    STAGE_LOCAL = 1,
    STAGE_LIVENESS = 2,
    STAGE_WATCHES = 4,
    STAGE_SESSIONS = 8,
    STAGE_NOT_QUEUE = 16
};
/* An empty store that has this (enum stage_has); no cues, no calls. */
void stage(unsigned has);
/* The driver and its groups, for a test that removes or replaces a function of them. */
extern hf_driver stage_driver;
extern hf_notify_ops stage_notify;
extern hf_local_ops stage_local;
extern hf_liveness_ops stage_liveness;
extern hf_session_ops stage_sessions;
/* Does its acquire append waiters, too? Not at first: a store may grant alone. */
extern int stage_appends;

/* Cues n calls of this kind, from the `from`-th one on (1: the next). `first`, if not NULL, is
   called before each, by the thread of the call: it may use the store by a rival. Code 0: the call
   is made. */
void stage_cue(enum stage_op op, int from, int n, enum stage_way way, int code,
               void (*first)(void));
void stage_uncue(void);
extern int stage_sys;                   /* the errno of calls that fail by a cue; 0 at first */
uint64_t stage_calls(enum stage_op op); /* made by others than rivals so far */
void stage_await(enum stage_op op, uint64_t calls);

/* The store's clock goes on from where it is, plus this. */
void stage_step_clock(int64_t us);
/* Makes the store's clock move in steps of `us`. */
void stage_tick_clock(int64_t us);
/* The replies say no clock from here on. */
void stage_hide_clock(int hide);

/* Acts as if the machine had been suspended for `us`. (Link with --wrap=clock_gettime.) */
void stage_suspend(int64_t us);
/* From here on each reading of the local clock moves it on by `us`. (Link with the same.) */
void stage_hurry(int64_t us);
/* From here on no thread can be started. (Link with --wrap=pthread_create.) */
void stage_no_threads(int none);

/* Makes the nth allocation from here on fail, and no other one; 0: none. Returns 1 if the one that
   was set before has failed. (Link with --wrap of malloc, calloc, realloc, strdup.) */
int stage_no_memory(int nth);

/* Returns the row of a key, to look at or to change before another thread sees it; NULL: there is
   none. */
hf_row *stage_row(const char *key);
/* Return how many waiters the key has (UINT32_MAX: it has no row), and a copy of its first holder
   (all zero if it has none). For rows that other threads change meanwhile. */
uint32_t stage_waiting(const char *key);
hf_party stage_first(const char *key);
/* Sets a function that changes each row before a reader sees it; NULL: none. */
void stage_forge(void (*forge)(hf_row *row));
/* Kills every session, of whatever kind, except those made from here on. */
void stage_kill_sessions(void);
void stage_kill(uint64_t session); /* kills this session; no notice of the death is given */
/* Every session but those made from here on is stale, as hf_session_ops has it. */
void stage_make_sessions_stale(void);
/* The first one makes the descriptor report deaths, or not; with the second one there is no
   descriptor. */
void stage_tell_deaths(int readable);
void stage_tells_no_deaths(void);

hf *stage_open(const char *name);
int stage_acquire(hf *h, const char *key, int64_t wait_ms, int64_t lease_ms, unsigned flags,
                  hf_lock **ret);

extern hf_error stage_error;

#define OK(call)                                                                        \
    do {                                                                                \
        int rc_ = (call);                                                               \
        if (rc_)                                                                        \
            fail_msg("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call, hf_code_name(rc_), \
                     stage_error.text);                                                 \
    } while (0)
#define IS(code, call) assert_string_equal(hf_code_name(code), hf_code_name(call))

#endif
