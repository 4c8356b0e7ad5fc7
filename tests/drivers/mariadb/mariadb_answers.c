/*
 * mariadb_answers.c - what the MariaDB driver makes of each kind of error: which errors say that a
 * write was not done. The server of this program speaks MariaDB's protocol; it answers a statement
 * by an error when the test wants that, else as a server that has an empty table.
 */
#include "fakes/said.h"
#include "os.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the server ---- */

enum { AUTOCOMMIT = 2, MORE = 8, PACKET = 1 << 16 };

static struct {
    const char *part; /* the request with this part is answered by the error; NULL: none is */
    int at, number;   /* at: of its statements it is the one that fails */
} bad;                /* read by the server while the test waits for its answer */

struct out {
    unsigned char bytes[PACKET];
    size_t n, from;
    unsigned char seq;
};

static void put(struct out *o, const void *p, size_t n)
{
    if (o->n + n > sizeof o->bytes) abort();
    memcpy(o->bytes + o->n, p, n);
    o->n += n;
}

static void put_number(struct out *o, unsigned long v, int size)
{
    for (int i = 0; i < size; i++) put(o, &(unsigned char){(unsigned char)(v >> 8 * i)}, 1);
}

static void put_text(struct out *o, const char *text)
{
    put_number(o, strlen(text), 1);
    put(o, text, strlen(text));
}

static void begin(struct out *o)
{
    o->from = o->n;
    put_number(o, 0, 3);
    put_number(o, o->seq++, 1);
}

static void end(struct out *o)
{
    size_t len = o->n - o->from - 4;
    for (int i = 0; i < 3; i++) o->bytes[o->from + (size_t)i] = (unsigned char)(len >> 8 * i);
}

static void put_ok(struct out *o, int more)
{
    begin(o);
    put(o, "\0\0\0", 3); /* OK; rows, id */
    put_number(o, AUTOCOMMIT | (more ? MORE : 0), 2);
    put_number(o, 0, 2);
    end(o);
}

static void put_error(struct out *o, int number)
{
    begin(o);
    put_number(o, 0xff, 1);
    put_number(o, (unsigned long)number, 2);
    put(o, "#HY000told so", 13);
    end(o);
}

static void put_eof(struct out *o)
{
    begin(o);
    put(o, "\xfe\0", 2);
    put_number(o, 0, 1);
    put_number(o, AUTOCOMMIT, 2);
    end(o);
}

/* One row of these texts; so many NULLs behind them. */
static void put_row(struct out *o, const char *const *text, int n, int nulls)
{
    begin(o);
    put_number(o, (unsigned long)(n + nulls), 1);
    end(o);
    for (int i = 0; i < n + nulls; i++) {
        static const char *const names[] = {"def", "", "", "", "c", ""};
        begin(o);
        for (int k = 0; k < 6; k++) put_text(o, names[k]);
        put(o, "\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0", 13);
        end(o);
    }
    put_eof(o);
    begin(o);
    for (int i = 0; i < n; i++) put_text(o, text[i]);
    for (int i = 0; i < nulls; i++) put_number(o, 0xfb, 1);
    end(o);
    put_eof(o);
}

static void put_greeting(struct out *o)
{
    begin(o);
    put(o,
        "\x0a"
        "10.11.6-MariaDB\0"
        "\1\0\0\0"
        "12345678\0",
        30);
    put_number(o, 0xa20d, 2); /* long flags, a database, 4.1, transactions, scrambled passwords */
    put_number(o, 45, 1);
    put_number(o, AUTOCOMMIT, 2);
    put_number(o, 0x000b, 2); /* several statements, several results, a plugin */
    put_number(o, 21, 1);
    for (int i = 0; i < 10; i++) put_number(o, 0, 1);
    put(o, "123456789012\0mysql_native_password\0", 35);
    end(o);
}

static void answer(struct out *o, const char *sql)
{
    static const char *const version[] = {"10.11.6-MariaDB", "0"};
    static const char *const told[] = {"0", "0", "1769860800000017"};
    static const char *const done[] = {"1", "0", "1769860800000017"};
    int fails = bad.part && strstr(sql, bad.part), writes = strncmp(sql, "SELECT", 6) != 0;
    if (writes && !(fails && !bad.at)) put_ok(o, strchr(sql, ';') != NULL);
    if (fails) {
        put_error(o, bad.number);
    } else if (strstr(sql, "VERSION()")) {
        put_row(o, version, 2, 0);
    } else if (strstr(sql, "UTC_TIMESTAMP")) {
        put_row(o, writes ? done : told, 3, SAID_FIELDS);
    } else if (writes && strchr(sql, ';')) {
        put_ok(o, 0);
    }
}

static int all(int fd, void *to, size_t n)
{
    return !n || recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

/* One packet as a text; its length is at most that of `to`. 0: the connection has ended. */
static int reads(int fd, struct out *o, char to[PACKET])
{
    unsigned char head[4];
    if (!all(fd, head, 4)) return 0;
    size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
    if (len >= PACKET || !all(fd, to, len)) return 0;
    to[len] = 0;
    o->n = 0;
    o->seq = (unsigned char)(head[3] + 1);
    return 1;
}

static int says(int fd, const struct out *o)
{
    return send(fd, o->bytes, o->n, MSG_NOSIGNAL) == (ssize_t)o->n;
}

static void *serve(void *arg)
{
    static _Thread_local struct out o;
    static _Thread_local char packet[PACKET];
    int fd = (int)(intptr_t)arg;
    o.n = o.seq = 0;
    put_greeting(&o);
    int goes_on = says(fd, &o) && reads(fd, &o, packet);
    if (goes_on) put_ok(&o, 0);
    while (goes_on) {
        goes_on = says(fd, &o) && reads(fd, &o, packet) && *packet == 3; /* COM_QUERY */
        if (goes_on) answer(&o, packet + 1);
    }
    close(fd);
    return NULL;
}

static int listening, port;

static void *accept_all(void *arg)
{
    int fd;
    while ((fd = accept(listening, NULL, NULL)) >= 0) {
        pthread_t t;
        if (pthread_create(&t, NULL, serve, (void *)(intptr_t)fd)) abort();
        pthread_detach(t);
    }
    return arg;
}

/* ---- the driver ---- */

static const hf_driver *mariadb;
static hf_store *st;
static int64_t clock_us;

static int get(void)
{
    hf_row row;
    hf_row_init(&row);
    int rc = mariadb->get(st, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static int replaces(uint64_t seen)
{
    hf_row to, cur;
    hf_row_init(&to);
    hf_row_init(&cur);
    to.rev = to.token = seen + 1;
    to.done_us = 1;
    int rc = mariadb->replace(st, &key, seen, &to, &cur, &clock_us, &err);
    hf_row_clear(&cur);
    return rc;
}

static int replaces_with_others(void)
{
    hf_row to, cur;
    hf_error why = {0, 0, ""};
    hf_row_init(&to);
    hf_row_init(&cur);
    to.rev = to.token = 6;
    to.done_us = 1;
    hf_replace one = {.key = &key, .seen = 5, .row = &to, .cur = &cur, .err = &why};
    (void)mariadb->replace_many(st, &one, 1, hf__local_us() + 60000000);
    hf_row_clear(&cur);
    return one.result;
}

/* Numbers by which nothing was done have a code of their own. By any other, also one that no
   version has yet, a write may have been done; a read can be made again. */
static void each_error_has_its_code(void **state)
{
    static const struct {
        int number, reads, writes;
    } cases[] = {
        {1142, HF_DENIED, HF_DENIED},           /* the table may not be written */
        {1045, HF_DENIED, HF_DENIED},           /* access denied */
        {1021, HF_FULL, HF_FULL},               /* the disk is full */
        {1114, HF_FULL, HF_FULL},               /* the table is full */
        {1054, HF_CORRUPT, HF_CORRUPT},         /* no such column */
        {1406, HF_CORRUPT, HF_CORRUPT},         /* data too long */
        {1205, HF_UNAVAILABLE, HF_UNAVAILABLE}, /* a lock wasn't granted in time */
        {1040, HF_UNAVAILABLE, HF_UNAVAILABLE}, /* too many connections */
        {1290, HF_UNAVAILABLE, HF_UNAVAILABLE}, /* read-only */
        {1213, HF_UNAVAILABLE, HF_CONFLICT},    /* a deadlock, or overtaken in a cluster */
        {1062, HF_UNAVAILABLE, HF_CONFLICT},    /* the row is there */
        {1969, HF_UNAVAILABLE, HF_UNKNOWN},     /* max_statement_time */
        {1317, HF_UNAVAILABLE, HF_UNKNOWN},     /* interrupted */
        {1053, HF_UNAVAILABLE, HF_UNKNOWN},     /* shutting down */
        {1105, HF_UNAVAILABLE, HF_UNKNOWN},     /* unknown error */
        {1180, HF_UNAVAILABLE, HF_UNKNOWN},     /* during COMMIT */
        {1927, HF_UNAVAILABLE, HF_UNKNOWN},     /* the connection was killed */
        {9001, HF_UNAVAILABLE, HF_UNKNOWN},     /* of a proxy in front */
        {65000, HF_UNAVAILABLE, HF_UNKNOWN},    /* of a later version */
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        bad.number = cases[i].number;
        bad.at = 0;
        bad.part = "SELECT 0, ";
        said(get(), cases[i].reads, "told so");
        bad.part = "INSERT INTO";
        said(replaces(0), cases[i].writes, cases[i].writes == HF_CONFLICT ? NULL : "told so");
        bad.part = "UPDATE";
        said(replaces(5), cases[i].writes, cases[i].writes == HF_CONFLICT ? NULL : "told so");
        int many = cases[i].writes == HF_CONFLICT ? HF_UNAVAILABLE : cases[i].writes;
        said(replaces_with_others(), many, NULL);
        bad.part = NULL;
        said(get(), 0, NULL);
        said(replaces(5), 0, NULL);
        said(replaces_with_others(), 0, NULL);
    }
}

/* The write was carried out, and the statement behind it is refused. */
static void what_fails_behind_a_write_leaves_it_open(void **state)
{
    static const int numbers[] = {1142, 1021, 1205, 1213, 1062, 1146, 65000};
    (void)state;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        bad.number = numbers[i];
        bad.at = 1;
        bad.part = "UPDATE";
        said(replaces(5), HF_UNKNOWN, "told so");
        said(replaces_with_others(), HF_UNKNOWN, NULL);
        bad.part = NULL;
        said(get(), 0, NULL);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_error_has_its_code),
        cmocka_unit_test(what_fails_behind_a_write_leaves_it_open),
    };
    pthread_t t;
    mariadb = hf__driver("mariadb", &err);
    listening = said_listens(0, &port);
    if (!mariadb || hf_key_make("k", &key, &err) || listening < 0 ||
        pthread_create(&t, NULL, accept_all, NULL) ||
        said_opens(mariadb, "mariadb://u@HOST/db", port, 60000, &st)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    pthread_detach(t);
    int rc = TEST_MAIN(tests);
    mariadb->close(st);
    return rc;
}
