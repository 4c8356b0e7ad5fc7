/*
 * mysay.c - see mysay.h. A thread for each connection, which ends with it.
 */
#include "mysay.h"

#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { AUTOCOMMIT = 2, MORE = 8, PACKET = 1 << 16 };

struct my_error my_bad;
int my_pooled, my_read_only;
const hf_driver *mariadb;

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

/* Sends one row of these texts, followed by that many NULLs. */
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
        "10.11.6-MariaDB\0",
        17);
    put_number(o, my_pooled ? 100001 : 1, 4);
    put(o, "12345678\0", 9);
    put_number(o, 0xa20d, 2); /* long flags, a database, 4.1, transactions, scrambled passwords */
    put_number(o, 45, 1);
    put_number(o, AUTOCOMMIT, 2);
    put_number(o, 0x000b, 2); /* several statements, several results, a plugin */
    put_number(o, 21, 1);
    for (int i = 0; i < 10; i++) put_number(o, 0, 1);
    put(o, "123456789012\0mysql_native_password\0", 35);
    end(o);
}

/* Answers the settings at the front. Returns what is behind them; NULL: one was refused. */
static const char *settings(struct out *o, const char *sql)
{
    for (int i = 0; !strncmp(sql, "SET autocommit", 14) || !strncmp(sql, "SET SESSION", 11); i++) {
        int wanted = my_bad.number && my_bad.part && !strcmp(my_bad.part, MY_SETTINGS);
        if (wanted && my_bad.at == i) {
            put_error(o, my_bad.number);
            return NULL;
        }
        put_ok(o, 1);
        sql += strcspn(sql, "\n");
        sql += *sql == '\n';
    }
    return sql;
}

/* 0: it is mute. */
static int answer(struct out *o, const char *sql)
{
    const char *read_only = my_read_only ? "1" : "0";
    const char *const version[] = {"10.11.6-MariaDB", read_only, "1"};
    const char *const told[] = {"0", read_only, "1769860800000017"};
    const char *const done[] = {"1", read_only, "1769860800000017"};
    int wanted = my_bad.part && strstr(sql, my_bad.part);
    if (wanted && my_bad.mutes) {
        my_bad.mutes--;
        return 0;
    }
    if (!(sql = settings(o, sql))) return 1;
    int writes = strncmp(sql, "SELECT", 6) != 0, fails = wanted && my_bad.number;
    if (writes && !(fails && !my_bad.at)) put_ok(o, strchr(sql, ';') != NULL);
    if (fails) {
        put_error(o, my_bad.number);
    } else if (strstr(sql, "VERSION()")) {
        put_row(o, version, 3, 0);
    } else if (strstr(sql, "CONNECTION_ID()")) {
        put_row(o, version + 2, 1, 0);
    } else if (strstr(sql, "UTC_TIMESTAMP")) {
        put_row(o, writes ? done : told, 3, SAID_FIELDS);
    } else if (writes && strchr(sql, ';')) {
        put_ok(o, 0);
    }
    return 1;
}

/* Reads until the client has closed the connection. */
static void nothing_more(int fd)
{
    char skip[256];
    while (recv(fd, skip, sizeof skip, 0) > 0) continue;
}

static int all(int fd, void *to, size_t n)
{
    return !n || recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

/* Reads one packet as a text, which fits into `to`. Returns 0 if the connection has ended. */
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
        if (goes_on && !answer(&o, packet + 1)) {
            nothing_more(fd);
            goes_on = 0;
        }
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

/* ---- the driver before it ---- */

int my_begin(void)
{
    pthread_t t;
    mariadb = hf__driver("mariadb", &err);
    listening = said_listens(0, &port);
    if (mariadb && !hf_key_make("k", &key, &err) && listening >= 0 &&
        !pthread_create(&t, NULL, accept_all, NULL)) {
        pthread_detach(t);
        return 1;
    }
    printf("Bail out! %s\n", err.text);
    return 0;
}

int my_opens(const char *form, int64_t io_ms, hf_store **ret)
{
    return said_opens(mariadb, form, port, io_ms, ret);
}
