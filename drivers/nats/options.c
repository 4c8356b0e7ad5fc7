/*
 * options.c - nats: what the URL says. See link.h.
 */
#include "link.h"

#include <stdio.h>
#include <string.h>

static int bad(const hf_url *url, const char *name, const char *what, hf_error *err)
{
    return hf__option_refused("nats", url, name, what, err);
}

static int check_login(struct hf__nats_how *how, const hf_url *url, const char *passfile,
                       hf_error *err)
{
    memcpy(how->user, url->user, sizeof how->user);
    memcpy(how->password, url->password, sizeof how->password);
    int rc = hf__option_passfile("nats", url, passfile, &how->secret, err);
    if (!rc && how->creds[0] && (url->user[0] || url->password[0] || *passfile))
        rc = bad(url, "creds", "there is a user or a password, too", err);
    return rc;
}

/* Checks a name: letters, digits, '-' and '_'; in the name of an inbox dots, too. */
static int is_name(const char *text, size_t cap, int dots)
{
    size_t len = strlen(text);
    if (!len || len >= cap || text[0] == '.' || text[len - 1] == '.' || strstr(text, ".."))
        return 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' &&
            c != '_' && !(dots && c == '.'))
            return 0;
    }
    return 1;
}

static int name_bucket(const hf_url *url, char bucket[HF_NATS_NAME], const char *replicas,
                       int *ret_replicas, hf_error *err)
{
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    if (!*path) path = "holdfast";
    if (!is_name(path, HF_NATS_NAME, 0))
        return bad(url, path, "not the name of a bucket (letters, digits, '-' and '_')", err);
    snprintf(bucket, HF_NATS_NAME, "%.63s", path);
    *ret_replicas = *replicas ? *replicas - '0' : 0;
    if (*replicas && (strlen(replicas) != 1 || *replicas < '1' || *replicas > '5'))
        return bad(url, "replicas", "not 1 to 5", err);
    return 0;
}

static int has(const hf_url *url, const char *name)
{
    char file[HF_SECRET_PATH] = "";
    return hf_url_get(url, name, file, sizeof file) != HF_UNSUPPORTED && file[0];
}

int hf__nats_options(const hf_url *url, struct hf__nats_how *how, char bucket[HF_NATS_NAME],
                     int *ret_replicas, hf_error *err)
{
    char passfile[HF_SECRET_PATH], replicas[8];
    const struct hf__option options[] = {{"creds", HF_TEXT_OPTION(how->creds)},
                                         {"inbox", HF_TEXT_OPTION(how->inbox)},
                                         {"passfile", HF_TEXT_OPTION(passfile)},
                                         {"replicas", HF_TEXT_OPTION(replicas)},
                                         {"tls", .is_on = &how->tls},
                                         {"tls_ca", HF_TEXT_OPTION(how->files.ca)},
                                         {"tls_cert", HF_TEXT_OPTION(how->files.cert)},
                                         {"tls_key", HF_TEXT_OPTION(how->files.key)},
                                         {"tls_verify", .is_on = &how->verify}};
    /* NATS's own tools take such a user for a token, which is a secret. Other errors would show it
       as a user, so this check comes first. */
    if (url->user[0] && !url->password[0] && !has(url, "passfile") && !has(url, "creds"))
        return hf_fail(err, HF_INVALID, 0,
                       "nats: open: a user without a password; a token is written "
                       "nats://:TOKEN@HOST, or stands in a file (?passfile=FILE)");
    how->tls = -1;
    how->verify = 1;
    int rc = hf__options("nats", url, options, sizeof options / sizeof *options, err);
    if (!rc && !hf__hosts_read(&how->at, url, 4222))
        rc = bad(url, url->host, "not a list of up to 16 hosts", err);
    if (!rc && !how->inbox[0]) snprintf(how->inbox, sizeof how->inbox, "_INBOX");
    if (!rc && !is_name(how->inbox, sizeof how->inbox, 1))
        rc = bad(url, "inbox", "not the beginning of a subject", err);
    if (!rc) rc = check_login(how, url, passfile, err);
    if (!rc) rc = hf__option_tls("nats", url, "tls", &how->files, &how->tls, err);
    if (!rc && !how->files.cert[0] != !how->files.key[0])
        rc = bad(url, "tls_cert", "a certificate and a key go together", err);
    return rc ? rc : name_bucket(url, bucket, replicas, ret_replicas, err);
}
