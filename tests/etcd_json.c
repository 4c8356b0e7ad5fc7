/*
 * etcd_json.c - whom the driver etcd asks by JSON, of several members, one of which has a name that
 * no name server answers.
 */
#include "answered.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *want,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (name && !strcmp(name, "mute.example") && !(want && want->ai_flags & AI_NUMERICHOST)) {
        pthread_mutex_lock(&never);
        pthread_mutex_unlock(&never);
    }
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name, service, want, ret);
}

static const struct answer well = {
    "", 200, "{\"header\": {\"revision\": \"7\", \"raft_term\": \"2\"}, \"succeeded\": true}", 0};

/* Reads and writes that begin with the mute one: it costs a part of their time. */
static void a_mute_member_leaves_time_for_the_other(void **state)
{
    (void)state;
    static const char url[] = "etcd://mute.example:1,127.0.0.1:PORT/p/?api=json";
    const struct answer away[] = {{"/v3/kv/txn", 503, "{\"error\": \"etcdserver: no leader\"}", 1},
                                  well};
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    answers_are(&well, 1);
    said(said_opens(driver, ported(url), 0, 2000, &st), 0, NULL);
    answers_are(away, 2);
    said(driver->swap(st, &key, 0, NULL, NULL, &clock_us, &err), HF_UNKNOWN, "no leader");
    said(driver->swap(st, &key, 0, NULL, NULL, &clock_us, &err), 0, NULL); /* the mute one first */
    assert_int_equal(answers_given(), 2);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    driver->close(st);
    hf_row_clear(&row);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mute_member_leaves_time_for_the_other),
    };
    pthread_mutex_lock(&never);
    return answered_begin("etcd") || TEST_MAIN(tests);
}
