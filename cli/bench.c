/*
 * bench.c - holdfast bench: how long locks of a store take, compared with flock(2) on the same
 * machine in the same run.
 */
#include "cli.h"

#include "holdfast_driver.h"
#include "os.h"
#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* how many samples of each lock; they alternate, so that a slow phase of the machine shows in
       both */
    ROUNDS = 7,
    ROUND_US = 60000, /* how long a sample takes */
    /* how many pairs of acquire and release are made between two readings of the clock, if they are
       quick */
    CHECK_EVERY = 64,
    HANDOVERS = 128,       /* how many handovers are measured at most */
    HANDOVER_US = 1500000, /* and for how long at most */
    SETTLE_US = 500        /* how long the waiter has to enter the queue */
};

/* What is measured: a key of a store, or a file with flock(2). */
struct lockable {
    hf *store;
    char key[64];
    int fd;
};

static int take(struct lockable *l, hf_lock **ret, hf_error *err)
{
    if (l->store) return hf_acquire(l->store, l->key, NULL, ret, err);
    while (flock(l->fd, LOCK_EX))
        if (errno != EINTR)
            return hf_fail(err, HF_UNAVAILABLE, errno, "bench: lock its file by flock(2): %s",
                           strerror(errno));
    return 0;
}

static int give(struct lockable *l, hf_lock *lock, hf_error *err)
{
    if (l->store) return hf_release(lock, err);
    if (!flock(l->fd, LOCK_UN)) return 0;
    return hf_fail(err, HF_UNAVAILABLE, errno, "bench: unlock its file by flock(2): %s",
                   strerror(errno));
}

/* Returns the nanoseconds of an acquire and a release without contention; -1: *err says why. */
static double pair_ns(struct lockable *l, hf_error *err)
{
    hf_lock *lock = NULL;
    uint64_t n = 0;
    int64_t began = hf__local_us(), now = began;
    while (now - began < ROUND_US) {
        for (int i = 0; i < (l->store && hf_session_fd(l->store) < 0 ? 1 : CHECK_EVERY); i++, n++)
            if (take(l, &lock, err) || give(l, lock, err)) return -1;
        now = hf__local_us();
    }
    return (double)(now - began) * 1000 / (double)n;
}

/* ---- handovers: from a release to the moment at which the other process holds ---- */

struct exchange {        /* shared by both processes */
    int asks[2];         /* atomic: how often each side has begun to acquire */
    int stop;            /* atomic */
    int64_t released_us; /* when the last holder released; 0: no side has yet */
    size_t n;
    double sample[HANDOVERS]; /* microseconds */
    hf_error err;             /* the error of a side that failed; code 0: none did */
};

/* Called while this side holds the key: waits until the other side is probably in the queue. It
   isn't known for certain: the other side has begun to acquire, and settle_us have passed since. */
static void await_other(struct exchange *x, int other, int before, int64_t settle_us, int64_t until)
{
    while (__atomic_load_n(&x->asks[other], __ATOMIC_SEQ_CST) == before && hf__local_us() < until)
        hf__pause(100);
    hf__pause(settle_us);
}

static int exchange_turns(struct lockable *l, struct exchange *x, int me, int64_t settle_us,
                          int64_t until, hf_error *err)
{
    hf_lock *lock = NULL;
    int rc = 0;
    for (int seen = 0;;) {
        __atomic_add_fetch(&x->asks[me], 1, __ATOMIC_SEQ_CST);
        rc = take(l, &lock, err);
        if (rc) break;
        int64_t now = hf__local_us();
        if (x->released_us && x->n < HANDOVERS) x->sample[x->n++] = (double)(now - x->released_us);
        int last = x->n == HANDOVERS || now >= until || __atomic_load_n(&x->stop, __ATOMIC_SEQ_CST);
        if (last)
            __atomic_store_n(&x->stop, 1, __ATOMIC_SEQ_CST);
        else
            await_other(x, 1 - me, seen, settle_us, until);
        seen = __atomic_load_n(&x->asks[1 - me], __ATOMIC_SEQ_CST);
        x->released_us = hf__local_us();
        rc = give(l, lock, err);
        if (rc || last) break;
    }
    return rc;
}

static int open_file(const char *path, struct lockable *ret, hf_error *err)
{
    ret->fd = hf__open(path, O_RDWR | O_CLOEXEC, 0);
    if (ret->fd >= 0) return 0;
    return hf_fail(err, HF_UNAVAILABLE, errno, "bench: open '%s', the file to lock by flock: %s",
                   path, strerror(errno));
}

static int open_side(const char *url, const char *path, const char *key, struct lockable *ret,
                     hf_error *err)
{
    memset(ret, 0, sizeof *ret);
    ret->fd = -1;
    snprintf(ret->key, sizeof ret->key, "%s", key);
    return url ? hf_open(url, NULL, &ret->store, err) : open_file(path, ret, err);
}

/* Measures handovers between two child processes, each with a handle of its own. */
static void handovers(const char *url, const char *path, const char *key, int64_t settle_us,
                      struct exchange *x)
{
    int64_t until = hf__local_us() + HANDOVER_US;
    pid_t pid[2];
    memset(x, 0, sizeof *x);
    fflush(NULL);
    for (int me = 0; me < 2; me++) {
        pid[me] = fork();
        if (pid[me] == 0) {
            struct lockable l;
            hf_error err;
            if (open_side(url, path, key, &l, &err) ||
                exchange_turns(&l, x, me, settle_us, until, &err)) {
                x->err = err;
                __atomic_store_n(&x->stop, 1, __ATOMIC_SEQ_CST);
            }
            _exit(0);
        }
        if (pid[me] < 0) hf_fail(&x->err, HF_UNAVAILABLE, errno, "fork: %s", strerror(errno));
    }
    for (int i = 0, status; i < 2; i++)
        if (pid[i] > 0 && (waitpid(pid[i], &status, 0) < 0 || status) && !x->err.code)
            hf_fail(&x->err, HF_UNAVAILABLE, ECHILD,
                    "bench: a process that held or waited was killed");
}

/* ---- the report ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct figure {
    double median, low, high; /* of the samples; their middle half is from low to high; median < 0:
                                 there are no samples */
};

static struct figure figure_of(double *sample, size_t n)
{
    qsort(sample, n, sizeof *sample, ascending);
    if (!n) return (struct figure){-1, 0, 0};
    return (struct figure){sample[n / 2], sample[n / 4], sample[n - 1 - n / 4]};
}

static void report(const struct options *o, const char *what, struct figure ours,
                   struct figure flocks, const char *unit)
{
    int bad = ours.median < 0 || flocks.median < 0;
    if (o->json) {
        char *line =
            bad ? json_fields("{s:s, s:n, s:s}", "what", what, "value", "unit", unit)
                : json_fields("{s:s, s:f, s:f, s:f, s:f, s:f, s:s}", "what", what, "value",
                              ours.median, "low", ours.low, "high", ours.high, "flock",
                              flocks.median, "ratio", ours.median / flocks.median, "unit", unit);
        if (line) fputs(line, stdout);
        free(line);
    } else if (bad) {
        printf("%-40s could not be measured\n", what);
    } else {
        printf("%-40s %10.1f %s (half: %.1f to %.1f); flock %.1f %s: x %.2f\n", what, ours.median,
               unit, ours.low, ours.high, flocks.median, unit, ours.median / flocks.median);
    }
}

/* Measures both locks in alternation, so that both are measured under the same load. */
static int measure_pairs(const struct options *o, struct lockable *ours, struct lockable *theirs,
                         double *ret_ns)
{
    double a[ROUNDS], b[ROUNDS];
    hf_error err;
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = pair_ns(ours, &err);
        if (a[i] >= 0) b[i] = pair_ns(theirs, &err);
        if (a[i] < 0 || b[i] < 0) return failed(&err);
    }
    struct figure figure = figure_of(a, ROUNDS);
    report(o, "acquire and release, uncontended", figure, figure_of(b, ROUNDS), "ns");
    *ret_ns = figure.median;
    return 0;
}

/* ---- what else runs ---- */

struct load {
    double busy_s, all_s; /* of all processors since the start of the machine */
    double own_s;         /* of them, this process and its children */
};

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

/* Reads the times; all of them are 0 if the kernel doesn't tell. */
static void read_load(struct load *ret)
{
    /* user, nice, system, idle, iowait, irq, softirq, steal */
    unsigned long long t[8];
    struct rusage own[2];
    double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    memset(ret, 0, sizeof *ret);
    FILE *f = hf__fopen("/proc/stat");
    int n = f ? fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
                       &t[4], &t[5], &t[6], &t[7])
              : 0;
    if (f) fclose(f);
    if (n != 8 || getrusage(RUSAGE_SELF, &own[0]) || getrusage(RUSAGE_CHILDREN, &own[1])) return;
    ret->busy_s = (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) * tick_s;
    ret->all_s = ret->busy_s + (double)(t[3] + t[4]) * tick_s;
    for (int i = 0; i < 2; i++) ret->own_s += seconds(own[i].ru_utime) + seconds(own[i].ru_stime);
}

/* A server on this machine may use one of two processors; more than that is something else. */
static void warn_if_busy(const struct load *from, const struct load *to)
{
    double all = to->all_s - from->all_s;
    double others = to->busy_s - from->busy_s - (to->own_s - from->own_s);
    if (all > 0 && others > 0.6 * all)
        say("other programs used %.0f %% of the processors meanwhile: times and ratios may be far "
            "off; measure again on an idle machine",
            100 * others / all);
}

static int measure(const struct options *o, hf *store, const char *path)
{
    struct lockable ours = {.store = store, .fd = -1}, theirs = {.fd = -1};
    double pair = 0;
    snprintf(ours.key, sizeof ours.key, "holdfast-bench/%ld", (long)getpid());
    hf_error err;
    if (open_file(path, &theirs, &err)) return failed(&err);
    int status = measure_pairs(o, &ours, &theirs, &pair);
    close(theirs.fd);
    if (status) return status;
    struct exchange *x =
        mmap(NULL, 2 * sizeof *x, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strncmp(hf_store_url(store), "mem:", 4) || x == MAP_FAILED) return 0;
    int64_t settle_us = (int64_t)(pair / 1000) * 4;
    if (settle_us < SETTLE_US) settle_us = SETTLE_US;
    handovers(store_url, path, ours.key, settle_us, &x[0]);
    handovers(NULL, path, ours.key, settle_us, &x[1]);
    report(o, "handover to a process that waits", figure_of(x[0].sample, x[0].n),
           figure_of(x[1].sample, x[1].n), "us");
    for (int i = 0; i < 2; i++)
        if (x[i].err.code) return failed(&x[i].err);
    return 0;
}

int bench_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    int status = parse_options(self, TAKES_JSON, argc, argv, &o);
    if (!status) status = want_args(&o, 0, 1, "URL");
    if (!status && o.n_args) status = take_url(o.args[0]);
    if (status) return status < 0 ? finish_output() : status;
    char path[] = "/tmp/holdfast-bench-XXXXXX", unlinked[40];
    watch_for_damage();
    status = open_at_once(&store);
    if (status) return status;
    int fd = mkstemp(path);
    if (fd < 0) {
        say("%s: %s", path, strerror(errno));
        status = EXIT_INTERNAL;
    } else {
        unlink(path); /* at once, so that the file goes away however this process ends */
        snprintf(unlinked, sizeof unlinked, "/proc/self/fd/%d", fd);
        progress_begin("measuring");
        struct load before, after;
        read_load(&before);
        status = measure(&o, store, unlinked);
        read_load(&after);
        progress_end();
        if (!status) warn_if_busy(&before, &after);
        close(fd);
    }
    hf_close(store);
    return status ? status : finish_output();
}
