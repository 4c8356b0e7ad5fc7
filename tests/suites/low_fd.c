/*
 * low_fd.c - a program whose descriptors 0, 1 and 2 are closed uses a store (its URL): no
 * descriptor of ours is one of them, what the program prints harms nothing, and the store is whole
 * afterwards.
 */
#include "holdfast_driver.h"
#include "os.h"
#include "scratch.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *url;

/* Returns 1 if none of the three is open, except the /dev/null that SQLite puts there. */
static int all_closed(void)
{
    static const char text[] = "what a program prints while its standard output is closed";
    struct stat null, s;
    if (stat("/dev/null", &null)) return 0;
    for (int fd = 0; fd < 3; fd++) {
        if (write(fd, text, sizeof text) >= 0 || errno != EBADF) return 0;
        /* What hf_low_hold puts there while another thread's request is under way is O_PATH. */
        int flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && !(flags & O_PATH) && !fstat(fd, &s) && s.st_rdev != null.st_rdev)
            return 0;
    }
    return 1;
}

static void done(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)arg, (void)code, (void)err;
    if (lock) hf_release(lock, NULL);
}

/* Does everything that opens something: the store, its threads, a wait, a loss descriptor, an
   event. Returns the number of the step that failed, or 0. */
static int use_with_closed_descriptors(void)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock, *second;
    hf_wait *wait;
    hf_once once;
    hf *h, *other;
    for (int fd = 0; fd < 3; fd++) close(fd);
    if (!all_closed()) return 1;
    if (hf_open(url, NULL, &h, NULL) || hf_open(url, NULL, &other, NULL)) return 2;
    if (!all_closed()) return 3;
    o.lease_ms = 60000;
    if (hf_acquire(h, "low", &o, &lock, NULL)) return 4;
    int lost_fd = hf_lost_fd(lock);
    if (lost_fd < 3 || !all_closed()) return 5;
    /* A wait, so that all that waits need is opened and used. */
    if (hf_acquire_start(other, "low", &o, done, NULL, &wait, NULL)) return 6;
    o.wait_ms = 300;
    if (hf_acquire(other, "low", &o, &second, NULL) != HF_TIMEOUT) return 7;
    if (!all_closed()) return 8;
    struct pollfd p = {lost_fd, POLLIN, 0};
    if (poll(&p, 1, 0)) return 9;
    if (hf_confirm(lock, NULL)) return 10;
    if (hf_release(lock, NULL)) return 11;
    hf_wait_free(wait);
    o.wait_ms = 10000;
    if (hf_once_begin(other, "event", 60000, &o, &once, NULL)) return 12;
    if (once.lock && hf_once_finish(once.lock, "r", 60000, NULL)) return 13;
    if (!all_closed()) return 14;
    hf_close(h);
    hf_close(other);
    return all_closed() ? 0 : 15;
}

static void returns_0_in_a_child(int (*what)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(what());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void descriptors_are_above_2(void **state)
{
    hf_lock *lock;
    hf_error err;
    hf *h;
    (void)state;
    returns_0_in_a_child(use_with_closed_descriptors);
    assert_int_equal(hf_open(url, NULL, &h, &err), 0);
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 10000;
    assert_int_equal(hf_acquire(h, "low", &o, &lock, &err), 0);
    assert_int_equal(hf_release(lock, &err), 0);
    hf_close(h);
}

/* ---- the helpers themselves, in a child ---- */

static int helpers_keep_above_2(void)
{
    for (int fd = 0; fd < 3; fd++) close(fd);
    int fd = hf__fd_above(eventfd(0, EFD_CLOEXEC));
    if (fd < 3 || !(fcntl(fd, F_GETFD) & FD_CLOEXEC) || !all_closed()) return 1;
    fd = hf__open("/proc/self/stat", O_RDONLY, 0);
    if (fd < 3 || !(fcntl(fd, F_GETFD) & FD_CLOEXEC) || !all_closed()) return 2;
    FILE *f = hf__fopen("/proc/self/stat");
    if (!f || fileno(f) < 3 || !all_closed()) return 3;
    errno = 0;
    if (hf__open("/proc/self/nothing", O_RDONLY, 0) != -1 || errno != ENOENT) return 4;
    if (hf__fopen("/proc/self/nothing") || errno != ENOENT) return 5;
    errno = EMFILE;
    if (hf__fd_above(-1) != -1 || errno != EMFILE) return 6;
    /* While they are held they can't be written. What the program opens there meanwhile stays. */
    if (dup2(fd, 1) != 1) return 7;
    hf_low_hold();
    if (fcntl(0, F_GETFD) < 0) return 8;
    if (write(2, "x", 1) != -1 || errno != EBADF || fcntl(2, F_GETFD) < 0) return 9;
    if (dup2(fd, 2) != 2) return 10;
    hf_low_free();
    if (fcntl(0, F_GETFD) != -1 || fcntl(1, F_GETFD) < 0 || fcntl(2, F_GETFD) < 0) return 11;
    return 0;
}

static pthread_barrier_t met;

static void *hold_until_met(void *arg)
{
    hf_low_hold();
    pthread_barrier_wait(&met);
    pthread_barrier_wait(&met);
    hf_low_free();
    return arg;
}

/* A child of fork, while another thread holds them and this one has once. */
static int child_frees_its_own(void)
{
    hf_low_hold();
    hf_low_free();
    if (fcntl(0, F_GETFD) < 0) return 1; /* this thread's first hold */
    hf_low_free();
    return fcntl(0, F_GETFD) < 0 ? 0 : 2;
}

/* The first that ends doesn't close them under the other, be it the first or the last to begin. */
static int helpers_keep_above_2_in_two_threads(void)
{
    int status;
    pthread_t other;
    for (int fd = 0; fd < 3; fd++) close(fd);
    if (pthread_barrier_init(&met, NULL, 2)) return 1;
    hf_low_hold();
    if (pthread_create(&other, NULL, hold_until_met, NULL)) return 2;
    pthread_barrier_wait(&met);
    pid_t pid = fork();
    if (!pid) _exit(child_frees_its_own());
    if (waitpid(pid, &status, 0) != pid || status) return 3;
    hf_low_free();
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) return 4;
    hf_low_hold();
    pthread_barrier_wait(&met);
    pthread_join(other, NULL);
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) return 5;
    hf_low_free();
    return fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0 ? 0 : 6;
}

static void the_helpers(void **state)
{
    (void)state;
    returns_0_in_a_child(helpers_keep_above_2);
    returns_0_in_a_child(helpers_keep_above_2_in_two_threads);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_are_above_2),
        cmocka_unit_test(the_helpers),
    };
    url = scratch(argc > 1 ? argv[1] : "file:@");
    if (!url) return 1;
    return TEST_MAIN(tests);
}
