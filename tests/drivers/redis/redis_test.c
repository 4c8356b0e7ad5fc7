/*
 * redis_test.c - the driver redis against a server behind a proxy that cuts replies short; what it
 * writes of a row; and how many connections it uses. tests/servers/redis redis_test @
 */
#include "drivers.h"
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the proxy in between ---- */

enum mischief {
    NONE,
    LOSE_REQUEST, /* the connection is closed before the server gets the request */
    LOSE_REPLY,   /* the server has carried it out, but the reply is lost */
    HALF_REPLY,
    NONSENSE, /* something that isn't the protocol */
    KEEP,     /* neither: it stays mute */
    STRANGE   /* the protocol, but no answer to that */
};

static struct {
    char server[108], own[108];
    int listener;
    _Atomic int mischief;
} between;

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static int pass(int to, const char *bytes, ssize_t n)
{
    for (ssize_t done = 0; done < n;) {
        ssize_t k = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL);
        if (k <= 0) return 0;
        done += k;
    }
    return 1;
}

/* Passes a reply on, whole or not. Returns 0 if the connection is over. */
static int spoil(int to, const char *reply, ssize_t n)
{
    static const char nonsense[] = "HTTP/1.1 400 Bad Request\r\n\r\n", strange[] = "*1\r\n:7\r\n";
    int mischief = between.mischief; /* a copy, because clang warns of a switch over an atomic */
    switch (mischief) {
    case LOSE_REPLY: return 0;
    case HALF_REPLY: pass(to, reply, n / 2); return 0;
    case NONSENSE: pass(to, nonsense, sizeof nonsense - 1); return 0;
    case STRANGE: return pass(to, strange, sizeof strange - 1);
    default: return pass(to, reply, n);
    }
}

static void *carry(void *arg)
{
    int client = *(int *)arg, server = dial(between.server), on = server >= 0;
    char bytes[65536];
    free(arg);
    while (on) {
        struct pollfd p[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
        if (poll(p, 2, -1) < 0) continue;
        if (p[0].revents) {
            ssize_t n = read(client, bytes, sizeof bytes);
            on = n > 0 && between.mischief != LOSE_REQUEST;
            if (on && between.mischief != KEEP) on = pass(server, bytes, n);
        } else if (p[1].revents) {
            ssize_t n = read(server, bytes, sizeof bytes);
            on = n > 0 && spoil(client, bytes, n);
        }
    }
    close(client);
    if (server >= 0) close(server);
    return NULL;
}

static void *let_in(void *arg)
{
    for (;;) {
        int fd = accept(between.listener, NULL, NULL);
        if (fd < 0) return arg;
        int *client = malloc(sizeof *client);
        pthread_t thread;
        if (!client) abort();
        *client = fd;
        if (pthread_create(&thread, NULL, carry, client)) abort();
        pthread_detach(thread);
    }
}

static void stand_between(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    pthread_t thread;
    snprintf(a.sun_path, sizeof a.sun_path, "%s", between.own);
    between.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(between.listener, (struct sockaddr *)&a, sizeof a) || listen(between.listener, 64) ||
        pthread_create(&thread, NULL, let_in, NULL))
        abort();
    pthread_detach(thread);
}

/* ---- requests ---- */

static const hf_driver *drv;
static hf_store *st;
static hf_error err;

static void open_between(int64_t io_timeout_ms)
{
    char text[200];
    hf_url url;
    snprintf(text, sizeof text, "redis:?socket=%s", between.own);
    assert_int_equal(hf_url_parse(text, &url, &err), 0);
    between.mischief = NONE;
    assert_int_equal(drv->open(&url, io_timeout_ms, &st, &(hf_caps){0}, &err), 0);
}

static void party_of(hf_party *p, uint8_t n)
{
    memset(p, 0, sizeof *p);
    p->id[0] = n;
    p->lease_ms = 60000;
    p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "owner %d", n);
}

static int take(const hf_rowkey *key, uint8_t who, hf_row *row)
{
    hf_party p;
    int64_t clock_us;
    party_of(&p, who);
    return drv->acquire(st, key, &p, 0, row, &clock_us, &err);
}

/* A grant is taken while this is done to it: then it is UNKNOWN; done or not, it is there or not.
 */
static void lost(enum mischief what, int done)
{
    char text[32];
    hf_rowkey key;
    hf_row row;
    int64_t clock_us;
    snprintf(text, sizeof text, "lost %d", what);
    assert_int_equal(hf_key_make(text, &key, &err), 0);
    hf_row_init(&row);
    between.mischief = what;
    assert_int_equal(take(&key, 1, &row), HF_UNKNOWN);
    assert_non_null(strstr(err.text, text));
    assert_int_equal(drv->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE);
    between.mischief = NONE;
    /* The same request again finds its effect, or has it. */
    assert_int_equal(take(&key, 1, &row), done ? HF_CONFLICT : 0);
    assert_int_equal(row.n_holders, 1);
    assert_int_equal(row.party[0].id[0], 1);
    uint64_t rev = row.rev++;
    row.n_holders = 0;
    between.mischief = what;
    assert_int_equal(drv->replace(st, &key, rev, &row, NULL, &clock_us, &err), HF_UNKNOWN);
    between.mischief = NONE;
    hf_row cur;
    hf_row_init(&cur);
    assert_int_equal(drv->replace(st, &key, rev, &row, &cur, &clock_us, &err),
                     done ? HF_CONFLICT : 0);
    assert_true(!done || hf_row_equal(&cur, &row));
    assert_int_equal(drv->replace(st, &key, row.rev, NULL, &cur, &clock_us, &err), 0);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

static void lost_replies_are_unknown(void **state)
{
    (void)state;
    open_between(60000);
    lost(LOSE_REQUEST, 0);
    lost(LOSE_REPLY, 1);
    lost(HALF_REPLY, 1);
    lost(NONSENSE, 1);
    lost(STRANGE, 1);
    drv->close(st);
    open_between(1000); /* the limit of a request to a mute server */
    lost(KEEP, 0);
    drv->close(st);
}

/* A request that never left says so: nothing can have happened. */
static void unreachable_is_not_unknown(void **state)
{
    (void)state;
    hf_rowkey key;
    hf_row row;
    open_between(60000);
    hf_row_init(&row);
    assert_int_equal(hf_key_make("away", &key, &err), 0);
    between.mischief = LOSE_REPLY;
    assert_int_equal(take(&key, 1, &row), HF_UNKNOWN);
    char other[sizeof between.server];
    memcpy(other, between.server, sizeof other);
    snprintf(between.server, sizeof between.server, "/nonexistent/socket");
    assert_int_equal(take(&key, 1, &row), HF_UNAVAILABLE);
    memcpy(between.server, other, sizeof other);
    between.mischief = NONE;
    assert_int_equal(take(&key, 1, &row), HF_CONFLICT);
    hf_row_clear(&row);
    drv->close(st);
}

/* ---- what the server says ---- */

static long count(const char *command)
{
    char line[400], text[64] = "";
    snprintf(line, sizeof line, "redis-cli -s '%s' %s", between.server, command);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    assert_int_equal(pclose(f), 0);
    return strtol(text, NULL, 10);
}

/* ---- what is written ---- */

enum kind { FREE, HELD, SHARED, AWAITED, MARKED, KINDS };

static void row_of(hf_row *row, enum kind kind)
{
    static uint64_t rev = 1000;
    hf_row_clear(row);
    row->rev = row->token = ++rev;
    if (kind == HELD || kind == SHARED || kind == AWAITED) {
        party_of(&row->party[row->n_holders++], (uint8_t)rev);
        row->party[0].token = rev;
        row->party[0].expires_us = 1;
        row->party[0].mode = kind == SHARED ? HF_SHARED : HF_EXCLUSIVE;
    }
    if (kind == AWAITED) party_of(&row->party[1], (uint8_t)~rev);
    row->n_queue = kind == AWAITED;
    if (kind != MARKED) return;
    row->done_us = row->keep_until_us = 1;
    row->done_by_len = (uint8_t)snprintf(row->done_by, sizeof row->done_by, "who");
    row->result_len = (uint16_t)snprintf(row->result, sizeof row->result, "what");
}

/* How many fields differ between the rows of two keys. */
#define DIFFERENT                                                                                 \
    "eval \"local a, b, n = redis.call('hgetall', 'holdfast:replaced'), "                         \
    "redis.call('hgetall', 'holdfast:new'), 0 for i = 1, #b, 2 do "                               \
    "if redis.call('hget', 'holdfast:replaced', b[i]) ~= b[i + 1] then n = n + 1 end end return " \
    "n + math.abs(#a - #b)\" 0"

static void put(const hf_rowkey *key, uint64_t seen, const hf_row *row)
{
    int64_t clock_us;
    assert_int_equal(drv->replace(st, key, seen, row, NULL, &clock_us, &err), 0);
}

/* Whatever the old row was: the stored row is the new one, without fields that are empty. */
static void a_replaced_row_is_as_a_new_one(void **state)
{
    (void)state;
    hf_rowkey key[2];
    hf_row row;
    uint64_t seen = 0;
    open_between(60000);
    hf_row_init(&row);
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_key_make(i ? "new" : "replaced", &key[i], &err), 0);
    for (int n = 0; n < KINDS * KINDS; n++) {
        const int kind[] = {n % KINDS, n / KINDS};
        for (int i = 0; i < 2; i++) {
            row_of(&row, (enum kind)kind[i]);
            put(&key[0], seen, &row);
            seen = row.rev;
        }
        put(&key[1], 0, &row);
        if (count(DIFFERENT)) fail_msg("%d, %d: not the row", kind[0], kind[1]);
        long more = kind[1] == SHARED || kind[1] == AWAITED || kind[1] == MARKED;
        assert_int_equal(count("hlen holdfast:replaced"), 9 + more);
        assert_int_equal(count("del holdfast:new"), 1);
    }
    hf_row_clear(&row);
    drv->close(st);
}

static void a_marker_stays_when_the_key_is_taken(void **state)
{
    (void)state;
    hf_rowkey key;
    hf_row row;
    open_between(60000);
    hf_row_init(&row);
    assert_int_equal(hf_key_make("marked", &key, &err), 0);
    row_of(&row, MARKED);
    put(&key, 0, &row);
    assert_int_equal(take(&key, 2, &row), 0);
    assert_true(row.done_us == 1 && row.n_holders == 1 && !strcmp(row.result, "what"));
    assert_int_equal(count("hlen holdfast:marked"), 10);
    hf_row_clear(&row);
    drv->close(st);
}

/* ---- connections ---- */

enum { KEYS = 300 };
#define CHANNELS  "pubsub channels 'holdfast:*' | grep -c holdfast || true"
#define LISTENERS "client list type pubsub | grep -c name=holdfast || true"
#define IN_LINE                                                                      \
    "eval \"local n = 0 for i = 0, 299 do local q = "                                \
    "redis.call('hget', 'holdfast:waits/' .. i, 'queue') if q and q ~= '' then n = " \
    "n + 1 end end return n\" 0"

static _Atomic int served;

static void got(void *arg, int code, hf_lock *lock, const hf_error *why)
{
    (void)arg, (void)why;
    if (!code && !hf_release(lock, NULL)) served++;
}

static void one_connection_serves_all_waits(void **state)
{
    (void)state;
    static hf_lock *held[KEYS];
    static hf_wait *wait[KEYS];
    char url[200], key[32];
    hf *a, *b;
    snprintf(url, sizeof url, "redis:?socket=%s", between.server);
    assert_int_equal(hf_open(url, NULL, &a, &err), 0);
    assert_int_equal(hf_open(url, NULL, &b, &err), 0);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "waits/%d", i);
        assert_int_equal(hf_acquire(a, key, NULL, &held[i], &err), 0);
    }
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "waits/%d", i);
        assert_int_equal(hf_acquire_start(b, key, NULL, got, NULL, &wait[i], &err), 0);
    }
    for (int tries = 0; count(IN_LINE) < KEYS || !count(CHANNELS); tries++) {
        assert_true(tries < 60000);
        usleep(10000);
    }
    /* A queued waiter is notified at the handle's own address. */
    assert_int_equal(count(CHANNELS), 1);
    assert_int_equal(count(LISTENERS), 1);
    assert_in_range(count("client list type normal | grep -c name=holdfast"), 1, 8);
    for (int i = 0; i < KEYS; i++) assert_int_equal(hf_release(held[i], &err), 0);
    for (int tries = 0; served < KEYS; tries++) {
        assert_true(tries < 60000);
        usleep(10000);
    }
    for (int i = 0; i < KEYS; i++) hf_wait_free(wait[i]);
    hf_close(b);
    hf_close(a);
}

/* ---- two databases of one server ---- */

static void note(void *arg, int code, hf_lock *lock, const hf_error *why)
{
    (void)why;
    if (!code) __atomic_store_n((hf_lock **)arg, lock, __ATOMIC_RELEASE);
}

static hf_wait *asked(hf *h, const uint8_t id[16], hf_lock **got_by)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_wait *w;
    o.request_id = id;
    assert_int_equal(hf_acquire_start(h, "order/42", &o, note, got_by, &w, &err), 0);
    return w;
}

static void until_granted(hf_lock **at)
{
    for (int tries = 0; !__atomic_load_n(at, __ATOMIC_ACQUIRE); tries++) {
        assert_true(tries < 60000);
        usleep(10000);
    }
}

#define WAITS(db)                                                                         \
    "-n " db " eval \"local q = redis.call('hget', 'holdfast:order/42', 'queue') return " \
    "q and q ~= '[]' and 1 or 0\" 0"

/* The same key, asked for in both by the same request: as when a batch is tried in a copy. */
static void another_database_is_another_store(void **state)
{
    (void)state;
    static const uint8_t id[16] = "payment 0000042";
    hf *h[4]; /* two of database 0, two of 1 */
    hf_lock *held[2], *got_by[2] = {NULL, NULL};
    hf_wait *wait[2];
    char url[200];
    for (int i = 0; i < 4; i++) {
        snprintf(url, sizeof url, "redis:?socket=%s&db=%d", between.server, i / 2);
        assert_int_equal(hf_open(url, NULL, &h[i], &err), 0);
    }
    for (int db = 0; db < 2; db++) {
        assert_int_equal(hf_acquire(h[2 * db], "order/42", NULL, &held[db], &err), 0);
        wait[db] = asked(h[2 * db + 1], id, &got_by[db]);
    }
    while (!count(WAITS("0")) || !count(WAITS("1")) || count(LISTENERS) < 2) usleep(10000);
    assert_int_equal(hf_release(held[1], &err), 0);
    until_granted(&got_by[1]);
    usleep(200000); /* long enough for any notification to arrive */
    assert_null(__atomic_load_n(&got_by[0], __ATOMIC_ACQUIRE));
    assert_int_equal(hf_confirm(held[0], &err), 0);
    assert_int_equal(hf_release(held[0], &err), 0);
    until_granted(&got_by[0]);
    for (int db = 0; db < 2; db++) assert_int_equal(hf_release(got_by[db], &err), 0);
    for (int db = 0; db < 2; db++) hf_wait_free(wait[db]);
    for (int i = 0; i < 4; i++) hf_close(h[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_replies_are_unknown),
        cmocka_unit_test(unreachable_is_not_unknown),
        cmocka_unit_test(a_replaced_row_is_as_a_new_one),
        cmocka_unit_test(a_marker_stays_when_the_key_is_taken),
        cmocka_unit_test(one_connection_serves_all_waits),
        cmocka_unit_test(another_database_is_another_store),
    };
    const char *path = argc == 2 ? strstr(argv[1], "socket=") : NULL;
    if (!path) return 64;
    snprintf(between.server, sizeof between.server, "%s", path + strlen("socket="));
    snprintf(between.own, sizeof between.own, "%.90s.between", between.server);
    drv = hf__driver("redis", &err);
    if (!drv) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    stand_between();
    return TEST_MAIN(tests);
}
