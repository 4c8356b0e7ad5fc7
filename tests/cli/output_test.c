/*
 * output_test.c - messages on a busy machine: the process ends before the thread that writes them
 * has run; the thread that shows a line hasn't run since the line was written.
 */
#include "cli.h"
#include "test.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { LOOKS = 6 };

/* The writer writes when the end has looked that often whether it could. */
static int waits, looks; /* atomic */
static int shown;        /* whether a line is (atomic) */
static int shown_then;   /* the same, when it was written */

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    __atomic_fetch_add(&looks, fds->fd == STDERR_FILENO, __ATOMIC_SEQ_CST);
    return __real_poll(fds, n, ms);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    while (fd == STDERR_FILENO && __atomic_load_n(&waits, __ATOMIC_SEQ_CST) &&
           __atomic_load_n(&looks, __ATOMIC_SEQ_CST) < LOOKS)
        usleep(1000);
    if (fd == STDERR_FILENO) shown_then = __atomic_load_n(&shown, __ATOMIC_SEQ_CST);
    return __real_write(fd, bytes, n);
}

static const char line[] = "holdfast: a message\n";

/* Makes standard error a pipe; *ret: a duplicate of the former one. */
static void redirect(int pipe_fds[2], int *ret)
{
    assert_int_equal(pipe(pipe_fds), 0);
    *ret = dup(STDERR_FILENO);
    assert_true(*ret >= 0 && dup2(pipe_fds[1], STDERR_FILENO) >= 0);
}

static void the_end_waits_for_what_can_be_written(void **state)
{
    char got[sizeof line];
    int fds[2], before;
    (void)state;
    redirect(fds, &before);
    __atomic_store_n(&waits, 1, __ATOMIC_SEQ_CST);
    int queued = output_add(line, sizeof line - 1, NULL, NULL);
    output_end();
    dup2(before, STDERR_FILENO);
    assert_true(queued);
    struct pollfd fd = {fds[0], POLLIN, 0};
    assert_int_equal(__real_poll(&fd, 1, 0), 1);
    assert_int_equal(read(fds[0], got, sizeof got), (ssize_t)sizeof line - 1);
    assert_memory_equal(got, line, sizeof line - 1);
}

/* From the moment at which it can be read, a line counts as shown: the next message, of another
   thread, has to erase it. */
static void a_line_that_is_written_counts_as_shown(void **state)
{
    static const int never;
    int fds[2], before;
    (void)state;
    redirect(fds, &before);
    __atomic_store_n(&waits, 0, __ATOMIC_SEQ_CST);
    int queued = output_add(line, sizeof line - 1, &never, &shown);
    output_end();
    dup2(before, STDERR_FILENO);
    assert_true(queued);
    assert_int_equal(shown_then, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_is_written_counts_as_shown),
        cmocka_unit_test(the_end_waits_for_what_can_be_written),
    };
    return TEST_MAIN(tests);
}
