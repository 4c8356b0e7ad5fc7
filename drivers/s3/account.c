/*
 * account.c - s3: finds the account of a request: in the URL, a file, or the environment. See
 * store.h.
 *
 * A credentials file is read at each request, so that its keys may be replaced while the store is
 * open. It has sections such as "[default]", and lines "name = value".
 */
#include "store.h"

#include "os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads one line of the file into *to, if the line is in the profile's section; *in keeps that from
   line to line. */
static void read_line(char *line, const char *profile, int *in, struct hf__s3_account *to)
{
    const struct {
        const char *name;
        char *to;
        size_t cap;
    } all[] = {{"aws_access_key_id", to->id, sizeof to->id},
               {"aws_secret_access_key", to->secret, sizeof to->secret},
               {"aws_session_token", to->token, sizeof to->token}};
    line += strspn(line, " \t");
    size_t len = strcspn(line, "\r\n");
    while (len && strchr(" \t", line[len - 1])) len--;
    line[len] = 0;
    if (*line == '[') {
        size_t n = strcspn(line + 1, "]");
        *in = n == strlen(profile) && !memcmp(line + 1, profile, n);
        return;
    }
    size_t name = strcspn(line, " \t=");
    char *value = line + name;
    value += strspn(value, " \t");
    if (*value != '=' || !*in) return;
    value++;
    value += strspn(value, " \t");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].name) == name && !memcmp(line, all[i].name, name) &&
            strlen(value) < all[i].cap)
            memcpy(all[i].to, value, strlen(value) + 1);
}

static int read_file(const struct hf__s3_where *at, struct hf__s3_account *to, char why[HF_KIT_WHY])
{
    char line[sizeof to->token + 64], buffer[4096];
    int in = 0;
    FILE *f = hf__fopen(at->file);
    if (!f) {
        int sys = errno;
        snprintf(why, HF_KIT_WHY, "credentials '%.100s': %s", at->file, strerror(sys));
        return HF_UNAVAILABLE;
    }
    setvbuf(f, buffer, _IOFBF, sizeof buffer);
    while (fgets(line, sizeof line, f)) read_line(line, at->profile, &in, to);
    fclose(f);
    explicit_bzero(line, sizeof line);
    explicit_bzero(buffer, sizeof buffer);
    if (*to->id && *to->secret) return 0;
    snprintf(why, HF_KIT_WHY, "credentials '%.100s': no key in the section [%.40s]", at->file,
             at->profile);
    return HF_UNAVAILABLE;
}

static void copy(char *to, size_t cap, const char *from)
{
    if (from && strlen(from) < cap) memcpy(to, from, strlen(from) + 1);
}

int hf__s3_account(const struct hf__s3_where *at, struct hf__s3_account *ret, char why[HF_KIT_WHY])
{
    ret->id[0] = ret->secret[0] = ret->token[0] = 0;
    if (*at->id) {
        copy(ret->id, sizeof ret->id, at->id);
        copy(ret->secret, sizeof ret->secret, at->secret);
        return 0;
    }
    if (*at->file) return read_file(at, ret, why);
    /* A set-user-id program ignores these variables, because its caller has set them. */
    copy(ret->id, sizeof ret->id, secure_getenv("AWS_ACCESS_KEY_ID"));
    copy(ret->secret, sizeof ret->secret, secure_getenv("AWS_SECRET_ACCESS_KEY"));
    copy(ret->token, sizeof ret->token, secure_getenv("AWS_SESSION_TOKEN"));
    if (*ret->id && *ret->secret) return 0;
    snprintf(why, HF_KIT_WHY,
             "no credentials: neither ?credentials=FILE nor AWS_ACCESS_KEY_ID and "
             "AWS_SECRET_ACCESS_KEY are given, and there is no ~/.aws/credentials");
    return HF_DENIED;
}
