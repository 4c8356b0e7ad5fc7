/*
 * scratch.h - a store of its own for a test: in a URL like "file:@" the @ stands for a file in a
 * new directory, removed when the program ends.
 */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_dir[256], scratch_url[400];
static pid_t scratch_owner;

static int scratch_erase(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void scratch_remove(void)
{
    if (!*scratch_dir || scratch_owner != getpid()) return;
    nftw(scratch_dir, scratch_erase, 4, FTW_DEPTH | FTW_PHYS);
}

/* The URL to use, or NULL. */
static const char *scratch(const char *url)
{
    size_t before = strcspn(url, "@");
    if (!before || url[before - 1] != ':') return url;
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch_dir, sizeof scratch_dir, "%.200s/holdfast-test.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch_dir)) {
        perror(scratch_dir);
        return NULL;
    }
    scratch_owner = getpid();
    atexit(scratch_remove);
    snprintf(scratch_url, sizeof scratch_url, "%.*s%s/locks%s", (int)before, url, scratch_dir,
             url + before + 1);
    return scratch_url;
}

#endif
