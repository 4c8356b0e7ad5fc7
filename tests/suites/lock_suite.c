/*
 * lock_suite.c - what the lock suites share; see lock_suite.h.
 */
#include "lock_suite.h"

#include "scratch.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *suite_url;
hf_error suite_error;

hf *suite_open(void)
{
    hf *h = NULL;
    OK(hf_open(suite_url, NULL, &h, &suite_error));
    return h;
}

const char *suite_key(const char *name)
{
    static char keys[64][96];
    static unsigned n;
    char *key = keys[n % 64];
    snprintf(key, sizeof keys[0], "%s/%d/%u", name, (int)getpid(), n++);
    return key;
}

int64_t suite_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int suite_is_private(void) { return !strncmp(suite_url, "mem:", 4); }

int suite_has_sessions(void) { return suite_is_private() || !strncmp(suite_url, "file:", 5); }

int64_t suite_lease(int64_t ms)
{
    const char *least = getenv("HOLDFAST_TEST_LEASE_MS");
    int64_t least_ms = least ? strtoll(least, NULL, 10) : 0;
    return ms > least_ms ? ms : least_ms;
}

int64_t suite_short_lease(void) { return suite_has_sessions() ? 0 : suite_lease(900); }

struct counts {
    size_t waiters, holders;
};

static int count(void *arg, const hf_info *info)
{
    struct counts *c = arg;
    c->waiters = info->n_waiters;
    c->holders = info->n_holders;
    return 0;
}

size_t suite_waiters(hf *store, const char *key)
{
    struct counts c = {0, 0};
    OK(hf_peek(store, key, count, &c, &suite_error));
    return c.waiters;
}

size_t suite_holders(hf *store, const char *key)
{
    struct counts c = {0, 0};
    OK(hf_peek(store, key, count, &c, &suite_error));
    return c.holders;
}

void suite_await_waiters(hf *store, const char *key, size_t n)
{
    int64_t end = suite_ms() + SUITE_PATIENCE_MS;
    while (suite_waiters(store, key) != n) {
        if (suite_ms() > end)
            fail_msg("'%s': %zu waiters, not %zu", key, suite_waiters(store, key), n);
        usleep(500);
    }
}

void suite_longer(int (*round)(int64_t ms), int64_t ms)
{
    for (; round(ms); ms *= 4)
        if (ms > 5000 + suite_lease(0)) fail_msg("not within %lld ms either", (long long)ms);
}

void suite_quick(int64_t (*round)(void), int64_t at_most_ms)
{
    int64_t took = -1;
    for (int i = 0; i < 15; i++) {
        took = round();
        if (took >= 0 && took <= at_most_ms) return;
    }
    fail_msg("never within %lld ms, at last %lld", (long long)at_most_ms, (long long)took);
}

/* Does this thread of the process sleep? So does one that is gone. */
static int sleeps(const char *name)
{
    char path[300], said[512];
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", name);
    FILE *f = fopen(path, "r");
    if (!f) return 1;
    size_t n = fread(said, 1, sizeof said - 1, f);
    fclose(f);
    said[n] = 0;
    /* behind the process's name, which may have any characters */
    const char *p = strrchr(said, ')');
    return !p || strchr("SZX", p[2]) != NULL;
}

static int others_sleep(void)
{
    char own[24];
    int all = 1;
    snprintf(own, sizeof own, "%d", (int)gettid());
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) fail_msg("/proc/self/task can't be listed");
    for (struct dirent *e; all && (e = readdir(tasks));)
        if (e->d_name[0] != '.' && strcmp(e->d_name, own) != 0) all = sleeps(e->d_name);
    closedir(tasks);
    return all;
}

pid_t suite_fork(void)
{
    for (int64_t end = suite_ms() + SUITE_PATIENCE_MS; !others_sleep(); sched_yield())
        if (suite_ms() > end) fail_msg("some other thread never sleeps");
    return fork();
}

int suite_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n, const char *name)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s URL [PATTERN]\n", argv[0]);
        return 64;
    }
    suite_url = scratch(argv[1]);
    if (!suite_url) return 71;
    setvbuf(stdout, NULL, _IOLBF, 0);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}
