/*
 * file_slow.c - the `file:` driver where the disk takes its time: a growth that signals interrupt.
 */
#include "file_common.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static int struck; /* how often the timer did */
static int ticks;  /* a timer does so in each call, unless its signal waits */

int __real_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n)
{
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (ticks && (struck < 3 || sigismember(&blocked, SIGALRM) != 1)) {
        struck++;
        errno = EINTR;
        /* So that it ends here if it would go on for ever. */
        return struck < 1000 ? -1 : __real_fallocate64(fd, mode, at, n);
    }
    return __real_fallocate64(fd, mode, at, n);
}

/* ---- signals ---- */

static void a_signal_doesnt_end_a_growth(void **state)
{
    sigset_t before, after;
    hf_error err;
    (void)state;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    ticks = 1;
    int rc = open_code(url_text, &err);
    ticks = 0;
    if (rc) fail_msg("%s", err.text);
    assert_int_equal(struck, 3);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int sig = 1; sig < SIGRTMAX; sig++)
        assert_int_equal(sigismember(&after, sig), sigismember(&before, sig));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_signal_doesnt_end_a_growth, new_path),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
