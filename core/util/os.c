/*
 * os.c - forks, names, descriptors. See os.h. What differs between systems is in os_linux.c and
 * os_macos.c.
 */
#include "os.h"

#include "holdfast_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- forks ---- */

unsigned hf__forks;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static void in_child(void) { hf__forks++; }

static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

unsigned hf__fork_generation(void)
{
    pthread_once(&watched, watch_forks);
    return hf__forks;
}

/* ---- the user's name ---- */

void hf__user_name(char *to, size_t cap)
{
    const char *name = secure_getenv("USER");
    if (!name || !*name) name = secure_getenv("LOGNAME");
    if ((!name || !*name) && !getuid()) name = "root";
    if (name && *name)
        snprintf(to, cap, "%s", name);
    else
        snprintf(to, cap, "%ld", (long)getuid());
}

uint64_t hf__pid_namespace(void)
{
    struct stat s;
    return stat("/proc/self/ns/pid", &s) ? 0 : (uint64_t)s.st_ino;
}

/* ---- descriptors ---- */

int hf__fd_above(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), sys = errno;
    close(fd);
    errno = sys;
    return high;
}

int hf__open(const char *path, int flags, unsigned mode)
{
    return hf__open_at(AT_FDCWD, path, flags, mode);
}

int hf__open_at(int dir, const char *path, int flags, unsigned mode)
{
    hf_low_hold();
    int fd = dir == AT_FDCWD ? open(path, flags | O_CLOEXEC, mode)
                             : openat(dir, path, flags | O_CLOEXEC, mode);
    hf_low_free();
    /* `fd` may still be 0, 1 or 2, if hf_low_hold failed or another thread has closed one. */
    return hf__fd_above(fd);
}

FILE *hf__fopen(const char *path)
{
    int fd = hf__open(path, O_RDONLY, 0);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (!f && fd >= 0) {
        int sys = errno;
        close(fd);
        errno = sys;
    }
    return f;
}
