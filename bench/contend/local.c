/*
 * local.c - competitors by what the kernel and the C library have for processes of one machine. A
 * key is a file of the directory: locked, or mapped by all of them.
 */
#include "../bench.h"
#include "competitor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 128 }; /* more than competitors */

static char directory[4000], opened[64];
static int file = -1;

static void open_directory(const char *where, long lease_ms)
{
    (void)lease_ms; /* each ends with its process */
    if ((size_t)snprintf(directory, sizeof directory, "%s", where) >= sizeof directory)
        bench_die("'%s': too long", where);
}

/* The key's file; is it another one than before? */
static int turn_to(const char *how, const char *key)
{
    char path[4200];
    if (!strcmp(opened, key)) return 0;
    snprintf(opened, sizeof opened, "%s", key);
    snprintf(path, sizeof path, "%s/%s-%s", directory, how, key);
    if (file >= 0) close(file);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) bench_die("'%s': %s", path, strerror(errno));
    return 1;
}

static void flock_it(int how)
{
    while (flock(file, how))
        if (errno != EINTR) bench_die("flock: %s", strerror(errno));
}

static void flock_take(const char *key)
{
    turn_to("flock", key);
    flock_it(LOCK_EX);
}

static int flock_give(void)
{
    flock_it(LOCK_UN);
    return 0;
}

static void ofd_set(short type)
{
    struct flock byte = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    while (fcntl(file, F_OFD_SETLKW, &byte))
        if (errno != EINTR) bench_die("fcntl: %s", strerror(errno));
}

static void ofd_take(const char *key)
{
    turn_to("ofd", key);
    ofd_set(F_WRLCK);
}

static int ofd_give(void)
{
    ofd_set(F_UNLCK);
    return 0;
}

/* What all map; full of zeros at first. */
static void *map_it(size_t size)
{
    if (ftruncate(file, (off_t)size)) bench_die("ftruncate: %s", strerror(errno));
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED) bench_die("mmap: %s", strerror(errno));
    return p;
}

static struct robust {
    pthread_mutex_t mutex;
    int made;
} *robust;

static void robust_take(const char *key)
{
    if (turn_to("robust", key)) {
        if (robust) munmap(robust, sizeof *robust);
        robust = map_it(sizeof *robust);
        flock_it(LOCK_EX);
        if (!robust->made) {
            pthread_mutexattr_t attr;
            pthread_mutexattr_init(&attr);
            pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
            pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
            pthread_mutex_init(&robust->mutex, &attr);
            pthread_mutexattr_destroy(&attr);
            robust->made = 1;
        }
        flock_it(LOCK_UN);
    }
    int rc = pthread_mutex_lock(&robust->mutex);
    if (rc == EOWNERDEAD) rc = pthread_mutex_consistent(&robust->mutex);
    if (rc) bench_die("robust mutex: %s", strerror(rc));
}

static int robust_give(void) { return pthread_mutex_unlock(&robust->mutex); }

/*
 * The fairest lock possible: each request draws a number, and a release wakes only the waiter with
 * the next number. A slot has the last number that was called there.
 */
static struct line {
    uint32_t next;
    uint32_t slot[SLOTS];
} *line;
static uint32_t mine;

static void futex_take(const char *key)
{
    if (turn_to("futex", key)) {
        if (line) munmap(line, sizeof *line);
        line = map_it(sizeof *line);
    }
    mine = __atomic_fetch_add(&line->next, 1, __ATOMIC_ACQ_REL);
    uint32_t *slot = &line->slot[mine % SLOTS], called;
    while ((called = __atomic_load_n(slot, __ATOMIC_ACQUIRE)) != mine)
        syscall(SYS_futex, slot, FUTEX_WAIT, called, NULL, NULL, 0);
}

static int futex_give(void)
{
    uint32_t *slot = &line->slot[(mine + 1) % SLOTS];
    __atomic_store_n(slot, mine + 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, slot, FUTEX_WAKE, 1, NULL, NULL, 0);
    return 0;
}

static const struct competitor by_flock = {"flock(2)", open_directory, flock_take, flock_give};
static const struct competitor by_ofd = {"OFD lock", open_directory, ofd_take, ofd_give};
static const struct competitor by_robust = {"robust mutex", open_directory, robust_take,
                                            robust_give};
static const struct competitor by_futex = {"futex", open_directory, futex_take, futex_give};
const struct competitor *const local_competitors[] = {&by_flock, &by_ofd, &by_robust, &by_futex,
                                                      NULL};
