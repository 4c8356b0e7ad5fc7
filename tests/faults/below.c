/*
 * below.c - the n-th allocation, or system call, of a driver or of its library fails, for n = 1, 2,
 * 3 ... until everything passes: against the real store.
 *
 *     below URL [memory|system [EVERY]]
 *
 * EVERY: only each so-manyth, where a run takes long; another share each time ($HF_LONG: all).
 *
 * Whatever fails: the call says so in words, nothing crashes, and no key is left taken beyond its
 * lease. This program defines the functions itself, so that it reaches what shared libraries call.
 */
#undef _FORTIFY_SOURCE /* it makes some of these functions inline */
#include "holdfast.h"
#include "scratch.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum kind { NONE, MEMORY, SYSTEM };
enum { LEASE_MS = 2000, IO_MS = 1000, RUNS = 100000, EVENTS = 8, EVENT_CAP = 40 };

static long count, fail_at;
static int armed; /* enum kind */
static const char *failed;
static _Thread_local int exempt;

static int fails(enum kind kind, const char *name)
{
    if (exempt || __atomic_load_n(&armed, __ATOMIC_ACQUIRE) != (int)kind) return 0;
    if (__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) != fail_at) return 0;
    __atomic_store_n(&failed, name, __ATOMIC_RELAXED);
    return 1;
}

/* ---- what fails ---- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static int no_memory(const char *name)
{
    if (!fails(MEMORY, name)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return no_memory("malloc") ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return no_memory("calloc") ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return no_memory("realloc") ? NULL : __libc_realloc(p, n); }

#define CALLS(X)                                                                                   \
    X(int, connect, (int fd, __CONST_SOCKADDR_ARG to, socklen_t n), (fd, to, n), ECONNREFUSED)     \
    X(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE)         \
    X(ssize_t, send, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags), EPIPE) \
    X(ssize_t, recv, (int fd, void *to, size_t n, int flags), (fd, to, n, flags), ECONNRESET)      \
    X(int, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms), ENOMEM)                    \
    X(ssize_t, pwrite64, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at),        \
      ENOSPC)                                                                                      \
    X(ssize_t, pread64, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), EIO)              \
    X(int, ftruncate64, (int fd, off_t n), (fd, n), ENOSPC)                                        \
    X(int, fsync, (int fd), (fd), EIO)                                                             \
    X(int, fdatasync, (int fd), (fd), EIO)                                                         \
    X(int, eventfd, (unsigned n, int flags), (n, flags), EMFILE)

#define DEFINE(type, name, params, args, error) \
    type name params;                           \
    type name params                            \
    {                                           \
        static void *real;                      \
        type(*as) params;                       \
        if (fails(SYSTEM, #name)) {             \
            errno = error;                      \
            return -1;                          \
        }                                       \
        if (!real) {                            \
            int before = exempt;                \
            exempt = 1;                         \
            real = dlsym(RTLD_NEXT, #name);     \
            exempt = before;                    \
        }                                       \
        memcpy(&as, &real, sizeof as);          \
        return as args;                         \
    }
CALLS(DEFINE)

/* ---- what is done ---- */

static const char *url;
static hf *other; /* of which nothing fails */
static const char *doing;
static hf_error err;

static int see(void *arg, const hf_info *info)
{
    (void)arg, (void)info;
    return 1;
}

/* Returns the event of run n. It isn't a new one each time, because the listed events would then
   grow faster than n; nor the one that was just marked. */
static void event_of(long n, char ret[EVENT_CAP])
{
    snprintf(ret, EVENT_CAP, "event/%ld", n % EVENTS);
}

static int hold(hf *h, long n)
{
    static const char *const keys[] = {"below/b", "below/a"};
    hf_lock *lock, *two[2], *mine;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    o.lease_ms = LEASE_MS;
    char event[EVENT_CAP];
    hf_once once = {0};
    int rc, released;
    doing = "acquire";
    if ((rc = hf_acquire(h, "below/a", &o, &lock, &err))) return rc;
    doing = "adopt";
    if (!(rc = hf_adopt(h, "below/a", hf_token(lock), &mine, &err))) {
        hf_release(mine, NULL);
        if ((rc = hf_release(lock, &err)) == HF_LOST) rc = 0;
    } else {
        hf_release(lock, NULL);
    }
    if (rc) return rc;
    doing = "acquire_all";
    if ((rc = hf_acquire_all(h, keys, 2, &o, two, &err))) return rc;
    doing = "renew";
    rc = hf_renew(two[0], 0, &err);
    if (!rc) rc = hf_confirm(two[0], &err);
    for (int i = 0; i < 2; i++) {
        if (!rc) doing = "release";
        released = hf_release(two[i], rc ? NULL : &err);
        if (!rc) rc = released;
    }
    if (rc) return rc;
    event_of(n, event);
    doing = "once";
    if ((rc = hf_once_begin(h, event, 1, &o, &once, &err))) return rc;
    return once.lock ? hf_once_finish(once.lock, "done", 1, &err) : 0;
}

static int play(long n)
{
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf *h;
    uint64_t pruned = 0;
    o.io_timeout_ms = IO_MS;
    doing = "open";
    int rc = hf_open(url, &o, &h, &err);
    if (rc) return rc;
    rc = hold(h, n);
    if (!rc) doing = "look";
    if (!rc) rc = hf_peek(h, "below/a", see, NULL, &err);
    if (!rc) rc = hf_list(h, "below/", see, NULL, &err);
    if (!rc) rc = hf_watch(h, "below/", see, NULL, &err);
    if (!rc) rc = hf_prune(h, 60000, &pruned, &err);
    hf_close(h);
    return rc;
}

/* Also the event of the run to come. */
static int all_free(long next)
{
    char event[EVENT_CAP];
    const char *const keys[] = {"below/a", "below/b", event};
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 60 * LEASE_MS;
    event_of(next, event);
    for (size_t i = 0; i < 3; i++) {
        hf_lock *lock;
        if (hf_acquire(other, keys[i], &o, &lock, &err)) return 0;
        if (hf_release(lock, &err)) return 0;
    }
    return 1;
}

static int good_code(int rc)
{
    return rc == HF_NOMEM || rc == HF_UNAVAILABLE || rc == HF_FULL || rc == HF_DENIED ||
           rc == HF_UNKNOWN || rc == HF_LOST || rc == HF_UNSUPPORTED;
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Makes all runs. Returns how many calls there were, of which each `every`-th failed in turn; -1:
   something was wrong, which was printed. */
static long all_runs(enum kind kind, long every)
{
    int again = 0;
    long run = 1;
    for (long n = 1 + (long)getpid() % every; n < RUNS; n += every) {
        int64_t began = now_us();
        count = 0;
        fail_at = n;
        failed = NULL;
        memset(&err, 0, sizeof err);
        __atomic_store_n(&armed, (int)kind, __ATOMIC_RELEASE);
        int rc = play(run++);
        __atomic_store_n(&armed, NONE, __ATOMIC_RELEASE);
        const char *what = failed ? failed : "none";
        hf_error why = err;
        /* The process stood still for longer than the store's time limit; its last request may be
           held. */
        int still =
            rc && !failed && good_code(rc) && now_us() - began > IO_MS * 1000 && again++ < 100;
        /* A part of SQLite's file that can't be read looks damaged. */
        int unread = rc == HF_CORRUPT && !strcmp(what, "pread64");
        if (rc && !still && (!failed || !(unread || good_code(rc)) || strlen(why.text) < 10)) {
            printf("# call %ld (%s), %s: %s: %s\n", n, what, doing, hf_code_name(rc), why.text);
            return -1;
        }
        if (!all_free(run)) {
            printf("# call %ld (%s), %s: not free: %s\n", n, what, doing, err.text);
            return -1;
        }
        if (still)
            n -= every;
        else if (!failed)
            return n - 1;
    }
    printf("# more than %d calls\n", RUNS);
    return -1;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"", "memory", "system"};
    setvbuf(stdout, NULL, _IOLBF, 0);
    long every = argc > 3 && !getenv("HF_LONG") ? strtol(argv[3], NULL, 10) : 1;
    if (every < 1) return 64;
    url = argc > 1 ? scratch(argv[1]) : NULL;
    if (!url || hf_open(url, NULL, &other, &err)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    int bad = 0, point = 0;
    printf("1..%d\n", argc > 2 ? 1 : 2);
    for (int kind = MEMORY; kind <= SYSTEM; kind++) {
        if (argc > 2 && strcmp(argv[2], names[kind]) != 0) continue;
        long n = all_free(0) && !play(0) && all_free(1) ? all_runs((enum kind)kind, every) : -1;
        bad |= n < 5;
        printf("%sok %d - %s: %ld calls failed in turn\n", n < 5 ? "not " : "", ++point,
               names[kind], n);
    }
    hf_close(other);
    return bad;
}
