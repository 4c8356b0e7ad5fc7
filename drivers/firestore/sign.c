/*
 * sign.c - firestore: see sign.h.
 */
#include "sign.h"

#include "json.h"
#include "rest.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>

/* The length of an RSA signature in bytes: OpenSSL takes keys of up to 16384 bits, and SHA-256
   needs at least 496 bits. */
enum { SIGNATURE_LEAST = 62, SIGNATURE_MOST = 2048 };

/* Returns no passphrase, so that OpenSSL doesn't ask for one on the terminal. */
static int no_passphrase(char *to, int cap, int writing, void *arg)
{
    (void)to, (void)cap, (void)writing, (void)arg;
    return -1;
}

/* Returns the code for a key that couldn't be read: HF_NOMEM if OpenSSL reports that, or reports
   nothing (for lack of memory); else HF_INVALID. */
static int no_key(void)
{
    unsigned long e = ERR_get_error();
    int rc = e ? HF_INVALID : HF_NOMEM;
    for (; e; e = ERR_get_error())
        if (ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE) rc = HF_NOMEM;
    return rc;
}

/* Reads the key. Returns 0, HF_INVALID or HF_NOMEM. */
static int read_key(const char *pem, EVP_PKEY **ret)
{
    BIO *from = BIO_new_mem_buf(pem, -1);
    if (!from) return HF_NOMEM;
    ERR_clear_error();
    *ret = PEM_read_bio_PrivateKey(from, NULL, no_passphrase, NULL);
    BIO_free(from);
    if (!*ret) return no_key();
    if (EVP_PKEY_base_id(*ret) != EVP_PKEY_RSA) return HF_INVALID;
    int size = EVP_PKEY_size(*ret); /* 0: out of memory */
    if (size <= 0) return HF_NOMEM;
    return size < SIGNATURE_LEAST || size > SIGNATURE_MOST ? HF_INVALID : 0;
}

/* Returns the code for a signature that failed: HF_INVALID if OpenSSL reports an error of its
   arithmetic, so that a number of the key is damaged; else HF_NOMEM, which OpenSSL doesn't always
   report. */
static int not_signed(void)
{
    int rc = HF_NOMEM;
    for (unsigned long e = ERR_get_error(); e; e = ERR_get_error()) {
        if (ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE) return HF_NOMEM;
        if (ERR_GET_LIB(e) == ERR_LIB_BN) rc = HF_INVALID;
    }
    return rc;
}

/* Signs the text. Returns 0 and the length of the signature; or HF_INVALID or HF_NOMEM. */
static int sign(const char *text, size_t len, const char *pem, unsigned char to[SIGNATURE_MOST],
                size_t *ret_n)
{
    EVP_PKEY *key = NULL;
    EVP_MD_CTX *ctx = NULL;
    *ret_n = SIGNATURE_MOST;
    int rc = read_key(pem, &key);
    if (!rc) ctx = EVP_MD_CTX_new();
    ERR_clear_error();
    if (!rc && (!ctx || EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) != 1 ||
                EVP_DigestSign(ctx, to, ret_n, (const unsigned char *)text, len) != 1))
        rc = not_signed();
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return rc;
}

/* Returns the length of n bytes in base64, with padding. */
static size_t base64_len(size_t n) { return (n + 2) / 3 * 4; }

/* Writes base64url without padding (RFC 7515, section 2), and a NUL. Returns where the NUL is. */
static char *put_base64url(char *to, const void *bytes, size_t n)
{
    char *end = to + EVP_EncodeBlock((unsigned char *)to, bytes, (int)n);
    for (; end > to && end[-1] == '='; end--) end[-1] = 0;
    for (; *to; to++) *to = *to == '+' ? '-' : *to == '/' ? '_' : *to;
    return end;
}

int hf__fs_sign(const char *claims, const char *key, const char *key_id, char **ret)
{
    unsigned char signature[SIGNATURE_MOST];
    json_t *j = json_pack("{s:s, s:s, s:s*}", "alg", "RS256", "typ", "JWT", "kid", key_id);
    char *head = j ? hf__json_text(j) : NULL;
    json_decref(j);
    char *token = head ? malloc(base64_len(strlen(head)) + base64_len(strlen(claims)) +
                                base64_len(sizeof signature) + sizeof "..")
                       : NULL;
    int rc = token ? 0 : HF_NOMEM;
    if (token) {
        char *at = put_base64url(token, head, strlen(head));
        *at++ = '.';
        at = put_base64url(at, claims, strlen(claims));
        size_t n;
        if (!(rc = sign(token, (size_t)(at - token), key, signature, &n))) {
            *at++ = '.';
            put_base64url(at, signature, n);
            explicit_bzero(signature, n);
        }
    }
    free(head);
    if (rc)
        hf__rest_forget(token);
    else
        *ret = token;
    return rc;
}
