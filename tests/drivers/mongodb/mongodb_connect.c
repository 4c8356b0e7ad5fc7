/*
 * mongodb_connect.c - how the MongoDB driver finds the server that can be written: names that no
 * name server answers, addresses and members that are silent, mute or secondary, a connection that
 * breaks at the login. The members are of this program, the name server is of kit_net.c.
 */
#include "fakes/said.h"
#include "network/kit_net.h"
#include "os.h"
#include "test.h"

#include <mongoc/mongoc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    OP_REPLY = 1,
    OP_QUERY = 2004,
    OP_MSG = 2013,
    MEMBERS = 8,
    MESSAGE = 65536,
    LONG_MS = 60000
};

/* ---- libmongoc's clock, which counts when it looks at its servers again ---- */

static _Atomic time_t later_s;

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    if (!rc && clock == CLOCK_MONOTONIC) ret->tv_sec += later_s;
    return rc;
}

/* ---- members of a replica set ---- */

enum kind { PRIMARY, SECONDARY, MUTE, CUTS_LOGIN, REFUSES_LOGIN, GONE };
static int refusal; /* the code of REFUSES_LOGIN */

static struct member {
    int fd, port;
    enum kind kind;
    int greeted; /* how often it was asked who it is (atomic) */
} members[MEMBERS];
static size_t n_members;

/* Writes the member's answer to "hello". */
static void hello(const struct member *m, bson_t *to)
{
    char names[MEMBERS][32];
    bson_t hosts;
    bson_init(to);
    BCON_APPEND(to, "ismaster", BCON_BOOL(m->kind != SECONDARY), "secondary",
                BCON_BOOL(m->kind == SECONDARY), "setName", "rs0", "setVersion", BCON_INT32(1),
                "minWireVersion", BCON_INT32(0), "maxWireVersion", BCON_INT32(17),
                "maxBsonObjectSize", BCON_INT32(16777216), "maxMessageSizeBytes",
                BCON_INT32(48000000), "maxWriteBatchSize", BCON_INT32(100000), "localTime",
                BCON_DATE_TIME(1769860800000), "ok", BCON_DOUBLE(1));
    bson_append_array_begin(to, "hosts", -1, &hosts);
    for (size_t i = 0; i < n_members; i++) {
        char at[24];
        snprintf(names[i], sizeof names[i], "127.0.0.1:%d", members[i].port);
        snprintf(at, sizeof at, "%zu", i);
        bson_append_utf8(&hosts, at, -1, names[i], -1);
    }
    bson_append_array_end(to, &hosts);
}

static void answer(const char *command, bson_t *to)
{
    static const char *const said[][2] = {
        {"listCollections", "{\"ok\": 1, \"cursor\": {\"firstBatch\": [{\"name\": \"holdfast\","
                            " \"type\": \"collection\"}]}}"},
        {"listIndexes", "{\"ok\": 1, \"cursor\": {\"firstBatch\": [{\"name\": \"_id_\"}]}}"},
        {"aggregate", "{\"ok\": 1, \"cursor\": {\"firstBatch\": [{\"row\": [], \"now\":"
                      " {\"$date\": 1769860800000}}]}}"},
    };
    const char *json = "{\"ok\": 1}";
    bson_error_t e;
    for (size_t i = 0; i < COUNT(said); i++)
        if (!strcmp(said[i][0], command)) json = said[i][1];
    assert_true(bson_init_from_json(to, json, -1, &e));
}

static void refuse(bson_t *to)
{
    bson_init(to);
    BCON_APPEND(to, "ok", BCON_DOUBLE(0), "errmsg", BCON_UTF8("nicht jetzt"), "code",
                BCON_INT32(refusal));
}

static int all_of(int fd, void *to, size_t len)
{
    return recv(fd, to, len, MSG_WAITALL) == (ssize_t)len;
}

static void reply(int fd, int32_t to, int legacy, const bson_t *doc)
{
    /* Flags, cursor, first, count; or flags and the kind of the section. */
    unsigned char head[36] = {0};
    size_t more = legacy ? 20 : 5;
    int32_t words[4] = {(int32_t)(16 + more + doc->len), 1, to, legacy ? OP_REPLY : OP_MSG};
    int32_t one = 1;
    memcpy(head, words, 16);
    if (legacy) memcpy(head + 32, &one, 4);
    send(fd, head, 16 + more, MSG_NOSIGNAL | MSG_MORE);
    send(fd, bson_get_data(doc), doc->len, MSG_NOSIGNAL);
}

/* Serves one request. Returns 0 if the connection is to be closed. */
static int serve_one(struct member *m, int fd)
{
    static __thread unsigned char body[MESSAGE];
    int32_t head[4];
    bson_t command, doc;
    bson_iter_t it;
    if (!all_of(fd, head, 16) || head[0] < 16 || head[0] - 16 > MESSAGE) return 0;
    size_t len = (size_t)head[0] - 16, at = 5;
    if (!all_of(fd, body, len)) return 0;
    if (head[3] == OP_QUERY) at = 4 + strlen((char *)body + 4) + 1 + 8;
    int32_t doc_len;
    memcpy(&doc_len, body + at, 4);
    assert_true(bson_init_static(&command, body + at, (size_t)doc_len));
    assert_true(bson_iter_init(&it, &command) && bson_iter_next(&it));
    const char *name = bson_iter_key(&it);
    if (!strcasecmp(name, "isMaster") || !strcmp(name, "hello")) {
        __atomic_add_fetch(&m->greeted, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&m->kind, __ATOMIC_SEQ_CST) == GONE) return 0;
        hello(m, &doc);
    } else {
        if (m->kind == CUTS_LOGIN) return 0;
        if (m->kind == REFUSES_LOGIN && !strcmp(name, "saslStart"))
            refuse(&doc);
        else
            answer(name, &doc);
    }
    reply(fd, head[1], head[3] == OP_QUERY, &doc);
    bson_destroy(&doc);
    return 1;
}

struct caller {
    struct member *m;
    int fd;
};

static void *serve(void *arg)
{
    struct caller c = *(struct caller *)arg;
    free(arg);
    while (c.m->kind != MUTE && serve_one(c.m, c.fd)) continue;
    if (c.m->kind != MUTE) close(c.fd);
    return NULL;
}

static void detached(void *(*body)(void *), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, arg)) abort();
    pthread_detach(thread);
}

static void *accept_all(void *arg)
{
    struct member *m = arg;
    for (int fd; (fd = accept(m->fd, NULL, NULL)) >= 0;) {
        struct caller *c = malloc(sizeof *c);
        if (!c) abort();
        *c = (struct caller){m, fd};
        detached(serve, c);
    }
    return NULL;
}

/* The set has these members from now on. */
static void set_of(const enum kind *kinds, size_t n)
{
    n_members = 0;
    for (size_t i = 0; i < n; i++) {
        struct member *m = &members[i];
        *m = (struct member){.kind = kinds[i]};
        m->fd = said_listens(0, &m->port);
        assert_true(m->fd >= 0);
    }
    n_members = n;
    for (size_t i = 0; i < n; i++)
        if (kinds[i] == GONE)
            close(members[i].fd); /* closed, so that no server listens there */
        else
            detached(accept_all, &members[i]);
}
#define SET_OF(...)                                     \
    do {                                                \
        const enum kind kinds_[] = {__VA_ARGS__};       \
        set_of(kinds_, sizeof kinds_ / sizeof *kinds_); \
    } while (0)

/* ---- the driver ---- */

static const hf_driver *mongodb;

static int opens(int64_t io_ms, const char *form, ...) __attribute__((format(printf, 2, 3)));
static int opens(int64_t io_ms, const char *form, ...)
{
    char url[300];
    va_list args;
    hf_store *st = NULL;
    va_start(args, form);
    vsnprintf(url, sizeof url, form, args);
    va_end(args);
    int rc = said_opens(mongodb, url, 0, io_ms, &st);
    if (!rc) mongodb->close(st);
    return rc;
}

static int greeted(size_t i) { return __atomic_load_n(&members[i].greeted, __ATOMIC_SEQ_CST); }

static void a_name_that_no_server_answers(void **state)
{
    (void)state;
    SET_OF(PRIMARY);
    said(opens(300, "mongodb://mute.example:1/test"), HF_UNAVAILABLE, "name servers");
    /* Such a name doesn't take the others' time, whichever comes first. */
    said(opens(LONG_MS, "mongodb://mute.example:1,127.0.0.1:%d/test", members[0].port), 0, NULL);
    said(opens(LONG_MS, "mongodb://127.0.0.1:%d,mute.example:1/test", members[0].port), 0, NULL);
}

static void a_silent_address_does_not_take_the_time_of_the_next(void **state)
{
    int filler;
    (void)state;
    SET_OF(PRIMARY);
    int silent = kit_silent(2, &members[0].port, &filler);
    said(opens(LONG_MS, "mongodb://at-2-1:%d/test", members[0].port), 0, NULL);
    close(silent);
    close(filler);
}

static void a_member_that_is_mute_costs_a_part_of_the_time(void **state)
{
    (void)state;
    SET_OF(MUTE, PRIMARY);
    int64_t began_us = hf__local_us();
    said(opens(10000, "mongodb://127.0.0.1:%d,127.0.0.1:%d/test", members[0].port, members[1].port),
         0, NULL);
    assert_true(hf__local_us() - began_us < 9500000);
    said(opens(300, "mongodb://127.0.0.1:%d/test", members[0].port), HF_UNAVAILABLE, NULL);
}

static void the_primary_is_found_behind_others(void **state)
{
    (void)state;
    SET_OF(SECONDARY, SECONDARY, PRIMARY);
    const int a = members[0].port, b = members[1].port, c = members[2].port;
    said(opens(LONG_MS, "mongodb://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/test", a, b, c), 0, NULL);
    /* Named by a secondary only. */
    said(opens(LONG_MS, "mongodb://127.0.0.1:%d/test?replicaSet=rs0", a), 0, NULL);
    said(opens(LONG_MS, "mongodb://127.0.0.1:1,127.0.0.1:%d/test", c), 0, NULL);
    /* Only the members themselves are asked for the primary. */
    SET_OF(PRIMARY, SECONDARY);
    said(opens(LONG_MS, "mongodb://127.0.0.1:%d,127.0.0.1:%d/test", members[0].port,
               members[1].port),
         0, NULL);
    assert_int_equal(greeted(1), 0);
}

static void without_a_primary_it_is_away_for_now(void **state)
{
    (void)state;
    SET_OF(SECONDARY, SECONDARY);
    said(opens(2000, "mongodb://127.0.0.1:%d,127.0.0.1:%d/test", members[0].port, members[1].port),
         HF_UNAVAILABLE, NULL);
    said(opens(2000, "mongodb://127.0.0.1:%d/test?directConnection=true", members[0].port),
         HF_UNAVAILABLE, "not a primary");
}

/* A connection that breaks at the login says nothing about the password. */
static void a_connection_that_breaks_at_the_login(void **state)
{
    (void)state;
    SET_OF(CUTS_LOGIN);
    said(opens(2000, "mongodb://me:s3cr3t@127.0.0.1:%d/test?authMechanism=SCRAM-SHA-256",
               members[0].port),
         HF_UNAVAILABLE, NULL);
}

/* ---- libmongoc calls for a connection while it has its lock ---- */

/* A thread that waits for itself would never return. */
static void hangs(int signal)
{
    static const char text[] = "# libmongoc waits for its own lock\n";
    (void)signal;
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) _exit(2);
    _exit(1);
}

static void a_member_that_is_named_and_is_gone(void **state)
{
    (void)state;
    SET_OF(SECONDARY, GONE);
    alarm(30);
    said(opens(2000, "mongodb://127.0.0.1:%d/test?replicaSet=rs0", members[0].port), HF_UNAVAILABLE,
         NULL);
    alarm(0);
}

/* A link is older than libmongoc's interval, and the server closes the connection when libmongoc
   greets it again. */
static void a_server_that_goes_when_it_is_asked_again(void **state)
{
    (void)state;
    char url[60];
    hf_store *st;
    hf_row row;
    int64_t clock_us;
    const time_t intervals_s[] = {61, 26 * 86400};
    hf_row_init(&row);
    for (size_t i = 0; i < COUNT(intervals_s); i++) {
        SET_OF(PRIMARY);
        snprintf(url, sizeof url, "mongodb://127.0.0.1:%d/test", members[0].port);
        assert_int_equal(said_opens(mongodb, url, 0, 2000, &st), 0);
        int before = greeted(0);
        __atomic_store_n(&members[0].kind, GONE, __ATOMIC_SEQ_CST);
        alarm(30);
        later_s = intervals_s[i];
        int rc = mongodb->get(st, &key, &row, &clock_us, &err);
        later_s = 0;
        alarm(0);
        /* Within an interval that counts it isn't asked. */
        said(rc, greeted(0) == before ? 0 : HF_UNAVAILABLE, NULL);
        assert_true(i == 0 || greeted(0) > before);
        mongodb->close(st);
    }
    hf_row_clear(&row);
}

/* The code counts, whatever the text: a passing failure says nothing about the password. */
static void a_login_that_is_refused(void **state)
{
    (void)state;
    static const struct {
        int code, is;
    } codes[] = {{18, HF_DENIED},         {13, HF_DENIED},         {91, HF_UNAVAILABLE},
                 {11600, HF_UNAVAILABLE}, {11602, HF_UNAVAILABLE}, {189, HF_UNAVAILABLE},
                 {10107, HF_UNAVAILABLE}, {13436, HF_UNAVAILABLE}};
    SET_OF(REFUSES_LOGIN);
    for (size_t i = 0; i < COUNT(codes); i++) {
        refusal = codes[i].code;
        int rc = opens(2000, "mongodb://me:s3cr3t@127.0.0.1:%d/test?authMechanism=SCRAM-SHA-256",
                       members[0].port);
        if (rc != codes[i].is) fail_msg("%d: %d, %s", refusal, rc, err.text);
        assert_null(strstr(err.text, "s3cr3t"));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_no_server_answers),
        cmocka_unit_test(a_silent_address_does_not_take_the_time_of_the_next),
        cmocka_unit_test(a_member_that_is_mute_costs_a_part_of_the_time),
        cmocka_unit_test(the_primary_is_found_behind_others),
        cmocka_unit_test(without_a_primary_it_is_away_for_now),
        cmocka_unit_test(a_connection_that_breaks_at_the_login),
        cmocka_unit_test(a_login_that_is_refused),
        cmocka_unit_test(a_member_that_is_named_and_is_gone),
        cmocka_unit_test(a_server_that_goes_when_it_is_asked_again),
    };
    signal(SIGALRM, hangs);
    mongoc_log_set_handler(NULL, NULL);
    if (hf_key_make("k", &key, &err) || !(mongodb = hf__driver("mongodb", &err))) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    return TEST_MAIN(tests);
}
