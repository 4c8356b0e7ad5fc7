/*
 * limit.c - the time limit of a wait, and the end: when this process ends even if its store doesn't
 * answer.
 *
 * The limit of -w covers the opening of the store and the wait for all keys. After the limit, or
 * after a signal, more requests are made: the last look, the withdrawal, the release of other keys,
 * the close. All of them together get LIMIT_END_MS. On `file:` there is no such end, because that
 * store always answers.
 */
#include "cli.h"

#include "os.h"

#include <limits.h>

static int64_t limit_us = INT64_MAX; /* local time */
static int64_t end_us = INT64_MAX;   /* local time; INT64_MAX: none */

void limit_begin(int64_t wait_ms)
{
    if (wait_ms <= 0) return;
    limit_us = hf__local_us() + wait_ms * 1000;
    end_us = limit_us + LIMIT_END_MS * 1000;
}

int64_t limit_left_ms(void)
{
    if (limit_us == INT64_MAX) return HF_FOREVER;
    int64_t left_us = limit_us - hf__local_us();
    return left_us > 0 ? (left_us + 999) / 1000 : 0;
}

void limit_end_in(int64_t ms)
{
    int64_t at_us = hf__local_us() + ms * 1000;
    if (at_us < end_us) end_us = at_us;
}

void limit_no_end(void) { end_us = INT64_MAX; }

int64_t limit_end_left_ms(void)
{
    if (end_us == INT64_MAX) return INT64_MAX;
    int64_t left_us = end_us - hf__local_us();
    return left_us > 0 ? (left_us + 999) / 1000 : 0;
}

int limit_poll_ms(int most_ms)
{
    int64_t left_ms = limit_end_left_ms();
    if (left_ms == INT64_MAX) return most_ms;
    if (most_ms >= 0 && most_ms < left_ms) return most_ms;
    return left_ms < INT_MAX ? (int)left_ms : INT_MAX;
}

int done_by_end(void (*body)(void *arg), void *arg)
{
    int64_t left_ms = limit_end_left_ms();
    if (!left_ms) return 0;
    if (left_ms != INT64_MAX) return done_within(left_ms, body, arg);
    body(arg);
    return 1;
}
