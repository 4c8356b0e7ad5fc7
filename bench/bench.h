/*
 * bench.h - what the benchmarks share. Each program prints one JSON object a line: a name, and the
 * quantiles of what it measured; bench/run makes the table.
 */
#ifndef BENCH_H
#define BENCH_H

#include <holdfast.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int64_t bench_ns(void);
/* Ends the program with status 70 and this line. */
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Ends the program if rc isn't 0. */
void bench_ok(int rc, const hf_error *err);
hf *bench_open(const char *url);
/* A number of an argument, which has to be in [low, high]. */
long bench_number(const char *text, long low, long high);
/* Memory that children of a fork share. */
void *bench_shared(size_t size);
/* libmongoc's counters of a process that was killed, or ended by _exit: nobody else removes them.
 */
void bench_tidy(pid_t pid);
/* Keeps the processor busy for so long: what follows finds the others asleep, not this one. */
void bench_spin_ns(int64_t ns);
/* Waits until `n` stand in the store's queue for the key. */
void bench_await_waiters(hf *store, const char *key, size_t n);
/* Waits for a child, which must end with status 0 (or die of `sig` if that isn't 0); removes what
   it has left behind. */
void bench_reap(pid_t pid, int sig);

/* Samples of one thing. */
struct series {
    const char *name;
    double *v;
    size_t n, cap;
};
struct series bench_series(const char *name, size_t cap);
void bench_add(struct series *s, double v);
/* Calls it for so long, and adds how many microseconds each call took. */
void bench_round(void (*once)(void), long ms, struct series *to);
/* Prints "A / B", sample by sample: what disturbed one round disturbed both. Only before these are
   printed, which sorts them. */
void bench_print_ratio(const struct series *a, const struct series *b);
/* Sorts the samples, frees them. */
double bench_median(struct series *s);
/* Sorts the samples, prints their line, frees them. */
void bench_print(struct series *s, const char *unit);

/* ---- acquire and release, by Holdfast and by others ---- */

struct peer {
    const char *name;
    void (*setup)(const char *dir);
    void (*pairs)(long n); /* n times: take it, give it back */
    void (*finish)(void);
};
extern const struct peer bench_peers[];
extern const size_t bench_peers_n;

#endif
