/*
 * killed.c - a holder is killed while another process waits: milliseconds from the SIGKILL to the
 * waiter's return from hf_acquire.
 *
 *     killed URL KILLS
 */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ASLEEP_NS = 200000 };
#define KEY "killed"

static struct shared {
    int64_t killed_ns, had_ns;
} *shared;

static void tell(int fd)
{
    if (write(fd, "!", 1) != 1) bench_die("write: %s", strerror(errno));
}

/* 0 when the other end is closed. */
static int told(int fd)
{
    char c;
    ssize_t n = read(fd, &c, 1);
    if (n < 0) bench_die("read: %s", strerror(errno));
    return n == 1;
}

static pid_t start(void (*body)(const char *url, int in, int out), const char *url, int *to,
                   int *from)
{
    int in[2], out[2];
    if (pipe(in) || pipe(out)) bench_die("pipe: %s", strerror(errno));
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) bench_die("fork: %s", strerror(errno));
    if (!pid) {
        close(in[1]);
        close(out[0]);
        body(url, in[0], out[1]);
        _exit(0);
    }
    close(in[0]);
    close(out[1]);
    *to = in[1];
    *from = out[0];
    return pid;
}

static void holder(const char *url, int in, int out)
{
    hf_error err;
    hf_lock *lock;
    hf *store = bench_open(url);
    bench_ok(hf_acquire(store, KEY, NULL, &lock, &err), &err);
    tell(out);
    told(in); /* for ever, or until the parent ends */
}

static void waiter(const char *url, int in, int out)
{
    hf_error err;
    hf *store = bench_open(url);
    while (told(in)) {
        hf_lock *lock;
        bench_ok(hf_acquire(store, KEY, NULL, &lock, &err), &err);
        shared->had_ns = bench_ns();
        bench_ok(hf_release(lock, &err), &err);
        tell(out);
    }
    hf_close(store);
}

int main(int argc, char **argv)
{
    if (argc != 3) bench_die("usage: killed URL KILLS");
    long kills = bench_number(argv[2], 1, 1000000);
    shared = bench_shared(sizeof *shared);
    struct series took = bench_series("killed", (size_t)kills);
    int to_waiter, from_waiter;
    pid_t other = start(waiter, argv[1], &to_waiter, &from_waiter);
    hf *store = bench_open(argv[1]);
    for (long i = 0; i < kills; i++) {
        int to, from;
        pid_t victim = start(holder, argv[1], &to, &from);
        if (!told(from)) bench_die("no holder");
        tell(to_waiter);
        bench_await_waiters(store, KEY, 1);
        bench_spin_ns(ASLEEP_NS);
        shared->killed_ns = bench_ns();
        kill(victim, SIGKILL);
        if (!told(from_waiter)) bench_die("the waiter has ended");
        bench_add(&took, (double)(shared->had_ns - shared->killed_ns) / 1e6);
        bench_reap(victim, SIGKILL);
        close(to);
        close(from);
    }
    close(to_waiter);
    close(from_waiter);
    bench_reap(other, 0);
    hf_close(store);
    bench_print(&took, "ms");
    return 0;
}
