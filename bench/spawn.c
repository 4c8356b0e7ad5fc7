/*
 * spawn.c - how long a command takes, from posix_spawn to its end: `true` alone, under flock(1),
 * under `holdfast run`; in turns. Microseconds.
 *
 *     spawn HOLDFAST URL FILE RUNS
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static double run_us(char *const *argv)
{
    pid_t pid;
    int64_t start = bench_ns();
    int rc = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
    if (rc) bench_die("%s: %s", argv[0], strerror(rc));
    bench_reap(pid, 0);
    return (double)(bench_ns() - start) / 1e3;
}

int main(int argc, char **argv)
{
    enum { CASES = 3 };
    if (argc != 5) bench_die("usage: spawn HOLDFAST URL FILE RUNS");
    long runs = bench_number(argv[4], 1, 100000);
    char true_[] = "true", flock_[] = "flock", run[] = "run", s[] = "-S", key[] = "bench",
         end[] = "--";
    char *alone[] = {true_, NULL};
    char *flocked[] = {flock_, argv[3], true_, NULL};
    char *held[] = {argv[1], run, s, argv[2], key, end, true_, NULL};
    char *const *cases[CASES] = {alone, flocked, held};
    struct series series[CASES] = {bench_series("true", (size_t)runs),
                                   bench_series("flock true", (size_t)runs),
                                   bench_series("holdfast run true", (size_t)runs)};
    int fd = open(argv[3], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) bench_die("'%s': %s", argv[3], strerror(errno));
    close(fd);
    for (int i = 0; i < CASES; i++) run_us(cases[i]); /* makes the store, fills the caches */
    for (long r = 0; r < runs; r++)
        for (int i = 0; i < CASES; i++) bench_add(&series[i], run_us(cases[i]));
    for (int i = 0; i < CASES - 1; i++) bench_print_ratio(&series[CASES - 1], &series[i]);
    for (int i = 0; i < CASES; i++) bench_print(&series[i], "us");
    return 0;
}
