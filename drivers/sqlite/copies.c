/*
 * copies.c - sqlite: finds another copy of SQLite in this process. See files.c for why that
 * matters.
 */
#include "os.h"
#include "store.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns 1 if this process's memory from `from` to `to` has a text that every copy of SQLite has.
   `mem` is /proc/self/mem: to read a file doesn't crash if the memory is unmapped meanwhile. */
static int is_sqlite(int mem, uint64_t from, uint64_t to)
{
    /* written as letters, so that the search doesn't find the text in this driver */
    static const char magic[] = {'S', 'Q', 'L', 'i', 't', 'e', ' ', 'f', 'o', 'r', 'm', 'a', 't'};
    enum { CHUNK = 65536 };
    char *piece = malloc(CHUNK);
    int found = 0;
    while (piece && !found && from < to) {
        ssize_t n = pread(mem, piece, to - from < CHUNK ? to - from : CHUNK, (off_t)from);
        if (n <= 0) break;
        const char *at = memmem(piece, (size_t)n, magic, sizeof magic);
        found = at && at + sizeof magic + 3 <= piece + n && !memcmp(at + sizeof magic, " 3", 3);
        if (n <= (ssize_t)sizeof magic + 3) break;
        from += (uint64_t)n < to - from ? (uint64_t)n - sizeof magic - 3 : (uint64_t)n;
    }
    free(piece);
    return found;
}

/* Returns a hash of the names of all mapped files, which changes when libraries are loaded; 0: not
   known. */
static uint64_t mapped_objects(void)
{
    char line[1200], *path;
    uint64_t sum = 0;
    FILE *f = hf__fopen("/proc/self/maps");
    while (f && fgets(line, sizeof line, f))
        if ((path = strchr(line, '/'))) sum += hf_key_hash(path, strlen(path)) | 1;
    if (f) fclose(f);
    return sum;
}

static int search(char *to, size_t cap)
{
    char *line = NULL, path[1024];
    size_t n = 0;
    int found = 0, mem = hf__open("/proc/self/mem", O_RDONLY, 0);
    FILE *f = hf__fopen("/proc/self/maps");
    unsigned long from, end, offset;
    char how[8];
    Dl_info own = {NULL, NULL, NULL, NULL};
    struct stat mine, s;
    dladdr((void *)(uintptr_t)sqlite3_libversion, &own);
    int known = own.dli_fname && !stat(own.dli_fname, &mine);
    while (known && f && !found && getline(&line, &n, f) > 0) {
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %1023[^\n]", &from, &end, how, &offset, path) !=
            5)
            continue;
        if (path[0] != '/' || how[0] != 'r' || how[1] == 'w') continue;
        if (!stat(path, &s) && s.st_dev == mine.st_dev && s.st_ino == mine.st_ino)
            found = !offset && from != (uintptr_t)own.dli_fbase; /* our copy's file, loaded twice */
        else
            found = is_sqlite(mem, from, end);
        if (found) snprintf(to, cap, "%.*s", (int)cap - 1, path);
    }
    free(line);
    if (f) fclose(f);
    if (mem >= 0) close(mem);
    return found;
}

/* A search takes some milliseconds, so it is repeated only if other files are mapped. */
int hf__sq_second_copy(char *to, size_t cap)
{
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t objects;
    static char copy[300];
    uint64_t now = mapped_objects();
    pthread_mutex_lock(&mu);
    if (!now || now != objects) {
        if (!search(copy, sizeof copy)) copy[0] = 0;
        objects = now;
    }
    int found = copy[0] != 0;
    if (found) snprintf(to, cap, "%s", copy);
    pthread_mutex_unlock(&mu);
    return found;
}
