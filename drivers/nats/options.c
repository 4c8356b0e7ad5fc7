/*
 * options.c - nats: what the URL says. See link.h.
 */
#include "kit/text.h"
#include "link.h"

#include <stdio.h>
#include <string.h>

static int bad(const hf_url *url, const char *name, const char *what, hf_error *err)
{
    return hf_fail(err, HF_INVALID, 0, "nats: open '%s': %s: %s", url->safe, name, what);
}

/* Reads an option into `to`; "": it isn't given. Returns 0 or the error. */
static int read_text(const hf_url *url, const char *name, char *to, size_t cap, hf_error *err)
{
    int rc = hf_url_get(url, name, to, cap);
    if (rc == HF_INVALID || (!rc && !*to))
        return bad(url, name, "empty, too long, or given twice", err);
    return 0;
}

/* Reads an option that is `on` or `off`. If it isn't given, *ret stays as it is. */
static int read_switch(const hf_url *url, const char *name, int *ret, hf_error *err)
{
    char text[8];
    int rc = read_text(url, name, text, sizeof text, err);
    if (rc || !*text) return rc;
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        return bad(url, name, "not 'on' or 'off'", err);
    *ret = !strcmp(text, "on");
    return 0;
}

static int read_tls(struct hf__nats_how *how, const hf_url *url, hf_error *err)
{
    int rc = read_text(url, "tls_ca", how->tls_ca, sizeof how->tls_ca, err);
    if (!rc) rc = read_text(url, "tls_cert", how->tls_cert, sizeof how->tls_cert, err);
    if (!rc) rc = read_text(url, "tls_key", how->tls_key, sizeof how->tls_key, err);
    int more = how->tls_ca[0] || how->tls_cert[0] || how->tls_key[0];
    how->tls = more;
    how->verify = 1;
    if (!rc) rc = read_switch(url, "tls", &how->tls, err);
    if (!rc) rc = read_switch(url, "tls_verify", &how->verify, err);
    if (!rc && more && !how->tls) rc = bad(url, "tls", "off, but there are other tls options", err);
    if (!rc && !how->tls_cert[0] != !how->tls_key[0])
        rc = bad(url, "tls_cert", "a certificate and a key go together", err);
    return rc;
}

static int read_login(struct hf__nats_how *how, const hf_url *url, hf_error *err)
{
    char path[HF_SECRET_PATH], why[HF_KIT_WHY];
    int rc = read_text(url, "creds", how->creds, sizeof how->creds, err);
    if (!rc) rc = read_text(url, "passfile", path, sizeof path, err);
    if (rc) return rc;
    memcpy(how->user, url->user, sizeof how->user);
    memcpy(how->password, url->password, sizeof how->password);
    if (path[0] && how->password[0]) return bad(url, "passfile", "there is a password, too", err);
    if (path[0] && (rc = hf__secret_open(&how->secret, path, why)))
        return hf_fail(err, rc, 0, "nats: open '%s': %s", url->safe, why);
    if (how->creds[0] && (url->user[0] || url->password[0] || path[0]))
        return bad(url, "creds", "there is a user or a password, too", err);
    return 0;
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

static int read_bucket(const hf_url *url, char bucket[HF_NATS_NAME], int *ret_replicas,
                       hf_error *err)
{
    char text[8];
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    if (!*path) path = "holdfast";
    if (!is_name(path, HF_NATS_NAME, 0))
        return bad(url, path, "not the name of a bucket (letters, digits, '-' and '_')", err);
    snprintf(bucket, HF_NATS_NAME, "%.63s", path);
    int rc = read_text(url, "replicas", text, sizeof text, err);
    if (rc) return rc;
    *ret_replicas = *text ? *text - '0' : 0;
    if (*text && (strlen(text) != 1 || *text < '1' || *text > '5'))
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
    static const char *const known[] = {"creds",  "inbox",    "passfile", "replicas",   "tls",
                                        "tls_ca", "tls_cert", "tls_key",  "tls_verify", NULL};
    char name[64];
    /* NATS's own tools take such a user for a token, which is a secret. Other errors would show it
       as a user, so this check comes first. */
    if (url->user[0] && !url->password[0] && !has(url, "passfile") && !has(url, "creds"))
        return hf_fail(err, HF_INVALID, 0,
                       "nats: open: a user without a password; a token is written "
                       "nats://:TOKEN@HOST, or stands in a file (?passfile=FILE)");
    if (hf__unknown_option(url, known, name, sizeof name))
        return bad(url, name, "unknown option", err);
    if (!hf__hosts_read(&how->at, url, 4222))
        return bad(url, url->host, "not a list of up to 16 hosts", err);
    int rc = read_text(url, "inbox", how->inbox, sizeof how->inbox, err);
    if (!rc && !how->inbox[0]) snprintf(how->inbox, sizeof how->inbox, "_INBOX");
    if (!rc && !is_name(how->inbox, sizeof how->inbox, 1))
        rc = bad(url, "inbox", "not the beginning of a subject", err);
    if (!rc) rc = read_login(how, url, err);
    if (!rc) rc = read_tls(how, url, err);
    return rc ? rc : read_bucket(url, bucket, ret_replicas, err);
}
