/*
 * place.c - the `file:` driver: where the default store is, its directories, the scratch store for
 * `doctor`.
 */
#include "store.h"

#include "os.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Cuts off the last part of a path. Returns 0 if there is none but the root. */
static int up(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || !path[1]) return 0;
    slash[slash == path] = 0;
    return 1;
}

/* Finds the nearest directory on the way to `path` that exists, `path` itself included. */
static void nearest(char *path, struct stat *ret)
{
    while (stat(path, ret) && up(path)) continue;
}

/* Returns 0 if this process is root's and the directory belongs to another user, *ret_other; else
   1. (sudo may keep that user's HOME.) The user's own programs could not use root's files there. */
static int is_for_us(const char *dir, uid_t *ret_other)
{
    char path[HF_FILE_PATH_CAP];
    struct stat s = {.st_uid = 0};
    if (geteuid() || snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path) return 1;
    nearest(path, &s);
    if (s.st_uid) *ret_other = s.st_uid;
    return !s.st_uid;
}

/* Reads the absolute directory that an environment variable names into *ret; NULL: there is none. A
   set-user-id program ignores the variable, because its caller has set it. A relative path is
   refused, because it would name another store in each working directory.
   Returns: 0; HF_INVALID: the path is relative. */
static int named_directory(const char *variable, const char **ret, hf_error *err)
{
    const char *dir = secure_getenv(variable);
    *ret = dir && *dir == '/' ? dir : NULL;
    if (!dir || !*dir || *ret) return 0;
    return hf_fail(
        err, HF_INVALID, 0,
        "file: open: %s is '%.200s', which doesn't begin with '/': set it to an absolute "
        "path, or name a store",
        variable, dir);
}

int hf__default_path(char *to, size_t cap, size_t *ret_exists, hf_error *err)
{
    const char *state, *home = NULL;
    char buffer[4096];
    struct passwd entry, *found = NULL;
    uid_t other = 0;
    int n = -1, rc = named_directory("XDG_STATE_HOME", &state, err);
    if (state && !is_for_us(state, &other)) state = NULL;
    if (!rc && !state) rc = named_directory("HOME", &home, err);
    if (rc) return rc;
    if (!state && (!home || !is_for_us(home, &other))) {
        home = NULL;
        if (!getpwuid_r(geteuid(), &entry, buffer, sizeof buffer, &found) && found)
            home = found->pw_dir;
        if (home && !is_for_us(home, &other)) home = NULL;
    }
    if (state)
        n = snprintf(to, cap, "%s/holdfast/locks", state);
    else if (home && *home == '/')
        n = snprintf(to, cap, "%s/.local/state/holdfast/locks", home);
    /* Root would make the home directory of a user who has none. XDG_STATE_HOME is made: it was
       set for this. */
    if (n >= 0) *ret_exists = state ? 0 : strlen(home);
    if (n >= 0 && n < (int)cap) return 0;
    if (other)
        return hf_fail(err, HF_DENIED, 0,
                       "file: open: XDG_STATE_HOME or HOME belongs to user %u, where root writes "
                       "nothing: name a store",
                       (unsigned)other);
    return hf_fail(err, HF_INVALID, 0,
                   "file: open: neither XDG_STATE_HOME nor HOME names a directory");
}

int hf__make_default_directories(const char *store, hf_error *err)
{
    char path[HF_FILE_PATH_CAP];
    struct stat s;
    size_t n;
    if (hf__default_path(path, sizeof path, &n, NULL) || strcmp(path, store)) return 0;
    char kept = path[n];
    path[n] = 0;
    int missing = n && stat(path, &s) ? errno : 0;
    if (missing)
        return hf_fail(err, hf__file_code(missing), missing,
                       "file: create '%s': the home directory '%s' isn't made: %s; name a store",
                       store, path, strerror(missing));
    path[n] = kept;
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        int sys = mkdir(path, 0700) ? errno : 0;
        /* A umask such as 0777 would keep its owner out. */
        if (!sys && !stat(path, &s) && (s.st_mode & 0700) != 0700)
            sys = chmod(path, (s.st_mode & 07777) | 0700) ? errno : 0;
        if (sys && sys != EEXIST && (stat(path, &s) || !S_ISDIR(s.st_mode)))
            return hf_fail(err, hf__file_code(sys), sys,
                           "file: create '%s': make directory '%s': %s", store, path,
                           strerror(sys));
        *p = '/';
    }
    return 0;
}

int hf__file_scratch(const hf_url *url, hf_url *ret, hf_error *err)
{
    char dir[HF_FILE_PATH_CAP], path[2 * HF_FILE_PATH_CAP];
    struct stat s;
    uint64_t r;
    hf__random(&r, sizeof r);
    snprintf(dir, sizeof dir, "%s", url->path);
    int beside = up(dir) && !stat(dir, &s);
    nearest(dir, &s);
    if (access(dir, W_OK | X_OK))
        return hf_fail(err, HF_DENIED, errno, "file: make a store in '%s': %s", dir,
                       strerror(errno));
    if (beside)
        snprintf(path, sizeof path, "%s.doctor-%016llx", url->path, (unsigned long long)r);
    else
        snprintf(path, sizeof path, "%s/.holdfast.doctor-%016llx", dir[1] ? dir : "",
                 (unsigned long long)r);
    *ret = *url;
    ret->existing = 0;
    return hf_url_set_path(ret, path, err);
}

void hf__file_discard(const hf_url *url) { unlink(url->path); }
