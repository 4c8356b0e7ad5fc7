/*
 * machine_store.c - see machine_store.h.
 */
#include "machine_store.h"

#include "drivers.h"
#include "os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *hf__machine_file = "/etc/holdfast/store";

/* Returns 1 if the URL has a relative path, which names another file in each working directory. */
static int is_relative(const hf_url *url)
{
    if (url->host[0] || !url->path[0] || url->path[0] == '/') return 0;
    const hf_driver *drv = hf__driver(url->scheme, NULL);
    return drv && drv->resolve;
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
    if (is_relative(&url))
        return hf_fail(
            err, HF_INVALID, 0,
            "%s: the path in '%s' is relative: it would be another store in each working "
            "directory; write it from '/' on",
            hf__machine_file, url.safe);
    return 0;
}

int hf__machine_url(char **ret, hf_error *err)
{
    *ret = NULL;
    FILE *f = hf__fopen(hf__machine_file);
    int why = errno;
    if (!f && (why == ENOENT || why == ENOTDIR)) return 0;
    if (!f) return hf_fail(err, HF_DENIED, why, "%s: %s", hf__machine_file, strerror(why));
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, f);
    int rc = n < 0 && ferror(f)
                 ? hf_fail(err, HF_DENIED, errno, "%s: %s", hf__machine_file, strerror(errno))
                 : 0;
    fclose(f);
    while (n > 0 && strchr("\r\n \t", line[n - 1])) line[--n] = 0;
    if (!rc) rc = check(n > 0 ? line : "", err);
    if (rc)
        free(line);
    else
        *ret = line;
    return rc;
}
