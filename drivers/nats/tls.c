/*
 * tls.c - nats: what the library doesn't do for TLS. See link.h.
 *
 * The library makes the TLS handshake on a blocking socket, without a deadline, and OpenSSL asks
 * for a key's passphrase on the terminal. The library shows neither its SSL_CTX nor its socket. But
 * OpenSSL calls `note` for each SSL_CTX that is made, which then sets two callbacks: one gives no
 * passphrase; the other waits for the socket before each read and write, until the deadline.
 *
 * Writes of OpenSSL may raise SIGPIPE, so SIGPIPE is blocked in the thread meanwhile.
 */
#include "link.h"

#include "kit/fork_gate.h"

#include <openssl/crypto.h>
#include <openssl/ssl.h>

static __thread SSL_CTX *made;  /* the last one that this thread has made */
static __thread int64_t end_us; /* the local time by which this thread's handshake must end; 0: it
                                   makes none */
static __thread int late, encrypted;
static __thread int began, refused; /* 1: this thread's handshake has begun; has been refused */

static void note(void *ctx, void *own, CRYPTO_EX_DATA *all, int i, long n, void *arg)
{
    (void)own, (void)all, (void)i, (void)n, (void)arg;
    made = ctx;
}

static void begin(void)
{
    CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL_CTX, 0, NULL, note, NULL, NULL);
}

static int no_passphrase(char *to, int cap, int writing, void *arg)
{
    (void)to, (void)cap, (void)writing, (void)arg;
    encrypted = 1;
    return 0;
}

/* Waits for the socket before OpenSSL reads or writes. Returns 0 if the deadline has passed: then
   OpenSSL doesn't read or write. */
static long wait_first(BIO *io, int what, const char *bytes, size_t len, int i, long n, int ret,
                       size_t *done)
{
    short events = what == BIO_CB_READ ? POLLIN : what == BIO_CB_WRITE ? POLLOUT : 0;
    (void)bytes, (void)len, (void)i, (void)n, (void)done;
    if (!events || !end_us) return ret;
    struct pollfd p = {(int)BIO_get_fd(io, NULL), events, 0};
    late = hf__gate_wait_until(&p, 1, end_us) <= 0;
    return late ? 0 : ret;
}

/* Notes the course of a handshake: its begin, and a fatal alert. The upper byte of an alert is its
   level. */
static void shakes(const SSL *ssl, int where, int ret)
{
    if (!end_us) return;
    if (where == SSL_CB_HANDSHAKE_START) {
        BIO_set_callback_ex(SSL_get_rbio(ssl), wait_first);
        began = 1;
    }
    if (where == SSL_CB_READ_ALERT && ret >> 8 == SSL3_AL_FATAL) refused = 1;
    if (where == SSL_CB_CONNECT_EXIT && ret <= 0 && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE &&
        SSL_get_verify_result(ssl) != X509_V_OK)
        refused = 1;
}

natsStatus hf__nats_set_tls(const struct hf__nats_how *how, natsOptions *o, const char *host)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    made = NULL;
    encrypted = 0;
    natsStatus s = natsOptions_SetSecure(o, true);
    if (s == NATS_OK && !made) s = NATS_NO_MEMORY;
    if (s == NATS_OK) {
        SSL_CTX_set_default_passwd_cb(made, no_passphrase);
        SSL_CTX_set_info_callback(made, shakes);
    }
    if (s == NATS_OK && how->files.ca[0])
        s = natsOptions_LoadCATrustedCertificates(o, how->files.ca);
    if (s == NATS_OK && how->files.cert[0])
        s = natsOptions_LoadCertificatesChain(o, how->files.cert, how->files.key);
    if (s == NATS_OK && how->verify) s = natsOptions_SetExpectedHostname(o, host);
    if (s == NATS_OK && !how->verify) s = natsOptions_SkipServerVerification(o, true);
    return s;
}

int hf__nats_key_is_encrypted(void) { return encrypted; }

void hf__nats_handshake_ends(int64_t until_us)
{
    end_us = until_us;
    if (until_us) late = began = refused = 0;
}

int hf__nats_handshake_was_cut(void) { return began && !refused; }

int hf__nats_handshake_was_late(void) { return late; }

void hf__nats_thread_ends(void) { OPENSSL_thread_stop(); }
