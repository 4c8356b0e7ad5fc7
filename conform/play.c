/*
 * play.c - the conformance suite: functions that checks share. They open the store, describe
 * failures, make keys and rows, and call operations. See conform.h.
 */
#include "conform.h"
#include "drivers.h"
#include "os.h"
#include "port.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { IO_TIMEOUT_MS = 5000 };

/* ---- opening, describing failures ---- */

int hf__con_open(struct hf__suite *cfm, struct hf__con *ret, hf_error *err)
{
    struct hf__con con = {.drv = cfm->drv};
    int rc = hf__open_store(con.drv, cfm->url, IO_TIMEOUT_MS, &con.st, &con.caps, err);
    if (!rc && hf__wrap_opened) rc = hf__wrap_opened(&con.drv, &con.st, &con.caps, err);
    if (rc && con.st) hf__con_close(&con);
    if (!rc) *ret = con;
    return rc;
}

void hf__con_close(struct hf__con *con)
{
    con->drv->close(con->st);
    con->st = NULL;
}

const char *hf__bad(struct hf__suite *cfm, const char *format, ...)
{
    va_list args;
    char why[sizeof cfm->why]; /* copied afterwards, because an argument may be cfm->why */
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    memcpy(cfm->why, why, sizeof why);
    return cfm->why;
}

int hf__note(struct hf__suite *cfm, int rc)
{
    if (cfm->no_reply && (rc == HF_UNAVAILABLE || rc == HF_UNKNOWN)) atomic_store(cfm->no_reply, 1);
    return rc;
}

const char *hf__why(struct hf__suite *cfm, const hf_error *err)
{
    hf__note(cfm, err->code);
    return err->text[0] ? err->text : "a conflict, or an error for which hf_fail was not called";
}

/* ---- keys and rows ---- */

hf_rowkey hf__con_key(const struct hf__suite *cfm, char text[HF_KEY_CAP], const char *name)
{
    hf_rowkey key = {.text = text};
    int n = snprintf(text, HF_KEY_CAP, "%s%s", cfm->prefix, name);
    key.len = n < HF_KEY_CAP ? (uint32_t)n : HF_KEY_CAP - 1;
    key.hash = hf_key_hash(text, key.len);
    return key;
}

hf_party hf__con_party(uint64_t session, uint32_t n)
{
    hf_party p;
    memset(&p, 0, sizeof p);
    memcpy(p.id, &n, sizeof n);
    p.id[15] = 1;
    p.session = session;
    p.lease_ms = session ? 0 : 60000;
    p.claim_ms = 1000;
    p.owner_len = (uint8_t)snprintf(p.owner, sizeof p.owner, "conform-%u", n);
    p.note_len = (uint8_t)snprintf(p.note, sizeof p.note, "host=h pid=%u", n);
    return p;
}

void hf__con_one_holder(hf_row *row, uint32_t n)
{
    row->n_holders = 1;
    row->n_queue = 0;
    row->done_us = row->keep_until_us = 0;
    row->party[0] = hf__con_party(1, n);
    row->party[0].since_us = 1;
}

int hf__con_create(const struct hf__con *con, const hf_rowkey *key, hf_row *row, hf_error *err)
{
    hf_row cur;
    int64_t clock = 0;
    hf_row_init(&cur);
    int rc = con->drv->get(con->st, key, &cur, &clock, err);
    if (!rc && con->caps.local) clock = con->caps.local->now(con->st);
    if (!rc && !clock && !con->caps.sessions && !con->caps.liveness)
        rc = hf_fail(err, HF_UNSUPPORTED, 0, "get: *ret_clock_us is 0, not the store's clock");
    /* A store that forgets free rows may answer the first write with a conflict and a higher rev.
     */
    for (int tries = 3; !rc;) {
        row->rev = hf_rev_next(cur.rev, clock);
        if (row->n_holders == 1) row->token = row->party[0].token = row->rev;
        rc = con->drv->replace(con->st, key, cur.rev, row, &cur, &clock, err);
        if (rc != HF_CONFLICT || cur.n_holders || cur.n_queue || cur.done_us || !--tries) break;
        rc = 0;
    }
    hf_row_clear(&cur);
    return rc == HF_CONFLICT ? hf_fail(err, HF_BUSY, 0, "'%s' is in use", key->text) : rc;
}

int64_t hf__con_clock(const struct hf__con *con, const hf_rowkey *key, hf_row *row, hf_error *err)
{
    int64_t clock = 0;
    if (con->caps.local) return con->caps.local->now(con->st);
    return con->drv->get(con->st, key, row, &clock, err) ? -1 : clock;
}

int hf__con_get(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    int rc = cfm->con.drv->get(cfm->con.st, key, row, &clock, &err);
    if (rc) hf__bad(cfm, "get: %s", hf__why(cfm, &err));
    return rc;
}

int hf__con_replace(struct hf__suite *cfm, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                    hf_row *cur)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    int rc = cfm->con.drv->replace(cfm->con.st, key, seen, row, cur, &clock, &err);
    if (rc) hf__bad(cfm, "replace: %s", rc < 0 ? hf__why(cfm, &err) : "refused");
    return rc;
}

int hf__con_scan(const struct hf__con *con, const char *prefix,
                 int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg, hf_error *err)
{
    struct hf_port port = {.drv = con->drv, .st = con->st, .caps = con->caps};
    pthread_mutex_init(&port.serial, NULL);
    pthread_mutex_init(&port.mu, NULL);
    int rc = hf__port_scan(&port, prefix, see, arg, err);
    pthread_mutex_destroy(&port.serial);
    pthread_mutex_destroy(&port.mu);
    return rc;
}

const char *hf__con_at_key(struct hf__suite *cfm, const char *name,
                           const char *(*play)(struct hf__suite *cfm, const hf_rowkey *key,
                                               hf_row *row))
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, name);
    hf_row row;
    hf_row_init(&row);
    const char *why = play(cfm, &key, &row);
    if (!why && hf__con_replace(cfm, &key, row.rev, NULL, NULL)) why = cfm->why;
    hf_row_clear(&row);
    return why;
}

void hf__con_await_clock(struct hf__suite *cfm, const hf_rowkey *key, uint64_t rev)
{
    const int64_t most_us = 3000000; /* doesn't wait for a rev that is further ahead */
    int64_t until_us = hf__local_us() + most_us, clock_us = 0;
    hf_row row;
    if (cfm->con.caps.local) return;
    hf_row_init(&row);
    do
        if (cfm->con.drv->get(cfm->con.st, key, &row, &clock_us, NULL)) break;
    while (clock_us > 0 && (uint64_t)clock_us <= rev && rev < (uint64_t)(clock_us + most_us) &&
           hf__local_us() < until_us);
    hf_row_clear(&row);
}
