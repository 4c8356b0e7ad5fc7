/*
 * witness.c - see witness.h. files.c says what witnesses are for.
 */
#include "witness.h"

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* No process has this id, and F_OFD_GETLK returns another one (-1) for an OFD lock. */
enum { NOBODY = -2 };

static pthread_mutex_t witness_mu = PTHREAD_MUTEX_INITIALIZER;
static struct hf__sq_witness *witnesses;
/* The process for which byte_at was drawn: the offset that its witnesses lock in each file. A
   forked child draws its own. */
static pid_t byte_owner = NOBODY;
static int64_t byte_at;

int hf__sq_lock_range(int fd, int64_t from, int64_t n)
{
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = n};
    if (!fcntl(fd, F_SETLK, &l)) return 0;
    return errno == EACCES ? EAGAIN : errno;
}

static int stands(const struct hf__sq_witness *w)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_at, .l_len = 1};
    return !fcntl(w->fd, F_OFD_GETLK, &l) && l.l_type != F_UNLCK && l.l_pid == byte_owner;
}

int hf__sq_is_shared(const struct hf__sq_witness *db)
{
    struct flock l = {.l_type = F_RDLCK,
                      .l_whence = SEEK_SET,
                      .l_start = HF_SQ_SHARED_FIRST,
                      .l_len = HF_SQ_SHARED_SIZE};
    return !fcntl(db->fd, F_OFD_GETLK, &l) && l.l_type == F_UNLCK;
}

int hf__sq_wait_until_shared(const struct hf__sq_witness *db, int64_t ms)
{
    struct timespec pause = {0, 1000000};
    int64_t until_us = hf__local_us() + ms * 1000;
    while (!hf__sq_is_shared(db)) {
        if (hf__local_us() >= until_us) return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

int hf__sq_stood(const struct hf__sq_witness *w, unsigned lost)
{
    return stands(w) && atomic_load(&w->lost) == lost;
}

static struct hf__sq_witness *find_witness(const struct stat *s)
{
    for (struct hf__sq_witness *w = witnesses; w; w = w->next)
        if (w->dev == s->st_dev && w->ino == s->st_ino) return w;
    return NULL;
}

static int add_witness(const char *path, struct hf__sq_witness **ret)
{
    struct hf__sq_witness *w = calloc(1, sizeof *w);
    struct stat s;
    if (!w) return ENOMEM;
    w->fd = hf__open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
    if (w->fd < 0 || fstat(w->fd, &s)) {
        int sys = errno;
        free(w); /* the descriptor stays open: to close it might drop SQLite's locks on its file */
        return sys;
    }
    w->dev = s.st_dev;
    w->ino = s.st_ino;
    w->next = witnesses;
    witnesses = w;
    *ret = w;
    return 0;
}

int hf__sq_take_witness(const char *path, struct hf__sq_witness **ret, unsigned *ret_lost)
{
    struct stat s;
    int sys = stat(path, &s) ? errno : 0;
    *ret = NULL;
    if (sys) return sys;
    pthread_mutex_lock(&witness_mu);
    if (byte_owner != getpid()) {
        hf__random(&byte_at, sizeof byte_at);
        byte_at = (byte_at & (INT64_MAX >> 2)) | INT64_C(1) << 48;
        byte_owner = getpid();
    }
    struct hf__sq_witness *w = find_witness(&s);
    if (!w) sys = add_witness(path, &w);
    if (!sys && !stands(w)) {
        atomic_fetch_add(&w->lost, 1);
        sys = hf__sq_lock_range(w->fd, byte_at, 1);
    }
    if (!sys) {
        *ret_lost = atomic_load(&w->lost);
        w->refs++;
        *ret = w;
    }
    pthread_mutex_unlock(&witness_mu);
    return sys;
}

void hf__sq_drop_witness(struct hf__sq_witness **at)
{
    struct hf__sq_witness *w = *at;
    struct stat s;
    *at = NULL;
    if (!w) return;
    pthread_mutex_lock(&witness_mu);
    if (!--w->refs && !fstat(w->fd, &s) && !s.st_nlink) {
        struct hf__sq_witness **link = &witnesses;
        while (*link != w) link = &(*link)->next;
        *link = w->next;
        close(w->fd);
        free(w);
    }
    pthread_mutex_unlock(&witness_mu);
}

void hf__sq_lock_byte(struct hf__sq_witness *w) { hf__sq_lock_range(w->fd, byte_at, 1); }

/* ---- fork ---- */

void hf__sq_witness_before_fork(void) { pthread_mutex_lock(&witness_mu); }

void hf__sq_witness_after_fork(int in_child)
{
    if (in_child) byte_owner = NOBODY;
    pthread_mutex_unlock(&witness_mu);
}
