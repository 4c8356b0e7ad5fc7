/*
 * auth.c - see auth.h.
 *
 * Contents: what is used; tokens for credentials; the header. credentials.c reads the files.
 *
 * A service account's file has a private key. The driver signs a short statement with it, for which
 * the token server gives an access token, valid for an hour. The token is renewed in time; if the
 * token server can't be reached then, the old token is used until its end. The statement has the
 * time of day, by this machine's clock; nothing else uses that clock, and no lease depends on it.
 */
#include "auth.h"

#include "credentials.h"
#include "json.h"
#include "kit/fork_gate.h"
#include "kit/secret.h"
#include "os.h"
#include "sign.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATEMENT_S = 3600, EARLY_S = 300, AGAIN_S = 10 };

static const char scope[] = "https://www.googleapis.com/auth/datastore";

/* ---- what is used ---- */

int hf__fs_auth_open(struct hf__fs_auth *a, const char *file, int emulator, hf_error *err)
{
    /* A set-user-id program ignores these variables, because its caller sets them. */
    const char *token = secure_getenv("FIRESTORE_ID_TOKEN");
    const char *path = secure_getenv("FIRESTORE_ID_TOKEN_FILE");
    const char *usual = secure_getenv("GOOGLE_APPLICATION_CREDENTIALS");
    int rc = 0;
    pthread_mutex_init(&a->mu, NULL);
    if (path && *path) {
        char reason[HF_KIT_WHY];
        if ((rc = hf__credential_check("FIRESTORE_ID_TOKEN_FILE", path, reason)))
            return hf_fail(err, rc, 0, "firestore: %s", reason);
        a->who = HF_FS_USER_FILE;
        rc = hf__fs_set(&a->path, path);
    } else if (token && *token) {
        a->who = HF_FS_USER;
        rc = hf__fs_set(&a->token, token);
    } else if (file) {
        return hf__fs_open_credentials(a, file, err);
    } else if (emulator) {
        a->who = HF_FS_OWNER;
    } else if (usual && *usual) {
        return hf__fs_open_credentials(a, usual, err);
    } else {
        return hf_fail(err, HF_DENIED, 0,
                       "firestore: open: no credentials: neither ?credentials=FILE nor "
                       "GOOGLE_APPLICATION_CREDENTIALS nor FIRESTORE_ID_TOKEN is given, nor "
                       "FIRESTORE_EMULATOR_HOST (HOST:PORT) for an emulator");
    }
    return rc ? hf_fail(err, rc, 0, "firestore: open: out of memory") : 0;
}

void hf__fs_auth_close(struct hf__fs_auth *a)
{
    char *texts[] = {a->token, a->path, a->file, a->access};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) hf__rest_forget(texts[i]);
    hf__fs_forget_credentials(a);
    pthread_mutex_destroy(&a->mu);
}

/* ---- tokens for credentials ---- */

/* Makes the signed statement for the token server. Returns 0; HF_NOMEM or HF_INVALID, with
 *ret_why. */
static int statement(const struct hf__fs_auth *a, char **ret, const char **ret_why)
{
    json_int_t now = hf__day_us() / 1000000;
    json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I}", "iss", a->name, "scope", scope, "aud",
                          a->token_uri, "iat", now, "exp", now + STATEMENT_S);
    char *claims = j ? hf__json_text(j) : NULL;
    int rc = HF_NOMEM;
    json_decref(j);
    if (claims) {
        hf__gate_begin();
        rc = hf__fs_sign(claims, a->key, a->key_id, ret);
        hf__gate_end();
    }
    free(claims);
    *ret_why = rc == HF_INVALID ? "the private key can't sign: is it an RSA key in PEM, without a "
                                  "passphrase?"
                                : "out of memory";
    return rc;
}

/* Appends a field of a form, "name=value&". Returns 0 if there is no memory. */
static int put_field(FILE *to, const char *name, const char *value)
{
    char *safe = curl_easy_escape(NULL, value, 0);
    int ok = safe && fprintf(to, "%s=%s&", name, safe) > 0;
    if (safe) explicit_bzero(safe, strlen(safe));
    curl_free(safe);
    return ok;
}

/* Makes the request to the token server. Returns 0; HF_NOMEM or HF_INVALID, with *ret_why. */
static int request(const struct hf__fs_auth *a, char **ret, const char **ret_why)
{
    char *form = NULL, *jwt = NULL;
    size_t len = 0;
    int ok, rc = a->who == HF_FS_SERVICE ? statement(a, &jwt, ret_why) : 0;
    if (rc) return rc;
    *ret_why = "out of memory";
    FILE *f = open_memstream(&form, &len);
    if (jwt)
        ok = f && put_field(f, "grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer") &&
             put_field(f, "assertion", jwt);
    else
        ok = f && put_field(f, "grant_type", "refresh_token") &&
             put_field(f, "client_id", a->client_id) &&
             put_field(f, "client_secret", a->client_secret) &&
             put_field(f, "refresh_token", a->key);
    hf__rest_forget(jwt);
    if (f && (fclose(f) || !form)) ok = 0; /* the text is incomplete, because memory ran out */
    if (ok)
        *ret = form;
    else
        hf__rest_forget(form);
    return ok ? 0 : HF_NOMEM;
}

static int is_token(const char *s)
{
    if (!s || !*s) return 0;
    for (; *s; s++)
        if (*s <= ' ' || *s >= 0x7f) return 0;
    return 1;
}

static int refused(const struct hf__fs_auth *a, int code, const char *why, hf_error *err)
{
    return hf_fail(err, code, 0, "firestore: token for '%s' from '%s': %s",
                   a->name ? a->name : a->client_id, a->token_uri, why);
}

/* Returns 1 if the error code is that of a temporary error, by OAuth (RFC 6749, section 4.1.2.1) or
   by Google. */
static int passes(const char *error)
{
    static const char *const all[] = {"temporarily_unavailable", "server_error", "internal_failure",
                                      "rate_limit_exceeded"};
    for (size_t i = 0; error && i < sizeof all / sizeof *all; i++)
        if (!strcmp(error, all[i])) return 1;
    return 0;
}

/* Keeps the access token in the token server's reply, and its times. Returns 0 or the error. */
static int take_answer(struct hf__fs_auth *a, const struct hf__rest_reply *r, int64_t sent_us,
                       hf_error *err)
{
    char why[HF_REST_WHY];
    int nomem;
    json_t *j = hf__json_read(r->body, r->len, 0, &nomem);
    const char *token = json_string_value(json_object_get(j, "access_token"));
    const char *told = json_string_value(json_object_get(j, "error_description"));
    int64_t lives_s = json_integer_value(json_object_get(j, "expires_in"));
    int rc = 0;
    if (!told) told = json_string_value(json_object_get(j, "error"));
    if (nomem) {
        rc = refused(a, HF_NOMEM, "out of memory", err);
    } else if (r->status != 200) {
        snprintf(why, sizeof why, "HTTP %ld: %.*s", r->status,
                 told ? (int)strcspn(told, "\r\n") : 13, told ? told : "no reason told");
        int final = r->status == 400 || r->status == 401 || r->status == 403;
        if (passes(json_string_value(json_object_get(j, "error")))) final = 0;
        rc = final ? HF_DENIED : HF_UNAVAILABLE;
        rc = refused(a, rc, why, err);
    } else if (!is_token(token) || lives_s <= 0) {
        rc = refused(a, HF_UNAVAILABLE, "the answer holds no token", err);
    } else {
        char *mine = strdup(token);
        if (!mine) rc = refused(a, HF_NOMEM, "out of memory", err);
        if (mine) {
            int64_t early_s = lives_s / 2 < EARLY_S ? lives_s / 2 : EARLY_S;
            hf__rest_forget(a->access);
            a->access = mine;
            a->generation++;
            a->until_us = sent_us + lives_s * 1000000;
            a->renew_us = sent_us + (lives_s - early_s) * 1000000;
        }
    }
    json_decref(j);
    return rc;
}

/* Gets a new access token if it is time to. The caller holds the mutex. As long as the old token is
   valid, the mutex is released during the request, so that other threads go on with that token; and
   a failure doesn't matter yet. Returns 0 or the error. */
static int get_access(struct hf__fs_auth *a, struct hf__rest *net, hf_error *err)
{
    static const char *const headers[] = {"Content-Type: application/x-www-form-urlencoded", NULL};
    int64_t now = hf__local_us();
    struct hf__rest_reply r = {.status = 0};
    const char *why;
    char *form = NULL, *uri = NULL;
    if (a->access && now < a->renew_us) return 0;
    int spare = a->access && now < a->until_us;
    if (spare) a->renew_us = now + AGAIN_S * INT64_C(1000000);
    int rc = hf__fs_read_credentials_again(a, err);
    if (rc) return spare ? 0 : rc;
    rc = request(a, &form, &why);
    if (!rc && hf__fs_set(&uri, a->token_uri)) {
        rc = HF_NOMEM;
        why = "out of memory";
    }
    if (spare) pthread_mutex_unlock(&a->mu);
    const struct hf__rest_call post = {.method = "POST",
                                       .url = uri,
                                       .headers = headers,
                                       .body = form,
                                       .len = form ? strlen(form) : 0,
                                       .harmless = 1};
    if (!rc) hf__rest_ask(net, &post, &r);
    if (spare) pthread_mutex_lock(&a->mu);
    hf__rest_forget(form);
    free(uri);
    if (rc)
        rc = refused(a, rc, why, err);
    else
        rc = r.status ? take_answer(a, &r, now, err) : refused(a, r.code, r.why, err);
    hf__rest_reply_free(&r);
    return spare ? 0 : rc;
}

/* ---- the header ---- */

/* Reads a user's token from its file. If the file is missing or empty, it may just be being
   replaced: that is HF_UNAVAILABLE. */
static int read_token(const struct hf__fs_auth *a, char **ret, hf_error *err)
{
    char *text = hf__fs_read_file(a->path);
    if (!text)
        return hf_fail(err, errno == ENOMEM ? HF_NOMEM : HF_UNAVAILABLE, errno,
                       "firestore: FIRESTORE_ID_TOKEN_FILE '%s': %s", a->path, strerror(errno));
    text[strcspn(text, " \t\r\n")] = 0;
    if (!*text) {
        free(text);
        return hf_fail(err, HF_UNAVAILABLE, 0, "firestore: FIRESTORE_ID_TOKEN_FILE '%s': empty",
                       a->path);
    }
    *ret = text;
    return 0;
}

int hf__fs_auth_header(struct hf__fs_auth *a, struct hf__rest *net, char **ret,
                       uint64_t *ret_generation, hf_error *err)
{
    char *own = NULL;
    int rc = 0, n = -1;
    pthread_mutex_lock(&a->mu);
    if (a->who == HF_FS_USER_FILE) rc = read_token(a, &own, err);
    if (a->who == HF_FS_SERVICE || a->who == HF_FS_REFRESHABLE) rc = get_access(a, net, err);
    const char *token = a->who == HF_FS_OWNER  ? "owner"
                        : a->who == HF_FS_USER ? a->token
                        : own                  ? own
                                               : a->access;
    *ret_generation = a->generation;
    if (!rc && !is_token(token))
        rc = hf_fail(err, HF_DENIED, 0, "firestore: FIRESTORE_ID_TOKEN%s: not a token",
                     own ? "_FILE" : "");
    if (!rc) n = asprintf(ret, "Authorization: Bearer %s", token);
    pthread_mutex_unlock(&a->mu);
    hf__rest_forget(own);
    return rc || n >= 0 ? rc : hf_fail(err, HF_NOMEM, 0, "firestore: out of memory");
}

int hf__fs_auth_refused(struct hf__fs_auth *a, uint64_t generation)
{
    int again = a->who == HF_FS_SERVICE || a->who == HF_FS_REFRESHABLE;
    if (!again) return 0;
    pthread_mutex_lock(&a->mu);
    /* If another thread has got a new token since, that is used. */
    if (a->generation == generation) a->renew_us = a->until_us = 0;
    pthread_mutex_unlock(&a->mu);
    return 1;
}

void hf__fs_auth_who(struct hf__fs_auth *a, char to[HF_FS_WHO_CAP])
{
    pthread_mutex_lock(&a->mu);
    snprintf(to, HF_FS_WHO_CAP, "%s",
             a->who == HF_FS_OWNER ? "an administrator of the emulator"
             : a->who == HF_FS_USER || a->who == HF_FS_USER_FILE
                 ? "a user: the security rules decide"
             : a->name ? a->name
                       : "a person's own credentials");
    pthread_mutex_unlock(&a->mu);
}
