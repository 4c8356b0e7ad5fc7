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
/* The store tells whether a process lives, and nobody polls it. Others have leases. */
int suite_has_sessions(void);
/* A lease of so many ms, or as short a one as this store keeps (tests/servers/common.sh). */
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
 * A machine may be slow, or stand still for seconds, and nothing is wrong then. So whatever is
 * going to happen is waited for (SUITE_PATIENCE_MS is for what never does); what must hold within
 * some time is tried with longer times (suite_longer), and what must be quick has to be so once
 * (suite_quick).
 */
enum { SUITE_PATIENCE_MS = 600000 };
/* A waiter that is granted a key has at least so long to claim it. */
enum { SUITE_CLAIM_MS = 1000 };
/* Plays `round` with a time, and with four times as much for as long as it says that the machine
   was too slow for it (1). What is wrong is so with some seconds, too. */
void suite_longer(int (*round)(int64_t ms), int64_t ms);
/* Plays `round` until one has taken no longer than that; it says how long it took, in ms, or -1:
   that it can't be told. */
void suite_quick(int64_t (*round)(void), int64_t at_most_ms);
/* A test that is one of them. */
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

/* Forks while nobody else runs in this process. A child has what the other threads had locked, and
   none of them to unlock it: the library looks after its own locks, libc after malloc's, but a
   sanitizer's are nobody's, and it takes them whenever a thread starts, ends or allocates. */
pid_t suite_fork(void);

int suite_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n, const char *name);

#endif
