/*
 * bench.c - see bench.h.
 */
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int64_t bench_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(70);
}

void bench_ok(int rc, const hf_error *err)
{
    if (rc) bench_die("%s", err->text);
}

hf *bench_open(const char *url)
{
    hf *store;
    hf_error err;
    bench_ok(hf_open(url, NULL, &store, &err), &err);
    return store;
}

long bench_number(const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < low || n > high)
        bench_die("'%s': must be %ld to %ld", text, low, high);
    return n;
}

void *bench_shared(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) bench_die("mmap: %s", strerror(errno));
    return p;
}

void bench_spin_ns(int64_t ns)
{
    for (int64_t end = bench_ns() + ns; bench_ns() < end;) continue;
}

static int count_waiters(void *arg, const hf_info *info)
{
    *(size_t *)arg = info->n_waiters;
    return 0;
}

void bench_await_waiters(hf *store, const char *key, size_t n)
{
    hf_error err;
    size_t found = 0;
    /* Ends only what hangs: a look writes nothing, but many waiters take long to get in line. */
    int64_t end = bench_ns() + INT64_C(600000000000);
    for (;;) {
        bench_ok(hf_peek(store, key, count_waiters, &found, &err), &err);
        if (found == n) return;
        if (bench_ns() > end) bench_die("'%s': %zu waiters after 600 s, not %zu", key, found, n);
        struct timespec t = {0, 200000};
        nanosleep(&t, NULL);
    }
}

void bench_tidy(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/mongoc-%d", (int)pid);
    unlink(path); /* mostly there is none */
}

void bench_reap(pid_t pid, int sig)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) bench_die("waitpid: %s", strerror(errno));
    bench_tidy(pid);
    if (sig ? !WIFSIGNALED(status) || WTERMSIG(status) != sig : status != 0)
        bench_die("a child ended with wait status %#x", (unsigned)status);
}

struct series bench_series(const char *name, size_t cap)
{
    struct series s = {name, malloc(cap * sizeof(double)), 0, cap};
    if (!s.v) bench_die("out of memory");
    return s;
}

void bench_add(struct series *s, double v)
{
    if (s->n < s->cap) s->v[s->n++] = v;
}

void bench_round(void (*once)(void), long ms, struct series *to)
{
    int64_t start = bench_ns(), end = start + ms * 1000000, now = start;
    long n = 0;
    for (; now < end; n++) {
        once();
        now = bench_ns();
    }
    bench_add(to, (double)(now - start) / 1e3 / (double)n);
}

void bench_print_ratio(const struct series *a, const struct series *b)
{
    char name[128];
    snprintf(name, sizeof name, "%s / %s", a->name, b->name);
    struct series s = bench_series(name, a->n);
    if (a->n != b->n) bench_die("%s: %zu and %zu samples", name, a->n, b->n);
    for (size_t i = 0; i < a->n; i++) bench_add(&s, a->v[i] / b->v[i]);
    bench_print(&s, "x");
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const struct series *s, double q)
{
    return s->v[(size_t)(q * (double)(s->n - 1) + 0.5)];
}

double bench_median(struct series *s)
{
    if (!s->n) bench_die("%s: nothing was measured", s->name);
    qsort(s->v, s->n, sizeof *s->v, by_size);
    double median = quantile(s, 0.5);
    free(s->v);
    s->v = NULL;
    return median;
}

void bench_print(struct series *s, const char *unit)
{
    if (!s->n) bench_die("%s: nothing was measured", s->name);
    qsort(s->v, s->n, sizeof *s->v, by_size);
    printf("{\"name\": \"%s\", \"unit\": \"%s\", \"n\": %zu, \"min\": %.9g, \"p50\": %.9g, "
           "\"p90\": %.9g, \"p99\": %.9g, \"p999\": %.9g, \"max\": %.9g}\n",
           s->name, unit, s->n, s->v[0], quantile(s, 0.5), quantile(s, 0.9), quantile(s, 0.99),
           quantile(s, 0.999), s->v[s->n - 1]);
    free(s->v);
    s->v = NULL;
}
