/*
 * raw_file.c - a page of a file that is written in place, and synced if it has to be on disk.
 */
#include "bench.h"
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };

static int to, synced;
static char page[PAGE];

static void write_it(void)
{
    page[0]++;
    if (pwrite(to, page, PAGE, 0) != PAGE || (synced && fdatasync(to)))
        bench_die("a page of a file: %s", strerror(errno));
}

static void open_it(const char *url, int durable)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.raw", url + strlen("file:"));
    to = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (to < 0) bench_die("'%s': %s", path, strerror(errno));
    synced = 0;
    write_it();
    if (fsync(to)) bench_die("'%s': %s", path, strerror(errno));
    synced = durable;
}

const struct raw raw_file = {"file", open_it, write_it, NULL};
