/*
 * firestore_memory.c - the driver firestore: the n-th allocation fails while credentials are read
 * and a token is got for them, for n = 1, 2, 3 ... until everything passes. It is never said that
 * the credentials are wrong. This program defines the functions itself, as below.c does.
 */
#include "fakes/answered.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long count, fail_at;    /* 0: none */
static _Thread_local int ours; /* not the server's */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static int fails(void)
{
    if (!ours || !fail_at || ++count != fail_at) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }

static char credentials[] = "/tmp/holdfast-memory-XXXXXX";
static const char missing[] =
    "[{\"missing\": \"projects/p/databases/(default)/documents/holdfast/k\","
    " \"readTime\": \"2026-01-31T12:00:00.000007Z\"}]";

static void writes(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f) fail_msg("%s", path);
    fputs(text, f);
    fclose(f);
}

static int is_asked(const char *url)
{
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    int rc = opens(url, &st);
    if (rc) return rc;
    hf_row_init(&row);
    rc = driver->get(st, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    driver->close(st);
    return rc;
}

static void each_fails_in_turn(const char *options, long step)
{
    char url[200];
    snprintf(url, sizeof url, "firestore://p?endpoint=http://127.0.0.1:PORT%s", options);
    const struct answer all[] = {
        {"token", 200, "{\"access_token\": \"one\", \"expires_in\": 36000}", 0},
        {"batchGet", 200, missing, 0}};
    answers_are(all, 2);
    said(is_asked(url), 0, NULL); /* later it isn't allocated again */
    for (long n = 1;; n += step) {
        ours = 1;
        count = 0;
        fail_at = n;
        int rc = is_asked(url), met = count >= n;
        fail_at = 0;
        ours = 0;
        if (rc && !met) fail_msg("none failed: %d: %s", rc, err.text);
        if (rc && rc != HF_NOMEM && rc != HF_UNAVAILABLE)
            fail_msg("allocation %ld: %d: %s", n, rc, err.text);
        said(rc, rc, NULL);
        if (!met) return;
    }
}

static void of_a_person(void **state)
{
    (void)state;
    char options[100];
    writes(credentials, ported("{\"type\": \"authorized_user\", \"client_id\": \"me\", "
                               "\"client_secret\": \"s3cr3t\", \"refresh_token\": \"s3cr3t-too\", "
                               "\"token_uri\": \"http://127.0.0.1:PORT/token\"}"));
    snprintf(options, sizeof options, "&credentials=%s", credentials);
    each_fails_in_turn(options, 1);
}

/* The key of a service account, as a text of JSON. */
static const char *new_key(char to[4096])
{
    EVP_PKEY *made = EVP_RSA_gen(2048);
    BIO *out = BIO_new(BIO_s_mem());
    char *pem, *at = to;
    if (!made || PEM_write_bio_PrivateKey(out, made, NULL, NULL, 0, NULL, NULL) != 1)
        fail_msg("no key is made");
    long n = BIO_get_mem_data(out, &pem);
    for (long i = 0; i < n; i++) at = stpcpy(at, pem[i] == '\n' ? "\\n" : (char[]){pem[i], 0});
    BIO_free(out);
    EVP_PKEY_free(made);
    return to;
}

/* A signature takes thousands of allocations: a share of them, all of them with HF_LONG. */
static void of_a_service(void **state)
{
    (void)state;
    char options[100], pem[4096], text[5000];
    snprintf(text, sizeof text,
             "{\"type\": \"service_account\", \"client_email\": \"me\", \"private_key\": "
             "\"%s\", \"private_key_id\": \"k\", \"token_uri\": "
             "\"http://127.0.0.1:PORT/token\"}",
             new_key(pem));
    writes(credentials, ported(text));
    snprintf(options, sizeof options, "&credentials=%s", credentials);
    each_fails_in_turn(options, getenv("HF_LONG") ? 1 : 17);
}

static void of_a_user(void **state)
{
    (void)state;
    writes(credentials, "s3cr3t-token\n");
    setenv("FIRESTORE_ID_TOKEN_FILE", credentials, 1);
    each_fails_in_turn("", 1);
    unsetenv("FIRESTORE_ID_TOKEN_FILE");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_person),
        cmocka_unit_test(of_a_service),
        cmocka_unit_test(of_a_user),
    };
    static const char *const others[] = {"FIRESTORE_ID_TOKEN", "FIRESTORE_ID_TOKEN_FILE",
                                         "FIRESTORE_EMULATOR_HOST"};
    for (size_t i = 0; i < COUNT(others); i++) unsetenv(others[i]);
    int file = mkstemp(credentials);
    if (file < 0) return perror(credentials), 1;
    close(file);
    int failed = answered_begin("firestore") ? 1 : TEST_MAIN(tests);
    unlink(credentials);
    return failed;
}
