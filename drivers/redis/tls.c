/*
 * tls.c - rediss: TLS by OpenSSL, as a filter of bytes (see link.h). It never touches the socket,
 * so that waits end in time and no write can raise SIGPIPE.
 *
 * OpenSSL has locks of the whole process, so the filter's functions are inside the fork gate
 * (kit/fork_gate.h) while they call it.
 */
#include "kit/fork_gate.h"
#include "link.h"

#include "os.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ready {
    SSL_CTX *ctx;   /* made from the files as they were when the store was opened */
    char name[256]; /* the host name that the server's certificate must have */
    char ca[1024], cert[1024], key[1024];
};

struct filter {
    SSL *ssl;
    BIO *in, *out;
};

/* Writes the first of OpenSSL's errors; the others follow from it. */
static void complaint(char why[HF_KIT_WHY], const char *what)
{
    unsigned long e = ERR_peek_error();
    const char *reason =
        ERR_SYSTEM_ERROR(e) ? strerror(ERR_GET_REASON(e)) : ERR_reason_error_string(e);
    snprintf(why, HF_KIT_WHY, "%s: %s", what, reason ? reason : "failed");
    ERR_clear_error();
}

/* ---- what connections share ---- */

static const char *const options[] = {"cacert", "cert", "key", "servername", NULL};

static void forget(void *arg)
{
    struct ready *r = arg;
    if (!r) return;
    SSL_CTX_free(r->ctx);
    free(r);
}

static int option(const hf_url *url, const char *name, char *to, size_t cap, char why[HF_KIT_WHY])
{
    if (hf_url_get(url, name, to, cap) != HF_INVALID) return 0;
    snprintf(why, HF_KIT_WHY, "%s: too long, or given twice", name);
    return HF_INVALID;
}

static int read_options(struct ready *r, const hf_url *url, char why[HF_KIT_WHY])
{
    char name[sizeof r->name];
    int rc = option(url, "cacert", r->ca, sizeof r->ca, why);
    if (!rc) rc = option(url, "cert", r->cert, sizeof r->cert, why);
    if (!rc) rc = option(url, "key", r->key, sizeof r->key, why);
    if (!rc) rc = option(url, "servername", name, sizeof name, why);
    if (rc) return rc;
    snprintf(r->name, sizeof r->name, "%s", url->host[0] ? url->host : "127.0.0.1");
    if (name[0]) memcpy(r->name, name, sizeof name);
    if (!r->cert[0] == !r->key[0]) return 0;
    snprintf(why, HF_KIT_WHY, "cert and key: one without the other");
    return HF_INVALID;
}

static int no_passphrase(char *to, int cap, int writing, void *arg)
{
    (void)to, (void)cap, (void)writing, (void)arg;
    return 0; /* returns no passphrase, so that OpenSSL doesn't ask on the terminal */
}

/* Reads the TLS files into `ctx`. If no file of authorities is named, `ctx` trusts those of
   `trusted`; NULL: the system's. */
static int load(const struct ready *r, SSL_CTX *ctx, const SSL_CTX *trusted, char why[HF_KIT_WHY])
{
    const char *const files[][2] = {
        {"cacert", r->ca}, {"cert", r->cert}, {"key", r->key}, {NULL, NULL}};
    int ok, rc = hf__credentials_check(files, 0, why);
    if (rc) return rc;
    ERR_clear_error();
    if (r->ca[0]) {
        ok = SSL_CTX_load_verify_locations(ctx, r->ca, NULL);
    } else if (trusted) {
        SSL_CTX_set1_cert_store(ctx, SSL_CTX_get_cert_store(trusted));
        ok = 1;
    } else {
        ok = SSL_CTX_set_default_verify_paths(ctx);
    }
    const char *what = ok ? NULL : "cacert";
    if (!what && r->cert[0] && SSL_CTX_use_certificate_chain_file(ctx, r->cert) != 1) what = "cert";
    if (!what && r->key[0] &&
        (SSL_CTX_use_PrivateKey_file(ctx, r->key, SSL_FILETYPE_PEM) != 1 ||
         SSL_CTX_check_private_key(ctx) != 1))
        what = "key";
    if (what) complaint(why, what);
    return what ? HF_INVALID : 0;
}

/* Makes a TLS context. Returns 0 with *ret, HF_NOMEM, or the result of load. */
static int make_context(const struct ready *r, SSL_CTX **ret, char why[HF_KIT_WHY])
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx) {
        snprintf(why, HF_KIT_WHY, "out of memory");
        return HF_NOMEM;
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    hf_low_hold();
    int rc = load(r, ctx, r->ctx, why);
    hf_low_free();
    if (rc)
        SSL_CTX_free(ctx);
    else
        *ret = ctx;
    return rc;
}

static int make_ready(const hf_url *url, void **ret, char why[HF_KIT_WHY])
{
    struct ready *r = calloc(1, sizeof *r);
    if (!r) {
        snprintf(why, HF_KIT_WHY, "out of memory");
        return HF_NOMEM;
    }
    int rc = read_options(r, url, why);
    if (!rc) rc = make_context(r, &r->ctx, why);
    if (rc)
        forget(r);
    else
        *ret = r;
    return rc;
}

/* ---- one connection ---- */

static void end(void *arg)
{
    struct filter *f = arg;
    if (!f) return;
    SSL_free(f->ssl); /* frees its BIOs, too */
    free(f);
}

static int name_peer(SSL *ssl, const char *name)
{
    unsigned char address[16];
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    return SSL_set1_host(ssl, name) && SSL_set_tlsext_host_name(ssl, name);
}

/* Returns in *ret a context for a new connection. The files that the URL names are read again,
   because certificates are renewed while a store is open. A file that is missing or bad may just be
   being replaced, so that is HF_UNAVAILABLE. */
static int fresh_context(struct ready *r, SSL_CTX **ret, char why[HF_KIT_WHY])
{
    if (r->ca[0] || r->cert[0]) {
        int rc = make_context(r, ret, why);
        return rc == HF_INVALID ? HF_UNAVAILABLE : rc;
    }
    SSL_CTX_up_ref(r->ctx);
    *ret = r->ctx;
    return 0;
}

static int begin(void *arg, void **ret, char why[HF_KIT_WHY])
{
    struct ready *r = arg;
    SSL_CTX *ctx = NULL;
    int rc = fresh_context(r, &ctx, why);
    if (rc) return rc;
    struct filter *f = calloc(1, sizeof *f);
    if (f) f->ssl = SSL_new(ctx);
    SSL_CTX_free(ctx); /* the connection keeps a reference of its own */
    if (f) f->in = BIO_new(BIO_s_mem());
    if (f) f->out = BIO_new(BIO_s_mem());
    int made = f && f->ssl && f->in && f->out;
    if (made) {
        SSL_set_bio(f->ssl, f->in, f->out);
        SSL_set_connect_state(f->ssl);
        *ret = f;
        if (name_peer(f->ssl, r->name)) return 0;
        *ret = NULL;
    } else if (f) {
        BIO_free(f->in);
        BIO_free(f->out);
    }
    end(f);
    snprintf(why, HF_KIT_WHY, "out of memory");
    return HF_NOMEM;
}

/* Writes why the handshake failed. Returns HF_DENIED if the server sent an alert (it wants a
   certificate, or another one); otherwise HF_UNAVAILABLE. */
static int refusal(char why[HF_KIT_WHY])
{
    unsigned long e = ERR_peek_error();
    int alert = ERR_GET_LIB(e) == ERR_LIB_SSL ? ERR_GET_REASON(e) : 0;
    complaint(why, "TLS");
    return alert > SSL_AD_REASON_OFFSET ? HF_DENIED : HF_UNAVAILABLE;
}

static int shake(void *arg, char why[HF_KIT_WHY])
{
    struct filter *f = arg;
    ERR_clear_error();
    int rc = SSL_do_handshake(f->ssl);
    if (rc == 1) return 1;
    int error = SSL_get_error(f->ssl, rc);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return 0;
    long verdict = SSL_get_verify_result(f->ssl);
    if (verdict != X509_V_OK) {
        ERR_clear_error();
        snprintf(why, HF_KIT_WHY, "TLS: the server's certificate: %s",
                 X509_verify_cert_error_string(verdict));
        return HF_DENIED;
    }
    return refusal(why);
}

static int seal(void *arg, const char *plain, size_t n, char why[HF_KIT_WHY])
{
    struct filter *f = arg;
    ERR_clear_error();
    /* SSL_write writes into memory, so it takes all bytes or none. */
    if (SSL_write(f->ssl, plain, (int)n) == (int)n) return 0;
    complaint(why, "TLS");
    return -1;
}

static size_t to_send(void *arg, char *to, size_t cap)
{
    struct filter *f = arg;
    int n = BIO_read(f->out, to, (int)cap);
    return n > 0 ? (size_t)n : 0;
}

static int feed(void *arg, const char *bytes, size_t n)
{
    struct filter *f = arg;
    return BIO_write(f->in, bytes, (int)n) == (int)n ? 0 : -1;
}

static int open_sealed(void *arg, char *to, size_t cap, char why[HF_KIT_WHY])
{
    struct filter *f = arg;
    ERR_clear_error();
    int n = SSL_read(f->ssl, to, (int)cap);
    if (n > 0) return n;
    int error = SSL_get_error(f->ssl, n);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return 0;
    if (error == SSL_ERROR_ZERO_RETURN)
        snprintf(why, HF_KIT_WHY, "the server closed the connection");
    else
        return refusal(why);
    return HF_UNAVAILABLE;
}

/* ---- the filter ---- */

static int gated_ready(const hf_url *url, void **ret, char why[HF_KIT_WHY])
{
    hf__gate_begin();
    int rc = make_ready(url, ret, why);
    hf__gate_end();
    return rc;
}

static void gated_forget(void *ready)
{
    hf__gate_begin();
    forget(ready);
    hf__gate_end();
}

static int gated_begin(void *ready, void **ret, char why[HF_KIT_WHY])
{
    hf__gate_begin();
    int rc = begin(ready, ret, why);
    hf__gate_end();
    return rc;
}

static void gated_end(void *filter)
{
    hf__gate_begin();
    end(filter);
    hf__gate_end();
}

static int gated_shake(void *filter, char why[HF_KIT_WHY])
{
    hf__gate_begin();
    int rc = shake(filter, why);
    hf__gate_end();
    return rc;
}

static int gated_seal(void *filter, const char *plain, size_t n, char why[HF_KIT_WHY])
{
    hf__gate_begin();
    int rc = seal(filter, plain, n, why);
    hf__gate_end();
    return rc;
}

static int gated_open(void *filter, char *to, size_t cap, char why[HF_KIT_WHY])
{
    hf__gate_begin();
    int rc = open_sealed(filter, to, cap, why);
    hf__gate_end();
    return rc;
}

/* The functions without "gated_" only move bytes between the filter's own buffers. */
static const struct hf__rd_filter tls = {
    .ready = gated_ready,
    .forget = gated_forget,
    .begin = gated_begin,
    .end = gated_end,
    .shake = gated_shake,
    .seal = gated_seal,
    .to_send = to_send,
    .feed = feed,
    .open = gated_open,
    .options = options,
};
const struct hf__rd_filter *const hf__rd_filter = &tls;
