/*
 * parked.c - what waits cost that nobody ends: threads, connections, memory, work and requests per
 * second; and how long it takes to serve them all.
 *
 *     parked URL WAITS KEYS HANDLES SECONDS serve|leave
 *
 * WAITS acquisitions are started by HANDLES handles, in turns, for KEYS keys that another one holds
 * (of another process, unless the store is private to one). `leave`: nobody is served in the end.
 * $HOLDFAST_TEST_COUNT may be a command that tells how many requests the server has had.
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KEYS_CAP = 100000, HANDLES_CAP = 100 };

static const char *url;
static pid_t run;
static hf_lock *held[KEYS_CAP];
static long served; /* atomic */

/* On a server those of an earlier run may still be held. */
static const char *key_of(long i)
{
    static char key[64];
    snprintf(key, sizeof key, "parked/%d/%ld", (int)run, i);
    return key;
}

/* With a lease there would be something to renew meanwhile. */
static void hold(hf *store, long keys)
{
    hf_error err;
    hf_options options = HF_OPTIONS_INIT;
    if (strncmp(url, "mem:", 4) != 0 && strncmp(url, "file:", 5) != 0) options.lease_ms = 3600000;
    for (long i = 0; i < keys; i++)
        bench_ok(hf_acquire(store, key_of(i), &options, &held[i], &err), &err);
}

static void let_go(long keys)
{
    hf_error err;
    for (long i = 0; i < keys; i++) bench_ok(hf_release(held[i], &err), &err);
}

/* The holder in a process of its own: says that it holds, waits to be told to let go. */
static pid_t holder(long keys, int *ret_fd)
{
    int said[2], told[2];
    char c;
    if (pipe(said) || pipe(told)) bench_die("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) bench_die("fork: %s", strerror(errno));
    if (!pid) {
        close(told[1]);
        hf *store = bench_open(url);
        hold(store, keys);
        if (write(said[1], "!", 1) != 1 || read(told[0], &c, 1) < 0) _exit(70);
        let_go(keys);
        hf_close(store);
        _exit(0);
    }
    close(said[1]);
    close(told[0]);
    if (read(said[0], &c, 1) != 1) bench_die("no holder");
    close(said[0]);
    *ret_fd = told[1];
    return pid;
}

static void acquired(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)arg;
    bench_ok(code, err);
    hf_error bad;
    bench_ok(hf_release(lock, &bad), &bad);
    __atomic_add_fetch(&served, 1, __ATOMIC_RELAXED);
}

/* A number of /proc/self[/task/TID]/status. */
static double status_of(const char *path, const char *name)
{
    char line[256];
    double found = -1;
    FILE *f = fopen(path, "re");
    if (!f) bench_die("'%s': %s", path, strerror(errno));
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) found = strtod(line + strlen(name), NULL);
    fclose(f);
    if (found < 0) bench_die("'%s': no %s", path, name);
    return found;
}

/* How often the threads of this process went to sleep so far. */
static double sleeps(void)
{
    double all = 0;
    char path[300];
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) bench_die("/proc/self/task: %s", strerror(errno));
    for (struct dirent *d; (d = readdir(tasks));) {
        if (d->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        all += status_of(path, "voluntary_ctxt_switches:");
    }
    closedir(tasks);
    return all;
}

/* Sockets that lead to somebody else: one of a pair has no name on its other end. */
static double connections(void)
{
    double n = 0;
    DIR *open_ones = opendir("/proc/self/fd");
    if (!open_ones) bench_die("/proc/self/fd: %s", strerror(errno));
    for (struct dirent *d; (d = readdir(open_ones));) {
        struct sockaddr_storage to;
        socklen_t len = sizeof to;
        if (getpeername((int)strtol(d->d_name, NULL, 10), (struct sockaddr *)&to, &len)) continue;
        n += to.ss_family != AF_UNIX || len > sizeof to.ss_family;
    }
    closedir(open_ones);
    return n;
}

static double asked(hf *const *store, long handles)
{
    double all = 0;
    for (long i = 0; i < handles; i++) {
        hf_stats s = {.size = sizeof s};
        if (hf_get_stats(store[i], &s)) bench_die("hf_get_stats: failed");
        all += (double)s.store_ops;
    }
    return all;
}

/* How many requests the server has had, if there is a command that tells; or -1. */
static double served_there(void)
{
    const char *command = getenv("HOLDFAST_TEST_COUNT");
    char line[64];
    FILE *f = command ? popen(command, "re") : NULL;
    if (!f) return -1;
    char *got = fgets(line, sizeof line, f);
    if (pclose(f) || !got) bench_die("'%s' says nothing", command);
    return strtod(line, NULL);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void print(const char *name, const char *unit, double v)
{
    struct series s = bench_series(name, 1);
    bench_add(&s, v);
    bench_print(&s, unit);
}

static void idle_for(long seconds)
{
    struct timespec t = {seconds, 0};
    while (nanosleep(&t, &t) && errno == EINTR) continue;
}

/* What they cost while nothing happens: after `settle` seconds, in which whatever begins late, or
   looks once more, has done so. */
static void measure(hf *const *store, long handles, long settle, long seconds, double before_kb)
{
    idle_for(settle);
    double there = served_there(), ops = asked(store, handles);
    double cpu = cpu_ms(), slept = sleeps();
    idle_for(seconds);
    cpu = cpu_ms() - cpu;
    slept = sleeps() - slept - 2; /* this thread's own */
    ops = asked(store, handles) - ops;
    if (there >= 0) there = served_there() - there;
    double kb = status_of("/proc/self/status", "VmRSS:");
    print("threads", "", status_of("/proc/self/status", "Threads:"));
    print("connections", "", connections());
    print("memory", "MB", kb / 1024);
    print("memory of the waits", "MB", (kb - before_kb) / 1024);
    print("cpu a second", "ms", cpu / (double)seconds);
    print("wakeups a second", "", slept > 0 ? slept / (double)seconds : 0);
    print("requests a second", "", ops / (double)seconds);
    if (there >= 0) print("served a second", "", there / (double)seconds);
}

int main(int argc, char **argv)
{
    if (argc != 7) bench_die("usage: parked URL WAITS KEYS HANDLES SECONDS serve|leave");
    url = argv[1];
    run = getpid();
    long n = bench_number(argv[2], 1, 10000000), keys = bench_number(argv[3], 1, KEYS_CAP);
    long handles = bench_number(argv[4], 1, HANDLES_CAP), seconds = bench_number(argv[5], 1, 600);
    int private = !strncmp(url, "mem:", 4), leave = !strcmp(argv[6], "leave"), fd = -1;
    pid_t child = private ? 0 : holder(keys, &fd);
    hf *other = private ? bench_open(url) : NULL, *store[HANDLES_CAP];
    if (private) hold(other, keys);
    hf_wait **waits = calloc((size_t)n, sizeof *waits);
    if (!waits) bench_die("out of memory");
    double before_kb = status_of("/proc/self/status", "VmRSS:");
    for (long i = 0; i < handles; i++) store[i] = bench_open(url);
    hf_error err;
    int64_t start = bench_ns();
    for (long i = 0; i < n; i++)
        bench_ok(hf_acquire_start(store[i % handles], key_of(i % keys), NULL, acquired, NULL,
                                  &waits[i], &err),
                 &err);
    for (long i = 0; i < keys; i++)
        bench_await_waiters(store[0], key_of(i), (size_t)(keys > 1 || n < handles ? 1 : handles));
    double parked_ms = (double)(bench_ns() - start) / 1e6;
    measure(store, handles, seconds > 1, seconds, before_kb);
    print("parked after", "ms", parked_ms);
    if (leave) { /* the waits go with this process */
        if (child) kill(child, SIGKILL);
        if (child) bench_reap(child, SIGKILL);
        fflush(stdout);
        bench_tidy(getpid());
        _exit(0);
    }
    start = bench_ns();
    if (private)
        let_go(keys);
    else
        close(fd);
    while (__atomic_load_n(&served, __ATOMIC_RELAXED) < n)
        if (bench_ns() - start > INT64_C(60000000000)) bench_die("%ld of %ld served", served, n);
    print("served after", "ms", (double)(bench_ns() - start) / 1e6);
    for (long i = 0; i < n; i++) hf_wait_free(waits[i]);
    for (long i = 0; i < handles; i++) hf_close(store[i]);
    if (private)
        hf_close(other);
    else
        bench_reap(child, 0);
    free(waits);
    return 0;
}
