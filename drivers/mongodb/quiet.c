/*
 * quiet.c - mongodb: what libmongoc does to the process that loads it, and how far that is kept
 * from the process. By libmongoc's documented functions only.
 *
 * Contents: is libmongoc here for this module alone; its log; its counters; calls, and forks; the
 * end of the program.
 *
 * Log: libmongoc writes to stderr unless a handler is set, of which it has one. The handler that is
 * set here drops what is said within calls of this module, and passes on everything else to the
 * handler that libmongoc has by itself. A program that sets its own later hears everything.
 *
 * Counters: libmongoc keeps statistics in /dev/shm/mongoc-PID, and removes that file when the
 * program ends, but not when it is killed. So the name is removed at the start. libmongoc goes on
 * counting without it.
 *
 * Forks: libmongoc (1.23 for one) has locks of the whole process that each command takes for a
 * moment. A child of fork finds them as other threads had them, and would wait for ever. So while a
 * thread forks, none of the others is in libmongoc's own code: fork waits until they are in a wait
 * for the network (hf__mg_wait), or outside, and they don't go on before it has returned.
 *
 * End: libmongoc cleans up when the program ends (exit), whatever its threads are doing. This
 * module's destructor runs before: no call begins any more, the calls that are under way fail, and
 * it waits for them to return.
 *
 * Where libmongoc was loaded before this module, the program or another library of it uses it too:
 * then its log and its counters are left alone.
 */
#include "link.h"

#include "os.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { END_MS = 1000, FORK_MS = 2000 };

/* ---- is it here for this module alone ---- */

/* Returns 1 if the dynamic linker has loaded this module before libmongoc. It lists the objects in
   the order in which they were loaded. */
static int loaded_for_us(void)
{
    Dl_info ours, theirs;
    if (!dladdr((void *)(uintptr_t)hf__mg_start, &ours) ||
        !dladdr((void *)(uintptr_t)mongoc_get_version, &theirs))
        return 0;
    void *module = dlopen(ours.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;
    int found = 0;
    if (!module || dlinfo(module, RTLD_DI_LINKMAP, &map)) map = NULL;
    for (; map && !found; map = map->l_next)
        found = map->l_addr == (ElfW(Addr))(uintptr_t)theirs.dli_fbase;
    if (module) dlclose(module);
    return found;
}

/* ---- its log ---- */

static __thread unsigned depth; /* how deep this thread is in calls of this module */

static void pass_on(mongoc_log_level_t level, const char *domain, const char *message, void *arg)
{
    if (!depth) mongoc_log_default_handler(level, domain, message, arg);
}

/* ---- its counters ---- */

/* Returns 1 if this process has mapped this file. Another process's file may have the same name:
   that process has the same pid in another PID namespace. */
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
    char name[32], path[48];
    struct stat file;
    snprintf(name, sizeof name, "/mongoc-%u", (unsigned)getpid());
    snprintf(path, sizeof path, "/dev/shm%s", name);
    if (!lstat(path, &file) && is_mapped(&file)) shm_unlink(name);
}

/* ---- calls, and forks ---- */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* signalled when a fork is over, and when a thread leaves
                                  libmongoc's code */
static unsigned inside;        /* the calls under way, in all threads */
static unsigned waiting;       /* of these, for the network */
static int forks, ends;

/* Under the mutex. Not for a thread that is in libmongoc's code already: a fork waits for that
   thread. */
static void let_forks_pass(void)
{
    while (forks) pthread_cond_wait(&changed, &mu);
}

static void tell_forks(void)
{
    if (forks) pthread_cond_broadcast(&changed);
}

int hf__mg_begin(void)
{
    pthread_mutex_lock(&mu);
    if (!depth) let_forks_pass();
    int begins = depth || !ends;
    if (begins && !depth++) inside++;
    pthread_mutex_unlock(&mu);
    return begins;
}

void hf__mg_end(void)
{
    pthread_mutex_lock(&mu);
    if (!--depth) {
        inside--;
        tell_forks();
    }
    pthread_mutex_unlock(&mu);
}

void hf__mg_wait(void)
{
    int sys = errno;
    pthread_mutex_lock(&mu);
    if (depth) waiting++;
    tell_forks();
    pthread_mutex_unlock(&mu);
    errno = sys;
}

void hf__mg_go_on(void)
{
    int sys = errno;
    pthread_mutex_lock(&mu);
    let_forks_pass();
    if (depth) waiting--;
    pthread_mutex_unlock(&mu);
    errno = sys;
}

/* Where libmongoc has connections of its own (tls_by_libmongoc), it may wait for them, so this
   waits for a limited time. The mutex is kept until fork returns. */
static void before_fork(void)
{
    int64_t until_us = hf__local_us() + FORK_MS * INT64_C(1000);
    pthread_mutex_lock(&mu);
    let_forks_pass();
    forks = 1;
    unsigned mine = depth != 0;
    while (inside - waiting > mine && hf__local_us() < until_us)
        hf__cond_until(&changed, &mu, until_us);
}

static void in_parent(void)
{
    forks = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

/* The child of a fork has none of its parent's threads, and none of their calls. */
static void in_child(void)
{
    forks = 0;
    inside = depth != 0;
    waiting = 0;
    hf__thread_condition(&changed);
    pthread_mutex_unlock(&mu);
}

/* ---- the end of the program ---- */

static __attribute__((destructor)) void before_cleanup(void)
{
    const struct timespec pause = {0, 1000000};
    int64_t until_us = hf__local_us() + END_MS * INT64_C(1000);
    pthread_mutex_lock(&mu);
    ends = 1;
    unsigned others = inside - (depth != 0); /* a callback may call exit */
    pthread_mutex_unlock(&mu);
    if (others) hf__mg_streams_stop();
    while (others && hf__local_us() < until_us) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&mu);
        others = inside - (depth != 0);
        pthread_mutex_unlock(&mu);
    }
}

/* ---- the start ---- */

static void start(void)
{
    mongoc_init();
    hf__thread_condition(&changed);
    /* Before a fork the handler that was registered last is called first: the threads that ours
       waits for may need the locks of the others. */
    hf__mg_streams_start();
    pthread_atfork(before_fork, in_parent, in_child);
    if (!loaded_for_us()) return;
    mongoc_log_set_handler(pass_on, NULL);
    remove_counters();
}

void hf__mg_start(void)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;
    pthread_once(&started, start);
}
