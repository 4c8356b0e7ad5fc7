/*
 * lock_suite.h - what the lock suites share. They run over any store: the URL is the first
 * argument.
 */
#ifndef LOCK_SUITE_H
#define LOCK_SUITE_H

#include "holdfast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

extern const char *suite_url;

hf *suite_open(void);
/* A key that no other test uses. Borrowed, valid for 64 further calls. */
const char *suite_key(const char *name);
int64_t suite_ms(void);     /* CLOCK_BOOTTIME */
int suite_is_private(void); /* the store is one process's memory */
/* Returns 1 if the store tells whether a process lives, so that it isn't polled. Others have
   leases. */
int suite_has_sessions(void);
/* Returns a lease of `ms`, or the shortest one that this store keeps (tests/servers/common.sh). */
int64_t suite_lease(int64_t ms);
/* A lease for a process that is going to be killed: 0 where its death is noticed, else short. */
int64_t suite_short_lease(void);

extern hf_error suite_error; /* pass &suite_error as err */

#define OK(call)                                                                        \
    do {                                                                                \
        int rc_ = (call);                                                               \
        if (rc_)                                                                        \
            fail_msg("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call, hf_code_name(rc_), \
                     suite_error.text);                                                 \
    } while (0)
#define IS(code, call) assert_string_equal(hf_code_name(code), hf_code_name(call))

/*
 * A machine may be slow, or stand still for seconds, without anything being wrong. So an event is
 * waited for (SUITE_PATIENCE_MS is for one that never comes). A thing that must hold for some time
 * is tried with longer times (suite_longer), and a thing that must be quick has to be quick once
 * (suite_quick).
 */
enum { SUITE_PATIENCE_MS = 600000 };
/* A waiter that is granted a key has at least this time to claim it. */
enum { SUITE_CLAIM_MS = 1000 };
/* Plays `round` with a time, and with four times as much for as long as it returns 1: the machine
   was too slow. A real mistake shows with longer times, too. */
void suite_longer(int (*round)(int64_t ms), int64_t ms);
/* Plays `round` until it has taken no longer than that. `round` returns how long it took, in ms, or
   -1 if that isn't known. */
void suite_quick(int64_t (*round)(void), int64_t at_most_ms);
/* Defines a test of such a round. */
#define SUITE_LONGER(test, round, ms) \
    static void test(void **state)    \
    {                                 \
        (void)state;                  \
        suite_longer(round, ms);      \
    }
#define SUITE_QUICK(test, round, ms) \
    static void test(void **state)   \
    {                                \
        (void)state;                 \
        suite_quick(round, ms);      \
    }

/* Waits until `key` has this many waiters in the store's queue. */
void suite_await_waiters(hf *store, const char *key, size_t n);
size_t suite_waiters(hf *store, const char *key);
size_t suite_holders(hf *store, const char *key);

/* Forks while no other thread runs in this process. A child has the locks that other threads had
   taken, and no thread to unlock them. The library looks after its own locks, and libc after
   malloc's. A sanitizer's locks are taken whenever a thread starts, ends or allocates. */
pid_t suite_fork(void);

int suite_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n, const char *name);

#endif
