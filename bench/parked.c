/*
 * parked.c - what waits cost that nobody ends: threads, memory, work per second; and how long it
 * takes to serve them all.
 *
 *     parked URL WAITS KEYS SECONDS
 *
 * WAITS acquisitions are started for KEYS keys that another handle holds (of another process,
 * unless the store is private to one).
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEYS_CAP = 100000 };

static hf_lock *held[KEYS_CAP];
static long served; /* atomic */

static const char *key_of(long i)
{
    static char key[32];
    snprintf(key, sizeof key, "parked/%ld", i);
    return key;
}

static void hold(hf *store, long keys)
{
    hf_error err;
    for (long i = 0; i < keys; i++)
        bench_ok(hf_acquire(store, key_of(i), NULL, &held[i], &err), &err);
}

static void let_go(long keys)
{
    hf_error err;
    for (long i = 0; i < keys; i++) bench_ok(hf_release(held[i], &err), &err);
}

/* The holder in a process of its own: says that it holds, waits to be told to let go. */
static pid_t holder(const char *url, long keys, int *ret_fd)
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

int main(int argc, char **argv)
{
    if (argc != 5) bench_die("usage: parked URL WAITS KEYS SECONDS");
    const char *url = argv[1];
    long n = bench_number(argv[2], 1, 10000000), keys = bench_number(argv[3], 1, KEYS_CAP);
    long seconds = bench_number(argv[4], 1, 600);
    int private = !strncmp(url, "mem:", 4), fd = -1;
    double before_kb = status_of("/proc/self/status", "VmRSS:");
    pid_t child = private ? 0 : holder(url, keys, &fd);
    hf *other = private ? bench_open(url) : NULL;
    if (private) hold(other, keys);
    hf *store = bench_open(url);
    hf_wait **waits = calloc((size_t)n, sizeof *waits);
    if (!waits) bench_die("out of memory");
    hf_error err;
    int64_t start = bench_ns();
    for (long i = 0; i < n; i++)
        bench_ok(hf_acquire_start(store, key_of(i % keys), NULL, acquired, NULL, &waits[i], &err),
                 &err);
    for (long i = 0; i < keys; i++) bench_await_waiters(store, key_of(i), 1);
    double parked_ms = (double)(bench_ns() - start) / 1e6;
    idle_for(1); /* whatever begins late has begun */
    double cpu = cpu_ms(), slept = sleeps();
    idle_for(seconds);
    cpu = cpu_ms() - cpu;
    slept = sleeps() - slept - 2; /* this thread's own */
    print("threads", "", status_of("/proc/self/status", "Threads:"));
    print("memory", "MB", status_of("/proc/self/status", "VmRSS:") / 1024);
    print("memory of the waits", "MB",
          (status_of("/proc/self/status", "VmRSS:") - before_kb) / 1024);
    print("cpu a second", "ms", cpu / (double)seconds);
    print("wakeups a second", "", slept > 0 ? slept / (double)seconds : 0);
    start = bench_ns();
    if (private)
        let_go(keys);
    else
        close(fd);
    while (__atomic_load_n(&served, __ATOMIC_RELAXED) < n)
        if (bench_ns() - start > INT64_C(60000000000)) bench_die("%ld of %ld served", served, n);
    print("served after", "ms", (double)(bench_ns() - start) / 1e6);
    print("parked after", "ms", parked_ms);
    for (long i = 0; i < n; i++) hf_wait_free(waits[i]);
    free(waits);
    hf_close(store);
    hf_close(other);
    if (child) bench_reap(child, 0);
    return 0;
}
