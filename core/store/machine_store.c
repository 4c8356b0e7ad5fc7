/*
 * machine_store.c - see machine_store.h.
 */
#include "machine_store.h"

#include "drivers.h"
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *hf__machine_file = "/etc/holdfast/store";

/* Returns 1 if the URL has a relative path, which names another file in each working directory. */
static int is_relative(const hf_url *url)
{
    if (url->host[0] || !url->path[0] || url->path[0] == '/') return 0;
    const hf_driver *drv = hf__driver(url->scheme, NULL);
    return drv && drv->resolve;
}

/* Checks that the URL names the same store for every process. `from` names where it is from. */
static int check_common(const char *from, const hf_url *url, hf_error *err)
{
    if (!is_relative(url)) return 0;
    return hf_fail(err, HF_INVALID, 0,
                   "%s: the path in '%s' is relative: it would be another store in each working "
                   "directory; write it from '/' on",
                   from, url->safe);
}

static int has_secret(const char *text, const hf_url *url)
{
    const char *was = strchr(text, '?'), *is = strchr(url->safe, '?');
    return url->password[0] || strcmp(was ? was : "", is ? is : "") != 0;
}

/* Checks that the URL can be for all users. A URL that can't be parsed passes: hf_open refuses it.
 */
static int check(const char *text, hf_error *err)
{
    hf_url url;
    if (!*text)
        return hf_fail(err, HF_INVALID, 0, "%s: its first line names no store", hf__machine_file);
    if (hf_url_parse(text, &url, NULL)) return 0;
    if (has_secret(text, &url))
        return hf_fail(err, HF_INVALID, 0,
                       "%s: its URL has a secret, which every user of this machine can read; name "
                       "a file with it (?passfile=...)",
                       hf__machine_file);
    if (!strcmp(url.scheme, "mem"))
        return hf_fail(err, HF_INVALID, 0,
                       "%s: mem: is another store in each process; name one that they share",
                       hf__machine_file);
    return check_common(hf__machine_file, &url, err);
}

static int unread(int sys, hf_error *err)
{
    int denied = sys == EACCES || sys == EPERM;
    int code = denied ? HF_DENIED : sys == ENOMEM ? HF_NOMEM : HF_UNAVAILABLE;
    return hf_fail(err, code, sys, "%s: %s", hf__machine_file, strerror(sys));
}

/* Returns 0 if there is no such file. INVALID: the file, or its directory, is a link to something
   that isn't there now, such as a filesystem that isn't mounted. */
static int absent(hf_error *err)
{
    struct stat st;
    const char *slash = strrchr(hf__machine_file, '/');
    char *folder = strndup(hf__machine_file, slash ? (size_t)(slash - hf__machine_file) : 0);
    if (!folder) return unread(ENOMEM, err);
    int nowhere = !lstat(hf__machine_file, &st) || (!lstat(folder, &st) && stat(folder, &st));
    free(folder);
    if (!nowhere) return 0;
    return hf_fail(err, HF_INVALID, 0,
                   "%s: the file or its directory is a symbolic link that leads nowhere",
                   hf__machine_file);
}

/* Opens the file. It isn't waited for: a pipe, which may be silent for ever, is refused. Returns 0
   with *ret NULL if there is no such file. */
static int open_file(FILE **ret, hf_error *err)
{
    struct stat st;
    *ret = NULL;
    int fd = hf__open(hf__machine_file, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? absent(err) : unread(errno, err);
    int sys = fstat(fd, &st) ? errno : 0;
    if (!sys && S_ISREG(st.st_mode) && !(*ret = fdopen(fd, "r"))) sys = errno;
    if (*ret) return 0;
    close(fd);
    if (sys) return unread(sys, err);
    return hf_fail(err, HF_INVALID, 0, "%s: no regular file", hf__machine_file);
}

int hf__machine_url(char **ret, hf_error *err)
{
    FILE *f;
    *ret = NULL;
    int rc = open_file(&f, err);
    if (!f) return rc;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, f);
    if (n < 0 && ferror(f)) rc = unread(errno, err);
    fclose(f);
    if (n > 0 && memchr(line, 0, (size_t)n))
        rc = hf_fail(err, HF_INVALID, 0, "%s: its first line has a zero byte", hf__machine_file);
    if (n > 0) line[n = (ssize_t)hf__url_length(line)] = 0;
    if (!rc) rc = check(n > 0 ? line : "", err);
    if (rc)
        free(line);
    else
        *ret = line;
    return rc;
}

/* Checks the URL of $HOLDFAST_STORE. A URL that can't be parsed passes: hf_open refuses it. */
static int check_variable(const char *text, hf_error *err)
{
    hf_url url;
    if (!hf__url_length(text))
        return hf_fail(err, HF_INVALID, 0,
                       "HOLDFAST_STORE is set, but empty: a program without it would use another "
                       "store; set it to a URL, or unset it");
    return hf_url_parse(text, &url, NULL) ? 0 : check_common("HOLDFAST_STORE", &url, err);
}

int hf__default_url(char **ret, const char **ret_from, hf_error *err)
{
    /* NULL in a set-user-id program, because its caller sets the variable. */
    const char *named = secure_getenv("HOLDFAST_STORE");
    int rc = named ? check_variable(named, err) : hf__machine_url(ret, err);
    if (rc) return rc;
    *ret_from = named ? "HOLDFAST_STORE" : *ret ? hf__machine_file : NULL;
    if (!named && *ret) return 0;
    *ret = strdup(named ? named : "file:");
    return *ret ? 0 : hf_fail(err, HF_NOMEM, 0, "open: out of memory");
}
