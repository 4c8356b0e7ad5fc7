/*
 * secret.c - see secret.h.
 */
#include "secret.h"

#include "holdfast_driver.h"
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int hf__credential_code(int sys)
{
    switch (sys) {
    case ENOMEM: return HF_NOMEM;
    case EFBIG:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG: return HF_INVALID;
    default: return HF_UNAVAILABLE;
    }
}

int hf__keys_would_be_logged(void)
{
    return getenv("SSLKEYLOGFILE") && !secure_getenv("SSLKEYLOGFILE");
}

/* Opens the file, and never waits for the writer of a named pipe. Returns the descriptor, or -1
   with the code and the reason. *ret_regular: 1 if the file can be read again. */
static int open_it(const char *path, int *ret_regular, int *ret_code, const char **ret_why)
{
    struct stat is = {.st_mode = 0};
    int own = !strncmp(path, "/dev/fd/", 8) || !strncmp(path, "/proc/self/fd/", 14) ||
              !strcmp(path, "/dev/stdin");
    int fd = hf__open(path, O_RDONLY | O_NOCTTY | (own ? 0 : O_NONBLOCK), 0);
    int sys = fd < 0 || fstat(fd, &is) ? errno : S_ISDIR(is.st_mode) ? EISDIR : 0;
    *ret_regular = S_ISREG(is.st_mode);
    *ret_code = hf__credential_code(sys);
    *ret_why = strerror(sys);
    if (!sys && S_ISFIFO(is.st_mode) && !own) {
        *ret_code = HF_INVALID;
        *ret_why = "it is a named pipe";
    } else if (!sys) {
        *ret_code = 0;
    }
    if (*ret_code && fd >= 0) close(fd);
    return *ret_code ? -1 : fd;
}

int hf__credential_check(const char *what, const char *path, char why[HF_KIT_WHY])
{
    const char *reason;
    int regular, rc, fd = open_it(path, &regular, &rc, &reason);
    if (fd >= 0) close(fd);
    if (rc) snprintf(why, HF_KIT_WHY, "%s '%.120s': %s", what, path, reason);
    return rc;
}

int hf__credentials_check(const char *const (*of)[2], int opened, char why[HF_KIT_WHY])
{
    int rc = 0;
    for (; !rc && (*of)[0]; of++)
        if ((*of)[1] && *(*of)[1]) rc = hf__credential_check((*of)[0], (*of)[1], why);
    return rc == HF_INVALID && opened ? HF_UNAVAILABLE : rc;
}

/* Reads up to the end of the first line, of any kind of file. Returns 0 or the code. */
static int first_line(int fd, char to[HF_SECRET_CAP], const char **ret_why)
{
    size_t n = 0;
    *ret_why = "the first line is too long";
    while (n < HF_SECRET_CAP) {
        ssize_t k = read(fd, to + n, HF_SECRET_CAP - n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) *ret_why = strerror(errno);
        if (k < 0) return hf__credential_code(errno);
        char *end = memchr(to + n, '\n', (size_t)k);
        n += (size_t)k;
        if (!end && k) continue;
        if (!end && n == HF_SECRET_CAP) break;
        if (!end) end = to + n;
        *end = 0;
        to[strcspn(to, "\r")] = 0;
        *ret_why = "its first line is empty";
        return to[0] ? 0 : HF_INVALID;
    }
    return HF_INVALID;
}

/* Returns 0 or the code. */
static int read_it(const char *path, char to[HF_SECRET_CAP], int *ret_regular, char why[HF_KIT_WHY])
{
    const char *reason = NULL;
    int rc, fd = open_it(path, ret_regular, &rc, &reason);
    if (!rc) rc = first_line(fd, to, &reason);
    if (fd >= 0) close(fd);
    if (rc) {
        explicit_bzero(to, HF_SECRET_CAP);
        snprintf(why, HF_KIT_WHY, "the password file '%.120s': %s", path, reason);
    }
    return rc;
}

int hf__secret_open(struct hf__secret *s, const char *path, char why[HF_KIT_WHY])
{
    int regular = 0;
    memset(s, 0, sizeof *s);
    if (strlen(path) >= sizeof s->path) {
        snprintf(why, HF_KIT_WHY, "the path of the password file is too long");
        return HF_INVALID;
    }
    int rc = read_it(path, s->kept, &regular, why);
    if (rc) return rc;
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
    int rc = read_it(s->path, to, &regular, why);
    return rc == HF_INVALID ? HF_UNAVAILABLE : rc;
}

int hf__password_get(const struct hf__secret *s, const char *given, char to[HF_SECRET_CAP],
                     char why[HF_KIT_WHY])
{
    if (s->path[0]) return hf__secret_get(s, to, why);
    snprintf(to, HF_SECRET_CAP, "%s", given);
    return 0;
}

void hf__secret_forget(struct hf__secret *s) { explicit_bzero(s, sizeof *s); }
