/*
 * traced.h - a handle that notes what it asks the store for, and waits that are told of their end.
 */
#ifndef TRACED_H
#define TRACED_H

#include "lock_suite.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline uint64_t asked(hf *h)
{
    hf_stats s = {.size = sizeof s};
    OK(hf_get_stats(h, &s));
    return s.store_ops;
}

enum { PATH_ROOM = 1024 };

/* A handle that notes what it asks for in a file of its own. */
static inline hf *open_traced(char path[PATH_ROOM])
{
    const char *dir = getenv("TMPDIR");
    snprintf(path, PATH_ROOM, "%s/lock_trips.XXXXXX", dir ? dir : "/tmp");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    setenv("HOLDFAST_TRACE", path, 1);
    hf *h = suite_open();
    unsetenv("HOLDFAST_TRACE");
    return h;
}

/* What it has asked for about the key, a letter each: get, replace, acquire, listen. */
static inline const char *traced(const char *path, const char *key)
{
    static char letters[4096];
    char line[8192], op[16], about[600], quoted[600];
    size_t n = 0;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    snprintf(quoted, sizeof quoted, "'%s'", key);
    while (fgets(line, sizeof line, f) && n + 1 < sizeof letters)
        if (sscanf(line, "%*s %15s %599s", op, about) == 2 && !strcmp(about, quoted))
            letters[n++] = op[0];
    fclose(f);
    letters[n] = 0;
    return letters;
}

struct got {
    hf *by;
    hf_lock *lock;
    uint64_t asked; /* by then */
    int code;
    sem_t told;
};

static inline void got(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct got *g = arg;
    if (err) suite_error = *err;
    g->code = code;
    g->lock = lock;
    g->asked = asked(g->by);
    sem_post(&g->told);
}

static inline void await_told(struct got *g)
{
    while (sem_wait(&g->told)) assert_int_equal(errno, EINTR);
    if (g->code) fail_msg("%s: %s", hf_code_name(g->code), suite_error.text);
}

#endif
