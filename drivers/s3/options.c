/*
 * options.c - s3: what the URL says. See store.h.
 */
#include "kit/url_options.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int bad(const hf_url *url, const char *name, const char *what, hf_error *err)
{
    return hf__option_refused("s3", url, name, what, err);
}

/* Returns 1 if the text has characters other than letters, digits and those in `more`. */
static int has_others(const char *text, const char *more)
{
    for (; *text; text++) {
        char c = *text;
        if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
            !strchr(more, c))
            return 1;
    }
    return 0;
}

static int find_place(struct hf__s3_where *at, const hf_url *url, hf_error *err)
{
    const char *path = url->path + strspn(url->path, "/");
    size_t len = strlen(url->host);
    if (len < 3 || len > 63 || has_others(url->host, "-._"))
        return bad(url, "the bucket", "not a legal bucket name: s3://BUCKET/PREFIX", err);
    if (url->port) return bad(url, "the bucket", "a port belongs to ?endpoint=", err);
    snprintf(at->bucket, sizeof at->bucket, "%.63s", url->host);
    if (!*path) path = "holdfast";
    len = strlen(path);
    while (len && path[len - 1] == '/') len--;
    if (len + 2 > sizeof at->prefix) return bad(url, "the prefix", "longer than 300 bytes", err);
    snprintf(at->prefix, sizeof at->prefix, "%.*s/", (int)len, path);
    if (has_others(at->prefix, "-._/") || strstr(at->prefix, "//") || strstr(at->prefix, "./"))
        return bad(url, "the prefix", "not of letters, digits and - . _, between slashes", err);
    return 0;
}

static int find_endpoint(struct hf__s3_where *at, const hf_url *url, const char *region,
                         hf_error *err)
{
    const char *here = secure_getenv("AWS_REGION");
    if (!here || !*here) here = secure_getenv("AWS_DEFAULT_REGION");
    if (!*region) region = here && *here ? here : "us-east-1";
    if (strlen(region) > 63 || has_others(region, "-_"))
        return bad(url, "region", "not a legal region name", err);
    snprintf(at->sign, sizeof at->sign, "aws:amz:%s:s3", region);
    if (!at->endpoint[0])
        snprintf(at->endpoint, sizeof at->endpoint, "https://s3.%s.amazonaws.com", region);
    size_t len = strlen(at->endpoint);
    if (at->endpoint[len - 1] == '/') at->endpoint[--len] = 0;
    const char *host = strstr(at->endpoint, "://");
    if (!hf__rest_url_safe(at->endpoint) || !host || has_others(host + 3, "-._:[]"))
        return bad(url, "endpoint", "not https://HOST:PORT (http: for this machine only)", err);
    return 0;
}

static int find_account(struct hf__s3_where *at, const hf_url *url, hf_error *err)
{
    char why[HF_KIT_WHY], usual[HF_SECRET_PATH] = "";
    const char *file = secure_getenv("AWS_SHARED_CREDENTIALS_FILE");
    const char *profile = secure_getenv("AWS_PROFILE"), *home = secure_getenv("HOME");
    const char *id = secure_getenv("AWS_ACCESS_KEY_ID");
    memcpy(at->id, url->user, sizeof at->id);
    memcpy(at->secret, url->password, sizeof at->secret);
    if (!*at->id != !*at->secret)
        return bad(url, "the user", "an access key and its secret go together", err);
    if (*at->id && *at->file) return bad(url, "credentials", "there is a user, too", err);
    if (!*at->id && !*at->file && (!id || !*id)) {
        if (file && *file)
            snprintf(usual, sizeof usual, "%s", file);
        else if (home && *home)
            snprintf(usual, sizeof usual, "%s/.aws/credentials", home);
        if ((file && *file) || !access(usual, F_OK))
            snprintf(at->file, sizeof at->file, "%s", usual);
    }
    if (*at->file && !at->profile[0]) {
        if (profile && strlen(profile) >= sizeof at->profile)
            return bad(url, "profile", "AWS_PROFILE is too long", err);
        snprintf(at->profile, sizeof at->profile, "%s", profile && *profile ? profile : "default");
    }
    int rc = *at->file ? hf__credential_check("credentials", at->file, why) : 0;
    return rc ? hf_fail(err, rc, 0, "s3: open '%s': %s", url->safe, why) : 0;
}

int hf__s3_options(const hf_url *url, struct hf__s3_where *at, char cafile[1024], hf_caps *caps,
                   hf_error *err)
{
    char region[64], queue[8] = "";
    const struct hf__option options[] = {{"cafile", cafile, 1024, NULL},
                                         {"credentials", HF_TEXT_OPTION(at->file)},
                                         {"endpoint", HF_TEXT_OPTION(at->endpoint)},
                                         {"profile", HF_TEXT_OPTION(at->profile)},
                                         {"queue", HF_TEXT_OPTION(queue)},
                                         {"region", HF_TEXT_OPTION(region)}};
    int rc = hf__options("s3", url, options, sizeof options / sizeof *options, err);
    if (!rc) rc = find_place(at, url, err);
    if (!rc) rc = find_endpoint(at, url, region, err);
    if (!rc) rc = find_account(at, url, err);
    if (!rc && *queue && strcmp(queue, "0") && strcmp(queue, "1"))
        rc = bad(url, "queue", "neither 0 nor 1", err);
    caps->queues = *queue == '1';
    return rc;
}
