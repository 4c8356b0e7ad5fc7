/*
 * worlds.c - one store's file used by forked processes, by containers and under other clocks.
 *
 * A hold belongs to the process that took it: not to its children, nor to a process with the same
 * number in another container or later on.
 */
#include "hurt.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *url; /* of the test's store */

static void fresh(const char *name) { url = hurt_url(hurt_path("%s", name)); }

static hf_options one_try(void)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    return o;
}

/* The key must become free. */
static void becomes_free(const char *key)
{
    hf *h;
    hf_lock *lock;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 20000; /* less than the time between two polls of a waiter */
    OK(hf_open(url, NULL, &h, &hurt_error));
    OK(hf_acquire(h, key, &o, &lock, &hurt_error));
    OK(hf_release(lock, &hurt_error));
    hf_close(h);
}

/* ---- fork ---- */

static int see_none(void *arg, const hf_info *info)
{
    (void)info;
    *(int *)arg = 1;
    return 0;
}

static void never(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)code, (void)lock, (void)err;
    *(int *)arg = 1;
}

static void lose(void *arg, hf_lock *lock)
{
    (void)lock;
    *(int *)arg = 1;
}

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* In the child of a fork each call with the parent's lock or wait returns LOST. */
static const char *all_lost(hf_lock *lock, hf_wait *wait)
{
    hf_error err = {0};
    int called = 0;
    if (hf_renew(lock, 0, &err) != HF_LOST) return "renew";
    if (!strstr(err.text, "fork")) return "the text";
    if (hf_confirm(lock, &err) != HF_LOST) return "confirm";
    if (hf_enter(lock, NULL, &err) != HF_LOST) return "enter";
    if (hf_left_ms(lock) != 0) return "left_ms";
    if (hf_lost_fd(lock) != -1) return "lost_fd";
    if (hf_on_lost(lock, lose, &called) != HF_LOST) return "on_lost";
    if (hf_once_finish(lock, "", 60000, &err) != HF_LOST) return "once_finish";
    if (hf_lost_reason(lock, &err) != HF_LOST) return "lost_reason";
    hf_wait_cancel(wait);
    hf_wait_free(wait);
    if (hf_release(lock, &err) != HF_LOST) return "release";
    return called ? "a callback was called" : NULL;
}

/* The parent's handle opens the store anew, whichever function is called first. */
static const char *works(hf *h, int first)
{
    hf_lock *l = NULL;
    hf_wait *w = NULL;
    hf_once once = {0};
    hf_options o = one_try();
    hf_stats stats = {.size = sizeof stats};
    const char *keys[] = {"a", "b"};
    hf_lock *both[2];
    uint64_t n = 0;
    int called = 0, told = 0, rc = 0;
    switch (first % 8) {
    case 0: rc = hf_acquire_all(h, keys, 2, &o, both, &hurt_error); break;
    case 1: rc = hf_acquire_start(h, "mine", &o, never, &told, &w, &hurt_error); break;
    case 2: rc = hf_once_begin(h, "event", 60000, &o, &once, &hurt_error); break;
    case 3: rc = hf_peek(h, "key", see_none, &called, &hurt_error); break;
    case 4: rc = hf_list(h, "", see_none, &called, &hurt_error); break;
    case 5: rc = hf_prune(h, 60000, &n, &hurt_error); break;
    case 6: rc = hf_get_stats(h, &stats); break;
    default: rc = hf_session_fd(h) >= 0 ? 0 : HF_LOST;
    }
    if (rc) return "its first call";
    hf_wait_free(w);
    if (hf_acquire(h, "key", &o, &l, &hurt_error) != HF_BUSY) return "the parent's key is free";
    if (hf_acquire(h, "child", &o, &l, &hurt_error)) return hurt_error.text;
    if (hf_confirm(l, &hurt_error) || hf_left_ms(l) <= 0) return "its lock";
    if (hurt_is_free(url, "child")) return "its key is free";
    if (hf_release(l, &hurt_error)) return "release";
    return hurt_is_free(url, "child") ? NULL : "its key isn't free";
}

static void a_forked_handle_opens_its_store_anew(void **state)
{
    (void)state;
    hf *h;
    hf_lock *lock;
    hf_wait *wait;
    hf_options o = HF_OPTIONS_INIT;
    int status, called = 0, ended = 0;
    fresh("forked");
    struct hurt_child *other = hurt_holder(url, "other", NULL);
    OK(hf_open(url, NULL, &h, &hurt_error));
    OK(hf_acquire(h, "key", NULL, &lock, &hurt_error));
    hf_on_lost(lock, lose, &called);
    OK(hf_acquire_start(h, "other", &o, never, &ended, &wait, &hurt_error));
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (!pid) {
            alarm(60);
            if (chdir("/")) _exit(2); /* as a daemon does */
            const char *wrong = all_lost(lock, wait);
            if (!wrong) wrong = works(h, i);
            if (!wrong) wrong = all_lost(lock, wait);
            if (wrong) fprintf(stderr, "# in the child: %s\n", wrong);
            if (i % 2) hf_close(h);
            /* Ends with all exit handlers, except where a leak checker would wait for the
               allocator's locks, which a thread of the parent may have held. */
            if (i % 10 == 0 && !SANITIZED) exit(wrong ? 1 : 0);
            _exit(wrong ? 1 : 0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        OK(hf_confirm(lock, &hurt_error));
    }
    assert_false(hurt_is_free(url, "key"));
    assert_int_equal(called, 0);
    hf_wait_free(wait);
    OK(hf_release(lock, &hurt_error));
    assert_true(hurt_is_free(url, "key"));
    hf_close(h);
    hurt_free(other);
}

static int own_handle(struct hurt_child *me, void *arg)
{
    hf *h;
    hf_lock *lock;
    hf_error err;
    hf_options o = one_try();
    (void)arg;
    int rc = hf_open(url, NULL, &h, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    rc = hf_acquire(h, "key", &o, &lock, &err);
    if (rc != HF_BUSY) return hurt_say(me, "%s", rc ? err.text : "its parent's key was granted");
    rc = hf_acquire(h, "mine", &o, &lock, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    hf_close(h);
    return 0;
}

static void a_child_may_have_its_own(void **state)
{
    (void)state;
    hf *h;
    hf_lock *lock;
    fresh("own");
    OK(hf_open(url, NULL, &h, &hurt_error));
    OK(hf_acquire(h, "key", NULL, &lock, &hurt_error));
    hurt_run(own_handle, NULL, 10000);
    OK(hf_confirm(lock, &hurt_error));
    hf_close(h);
}

struct busy {
    hf *h;
    int stop;
};

static void *be_busy(void *arg)
{
    struct busy *b = arg;
    hf_lock *lock;
    while (!__atomic_load_n(&b->stop, __ATOMIC_RELAXED))
        if (!hf_acquire(b->h, "busy", NULL, &lock, NULL)) hf_release(lock, NULL);
    return NULL;
}

/* Whatever the other threads are doing, the child starts clean. */
static void fork_while_threads_work(void **state)
{
    (void)state;
    struct busy b = {0};
    pthread_t threads[2];
    fresh("threads");
    OK(hf_open(url, NULL, &b.h, &hurt_error));
    struct hurt_child *holder = hurt_holder(url, "key", NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, be_busy, &b), 0);
    for (int i = 0; i < 100; i++) hurt_run(own_handle, NULL, 10000);
    __atomic_store_n(&b.stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    hf_close(b.h);
    hurt_free(holder);
}

/* ---- what a dead holder leaves running ---- */

enum leaving { FORKED, DAEMON, EXECUTED, SPAWNED, VFORKED, PASSED };

static pid_t leave(enum leaving how, hf *h)
{
    static char name[] = "sleep", time[] = "60";
    char *argv[] = {name, time, NULL};
    pid_t pid = 0;
    if (how == PASSED && dup(hf_session_fd(h)) < 0) return -1; /* without close-on-exec */
    if (how == SPAWNED) return posix_spawnp(&pid, name, NULL, NULL, argv, environ) ? -1 : pid;
    if (how == VFORKED) {
        pid = vfork();
        if (!pid) {
            execvp(name, argv);
            _exit(1);
        }
        return pid;
    }
    pid = fork();
    if (pid) return pid;
    if (how == FORKED || how == DAEMON)
        for (;;) pause();
    execvp(name, argv);
    _exit(1);
}

/* Plays a holder that leaves a process behind, whose pid is number[1]. */
static int hold_and_leave(struct hurt_child *me, void *arg)
{
    const enum leaving *how = arg;
    hf *h;
    hf_lock *lock;
    hf_error err;
    int rc = hf_open(url, NULL, &h, &err);
    if (!rc) rc = hf_acquire(h, "key", NULL, &lock, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    if (*how == DAEMON) {
        /* The daemon's way: fork, setsid, fork, the middle one goes. */
        pid_t middle = fork();
        if (!middle) {
            setsid();
            pid_t pid = leave(DAEMON, h);
            me->number[1] = (uint64_t)pid;
            _exit(0);
        }
        waitpid(middle, NULL, 0);
    } else {
        me->number[1] = (uint64_t)leave(*how, h);
    }
    if ((pid_t)me->number[1] <= 0) return hurt_say(me, "starting another: %s", strerror(errno));
    __atomic_store_n(&me->at, 1, __ATOMIC_RELEASE);
    for (;;) pause();
}

static void what_is_left(enum leaving how)
{
    struct hurt_child *c;
    fresh("left");
    c = hurt_start(hold_and_leave, &how);
    hurt_until(c, 1);
    pid_t left = (pid_t)c->number[1];
    assert_false(hurt_is_free(url, "key"));
    hurt_kill(c);
    assert_int_equal(kill(left, 0), 0); /* it lives */
    if (how == PASSED) assert_false(hurt_is_free(url, "key"));
    if (how != PASSED) becomes_free("key");
    assert_int_equal(kill(left, SIGKILL), 0);
    while (waitpid(left, NULL, 0) < 0 && errno == EINTR) continue;
    becomes_free("key");
    hurt_free(c);
}

static void a_forked_child_does_not_hold(void **state) { (void)state, what_is_left(FORKED); }
static void a_daemon_does_not_hold(void **state) { (void)state, what_is_left(DAEMON); }
static void an_executed_program_does_not(void **state) { (void)state, what_is_left(EXECUTED); }
static void a_spawned_program_does_not(void **state) { (void)state, what_is_left(SPAWNED); }
static void a_vforked_program_does_not(void **state) { (void)state, what_is_left(VFORKED); }
static void a_passed_session_does(void **state) { (void)state, what_is_left(PASSED); }

/* ---- containers ---- */

/* Starts a child that is process 1 of a PID namespace of its own. */
static struct hurt_child *container(int (*body)(struct hurt_child *me, void *arg), void *arg)
{
    int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    assert_true(own >= 0);
    assert_int_equal(unshare(CLONE_NEWPID), 0);
    struct hurt_child *c = hurt_start(body, arg);
    assert_int_equal(setns(own, CLONE_NEWPID), 0);
    close(own);
    return c;
}

/* Acquires the key, waiting if it is told to, and holds it. number[0]: the token. */
static int hold_as_first(struct hurt_child *me, void *arg)
{
    hf *h;
    hf_lock *lock;
    hf_error err;
    (void)arg;
    if (getpid() != 1 || gettid() != 1) return hurt_say(me, "pid %d", (int)getpid());
    int rc = hf_open(url, NULL, &h, &err);
    if (!rc) rc = hf_acquire(h, "key", NULL, &lock, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    me->number[0] = hf_token(lock);
    __atomic_store_n(&me->at, 1, __ATOMIC_RELEASE);
    for (;;) pause();
}

static int count_waiters(void *arg, const hf_info *info)
{
    *(size_t *)arg = info->n_waiters;
    return 0;
}

/* Two containers have the same thread number: the death of one thread neither frees nor keeps what
   the other holds. */
static void containers_do_not_mix(void **state)
{
    (void)state;
    hf *h;
    size_t waiters = 0;
    uint64_t last = 0;
    int64_t least_us = INT64_MAX;
    fresh("containers");
    OK(hf_open(url, NULL, &h, &hurt_error));
    struct hurt_child *a = container(hold_as_first, NULL);
    hurt_until(a, 1);
    for (int i = 0; i < 20; i++) {
        struct hurt_child *b = container(hold_as_first, NULL);
        for (int64_t end = hurt_us() + 300000000; !waiters; usleep(500)) {
            OK(hf_peek(h, "key", count_waiters, &waiters, &hurt_error));
            assert_true(hurt_us() < end);
        }
        assert_int_equal(b->at, 0); /* it isn't granted while the other one lives */
        assert_false(hurt_is_free(url, "key"));
        assert_true(a->number[0] > last);
        last = a->number[0];
        int64_t start = hurt_us();
        hurt_free(a);
        hurt_until(b, 1);
        if (hurt_us() - start < least_us) least_us = hurt_us() - start;
        waiters = 0;
        a = b;
    }
    assert_true(least_us < 2000000);
    hurt_free(a);
    becomes_free("key");
    hf_close(h);
}

/* Works on other keys and on the held one, until it is killed. */
static int hammer(struct hurt_child *me, void *arg)
{
    hf *h;
    hf_lock *lock;
    hf_error err;
    hf_options o = one_try();
    (void)arg;
    int rc = hf_open(url, NULL, &h, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    for (long i = 1;; i++) {
        rc = hf_acquire(h, "key", &o, &lock, &err);
        if (!rc) me->number[1] = 1;
        rc = hf_acquire(h, i % 2 ? "one" : "two", &o, &lock, &err);
        if (!rc) rc = hf_release(lock, &err);
        if (rc) return hurt_say(me, "%s", err.text);
        __atomic_store_n(&me->at, i, __ATOMIC_RELEASE);
    }
}

/* The process is killed at any point, also where a robust futex would have marked the other's lock
   as its own. */
static void a_neighbour_dies_at_work(void **state)
{
    (void)state;
    fresh("neighbour");
    struct hurt_child *b = container(hold_as_first, NULL);
    hurt_until(b, 1);
    for (int i = 0; i < 100; i++) {
        struct hurt_child *a = container(hammer, NULL);
        hurt_until(a, 1 + (long)hurt_below(50));
        hurt_kill(a);
        if (a->number[1]) fail_msg("round %d: it got the key that another holds", i);
        hurt_free(a);
        if (hurt_is_free(url, "key")) fail_msg("round %d: the key is free", i);
        assert_true(hurt_is_free(url, "one") && hurt_is_free(url, "two"));
    }
    assert_int_equal(b->at, 1);
    hurt_free(b);
    becomes_free("key");
}

/* ---- the same number again ---- */

enum { NUMBER = 300 };

/* A fork that gets this process number. */
static pid_t fork_as(pid_t number)
{
    char text[16];
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    int n = snprintf(text, sizeof text, "%d", (int)number - 1);
    if (fd < 0 || write(fd, text, (size_t)n) != n) return -1;
    close(fd);
    return fork();
}

static int one_of_many(struct hurt_child *me, long round)
{
    hf *h;
    hf_lock *lock;
    hf_error err;
    hf_options o = one_try();
    if (getpid() != NUMBER) return hurt_say(me, "pid %d, not %d", (int)getpid(), NUMBER);
    int rc = hf_open(url, NULL, &h, &err);
    if (!rc) rc = hf_acquire(h, "key", &o, &lock, &err);
    if (rc) return hurt_say(me, "round %ld: %s", round, err.text);
    if (hf_token(lock) <= me->number[0]) return hurt_say(me, "a token went back");
    me->number[0] = hf_token(lock);
    __atomic_store_n(&me->at, round, __ATOMIC_RELEASE);
    for (;;) pause();
}

/* Plays process 1 of a namespace, whose children acquire the key one after the other. */
static int same_number(struct hurt_child *me, void *arg)
{
    (void)arg;
    for (long round = 1; round <= 20; round++) {
        pid_t pid = fork_as(NUMBER);
        if (pid < 0) return hurt_say(me, "choosing a pid: %s", strerror(errno));
        if (!pid) _exit(one_of_many(me, round));
        while (__atomic_load_n(&me->at, __ATOMIC_ACQUIRE) < round) {
            if (waitpid(pid, NULL, WNOHANG) == pid) return 1;
            usleep(100);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return 0;
}

static void numbers_come_again(void **state)
{
    (void)state;
    fresh("numbers");
    struct hurt_child *c = container(same_number, NULL);
    hurt_await(c, 20000);
    if (c->status || c->late) fail_msg("at %ld: %s", c->at, c->text);
    hurt_free(c);
}

/* ---- clocks ---- */

static int open_elsewhen(struct hurt_child *me, void *arg)
{
    const char *offset = arg;
    hf *h;
    hf_error err;
    int fd, status;
    if (unshare(CLONE_NEWTIME)) return hurt_say(me, "unshare: %s", strerror(errno));
    fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, offset, strlen(offset)) < 0)
        return hurt_say(me, "timens_offsets: %s", strerror(errno));
    close(fd);
    pid_t pid = fork();
    if (!pid) {
        int rc = hf_open(url, NULL, &h, &err);
        me->number[0] = (uint64_t)(int64_t)rc;
        hurt_say(me, "%s", rc ? err.text : "");
        if (!rc) hf_close(h);
        _exit(0);
    }
    return waitpid(pid, &status, 0) != pid || status;
}

/* Clocks that differ would end each other's leases: refused in words. */
static void other_clocks_are_refused(void **state)
{
    (void)state;
    static const char *const offsets[] = {"boottime 100000 0", "boottime -20 0", "monotonic 5 0"};
    fresh("clocks");
    struct hurt_child *holder = hurt_holder(url, "key", NULL);
    for (size_t i = 0; i < 3; i++) {
        struct hurt_child *c = hurt_start(open_elsewhen, (void *)(uintptr_t)offsets[i]);
        hurt_await(c, 10000);
        if (c->late || c->signal || c->status) fail_msg("%s: %s", offsets[i], c->text);
        if ((int)(int64_t)c->number[0] != HF_UNSUPPORTED || !strstr(c->text, "time namespace") ||
            !strstr(c->text, hurt_path("clocks")))
            fail_msg("%s: %d: %s", offsets[i], (int)(int64_t)c->number[0], c->text);
        hurt_free(c);
    }
    assert_int_equal(holder->at, 1);
    assert_false(hurt_is_free(url, "key"));
    hurt_free(holder);
    assert_true(hurt_is_free(url, "key"));
}

/* Orphans become children of this program, which ends them. */
static int adopt_orphans(void **state)
{
    (void)state;
    return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_handle_opens_its_store_anew),
        cmocka_unit_test(a_child_may_have_its_own),
        cmocka_unit_test(fork_while_threads_work),
        cmocka_unit_test(a_forked_child_does_not_hold),
        cmocka_unit_test(a_daemon_does_not_hold),
        cmocka_unit_test(an_executed_program_does_not),
        cmocka_unit_test(a_spawned_program_does_not),
        cmocka_unit_test(a_vforked_program_does_not),
        cmocka_unit_test(a_passed_session_does),
        cmocka_unit_test(containers_do_not_mix),
        cmocka_unit_test(a_neighbour_dies_at_work),
        cmocka_unit_test(numbers_come_again),
        cmocka_unit_test(other_clocks_are_refused),
    };
    return HURT_MAIN(argc, argv, tests, adopt_orphans, NULL);
}
