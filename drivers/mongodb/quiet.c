/*
 * quiet.c - mongodb: keeps the side effects of libmongoc away from the process that loads it, by
 * documented functions only.
 *
 * Contents: is libmongoc here for this module alone; its log; its counters; calls; the end of the
 * program; the start.
 *
 * Log: libmongoc writes to stderr unless a handler is set; there can be one. The handler that is
 * set here drops messages from calls of this module, and passes on all others to libmongoc's
 * default handler. If the program sets a handler later, that gets all messages.
 *
 * Counters: libmongoc keeps statistics in /dev/shm/mongoc-PID, and removes that file when the
 * program ends, but not when it is killed. So the name is removed at the start. libmongoc goes on
 * counting without it.
 *
 * Forks: libmongoc (1.23, for one) has locks of the whole process that each command takes for a
 * moment. So each call is inside the fork gate (kit/fork_gate.h).
 *
 * End: libmongoc cleans up when the program ends (exit), whatever its threads are doing. This
 * module's destructor runs before that. It lets no new call begin, makes the calls under way fail,
 * and waits for them to return.
 *
 * If libmongoc was loaded before this module, the program or another library uses it, too: then its
 * log and its counters are left alone. A libmongoc that is linked into the same library or program
 * as this driver (as in the portable builds) is taken to be there for the driver alone.
 */
#include "link.h"

#include "kit/fork_gate.h"
#include "os.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifndef __APPLE__
#include <link.h>
#include <sys/sysmacros.h>
#endif

enum { END_MS = 1000 };

/* ---- is it here for this module alone ---- */

/* Returns 1 if libmongoc and this driver are one object, or if this module was loaded before
   libmongoc: the dynamic linker lists objects in the order in which it has loaded them. In a
   program that is linked statically dladdr finds no object. */
static int loaded_for_us(void)
{
    Dl_info ours, theirs;
    if (!dladdr((void *)(uintptr_t)hf__mg_start, &ours) ||
        !dladdr((void *)(uintptr_t)mongoc_get_version, &theirs) ||
        ours.dli_fbase == theirs.dli_fbase)
        return 1;
#ifdef __APPLE__
    return 0; /* the order isn't known: the program may use it, too */
#else
    void *module = dlopen(ours.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;
    int found = 0;
    if (!module || dlinfo(module, RTLD_DI_LINKMAP, &map)) map = NULL;
    for (; map && !found; map = map->l_next)
        found = map->l_addr == (ElfW(Addr))(uintptr_t)theirs.dli_fbase;
    if (module) dlclose(module);
    return found;
#endif
}

/* ---- its log ---- */

static __thread unsigned depth; /* how many calls of hf__mg_begin this thread hasn't ended */

static void pass_on(mongoc_log_level_t level, const char *domain, const char *message, void *arg)
{
    if (!depth) mongoc_log_default_handler(level, domain, message, arg);
}

/* ---- its counters ---- */

/* Returns 1 if this process has mapped that file. A file of that name may belong to a process that
   has the same pid in another PID namespace. */
static int is_mapped(const struct stat *file)
{
    char line[512];
    int found = 0;
    FILE *maps = hf__fopen("/proc/self/maps");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned major_n, minor_n;
        unsigned long inode;
        found = sscanf(line, "%*s %*s %*s %x:%x %lu", &major_n, &minor_n, &inode) == 3 &&
                makedev(major_n, minor_n) == file->st_dev && inode == file->st_ino;
    }
    if (maps) fclose(maps);
    return found;
}

static void remove_counters(void)
{
    char path[48];
    struct stat file;
    snprintf(path, sizeof path, "/dev/shm/mongoc-%u", (unsigned)getpid());
    /* Not shm_unlink, which older versions of glibc have in a separate library. */
    if (!lstat(path, &file) && is_mapped(&file)) unlink(path);
}

/* ---- calls ---- */

static unsigned under_way; /* how many threads are in calls (atomic) */
static int ends;           /* 1: the program ends (atomic) */

/* Counts the call first and reads `ends` after that. before_cleanup sets `ends` first and reads the
   count after that. So at least one of the two sees the other. */
int hf__mg_begin(void)
{
    hf__gate_begin();
    if (depth++) return 1;
    __atomic_add_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&ends, __ATOMIC_SEQ_CST)) return 1;
    hf__mg_end();
    return 0;
}

void hf__mg_end(void)
{
    if (!--depth) __atomic_sub_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
    hf__gate_end();
}

/* Corrects the count in the child of a fork, which has none of its parent's other threads. */
static void in_child(void)
{
    __atomic_store_n(&under_way, depth != 0, __ATOMIC_SEQ_CST);
    hf__mg_streams_forget();
}

/* ---- the end of the program ---- */

/* Returns how many other threads are in calls. This thread may be in one, too: a callback of
   libmongoc may have called exit. */
static unsigned others(void)
{
    return __atomic_load_n(&under_way, __ATOMIC_SEQ_CST) - (depth != 0);
}

static __attribute__((destructor)) void before_cleanup(void)
{
    const struct timespec pause = {0, 1000000};
    int64_t until_us = hf__local_us() + END_MS * INT64_C(1000);
    __atomic_store_n(&ends, 1, __ATOMIC_SEQ_CST);
    if (others()) hf__mg_streams_stop();
    while (others() && hf__local_us() < until_us) nanosleep(&pause, NULL);
}

/* ---- the start ---- */

static void start(void)
{
    mongoc_init();
    pthread_atfork(NULL, NULL, in_child);
    if (!loaded_for_us()) return;
    mongoc_log_set_handler(pass_on, NULL);
    remove_counters();
}

void hf__mg_start(void)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;
    pthread_once(&started, start);
}
