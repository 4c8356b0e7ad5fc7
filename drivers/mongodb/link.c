/*
 * link.c - see link.h.
 *
 * Contents: what the URL says; how to connect; errors; one command; connecting.
 *
 * Every link has a libmongoc client without threads, which looks at the deployment when it is made
 * and is thrown away when something is wrong with it: what it remembers of a server that was away
 * would keep it from trying again for seconds. Commands go out as they are given, so that libmongoc
 * never repeats one by itself.
 */
#include "link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URI_CAP = 8192, VALUE_CAP = 1024 };

/* ---- what the URL says ---- */

enum option_kind { OWN, TEXT, BOOL, OURS };

/* What libmongoc knows, as far as it is of use here. Those that are OURS are only ever one value:
   so that a connection string can be pasted, and one that means something else is refused. */
static const struct option {
    const char *name;
    enum option_kind kind;
    const char *must_be[2], *why;
} options[] = {
    {"collection", OWN, {NULL}, NULL},
    {"appName", TEXT, {NULL}, NULL},
    {"authMechanism", TEXT, {NULL}, NULL},
    {"authMechanismProperties", TEXT, {NULL}, NULL},
    {"authSource", TEXT, {NULL}, NULL},
    {"compressors", TEXT, {NULL}, NULL},
    {"directConnection", BOOL, {NULL}, NULL},
    {"replicaSet", TEXT, {NULL}, NULL},
    {"ssl", BOOL, {NULL}, NULL},
    {"tls", BOOL, {NULL}, NULL},
    {"tlsAllowInvalidCertificates", BOOL, {NULL}, NULL},
    {"tlsAllowInvalidHostnames", BOOL, {NULL}, NULL},
    {"tlsCAFile", TEXT, {NULL}, NULL},
    {"tlsCertificateKeyFile", TEXT, {NULL}, NULL},
    {"tlsCertificateKeyFilePassword", TEXT, {NULL}, NULL},
    {"tlsDisableCertificateRevocationCheck", BOOL, {NULL}, NULL},
    {"tlsDisableOCSPEndpointCheck", BOOL, {NULL}, NULL},
    {"tlsInsecure", BOOL, {NULL}, NULL},
    {"w", OURS, {"majority", NULL}, "with less a fail-over forgets who holds a key"},
    {"journal", OURS, {"true", NULL}, "without it a crash forgets who holds a key"},
    {"readConcernLevel",
     OURS,
     {"linearizable", "majority"},
     "with less a read shows what may be undone"},
    {"readPreference", OURS, {"primary", NULL}, "the others show the past"},
    {"retryReads", OURS, {"true", "false"}, "that is no boolean"},
    {"retryWrites", OURS, {"true", "false"}, "that is no boolean"},
};
enum { OPTIONS = sizeof options / sizeof *options };

static const struct option *find_option(const char *name, size_t len)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (strlen(options[i].name) == len && !memcmp(options[i].name, name, len))
            return &options[i];
    return NULL;
}

struct text {
    char *to;
    size_t len, cap;
};

static void put(struct text *t, const char *s)
{
    size_t n = strlen(s);
    if (t->len + n >= t->cap) n = 0, t->len = t->cap; /* shows by its length */
    memcpy(t->to + (n ? t->len : 0), s, n);
    t->len += n;
}

/* Percent-encodes all but what is ordinary, and `also`. */
static void put_encoded(struct text *t, const char *s, const char *also)
{
    char piece[4];
    for (; *s; s++) {
        int plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                    (*s >= '0' && *s <= '9') || strchr("-._~", *s) || strchr(also, *s);
        snprintf(piece, sizeof piece, plain ? "%c" : "%%%02X", (unsigned char)*s);
        put(t, piece);
    }
}

static int check_option(const hf_url *url, const struct option *o, const char *value, hf_error *err)
{
    if (o->kind == BOOL && strcmp(value, "true") && strcmp(value, "false"))
        return hf_fail(err, HF_INVALID, 0, "mongodb: open '%s': %s: neither true nor false",
                       url->safe, o->name);
    if (o->kind != OURS) return 0;
    for (int i = 0; i < 2 && o->must_be[i]; i++)
        if (!strcmp(value, o->must_be[i])) return 0;
    return hf_fail(err, HF_INVALID, 0, "mongodb: open '%s': %s must be %s: %s", url->safe, o->name,
                   o->must_be[0], o->why);
}

/* Every option of the URL is known and says what it may. */
static int check_options(const hf_url *url, hf_error *err)
{
    char value[VALUE_CAP];
    int rc = 0;
    for (const char *p = url->query; *p && !rc;) {
        size_t pair = strcspn(p, "&"), name = strcspn(p, "=&");
        const struct option *o = find_option(p, name);
        if (pair && !o)
            return hf_fail(err, HF_INVALID, 0, "mongodb: open '%s': unknown option '%.*s'",
                           url->safe, (int)name, p);
        if (pair && hf_url_get(url, o->name, value, sizeof value))
            rc = hf_fail(err, HF_INVALID, 0, "mongodb: open '%s': %s: too long, or given twice",
                         url->safe, o->name);
        else if (pair)
            rc = check_option(url, o, value, err);
        p += pair + (p[pair] == '&');
    }
    explicit_bzero(value, sizeof value);
    return rc;
}

/* ---- how to connect ---- */

static void put_options(struct text *t, const hf_url *url)
{
    char value[VALUE_CAP];
    for (size_t i = 0; i < OPTIONS; i++) {
        if (options[i].kind == OWN || options[i].kind == OURS ||
            hf_url_get(url, options[i].name, value, sizeof value))
            continue;
        put(t, "&");
        put(t, options[i].name);
        put(t, "=");
        put_encoded(t, value, ":,/");
    }
    explicit_bzero(value, sizeof value);
}

static mongoc_uri_t *make_uri(const hf_url *url, int64_t io_timeout_ms)
{
    char buffer[URI_CAP] = "", number[160];
    struct text t = {buffer, 0, sizeof buffer};
    int bare_v6 = strchr(url->host, ':') && !strchr(url->host, ',');
    put(&t, "mongodb://");
    if (url->user[0]) put_encoded(&t, url->user, "");
    if (url->password[0]) {
        put(&t, ":");
        put_encoded(&t, url->password, "");
    }
    if (url->user[0]) put(&t, "@");
    if (bare_v6) put(&t, "[");
    put_encoded(&t, url->host[0] ? url->host : "localhost", ":,[]");
    if (bare_v6) put(&t, "]");
    if (url->port) {
        snprintf(number, sizeof number, ":%d", url->port);
        put(&t, number);
    }
    put(&t, "/");
    if (url->path[0] == '/') put_encoded(&t, url->path + 1, "");
    long long ms = (long long)io_timeout_ms;
    snprintf(number, sizeof number,
             "?connectTimeoutMS=%lld&socketTimeoutMS=%lld&serverSelectionTimeoutMS=%lld"
             "&retryWrites=false&retryReads=false",
             ms, ms, ms);
    put(&t, number);
    put_options(&t, url);
    mongoc_uri_t *uri = t.len < t.cap ? mongoc_uri_new_with_error(buffer, NULL) : NULL;
    explicit_bzero(buffer, sizeof buffer);
    return uri;
}

static int legal_name(const char *name, size_t most, const char *not_with)
{
    return *name && strlen(name) <= most && !strpbrk(name, not_with) &&
           strncmp(name, "system.", 7) != 0;
}

int hf__mg_how(const hf_url *url, int64_t io_timeout_ms, struct hf__mg_how *how, hf_error *err)
{
    hf__mg_start();
    int rc = check_options(url, err);
    if (rc) return rc;
    how->io_timeout_ms = io_timeout_ms;
    hf_url_get(url, "readConcernLevel", how->read_level, sizeof how->read_level);
    const char *db = url->path[0] == '/' && url->path[1] ? url->path + 1 : "holdfast";
    if (!legal_name(db, 63, "/\\. \"$*<>:|?"))
        return hf_fail(err, HF_INVALID, 0, "mongodb: open '%s': not the name of a database",
                       url->safe);
    snprintf(how->db, sizeof how->db, "%s", db);
    rc = hf_url_get(url, "collection", how->collection, sizeof how->collection);
    if (rc == HF_UNSUPPORTED) snprintf(how->collection, sizeof how->collection, "holdfast");
    if (rc == HF_INVALID || !legal_name(how->collection, 120, "$"))
        return hf_fail(err, HF_INVALID, 0, "mongodb: open '%s': collection: not the name of one",
                       url->safe);
    how->uri = make_uri(url, io_timeout_ms);
    if (!how->uri)
        return hf_fail(err, HF_INVALID, 0,
                       "mongodb: open '%s': libmongoc doesn't take these hosts or options",
                       url->safe);
    return 0;
}

void hf__mg_how_free(struct hf__mg_how *how)
{
    mongoc_uri_destroy(how->uri);
    how->uri = NULL;
}

/* ---- errors ---- */

/* Errors of the server after which nobody knows whether the write was done: it was interrupted, or
   this isn't the primary any more. */
static int interrupted(int code)
{
    static const int codes[] = {6,     7,     24,    46,    50,    64,    89,    91,    112,
                                134,   189,   202,   262,   317,   9001,  10058, 10107, 11600,
                                11601, 11602, 13388, 13435, 13436, 14064, 100,   79};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code) return 1;
    return 0;
}

static int code_of_server(int code, int ambiguous)
{
    if (interrupted(code)) return ambiguous;
    switch (code) {
    case 13: /* Unauthorized */
    case 18: /* AuthenticationFailed */
    case 8000: return HF_DENIED;
    case 14031: return HF_FULL;        /* OutOfDiskSpace */
    case 2:                            /* BadValue */
    case 9:                            /* FailedToParse */
    case 59:                           /* CommandNotFound */
    case 72:                           /* InvalidOptions */
    case 115:                          /* CommandNotSupported */
    case 123:                          /* NotAReplicaSet */
    case 148:                          /* ReadConcernMajorityNotEnabled */
    case 166:                          /* CommandNotSupportedOnView */
    case 238:                          /* NotImplemented */
    case 17276:                        /* an unknown variable */
    case 40324: return HF_UNSUPPORTED; /* an unknown stage */
    case 121: return HF_INVALID;       /* DocumentValidationFailure */
    default: return HF_UNAVAILABLE;
    }
}

static int code_of(const bson_error_t *e, int ambiguous)
{
    switch ((int)e->domain) {
    case MONGOC_ERROR_SERVER: return code_of_server((int)e->code, ambiguous);
    case MONGOC_ERROR_SERVER_SELECTION: return HF_UNAVAILABLE; /* so it wasn't sent */
    case MONGOC_ERROR_STREAM:
        return e->code == MONGOC_ERROR_STREAM_NAME_RESOLUTION ||
                       e->code == MONGOC_ERROR_STREAM_CONNECT ||
                       e->code == MONGOC_ERROR_STREAM_NOT_ESTABLISHED
                   ? HF_UNAVAILABLE
                   : ambiguous;
    case MONGOC_ERROR_CLIENT:
        return e->code == MONGOC_ERROR_CLIENT_AUTHENTICATE ? HF_DENIED : HF_UNAVAILABLE;
    case MONGOC_ERROR_SASL:
    case MONGOC_ERROR_SCRAM: return HF_DENIED;
    default: return ambiguous;
    }
}

/* ---- one command ---- */

void hf__mg_disconnect(struct hf__mg_link *link)
{
    mongoc_client_destroy(link->client);
    link->client = NULL;
}

/* A reply of a write that was done but isn't sure to stay: nobody knows yet. */
static int not_yet_sure(const bson_t *reply, const struct hf__mg_about *about, hf_error *err)
{
    bson_iter_t it, why;
    const char *text = "the majority has not confirmed it";
    if (!bson_iter_init_find(&it, reply, "writeConcernError")) return 0;
    if (BSON_ITER_HOLDS_DOCUMENT(&it) && bson_iter_recurse(&it, &why) &&
        bson_iter_find(&why, "errmsg") && BSON_ITER_HOLDS_UTF8(&why))
        text = bson_iter_utf8(&why, NULL);
    return hf_fail(err, about->ambiguous, 0, "mongodb: %s '%s': %.*s", about->what, about->key,
                   (int)strcspn(text, "\n"), text);
}

int hf__mg_ask(const struct hf__mg_how *how, struct hf__mg_link *link, const bson_t *command,
               const struct hf__mg_about *about, bson_t *ret, int *ret_code, hf_error *err)
{
    bson_error_t e = {0, 0, ""};
    *ret_code = 0;
    if (mongoc_client_command_simple(link->client, how->db, command, NULL, ret, &e)) {
        int rc = not_yet_sure(ret, about, err);
        if (rc) bson_destroy(ret);
        return rc;
    }
    bson_destroy(ret);
    if (e.domain == MONGOC_ERROR_SERVER) *ret_code = (int)e.code;
    /* One that isn't the primary any more, or not there: the next is found by another client. */
    if (e.domain != MONGOC_ERROR_SERVER || interrupted(*ret_code)) hf__mg_disconnect(link);
    return hf_fail(err, code_of(&e, about->ambiguous), 0, "mongodb: %s '%s': %.*s", about->what,
                   about->key, (int)strcspn(e.message, "\n"), e.message);
}

/* ---- connecting ---- */

static int refuse(struct hf__mg_link *link, int code, const char *why, hf_error *err)
{
    char line[300];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(why, "\n"), why);
    hf__mg_disconnect(link);
    return hf_fail(err, code, 0, "mongodb: connect: %s", line);
}

int hf__mg_connect(const struct hf__mg_how *how, struct hf__mg_link *link, hf_error *err)
{
    bson_error_t e = {0, 0, ""};
    link->client = mongoc_client_new_from_uri_with_error(how->uri, &e);
    if (!link->client) return refuse(link, HF_INVALID, e.message, err);
    mongoc_client_set_error_api(link->client, MONGOC_ERROR_API_VERSION_2);
    if (!mongoc_uri_get_appname(how->uri)) mongoc_client_set_appname(link->client, "holdfast");
    mongoc_server_description_t *server = mongoc_client_select_server(link->client, true, NULL, &e);
    if (!server) return refuse(link, code_of(&e, HF_UNAVAILABLE), e.message, err);
    char type[32];
    snprintf(type, sizeof type, "%s", mongoc_server_description_type(server));
    mongoc_server_description_destroy(server);
    link->replicated = !strcmp(type, "RSPrimary");
    if (!strcmp(type, "Mongos"))
        return refuse(link, HF_UNSUPPORTED,
                      "a sharded cluster, each router of which has a clock of its own", err);
    if (!link->replicated && strcmp(type, "Standalone") != 0)
        return refuse(link, HF_UNSUPPORTED,
                      "not a primary, so it can't be written (name all hosts, and replicaSet)",
                      err);
    return 0;
}
