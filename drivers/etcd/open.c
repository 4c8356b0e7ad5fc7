/*
 * open.c - reads the endpoints, TLS files and user from the URL; closes what http.c and its
 * connections have.
 */
#include "http.h"

#include "kit/fork_gate.h"
#include "kit/secret.h"
#include "kit/text.h"
#include "transport.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

static int option(const hf_url *url, const char *name, char **ret, hf_error *err)
{
    char value[1024];
    int rc = hf_url_get(url, name, value, sizeof value);
    if (rc == HF_UNSUPPORTED) return 0;
    if (rc || !*value)
        return hf_fail(err, HF_INVALID, 0, "etcd: open '%s': %s: not a file's name", url->safe,
                       name);
    *ret = strdup(value);
    return *ret ? 0 : hf_fail(err, HF_NOMEM, 0, "etcd: open '%s': out of memory", url->safe);
}

static int options(struct hf__et_http *http, const hf_url *url, hf_error *err)
{
    static const char *const plain_known[] = {NULL};
    static const char *const tls_known[] = {"cafile", "cert", "key", NULL};
    char name[64];
    int tls = !strcmp(url->scheme, "etcds");
    const char *bad = hf__unknown_option(url, tls ? tls_known : plain_known, name, sizeof name);
    if (bad && !strcmp(bad, "api"))
        return hf_fail(err, HF_INVALID, 0,
                       "etcd: open '%s': api: unknown: etcd is asked by gRPC, and in no other way",
                       url->safe);
    if (bad)
        return hf_fail(err, HF_INVALID, 0, "etcd: open '%s': %s: unknown%s", url->safe, bad,
                       tls ? "" : " (cafile, cert and key belong to etcds:)");
    int rc = option(url, "cafile", &http->cafile, err);
    if (!rc) rc = option(url, "cert", &http->cert, err);
    if (!rc) rc = option(url, "key", &http->key, err);
    if (!rc && !http->cert != !http->key)
        rc = hf_fail(err, HF_INVALID, 0, "etcd: open '%s': %s: cert and key go together", url->safe,
                     http->cert ? "cert" : "key");
    return rc;
}

int hf__et_http_open(struct hf__et_http *http, const hf_url *url, int64_t io_timeout_ms,
                     hf_error *err)
{
    int tls = !strcmp(url->scheme, "etcds");
    hf__pool_open(&http->pool);
    hf__pool_open(&http->keep_pool);
    pthread_mutex_init(&http->token_mu, NULL);
    hf__et_date_open(&http->date);
    if (hf__keys_would_be_logged())
        return hf_fail(err, HF_DENIED, 0,
                       "etcd: open: SSLKEYLOGFILE is set in a program with more rights than "
                       "its user: unset it");
    hf__gate_begin();
    http->ready = !curl_global_init(CURL_GLOBAL_DEFAULT);
    hf__gate_end();
    http->io_timeout_ms = io_timeout_ms;
    if (!http->ready) return hf_fail(err, HF_NOMEM, 0, "etcd: open: libcurl doesn't start");
    int rc = options(http, url, err);
    if (rc) return rc;
    const char *hosts = *url->host ? url->host : "127.0.0.1";
    for (const char *s = hosts; !rc; s++) {
        size_t len = strcspn(s, ",");
        rc = hf__et_add_endpoint(http, s, len, url->port, tls);
        if (rc)
            hf_fail(err, rc, 0, "etcd: open '%s': %s", url->safe,
                    rc == HF_NOMEM ? "out of memory"
                                   : "the hosts are not HOST[:PORT],... (16 at most)");
        s += len;
        if (!*s) break;
    }
    if (!rc && *url->user) {
        http->user = strdup(url->user);
        http->password = strdup(url->password);
        if (!http->user || !http->password)
            rc = hf_fail(err, HF_NOMEM, 0, "etcd: open '%s': out of memory", url->safe);
    }
    return rc;
}

void hf__et_http_close(struct hf__et_http *http)
{
    hf__et_version_close(http);
    hf__et_h2_close(http);
    for (unsigned i = 0; i < http->n_endpoints; i++) free(http->endpoint[i]);
    char *texts[] = {http->cafile, http->cert, http->key, http->user};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
    hf__et_free_secret(http->password);
    hf__et_free_secret(http->token);
    hf__pool_close(&http->pool);
    hf__pool_close(&http->keep_pool);
    pthread_mutex_destroy(&http->token_mu);
    hf__et_date_close(&http->date);
    if (!http->ready) return;
    hf__gate_begin();
    curl_global_cleanup();
    hf__gate_end();
}
