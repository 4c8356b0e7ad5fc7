/*
 * bench.c - holdfast bench: what a store costs, beside flock(2) on the same machine in the same
 * run.
 */
#include "cli.h"

#include "holdfast_driver.h"
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIR_US = 400000, HANDOVER_US = 600000, CHECK_EVERY = 64 };

/* Something to take and give back: a key of a store, or a file by flock(2). */
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
            return hf_fail(err, HF_UNAVAILABLE, errno, "flock: %s", strerror(errno));
    return 0;
}

static int give(struct lockable *l, hf_lock *lock, hf_error *err)
{
    if (l->store) return hf_release(lock, err);
    return flock(l->fd, LOCK_UN);
}

/* Nanoseconds of an acquire and a release with nobody in the way; -1: *err. */
static double pair_ns(struct lockable *l, hf_error *err)
{
    hf_lock *lock = NULL;
    uint64_t n = 0;
    int64_t began = hf__local_us(), now = began;
    while (now - began < PAIR_US) {
        for (int i = 0; i < (l->store && hf_session_fd(l->store) < 0 ? 1 : CHECK_EVERY); i++, n++)
            if (take(l, &lock, err) || give(l, lock, err)) return -1;
        now = hf__local_us();
    }
    return (double)(now - began) * 1000 / (double)n;
}

/* ---- handover: two processes take turns, each waiting in line for the other ---- */

struct score { /* shared by both */
    uint64_t turns, last, handovers;
};

static void take_turns(struct lockable *l, struct score *score, uint64_t who, int64_t until)
{
    hf_lock *lock = NULL;
    for (int ok = 1; ok && hf__local_us() < until;) {
        ok = !take(l, &lock, NULL);
        if (!ok) break;
        score->turns++;
        if (score->last != who) score->handovers++;
        score->last = who;
        ok = !give(l, lock, NULL);
    }
}

static int open_side(const char *url, const char *path, const char *key, struct lockable *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->fd = -1;
    snprintf(ret->key, sizeof ret->key, "%s", key);
    if (url) return hf_open(*url ? url : NULL, NULL, &ret->store, NULL);
    ret->fd = open(path, O_RDWR | O_CLOEXEC);
    return ret->fd < 0;
}

/* Microseconds per handover between two processes; -1: there were none. Both sides are children, so
   that neither inherits anything of the other. */
static double handover_us(const char *url, const char *path, const char *key, struct score *score)
{
    int64_t until = hf__local_us() + HANDOVER_US;
    pid_t pid[2];
    memset(score, 0, sizeof *score);
    fflush(NULL);
    for (uint64_t who = 0; who < 2; who++) {
        pid[who] = fork();
        if (pid[who] == 0) {
            struct lockable l;
            if (!open_side(url, path, key, &l)) take_turns(&l, score, who + 1, until);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++)
        if (pid[i] > 0) waitpid(pid[i], NULL, 0);
    return score->handovers ? (double)HANDOVER_US / (double)score->handovers : -1;
}

/* ---- the report ---- */

static void report(const struct options *o, const char *what, double ours, double flocks,
                   const char *unit)
{
    if (o->json) {
        char *line = ours < 0 || flocks < 0
                         ? json_fields("{s:s, s:n, s:s}", "what", what, "value", "unit", unit)
                         : json_fields("{s:s, s:f, s:f, s:f, s:s}", "what", what, "value", ours,
                                       "flock", flocks, "ratio", ours / flocks, "unit", unit);
        if (line) fputs(line, stdout);
        free(line);
    } else if (ours < 0 || flocks < 0) {
        printf("%-40s could not be measured\n", what);
    } else {
        printf("%-40s %10.1f %s; flock %.1f %s: x %.2f\n", what, ours, unit, flocks, unit,
               ours / flocks);
    }
}

static int measure(const struct options *o, hf *store, const char *path)
{
    struct lockable ours = {.store = store, .fd = -1}, theirs = {.fd = -1};
    hf_error err;
    snprintf(ours.key, sizeof ours.key, "holdfast-bench/%ld", (long)getpid());
    theirs.fd = open(path, O_RDWR | O_CLOEXEC);
    double a = pair_ns(&ours, &err);
    if (a < 0) return failed(&err);
    double b = pair_ns(&theirs, &err);
    close(theirs.fd);
    report(o, "acquire and release, nobody in the way", a, b, "ns");
    const char *url = store_url ? store_url : "";
    struct score *score =
        mmap(NULL, sizeof *score, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strncmp(hf_store_url(store), "mem:", 4) || score == MAP_FAILED) return 0;
    double c = handover_us(url, path, ours.key, score);
    double d = handover_us(NULL, path, ours.key, score);
    report(o, "handover between two processes", c, d, "us");
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
    char path[] = "/tmp/holdfast-bench-XXXXXX";
    watch_for_damage();
    status = open_store(NULL, HF_FOREVER, &store);
    if (status) return status;
    int fd = mkstemp(path);
    if (fd < 0) {
        say("%s: %s", path, strerror(errno));
        status = EXIT_INTERNAL;
    } else {
        close(fd);
        progress_begin("measuring");
        status = measure(&o, store, path);
        progress_end();
        unlink(path);
    }
    hf_close(store);
    return status ? status : finish_output();
}
