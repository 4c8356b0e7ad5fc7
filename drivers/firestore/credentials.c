/*
 * credentials.c - firestore: reads the credentials file of a service account or of a person. See
 * credentials.h.
 */
#include "credentials.h"

#include "json.h"
#include "kit/secret.h"
#include "os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST = 65536 };

int hf__fs_set(char **to, const char *text)
{
    *to = strdup(text);
    return *to ? 0 : HF_NOMEM;
}

char *hf__fs_read_file(const char *path)
{
    FILE *f = hf__fopen(path);
    char *text = f ? malloc(FILE_MOST) : NULL;
    size_t n = text ? fread(text, 1, FILE_MOST - 1, f) : 0;
    int why = errno, bad = !f || !text || ferror(f);
    if (f && !bad && !feof(f)) {
        bad = 1;
        why = EFBIG;
    }
    if (f) fclose(f);
    if (text) text[n] = 0;
    if (!bad) return text;
    if (text) explicit_bzero(text, n);
    free(text);
    errno = why;
    return NULL;
}

static int bad_file(const char *path, int code, const char *why, hf_error *err)
{
    return hf_fail(err, code, 0, "firestore: credentials '%s': %s", path, why);
}

/* A member of the file's JSON object, a text. */
struct member {
    const char *name;
    char **to;
    const char *missing; /* the error if it is missing; NULL: it may be missing */
};

/* Reads members of a JSON object. Returns 0; HF_INVALID or HF_NOMEM, with *ret_why. */
static int read_members(const json_t *from, const struct member *m, size_t n, const char **ret_why)
{
    for (; n--; m++) {
        const json_t *j = json_object_get(from, m->name);
        int there = json_string_length(j) > 0;
        *ret_why = there ? "out of memory" : m->missing;
        if (there && hf__fs_set(m->to, json_string_value(j))) return HF_NOMEM;
        if (!there && m->missing) return HF_INVALID;
    }
    return 0;
}

static int read_service(struct hf__fs_auth *a, const json_t *j, const char **ret_why)
{
    const struct member all[] = {{"client_email", &a->name, "no client_email"},
                                 {"private_key", &a->key, "no private_key"},
                                 {"token_uri", &a->token_uri, "no token_uri"},
                                 {"private_key_id", &a->key_id, NULL}};
    a->who = HF_FS_SERVICE;
    return read_members(j, all, sizeof all / sizeof *all, ret_why);
}

static int read_person(struct hf__fs_auth *a, const json_t *j, const char **ret_why)
{
    const struct member all[] = {{"client_id", &a->client_id, "no client_id"},
                                 {"client_secret", &a->client_secret, "no client_secret"},
                                 {"refresh_token", &a->key, "no refresh_token"},
                                 {"token_uri", &a->token_uri, NULL}};
    int rc = read_members(j, all, sizeof all / sizeof *all, ret_why);
    a->who = HF_FS_REFRESHABLE;
    *ret_why = rc ? *ret_why : "out of memory";
    return rc || a->token_uri ? rc
                              : hf__fs_set(&a->token_uri, "https://oauth2.googleapis.com/token");
}

/* Reads a credentials file. The caller calls hf__fs_forget_credentials, even if this fails. */
static int read_credentials(struct hf__fs_auth *a, const char *path, hf_error *err)
{
    char reason[HF_KIT_WHY];
    int checked = hf__credential_check("credentials", path, reason);
    if (checked) return hf_fail(err, checked, 0, "firestore: %s", reason);
    char *text = hf__fs_read_file(path);
    if (!text) {
        int sys = errno;
        return bad_file(path, hf__credential_code(sys), strerror(sys), err);
    }
    int nomem;
    json_t *j = hf__json_read(text, strlen(text), 0, &nomem);
    hf__rest_forget(text);
    if (nomem) return bad_file(path, HF_NOMEM, "out of memory", err);
    const char *type = json_string_value(json_object_get(j, "type"));
    const char *why = "neither of a service account nor of a user";
    int rc = HF_INVALID;
    if (!json_is_object(j) || !type)
        why = "not a file of credentials";
    else if (!strcmp(type, "service_account"))
        rc = read_service(a, j, &why);
    else if (!strcmp(type, "authorized_user"))
        rc = read_person(a, j, &why);
    if (!rc && !hf__rest_url_safe(a->token_uri)) {
        rc = HF_INVALID;
        why = "token_uri: not https";
    }
    json_decref(j);
    return rc ? bad_file(path, rc, why, err) : 0;
}

void hf__fs_forget_credentials(struct hf__fs_auth *a)
{
    char **texts[] = {&a->name,   &a->token_uri, &a->key,
                      &a->key_id, &a->client_id, &a->client_secret};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hf__rest_forget(*texts[i]);
        *texts[i] = NULL;
    }
}

int hf__fs_open_credentials(struct hf__fs_auth *a, const char *path, hf_error *err)
{
    struct stat is;
    int rc = read_credentials(a, path, err);
    if (rc || stat(path, &is) || !S_ISREG(is.st_mode)) return rc; /* a pipe can't be read again */
    rc = hf__fs_set(&a->file, path);
    return rc ? hf_fail(err, rc, 0, "firestore: open: out of memory") : 0;
}

int hf__fs_read_credentials_again(struct hf__fs_auth *a, hf_error *err)
{
    struct hf__fs_auth now = {.who = a->who};
    if (!a->file) return 0;
    int rc = read_credentials(&now, a->file, err);
    if (rc) {
        hf__fs_forget_credentials(&now);
        if (err) err->code = HF_UNAVAILABLE;
        return rc == HF_NOMEM ? rc : HF_UNAVAILABLE;
    }
    hf__fs_forget_credentials(a);
    a->who = now.who;
    a->name = now.name;
    a->token_uri = now.token_uri;
    a->key = now.key;
    a->key_id = now.key_id;
    a->client_id = now.client_id;
    a->client_secret = now.client_secret;
    return 0;
}
