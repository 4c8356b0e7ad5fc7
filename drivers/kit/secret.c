/*
 * secret.c - see secret.h.
 */
#include "secret.h"

#include "holdfast_driver.h"
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads up to the end of the first line, of whatever kind the file is. 1: it is there. */
static int first_line(int fd, char to[HF_SECRET_CAP], const char **ret_why)
{
    size_t n = 0;
    *ret_why = "the first line is too long";
    while (n < HF_SECRET_CAP) {
        ssize_t k = read(fd, to + n, HF_SECRET_CAP - n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) *ret_why = strerror(errno);
        if (k < 0) return 0;
        char *end = memchr(to + n, '\n', (size_t)k);
        n += (size_t)k;
        if (!end && k) continue;
        if (!end && n == HF_SECRET_CAP) return 0;
        if (!end) end = to + n;
        *end = 0;
        to[strcspn(to, "\r")] = 0;
        *ret_why = "nothing stands in its first line";
        return to[0] != 0;
    }
    return 0;
}

/* *ret_kind: whether it can be read again. */
static int read_it(const char *path, char to[HF_SECRET_CAP], int *ret_regular, char why[HF_KIT_WHY])
{
    struct stat is;
    const char *reason = NULL;
    int fd = hf__open(path, O_RDONLY | O_NOCTTY, 0);
    int ok = fd >= 0 && !fstat(fd, &is);
    if (!ok) reason = strerror(errno);
    if (ok) ok = first_line(fd, to, &reason);
    if (ok) *ret_regular = S_ISREG(is.st_mode);
    if (fd >= 0) close(fd);
    if (!ok) {
        explicit_bzero(to, HF_SECRET_CAP);
        snprintf(why, HF_KIT_WHY, "the password file '%.120s': %s", path, reason);
    }
    return ok;
}

int hf__secret_open(struct hf__secret *s, const char *path, char why[HF_KIT_WHY])
{
    int regular = 0;
    memset(s, 0, sizeof *s);
    if (strlen(path) >= sizeof s->path) {
        snprintf(why, HF_KIT_WHY, "the path of the password file is too long");
        return HF_INVALID;
    }
    if (!read_it(path, s->kept, &regular, why)) return HF_INVALID;
    memcpy(s->path, path, strlen(path) + 1);
    if (regular) explicit_bzero(s->kept, sizeof s->kept);
    return 0;
}

int hf__secret_get(const struct hf__secret *s, char to[HF_SECRET_CAP], char why[HF_KIT_WHY])
{
    int regular;
    if (s->kept[0]) {
        memcpy(to, s->kept, sizeof s->kept);
        return 0;
    }
    return read_it(s->path, to, &regular, why) ? 0 : HF_UNAVAILABLE;
}

void hf__secret_forget(struct hf__secret *s) { explicit_bzero(s, sizeof *s); }
