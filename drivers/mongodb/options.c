/*
 * options.c - mongodb: reads the URL, and makes libmongoc's URI of it. See link.h.
 */
#include "link.h"

#include <stdio.h>
#include <string.h>

enum { URI_CAP = 8192, VALUE_CAP = 1024 };

/* ---- what the URL says ---- */

enum option_kind { OWN, TEXT, BOOL, OURS };

/* The options that are allowed, mostly libmongoc's own. An option of the kind OURS, which the
   driver sets itself, is allowed with that value only. So a usual connection string can be pasted,
   and one that asks for other settings is refused. */
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
    {"w", OURS, {"majority", NULL}, "with less, a fail-over may lose the row of a held key"},
    {"journal", OURS, {"true", NULL}, "without it, a crash may lose the row of a held key"},
    {"readConcernLevel",
     OURS,
     {"linearizable", "majority"},
     "with less, a read may show a write that is undone later"},
    {"readPreference", OURS, {"primary", NULL}, "the others may read old rows"},
    {"retryReads", OURS, {"true", "false"}, "it is a boolean"},
    {"retryWrites", OURS, {"true", "false"}, "it is a boolean"},
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
    if (t->len + n >= t->cap) n = 0, t->len = t->cap; /* len == cap: it was too long */
    memcpy(t->to + (n ? t->len : 0), s, n);
    t->len += n;
}

/* Appends a text with all characters percent-encoded except ordinary ones and those in `also`. */
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

/* Checks that every option of the URL is known and has an allowed value. */
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

/* Notes the hosts of the URI as targets. Returns 0 if there are too many. */
static int set_hosts(struct hf__mg_how *how)
{
    const mongoc_host_list_t *h = mongoc_uri_get_hosts(how->uri);
    for (how->n_hosts = 0; h; h = h->next, how->n_hosts++) {
        if (how->n_hosts == HF_DIAL_TARGETS) return 0;
        char *port = how->port[how->n_hosts];
        snprintf(port, HF_MG_PORT_CAP, "%u", (unsigned)h->port);
        how->host[how->n_hosts] = (struct hf__dial_target){h->host, port};
    }
    return 1;
}

/* Sets TLS for the streams of this driver, as libmongoc does from the URI for its own streams. */
static void set_tls(struct hf__mg_how *how)
{
    const mongoc_uri_t *u = how->uri;
    int insecure = mongoc_uri_get_option_as_bool(u, MONGOC_URI_TLSINSECURE, false);
    how->tls = mongoc_uri_get_tls(u);
    how->tls_by_libmongoc =
        how->tls &&
        (mongoc_uri_get_option_as_bool(u, MONGOC_URI_TLSDISABLECERTIFICATEREVOCATIONCHECK, false) ||
         mongoc_uri_get_option_as_bool(u, MONGOC_URI_TLSDISABLEOCSPENDPOINTCHECK, false));
    how->ssl = *mongoc_ssl_opt_get_default();
    how->ssl.pem_file = mongoc_uri_get_option_as_utf8(u, MONGOC_URI_TLSCERTIFICATEKEYFILE, NULL);
    /* Without a passphrase OpenSSL would ask for one on the terminal. */
    how->ssl.pem_pwd =
        mongoc_uri_get_option_as_utf8(u, MONGOC_URI_TLSCERTIFICATEKEYFILEPASSWORD, "");
    how->ssl.ca_file = mongoc_uri_get_option_as_utf8(u, MONGOC_URI_TLSCAFILE, NULL);
    how->ssl.weak_cert_validation =
        insecure || mongoc_uri_get_option_as_bool(u, MONGOC_URI_TLSALLOWINVALIDCERTIFICATES, false);
    how->ssl.allow_invalid_hostname =
        insecure || mongoc_uri_get_option_as_bool(u, MONGOC_URI_TLSALLOWINVALIDHOSTNAMES, false);
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
        return hf_fail(err, HF_INVALID, 0,
                       "mongodb: open '%s': the path is not a legal database name", url->safe);
    snprintf(how->db, sizeof how->db, "%s", db);
    rc = hf_url_get(url, "collection", how->collection, sizeof how->collection);
    if (rc == HF_UNSUPPORTED) snprintf(how->collection, sizeof how->collection, "holdfast");
    if (rc == HF_INVALID || !legal_name(how->collection, 120, "$"))
        return hf_fail(err, HF_INVALID, 0,
                       "mongodb: open '%s': collection: not a legal collection name", url->safe);
    snprintf(how->how_to_empty, sizeof how->how_to_empty, "drop the collection %s",
             how->collection);
    if (!hf__mg_begin())
        return hf_fail(err, HF_UNAVAILABLE, 0, "mongodb: open: the program is ending");
    how->uri = make_uri(url, io_timeout_ms);
    hf__mg_end();
    if (!how->uri)
        return hf_fail(err, HF_INVALID, 0,
                       "mongodb: open '%s': libmongoc doesn't take these hosts or options",
                       url->safe);
    if (!set_hosts(how))
        return hf_fail(err, HF_INVALID, 0, "mongodb: open '%s': more than %d hosts", url->safe,
                       HF_DIAL_TARGETS);
    set_tls(how);
    return 0;
}

void hf__mg_how_free(struct hf__mg_how *how)
{
    mongoc_uri_destroy(how->uri);
    how->uri = NULL;
}
