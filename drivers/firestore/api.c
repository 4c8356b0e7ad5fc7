/*
 * api.c - see api.h.
 *
 * Contents: what an answer means; one call.
 *
 * A commit that was refused because of its precondition, rights or size wasn't done. A commit
 * without an answer, or with "internal", "unavailable" or "deadline exceeded", may have been done.
 */
#include "api.h"

#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_SHOWN = 200 };

/* ---- what an answer means ---- */

struct meaning {
    const char *status; /* the name of the error in Google's APIs */
    long http;          /* the HTTP status, which counts if the answer has no such name */
    int code;           /* 0: it may have been done */
    int condition;
};

static const struct meaning meanings[] = {
    {"FAILED_PRECONDITION", 0, HF_UNSUPPORTED, 1},
    {"ALREADY_EXISTS", 0, HF_CORRUPT, 1},
    {"ABORTED", 409, HF_UNAVAILABLE, 1},
    {"NOT_FOUND", 404, HF_INVALID, 1},
    {"INVALID_ARGUMENT", 0, HF_INVALID, 0},
    /* HTTP 400 without a name may also be FAILED_PRECONDITION. Nothing was done in either case. */
    {"", 400, HF_UNAVAILABLE, 0},
    {"OUT_OF_RANGE", 413, HF_INVALID, 0},
    {"UNAUTHENTICATED", 401, HF_DENIED, 0},
    {"PERMISSION_DENIED", 403, HF_DENIED, 0},
    {"RESOURCE_EXHAUSTED", 429, HF_UNAVAILABLE, 0},
    {"UNIMPLEMENTED", 501, HF_UNSUPPORTED, 0},
};

static int meaning_of(const char *status, long http, struct hf__fs_call *call)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        const struct meaning *m = &meanings[i];
        if (status ? !!strcmp(m->status, status) : m->http != http) continue;
        call->condition = m->condition;
        return m->code;
    }
    return call->writes ? HF_UNKNOWN : HF_UNAVAILABLE;
}

/* Returns the error in an answer, which may be an array (a stream); NULL: there is none. */
static const json_t *error_in(const json_t *answer)
{
    const json_t *item;
    size_t i;
    if (!json_is_array(answer)) return json_object_get(answer, "error");
    json_array_foreach(answer, i, item) if (json_object_get(item, "error")) return json_object_get(
        item, "error");
    return NULL;
}

static int fail(const struct hf__fs_call *call, int code, const char *why, hf_error *err)
{
    return hf_fail(err, code, 0, "firestore: %s '%s': %s", call->what, call->key, why);
}

/* Copies the first line of a text, unless the text contains a secret. */
static void show(const char *from, const char *header, char to[ANSWER_SHOWN])
{
    const char *token = strrchr(header, ' ') + 1;
    snprintf(to, ANSWER_SHOWN, "%.*s", (int)strcspn(from, "\r\n"), from);
    if (strlen(token) > 8 && strstr(from, token)) snprintf(to, ANSWER_SHOWN, "(it tells secrets)");
}

static int judge(const struct hf__rest_reply *r, const char *header, struct hf__fs_call *call,
                 json_t **ret, hf_error *err)
{
    char shown[ANSWER_SHOWN], why[ANSWER_SHOWN + 80];
    int lost = call->writes ? HF_UNKNOWN : HF_UNAVAILABLE;
    if (!r->status) return fail(call, r->sent ? lost : r->code, r->why, err);
    int nomem;
    json_t *j = hf__json_read(r->body, r->len, JSON_ALLOW_NUL, &nomem);
    if (nomem) return fail(call, call->writes ? HF_UNKNOWN : HF_NOMEM, "out of memory", err);
    const json_t *error = error_in(j);
    if (r->status == 200 && j && !error) {
        *ret = j;
        return 0;
    }
    const char *status = json_string_value(json_object_get(error, "status"));
    const char *told = json_string_value(json_object_get(error, "message"));
    int code = meaning_of(status, r->status, call);
    if (r->status == 200 && !j) code = lost;
    show(told ? told : r->status == 200 ? "not an answer of Firestore" : "", header, shown);
    snprintf(why, sizeof why, "%s%sHTTP %ld%s%s", status ? status : "", status ? ", " : "",
             r->status, *shown ? ": " : "", shown);
    json_decref(j);
    return fail(call, code, why, err);
}

/* ---- one call ---- */

/* Returns the URL of a call, to be freed: the base, the percent-encoded name, ":method". NULL: out
   of memory. */
static char *url_of(const struct hf__fs_api *api, const char *name, const char *method)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._~()/";
    char *url = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&url, &len);
    if (!f) return NULL;
    fputs(api->base, f);
    for (; *name; name++)
        if (strchr(plain, *name))
            fputc(*name, f);
        else
            fprintf(f, "%%%02X", (unsigned char)*name);
    fprintf(f, ":%s", method);
    int bad = ferror(f);
    if (!fclose(f) && !bad) return url;
    free(url);
    return NULL;
}

static int once(struct hf__fs_api *api, struct hf__fs_call *call, const char *url, const char *text,
                int *ret_refused, json_t **ret, hf_error *err)
{
    struct hf__rest_reply r;
    uint64_t generation;
    char *header;
    int rc = hf__fs_auth_header(&api->auth, &api->net, &header, &generation, err);
    if (rc) return rc;
    const char *const headers[] = {header, "Content-Type: application/json", "Expect:", NULL};
    const struct hf__rest_call post = {.method = "POST",
                                       .url = url,
                                       .headers = headers,
                                       .body = text,
                                       .len = strlen(text),
                                       .harmless = !call->writes,
                                       .many_until_us = call->many_until_us};
    hf__rest_ask(&api->net, &post, &r);
    rc = judge(&r, header, call, ret, err);
    *ret_refused = r.status == 401 && hf__fs_auth_refused(&api->auth, generation);
    hf__rest_forget(header);
    hf__rest_reply_free(&r);
    return rc;
}

int hf__fs_ask(struct hf__fs_api *api, struct hf__fs_call *call, const char *name,
               const char *method, json_t *body, json_t **ret, hf_error *err)
{
    char *text = body ? hf__json_text(body) : NULL;
    char *url = url_of(api, name, method);
    int refused = 0, rc;
    json_decref(body);
    call->condition = 0;
    if (!text || !url) {
        rc = fail(call, HF_NOMEM, "out of memory", err);
    } else {
        rc = once(api, call, url, text, &refused, ret, err);
        /* The server refused the token, so nothing was done. It is sent once more, with a new
           token. */
        if (refused) rc = once(api, call, url, text, &refused, ret, err);
    }
    free(text);
    free(url);
    return rc;
}
