/*
 * quiet.c - mongodb: what libmongoc does to a process that merely loads it.
 *
 * It logs to stderr, already while it is loaded; makes a file /dev/shm/mongoc-PID for statistics,
 * which a process that is killed leaves behind; and cleans up when the program ends, whatever its
 * threads are doing. But its own functions are looked up here first, as long as it was loaded for
 * this module. Where the program itself is linked to it, that is the program's business, and
 * nothing changes.
 */
#include "link.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define INSTEAD __attribute__((visibility("default")))

INSTEAD void mongoc_log(mongoc_log_level_t level, const char *domain, const char *format, ...)
{
    (void)level, (void)domain, (void)format;
}

INSTEAD void mongoc_cleanup(void) {}

static void start(void)
{
    char name[32];
    void *program = dlopen(NULL, RTLD_LAZY);
    mongoc_init();
    /* It goes on counting without the name. */
    snprintf(name, sizeof name, "/mongoc-%u", (unsigned)getpid());
    if (program && !dlsym(program, "mongoc_init")) shm_unlink(name);
    if (program) dlclose(program);
}

void hf__mg_start(void)
{
    static pthread_once_t started = PTHREAD_ONCE_INIT;
    pthread_once(&started, start);
}
