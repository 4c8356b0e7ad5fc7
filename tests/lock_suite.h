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

#include <cmocka.h>

extern const char *suite_url;

hf *suite_open(void);
/* A key that no other test uses. Borrowed, valid for 64 further calls. */
const char *suite_key(const char *name);
int64_t suite_ms(void);     /* CLOCK_BOOTTIME */
int suite_is_private(void); /* the store is one process's memory */
/* The store tells whether a process lives, and nobody polls it. Others have leases. */
int suite_has_sessions(void);
/* A lease for who is going to be killed: 0 where a death is noticed, else a short one. */
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

/* Waits until `key` has this many waiters in the store's queue; fails after 10 s. */
void suite_await_waiters(hf *store, const char *key, size_t n);
size_t suite_waiters(hf *store, const char *key);
size_t suite_holders(hf *store, const char *key);

int suite_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n, const char *name);

#endif
