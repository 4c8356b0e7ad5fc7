/*
 * etcd_dial.c - which certificates of servers the driver etcds accepts, for gRPC. The requests for
 * the date go by libcurl, which checks by itself, so this is tried below them. tests/servers/etcd
 * etcd_dial @
 */
#include "../../../drivers/etcd/dial.h"
#include "os.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char cafile[1000], dir[1000];
static int port;
static char why[HF_ET_WHY];

static struct hf__et_http http;

static int keep(void *arg, int fd, const char *endpoint, int64_t until_us, char reason[HF_ET_WHY])
{
    return hf__et_conn_begin(&http, fd, endpoint, until_us, arg, reason);
}

/* Connects by a new handle, because TLS is set up for each handle. */
static int dialed(const char *host, const char *ca, const char *cert, const char *secret)
{
    http = (struct hf__et_http){.n_endpoints = 1, .io_timeout_ms = 10000};
    struct hf__et_conn *c = NULL;
    char endpoint[100], file[3][1100];
    snprintf(endpoint, sizeof endpoint, "%s:%d", host, strstr(host, ".9") ? 1 : port);
    snprintf(file[0], sizeof file[0], "%s", ca ? ca : "");
    snprintf(file[1], sizeof file[1], "%s/%s", dir, cert ? cert : "");
    snprintf(file[2], sizeof file[2], "%s/%s", dir, secret ? secret : "");
    http.cafile = ca ? file[0] : NULL;
    http.cert = cert ? file[1] : NULL;
    http.key = secret ? file[2] : NULL;
    why[0] = 0;
    http.endpoint[0] = endpoint;
    int rc = hf__et_dial(&http, hf__local_us() + 10000000, keep, &c, why);
    assert_int_equal(c != NULL, !rc);
    hf__et_hang_up(c);
    return rc;
}

static void is(int rc, int code, const char *text)
{
    if (rc != code || !strstr(why, text)) fail_msg("%d, %s: not %d, %s", rc, why, code, text);
}

static void who_answers_has_to_be_vouched_for(void **state)
{
    (void)state;
    is(dialed("https://127.0.0.1", cafile, NULL, NULL), 0, "");
    is(dialed("https://127.0.0.1", NULL, NULL, NULL), HF_DENIED, "certificate");
    is(dialed("https://127.0.0.1", "/nowhere", NULL, NULL), HF_UNAVAILABLE, "/nowhere");
    /* The certificate is for an address, not for a name, nor for another address. */
    is(dialed("https://localhost", cafile, NULL, NULL), HF_DENIED, "ostname mismatch");
    is(dialed("https://127.0.0.2", cafile, NULL, NULL), HF_UNAVAILABLE, "");
    is(dialed("http://127.0.0.1", cafile, NULL, NULL), 0, "");
    is(dialed("https://127.0.0.9", cafile, NULL, NULL), HF_UNAVAILABLE, "");
}

static void who_asks_shows_what_he_has(void **state)
{
    (void)state;
    is(dialed("https://127.0.0.1", cafile, "tls.pem", "tls.key"), 0, "");
    is(dialed("https://127.0.0.1", cafile, "none.pem", "tls.key"), HF_UNAVAILABLE, "none.pem");
    is(dialed("https://127.0.0.1", cafile, "tls.pem", "none.key"), HF_UNAVAILABLE, "none.key");
    is(dialed("https://127.0.0.1", cafile, "tls.pem", "tls.pem"), HF_DENIED, "tls.pem");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_answers_has_to_be_vouched_for),
        cmocka_unit_test(who_asks_shows_what_he_has),
    };
    const char *url = getenv("HOLDFAST_TEST_TLS");
    if (!url || sscanf(url, "etcds://127.0.0.1:%d/?cafile=%999s", &port, cafile) != 2) {
        printf("Bail out! no store over TLS\n");
        return 1;
    }
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(cafile, '/') - cafile), cafile);
    return TEST_MAIN(tests);
}
