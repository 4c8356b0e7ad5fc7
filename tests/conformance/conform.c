/*
 * conform.c - runs the conformance suite on the store of a URL (the argument; "@" in it is a
 * store in a directory that is made for the run and deleted), one test point per promise; and once
 * more through each of the drivers around drivers, unless a second argument is "alone".
 */
#include "conform.h"
#include "drivers.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int points, failed;
static const char *around = "";

static void say(void *arg, const char *promise, const char *why)
{
    (void)arg;
    printf("%sok %d - %s%s%s%s\n", why ? "not " : "", ++points, around, promise, why ? ": " : "",
           why ? why : "");
    fflush(stdout);
}

static void try(const hf_driver *drv, const hf_url *url)
{
    char prefix[HF_CONFORM_PREFIX_CAP];
    hf_error err = {0, 0, ""};
    hf__conform_prefix(prefix);
    int n = hf__conform(drv, url, prefix, say, NULL, &err);
    if (n < 0) say(NULL, "the store is there until the end", err.text);
    failed += n ? 1 : 0;
}

static int erase(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

int main(int argc, char **argv)
{
    static char dir[] = "/tmp/holdfast-conform-XXXXXX";
    char text[300];
    hf_error err = {0, 0, ""};
    hf_url url;
    if (argc < 2 || !mkdtemp(dir)) return 64;
    int before = (int)strcspn(argv[1], "@"), there = argv[1][before] != 0;
    snprintf(text, sizeof text, "%.*s%s%s", before, argv[1], there ? dir : "",
             there ? "/store" : "");
    const hf_driver *drv = hf_url_parse(text, &url, &err) ? NULL : hf__driver(url.scheme, &err);
    if (!drv) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    unsetenv("HOLDFAST_FAULT");
    unsetenv("HOLDFAST_TRACE");
    try(drv, &url);
    if (argc < 3 || strcmp(argv[2], "alone") != 0) {
        around = "no faults: ";
        setenv("HOLDFAST_FAULT", "", 1);
        try(drv, &url);
        unsetenv("HOLDFAST_FAULT");
        around = "traced: ";
        setenv("HOLDFAST_TRACE", "/dev/null", 1);
        try(drv, &url);
    }
    printf("1..%d\n", points);
    nftw(dir, erase, 8, FTW_DEPTH | FTW_PHYS);
    return failed != 0;
}
