/*
 * hurt.c - what the tests of damage share; see hurt.h.
 */
#include "hurt.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A child may be slow: it is only given up when it must be hanging. */
enum { HANG_US = 300000000, PATIENCE = 30, SHOWN = 8 };

hf_error hurt_error;
char hurt_dir[64];

/* ---- the world ---- */

static int give_up(const char *what)
{
    printf("Bail out! %s: %s\n", what, strerror(errno));
    return 1;
}

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Becomes root of a user namespace, unless it is root already. */
static int become_root(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();
    if (!uid) return unshare(CLONE_NEWNS);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return -1;
    snprintf(map, sizeof map, "0 %u 1", uid);
    if (write_text("/proc/self/uid_map", map) || write_text("/proc/self/setgroups", "deny"))
        return -1;
    snprintf(map, sizeof map, "0 %u 1", gid);
    return write_text("/proc/self/gid_map", map);
}

static int make_world(void)
{
    snprintf(hurt_dir, sizeof hurt_dir, "/tmp/holdfast-hurt-XXXXXX");
    if (!mkdtemp(hurt_dir)) return give_up("a directory in /tmp");
    if (become_root()) return give_up("a mount namespace (run as root)");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return give_up("private mounts");
    if (mount("none", hurt_dir, "tmpfs", 0, "size=1g,mode=0755")) return give_up("a tmpfs");
    return 0;
}

/* The directory itself is seen by others, and stands until here. */
static void end_world(void)
{
    umount2(hurt_dir, MNT_DETACH);
    rmdir(hurt_dir);
}

/* Texts live as long as the program. */
static struct kept {
    struct kept *next;
    char text[];
} *kept;

__attribute__((format(printf, 1, 0))) static const char *keep(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    struct kept *k = malloc(sizeof *k + (size_t)n + 1);
    assert_true(n >= 0 && k);
    vsnprintf(k->text, (size_t)n + 1, format, again);
    va_end(again);
    k->next = kept;
    kept = k;
    return k->text;
}

__attribute__((format(printf, 1, 2))) static const char *keep_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = keep(format, args);
    va_end(args);
    return text;
}

const char *hurt_path(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *name = keep(format, args);
    va_end(args);
    return *name == '/' ? name : keep_text("%s/%s", hurt_dir, name);
}

const char *hurt_url(const char *path) { return keep_text("file:%s", path); }

static uint64_t seed, state;

uint64_t hurt_seed(void)
{
    const char *given = getenv("SEED");
    if (seed) return seed;
    seed = given && *given ? strtoull(given, NULL, 0) : 1;
    if (!seed && getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = 1;
    state = seed;
    printf("# SEED=%#llx\n", (unsigned long long)seed);
    return seed;
}

uint64_t hurt_random(void) /* splitmix64 */
{
    if (!seed) hurt_seed();
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t hurt_below(uint64_t n) { return hurt_random() % n; }

long hurt_count(const char *name, long usual)
{
    const char *given = getenv(name);
    return given && *given ? strtol(given, NULL, 0) : usual;
}

int64_t hurt_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int hurt_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n,
              CMFixtureFunction setup, CMFixtureFunction teardown)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (make_world()) return 1;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    int rc = _cmocka_run_group_tests("tests", tests, n, setup, teardown);
    end_world();
    return rc;
}

/* ---- children ---- */

struct hurt_child *hurt_start(int (*body)(struct hurt_child *me, void *arg), void *arg)
{
    struct hurt_child *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c != MAP_FAILED);
    c->status = -1;
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        /* However the test ends, its processes end with it. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* The framework's handlers, and its way of failing, would go on with the next test. */
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};
        for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) signal(deadly[i], SIG_DFL);
        c->status = body(c, arg);
        _exit(0);
    }
    c->pid = pid;
    return c;
}

static void note_end(struct hurt_child *c, int status)
{
    c->pid = 0;
    if (WIFSIGNALED(status)) c->signal = WTERMSIG(status);
    if (WIFEXITED(status) && WEXITSTATUS(status)) c->status = WEXITSTATUS(status);
}

void hurt_await(struct hurt_child *c, int ms)
{
    int64_t end = hurt_us() + (int64_t)ms * 1000 * PATIENCE;
    int status, nap = 20;
    while (c->pid) {
        pid_t pid = waitpid(c->pid, &status, WNOHANG);
        if (pid == c->pid) {
            note_end(c, status);
        } else if (hurt_us() > end) {
            c->late = 1;
            hurt_kill(c);
        } else {
            usleep((useconds_t)nap);
            if (nap < 2000) nap *= 2;
        }
    }
}

void hurt_until(const struct hurt_child *c, long at)
{
    int64_t end = hurt_us() + HANG_US;
    while (__atomic_load_n(&c->at, __ATOMIC_ACQUIRE) < at) {
        siginfo_t info = {0};
        int gone = !waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid;
        if ((gone && __atomic_load_n(&c->at, __ATOMIC_ACQUIRE) < at) || hurt_us() > end)
            fail_msg("the child %s at %ld, before %ld: %s", gone ? "ended" : "hangs", c->at, at,
                     c->text);
        usleep(100);
    }
}

void hurt_kill(struct hurt_child *c)
{
    int status;
    if (!c->pid) return;
    kill(c->pid, SIGKILL);
    if (waitpid(c->pid, &status, 0) == c->pid) note_end(c, status);
}

void hurt_free(struct hurt_child *c)
{
    hurt_kill(c);
    munmap(c, sizeof *c);
}

void hurt_run(int (*body)(struct hurt_child *me, void *arg), void *arg, int ms)
{
    struct hurt_child *c = hurt_start(body, arg), end;
    hurt_await(c, ms);
    end = *c;
    hurt_free(c);
    if (end.late)
        fail_msg("still running after %d times %d ms, at %ld: %s", PATIENCE, ms, end.at, end.text);
    if (end.signal) fail_msg("ended by signal %d, at %ld: %s", end.signal, end.at, end.text);
    if (end.status) fail_msg("status %d, at %ld: %s", end.status, end.at, end.text);
}

int hurt_say(struct hurt_child *me, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(me->text, sizeof me->text, format, args);
    va_end(args);
    return 1;
}

struct each {
    int (*one)(struct hurt_child *me, long i, void *arg);
    void *arg;
    long first, n;
};

static int go_through(struct hurt_child *me, void *arg)
{
    struct each *e = arg;
    for (long i = e->first; i < e->n; i++) {
        __atomic_store_n(&me->at, i, __ATOMIC_RELAXED);
        me->text[0] = 0;
        if (e->one(me, i, e->arg)) return 2;
    }
    return 0;
}

/* Waits for the child to end, or to stay at one place for so long that it counts as hanging. */
static void watch(struct hurt_child *c)
{
    long at = -1;
    int64_t since = hurt_us();
    int status;
    while (c->pid) {
        if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
            note_end(c, status);
            break;
        }
        long now_at = __atomic_load_n(&c->at, __ATOMIC_RELAXED);
        if (now_at != at) since = hurt_us();
        at = now_at;
        if (hurt_us() - since > HANG_US) {
            c->late = 1;
            hurt_kill(c);
        }
        usleep(500);
    }
}

long hurt_each(long n, int (*one)(struct hurt_child *me, long i, void *arg), void *arg)
{
    struct each e = {one, arg, 0, n};
    long failed = 0;
    while (e.first < n) {
        struct hurt_child *c = hurt_start(go_through, &e);
        watch(c);
        if (c->status || c->signal || c->late) {
            if (++failed <= SHOWN)
                printf("# %ld: %s%s%s\n", c->at, c->late ? "hangs " : "",
                       c->signal && !c->late ? strsignal(c->signal) : "", c->text);
            e.first = c->at + 1;
        } else {
            e.first = n;
        }
        hurt_free(c);
    }
    if (failed > SHOWN) printf("# and %ld more\n", failed - SHOWN);
    return failed;
}

struct holding {
    const char *url, *key;
    const hf_options *options;
};

static int hold(struct hurt_child *me, void *arg)
{
    const struct holding *what = arg;
    hf *store;
    hf_lock *lock;
    hf_error err;
    if (hf_open(what->url, NULL, &store, &err)) return hurt_say(me, "%s", err.text);
    if (hf_acquire(store, what->key, what->options, &lock, &err))
        return hurt_say(me, "%s", err.text);
    me->number[0] = hf_token(lock);
    __atomic_store_n(&me->at, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&me->at, __ATOMIC_ACQUIRE) < 2) usleep(500);
    int rc = hf_release(lock, &err);
    if (rc) hurt_say(me, "%s", err.text);
    hf_close(store);
    return rc;
}

struct hurt_child *hurt_holder(const char *url, const char *key, const hf_options *options)
{
    struct holding what = {url, key, options};
    struct hurt_child *c = hurt_start(hold, &what);
    hurt_until(c, 1);
    return c;
}

int hurt_is_free(const char *url, const char *key)
{
    hf *store;
    hf_lock *lock;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    OK(hf_open(url, NULL, &store, &hurt_error));
    int rc = hf_acquire(store, key, &try, &lock, &hurt_error);
    if (rc && rc != HF_BUSY) fail_msg("%s: %s", hf_code_name(rc), hurt_error.text);
    hf_close(store);
    return !rc;
}

/* ---- files ---- */

void hurt_load(struct hurt_image *image, const char *path)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && !fstat(fd, &s));
    image->size = (size_t)s.st_size;
    image->bytes = malloc(image->size ? image->size : 1);
    assert_non_null(image->bytes);
    assert_true(pread(fd, image->bytes, image->size, 0) == (ssize_t)image->size);
    close(fd);
}

void hurt_store(const struct hurt_image *image, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && !ftruncate(fd, (off_t)image->size));
    assert_true(pwrite(fd, image->bytes, image->size, 0) == (ssize_t)image->size);
    close(fd);
}

void hurt_drop(struct hurt_image *image)
{
    free(image->bytes);
    image->bytes = NULL;
}
