/*
 * dial.c - see dial.h. A thread is inside the fork gate (kit/fork_gate.h) while it is in OpenSSL.
 */
#include "dial.h"

#include "kit/await.h"
#include "kit/dial.h"
#include "kit/fork_gate.h"
#include "kit/secret.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEEP_IDLE_S = 15, KEEP_INTERVAL_S = 5 };

/* A connection. Each connection reads the certificates again, because they may be renewed while a
   handle is open. */
struct hf__et_conn {
    int fd;
    uint64_t left;
    SSL_CTX *ctx; /* NULL without TLS, like `io` and `ssl` */
    BIO_METHOD *io;
    SSL *ssl;
};

/* ---- bytes ---- */

static long bare_write(struct hf__et_conn *c, const void *from, size_t len)
{
    ssize_t n = send(c->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) c->left += (uint64_t)n;
    if (n >= 0) return n;
    return errno == EAGAIN || errno == EINTR ? HF_ET_AGAIN : HF_ET_BROKEN;
}

static long bare_read(struct hf__et_conn *c, void *to, size_t cap)
{
    ssize_t n = recv(c->fd, to, cap, MSG_DONTWAIT);
    if (n >= 0) return n;
    return errno == EAGAIN || errno == EINTR ? HF_ET_AGAIN : HF_ET_BROKEN;
}

static long of_ssl(const struct hf__et_conn *c, int n)
{
    if (n > 0) return n;
    switch (SSL_get_error(c->ssl, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return HF_ET_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: return HF_ET_BROKEN;
    }
}

long hf__et_conn_read(struct hf__et_conn *c, void *to, size_t cap)
{
    if (!c->ssl) return bare_read(c, to, cap);
    hf__gate_begin();
    ERR_clear_error();
    long n = of_ssl(c, SSL_read(c->ssl, to, (int)cap));
    hf__gate_end();
    return n;
}

long hf__et_conn_write(struct hf__et_conn *c, const void *from, size_t len)
{
    if (!c->ssl) return bare_write(c, from, len);
    hf__gate_begin();
    ERR_clear_error();
    long n = of_ssl(c, SSL_write(c->ssl, from, (int)len));
    hf__gate_end();
    return n;
}

const char *hf__et_conn_reason(const struct hf__et_conn *c)
{
    if (!c->ssl) return NULL;
    hf__gate_begin();
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    hf__gate_end();
    return reason;
}

uint64_t hf__et_conn_left(const struct hf__et_conn *c) { return c->left; }
int hf__et_conn_fd(const struct hf__et_conn *c) { return c->fd; }

int hf__et_conn_wait(const struct hf__et_conn *c, int to_write, int64_t until_us)
{
    if (c->ssl && SSL_pending(c->ssl)) return 1;
    struct pollfd p = {c->fd, (short)(to_write ? POLLIN | POLLOUT : POLLIN), 0};
    int n = hf__wait_until(&p, 1, until_us);
    return n < 0 ? HF_ET_BROKEN : n;
}

/* ---- TLS ---- */

/* Writes for OpenSSL, but never raises SIGPIPE, which OpenSSL's own socket functions may do. */
static int io_write(BIO *io, const char *from, int len)
{
    long n = bare_write(BIO_get_data(io), from, (size_t)len);
    BIO_clear_retry_flags(io);
    if (n == HF_ET_AGAIN) BIO_set_retry_write(io);
    return n < 0 ? -1 : (int)n;
}

static int io_read(BIO *io, char *to, int cap)
{
    long n = bare_read(BIO_get_data(io), to, (size_t)cap);
    BIO_clear_retry_flags(io);
    if (n == HF_ET_AGAIN) BIO_set_retry_read(io);
    return n < 0 ? -1 : (int)n;
}

static long io_control(BIO *io, int what, long n, void *arg)
{
    (void)io;
    (void)n;
    (void)arg;
    return what == BIO_CTRL_FLUSH;
}

/* Refuses to ask for the passphrase of a key file, because a library has no terminal. */
static int no_password(char *to, int cap, int writes, void *arg)
{
    (void)to;
    (void)cap;
    (void)writes;
    (void)arg;
    return 0;
}

static void why_not(char why[HF_ET_WHY], const char *what, const char *of)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    snprintf(why, HF_ET_WHY, "%s%s%s%s", what, of ? of : "", reason ? ": " : "",
             reason ? reason : "");
}

int hf__et_check_files(const struct hf__et_http *http, char why[HF_ET_WHY])
{
    const char *const files[][2] = {
        {"cafile", http->cafile}, {"cert", http->cert}, {"key", http->key}, {NULL, NULL}};
    char reason[HF_KIT_WHY] = "";
    int rc = hf__credentials_check(files, 0, reason);
    snprintf(why, HF_ET_WHY, "%s", reason);
    return rc;
}

/* Sets up TLS. Returns 0, HF_NOMEM, HF_DENIED, or what hf__et_check_files returns. */
static int tls_set(const struct hf__et_http *http, struct hf__et_conn *tls, char why[HF_ET_WHY])
{
    snprintf(why, HF_ET_WHY, "out of memory");
    ERR_clear_error();
    tls->ctx = SSL_CTX_new(TLS_client_method());
    tls->io = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "holdfast");
    if (!tls->ctx || !tls->io || !BIO_meth_set_write(tls->io, io_write) ||
        !BIO_meth_set_read(tls->io, io_read) || !BIO_meth_set_ctrl(tls->io, io_control) ||
        !SSL_CTX_set_min_proto_version(tls->ctx, TLS1_2_VERSION) ||
        SSL_CTX_set_alpn_protos(tls->ctx, (const unsigned char *)"\x02h2", 3))
        return HF_NOMEM;
    SSL_CTX_set_verify(tls->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_passwd_cb(tls->ctx, no_password);
    SSL_CTX_set_mode(tls->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (http->cafile ? !SSL_CTX_load_verify_locations(tls->ctx, http->cafile, NULL)
                     : !SSL_CTX_set_default_verify_paths(tls->ctx)) {
        why_not(why, "cafile ", http->cafile);
        return HF_DENIED;
    }
    if (http->cert && SSL_CTX_use_certificate_chain_file(tls->ctx, http->cert) != 1) {
        why_not(why, "cert ", http->cert);
        return HF_DENIED;
    }
    if (http->key && SSL_CTX_use_PrivateKey_file(tls->ctx, http->key, SSL_FILETYPE_PEM) != 1) {
        why_not(why, "key ", http->key);
        return HF_DENIED;
    }
    return 0;
}

/* Sets the name or address that the server's certificate must have. Returns 1; 0: out of memory. */
static int set_host(SSL *ssl, const char *endpoint)
{
    char host[HF_ET_HOST_CAP], port[HF_ET_PORT_CAP];
    hf__et_split(endpoint, host, port);
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host)) return 1;
    ERR_clear_error();
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) && SSL_set_tlsext_host_name(ssl, host);
}

static int tls_begin(struct hf__et_conn *c, const char *endpoint)
{
    BIO *io = BIO_new(c->io);
    c->ssl = SSL_new(c->ctx);
    if (!io || !c->ssl) {
        BIO_free(io);
        return 0;
    }
    BIO_set_data(io, c);
    BIO_set_init(io, 1);
    SSL_set_bio(c->ssl, io, io);
    return set_host(c->ssl, endpoint);
}

static int tls_verified(const struct hf__et_conn *c, char why[HF_ET_WHY])
{
    const unsigned char *agreed;
    unsigned len;
    SSL_get0_alpn_selected(c->ssl, &agreed, &len);
    if (len == 2 && !memcmp(agreed, "h2", 2)) return 0;
    snprintf(why, HF_ET_WHY, "%s", HF_ET_NO_HTTP2);
    return HF_UNSUPPORTED;
}

static int shake_hands(struct hf__et_conn *c, int64_t until_us, char why[HF_ET_WHY])
{
    for (;;) {
        ERR_clear_error();
        int n = SSL_connect(c->ssl);
        if (n == 1) return tls_verified(c, why);
        int what = SSL_get_error(c->ssl, n);
        if (what != SSL_ERROR_WANT_READ && what != SSL_ERROR_WANT_WRITE) {
            long verified = SSL_get_verify_result(c->ssl);
            unsigned long code = ERR_peek_last_error();
            if (verified != X509_V_OK) {
                snprintf(why, HF_ET_WHY, "its certificate: %s",
                         X509_verify_cert_error_string(verified));
                return HF_DENIED;
            }
            if (ERR_GET_REASON(code) == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL) {
                snprintf(why, HF_ET_WHY, "%s", HF_ET_NO_HTTP2);
                return HF_UNSUPPORTED;
            }
            why_not(why, "TLS", NULL);
            return HF_UNAVAILABLE;
        }
        hf__gate_wait();
        int ready = hf__et_conn_wait(c, what == SSL_ERROR_WANT_WRITE, until_us);
        hf__gate_go_on();
        if (ready <= 0) {
            snprintf(why, HF_ET_WHY, "TLS: timed out");
            return HF_UNAVAILABLE;
        }
    }
}

/* ---- connecting ---- */

void hf__et_hang_up(struct hf__et_conn *c)
{
    if (!c) return;
    if (c->ctx) {
        hf__gate_begin();
        SSL_free(c->ssl);
        SSL_CTX_free(c->ctx);
        BIO_meth_free(c->io);
        hf__gate_end();
    }
    close(c->fd);
    free(c);
}

static void set_options(int fd)
{
    const struct {
        int level, name, value;
    } of[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
              {IPPROTO_TCP, TCP_NODELAY, 1},
              {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S},
              {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        setsockopt(fd, of[i].level, of[i].name, &of[i].value, sizeof of[i].value);
}

static int secure(const struct hf__et_http *http, struct hf__et_conn *c, const char *endpoint,
                  int64_t until_us, char why[HF_ET_WHY])
{
    hf_low_hold(); /* OpenSSL opens the files: not as descriptor 0, 1 or 2 */
    int rc = hf__et_check_files(http, why);
    if (!rc) rc = tls_set(http, c, why);
    hf_low_free();
    if (!rc && !tls_begin(c, endpoint)) {
        snprintf(why, HF_ET_WHY, "TLS: out of memory");
        rc = HF_NOMEM;
    }
    return rc ? rc : shake_hands(c, until_us, why);
}

int hf__et_conn_begin(const struct hf__et_http *http, int fd, const char *endpoint,
                      int64_t until_us, struct hf__et_conn **ret, char why[HF_ET_WHY])
{
    struct hf__et_conn *c = calloc(1, sizeof *c);
    int rc = 0;
    *ret = NULL;
    snprintf(why, HF_ET_WHY, "out of memory");
    if (!c) {
        close(fd);
        return HF_NOMEM;
    }
    c->fd = fd;
    set_options(fd);
    if (!strncmp(endpoint, "https:", 6)) {
        hf__gate_begin();
        rc = secure(http, c, endpoint, until_us, why);
        hf__gate_end();
    }
    if (rc)
        hf__et_hang_up(c);
    else
        *ret = c;
    return rc;
}

int hf__et_dial(struct hf__et_http *http, int64_t until_us, hf__et_login_fn *login, void *arg,
                char why[HF_ET_WHY])
{
    char host[HF_ET_ENDPOINTS][HF_ET_HOST_CAP], port[HF_ET_ENDPOINTS][HF_ET_PORT_CAP];
    struct hf__dial_target target[HF_ET_ENDPOINTS];
    struct hf__attempt *found;
    struct hf__dial *dial;
    unsigned n = http->n_endpoints, first = __atomic_load_n(&http->at, __ATOMIC_RELAXED) % n;
    for (unsigned i = 0; i < n; i++) {
        hf__et_split(http->endpoint[(first + i) % n], host[i], port[i]);
        target[i] = (struct hf__dial_target){host[i], port[i]};
    }
    int rc = hf__dial_begin(target, n, NULL, NULL, &dial);
    if (rc) {
        snprintf(why, HF_ET_WHY, "out of memory");
        return rc;
    }
    while (!(rc = hf__dial_next(dial, until_us, &found))) {
        unsigned at = (first + (unsigned)found->target) % n;
        int64_t share_us = hf__dial_share(dial, until_us);
        rc = login(arg, hf__dial_take(found), http->endpoint[at], share_us, why);
        if (!rc) {
            __atomic_store_n(&http->at, at, __ATOMIC_RELAXED);
            break;
        }
        hf__dial_fail(dial, found, rc, why);
    }
    if (rc) hf__dial_why(dial, why, HF_ET_WHY);
    hf__dial_end(dial);
    return rc;
}
