/*
 * ear.c - see ear.h. All keys of a table share one channel.
 *
 * A notification says of which key it is, and nothing that anybody would believe: every role of the
 * database may notify, and listen, whatever it may do with the table.
 */
#include "ear.h"

#include "os.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { DEAF_MS = 5000 };

/* Counts the notifications of keys that somebody here waits for. 0: the connection broke. */
static int hear(struct hf__pg_ear *ear)
{
    PGnotify *note;
    if (!PQconsumeInput(ear->link.pg)) return 0;
    while ((note = PQnotifies(ear->link.pg))) {
        uint64_t hash = strtoull(note->extra, NULL, 10);
        for (size_t i = 0; i < ear->n_hash; i++)
            if (ear->hash[i] == hash) {
                ear->heard++;
                break;
            }
        PQfreemem(note);
    }
    return PQstatus(ear->link.pg) == CONNECTION_OK;
}

int hf__pg_ear_open(struct hf__pg_ear *ear)
{
    ear->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ear->wake_fd < 0 ? errno : 0;
}

void hf__pg_ear_close(struct hf__pg_ear *ear)
{
    hf__pg_disconnect(&ear->link);
    free(ear->hash);
    if (ear->wake_fd >= 0) close(ear->wake_fd);
}

static int deaf(struct hf__pg_ear *ear, const char *why, hf_error *err)
{
    hf__pg_disconnect(&ear->link);
    ear->deaf_until_us = hf__local_us() + DEAF_MS * INT64_C(1000);
    return hf_fail(err, HF_UNAVAILABLE, 0, "postgres: listen: %s", why);
}

static int connect_ear(const struct hf__pg_how *how, struct hf__pg_ear *ear, hf_error *err)
{
    char sql[120], state[6];
    PGresult *r;
    if (hf__local_us() < ear->deaf_until_us)
        return hf_fail(err, HF_UNAVAILABLE, 0, "postgres: listen: not heard lately");
    int rc = hf__pg_connect(how, &ear->link, err);
    if (!rc && ear->link.pooled) return deaf(ear, "a pooler is in between", err);
    snprintf(sql, sizeof sql, "LISTEN \"%s\"", ear->channel);
    if (!rc)
        rc =
            hf__pg_ask(how, &ear->link, sql, 0, NULL, HF_UNAVAILABLE, &r, state, "listen", "", err);
    if (rc) {
        deaf(ear, "", NULL);
        return rc;
    }
    PQclear(r);
    ear->heard++; /* what came before isn't known */
    return 0;
}

int hf__pg_listen(const struct hf__pg_how *how, struct hf__pg_ear *ear,
                  const hf_rowkey *const *keys, size_t n, hf_ear *ret, hf_error *err)
{
    uint64_t *hash = realloc(ear->hash, (n ? n : 1) * sizeof *hash);
    if (!hash) return hf_fail(err, HF_NOMEM, 0, "postgres: listen: out of memory");
    ear->hash = hash;
    /* Those that came for the keys of the last time count for them. */
    if (ear->link.pg && !hear(ear)) hf__pg_disconnect(&ear->link);
    ear->n_hash = n;
    for (size_t i = 0; i < n; i++) hash[i] = keys[i]->hash;
    if (!ear->link.pg) {
        int rc = connect_ear(how, ear, err);
        if (rc) return rc;
    }
    *ret = (hf_ear){{ear->heard, 0}};
    return 0;
}

int hf__pg_watch(struct hf__pg_ear *ear, const hf_ear *since, int64_t until_us, hf_error *err)
{
    while (ear->heard == since->heard[0]) {
        struct pollfd fds[2] = {{PQsocket(ear->link.pg), POLLIN, 0}, {ear->wake_fd, POLLIN, 0}};
        int64_t left = until_us - hf__local_us();
        uint64_t n;
        if (left <= 0) return 0;
        left = left / 1000 + 1;
        if (poll(fds, 2, left > 60000 ? 60000 : (int)left) < 0 && errno != EINTR)
            return deaf(ear, strerror(errno), err);
        if (fds[1].revents) {
            if (read(ear->wake_fd, &n, sizeof n) < 0 && errno != EAGAIN)
                return deaf(ear, strerror(errno), err);
            return 0;
        }
        if (fds[0].revents && !hear(ear)) return deaf(ear, "the connection broke", err);
    }
    return 0;
}

void hf__pg_interrupt(struct hf__pg_ear *ear)
{
    uint64_t one = 1;
    if (write(ear->wake_fd, &one, sizeof one) < 0) return; /* full: it is awake already */
}
