/*
 * arena.c - the conformance suite: starts racers, and the memory that they share. See race.h.
 */
#include "race.h"

#include "os.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the arena ---- */

int hf__race_fail(struct hf__racer *r, const char *format, ...)
{
    va_list args;
    if (atomic_fetch_add(&r->arena->reasons, 1)) return 1;
    va_start(args, format);
    vsnprintf(r->arena->why, sizeof r->arena->why, format, args);
    va_end(args);
    /* Last: once this is set, the parent reports the reason, and may kill this process. */
    atomic_store(&r->arena->failed, 1);
    return 1;
}

void hf__race_nap(void)
{
    struct timespec t = {0, 100000};
    nanosleep(&t, NULL);
}

void hf__race_arrive(struct hf__arena *a, int step) { atomic_fetch_add(&a->step[step], 1); }

int hf__race_await(struct hf__arena *a, int step, uint32_t n)
{
    int64_t until = hf__local_us() + HF_RACE_PATIENCE_MS * INT64_C(1000);
    while (atomic_load(&a->step[step]) < n) {
        if (atomic_load(&a->failed) || hf__local_us() > until) return 1;
        hf__race_nap();
    }
    return 0;
}

int hf__race_meet(struct hf__racer *r, int step)
{
    hf__race_arrive(r->arena, step);
    return hf__race_await(r->arena, step, r->n)
               ? hf__race_fail(r, "another is too late for step %d", step)
               : 0;
}

static struct hf__arena *new_arena(void)
{
    void *a = mmap(NULL, sizeof(struct hf__arena), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return a == MAP_FAILED ? NULL : a;
}

const char *hf__with_arena(struct hf__suite *cfm, hf__play_fn *play)
{
    struct hf__arena *a = new_arena();
    if (!a) return hf__bad(cfm, "no memory to share");
    const char *why = play(cfm, a);
    munmap(a, sizeof *a);
    return why;
}

/* ---- the racers ---- */

/* A process that takes longer than this counts as hung. On a busy machine the slowest stores take a
   minute. */
enum { HANGS_S = 240 };

static void run_one(struct hf__racer *r, hf__race_fn *run)
{
    hf_error err = {0, 0, ""};
    int opened = !r->con.st;
    if (opened && hf__con_open(r->cfm, &r->con, &err)) {
        hf__race_fail(r, "%s", hf__why(r->cfm, &err));
        return;
    }
    run(r);
    if (opened) hf__con_close(&r->con);
}

pid_t hf__race_start(struct hf__suite *cfm, struct hf__arena *a, uint32_t n, uint32_t me,
                     hf__race_fn *run)
{
    pid_t parent = getpid(), pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    signal(SIGALRM, SIG_DFL);
    alarm(HANGS_S);
    struct hf__racer r = {cfm, {.st = NULL}, a, n, me};
    run_one(&r, run);
    _exit(0);
}

int hf__race_end(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return status;
}

const char *hf__race_processes(struct hf__suite *cfm, struct hf__arena *a, uint32_t n,
                               hf__race_fn *run)
{
    pid_t pid[HF_RACERS];
    const char *why = NULL;
    for (uint32_t i = 0; i < n; i++) {
        pid[i] = hf__race_start(cfm, a, n, i, run);
        if (pid[i] < 0) why = hf__bad(cfm, "fork: %s", strerror(errno));
    }
    for (uint32_t i = 0; i < n; i++) {
        int status = pid[i] > 0 ? hf__race_end(pid[i]) : 0;
        if (!status || why) continue;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
            why = hf__bad(cfm, "a process wasn't done within %d s", HANGS_S);
        else
            why = hf__bad(cfm, "a process of the check crashed");
    }
    return why ? why : a->failed ? hf__bad(cfm, "%s", a->why) : NULL;
}

struct thread {
    pthread_t id;
    struct hf__racer racer;
    hf__race_fn *run;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    run_one(&t->racer, t->run);
    return NULL;
}

const char *hf__race_threads(struct hf__suite *cfm, struct hf__arena *a, uint32_t n, int share,
                             hf__race_fn *run)
{
    struct thread t[HF_RACERS];
    uint32_t started = 0;
    for (; started < n; started++) {
        struct thread *one = &t[started];
        struct hf__racer r = {cfm, {.st = NULL}, a, n, started};
        if (share && cfm->con.caps.threads) r.con = cfm->con;
        one->racer = r;
        one->run = run;
        if (pthread_create(&one->id, NULL, thread_main, one)) break;
    }
    if (started < n) atomic_store(&a->failed, 1);
    for (uint32_t i = 0; i < started; i++) pthread_join(t[i].id, NULL);
    if (started < n) return hf__bad(cfm, "no more threads");
    return a->failed ? hf__bad(cfm, "%s", a->why) : NULL;
}

int hf__race_get(struct hf__racer *r, const hf_rowkey *key, hf_row *row)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    if (!r->con.drv->get(r->con.st, key, row, &clock, &err)) return 0;
    return hf__race_fail(r, "get: %s", hf__why(r->cfm, &err));
}

int hf__race_replace(struct hf__racer *r, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    int rc = r->con.drv->replace(r->con.st, key, seen, row, cur, &clock, &err);
    if (rc < 0) hf__race_fail(r, "replace: %s", hf__why(r->cfm, &err));
    return rc;
}

int hf__race_create(struct hf__racer *r, const hf_rowkey *key)
{
    hf_error err = {0, 0, ""};
    hf_row row;
    hf_row_init(&row);
    row.done_us = row.keep_until_us = 1;
    return hf__con_create(&r->con, key, &row, &err) ? hf__race_fail(r, "%s", hf__why(r->cfm, &err))
                                                    : 0;
}
