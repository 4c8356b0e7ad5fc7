/*
 * list.c - reads all rows of a store, and has hf_list. See list.h.
 */
#include "list.h"

#include "admin.h"
#include "handle.h"
#include "info.h"
#include "thread.h"

int hf__list_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct hf_listing *l = arg;
    int rc = 0;
    if (hf__closing(l->h))
        rc = hf_fail(l->err, HF_CANCELED, 0, "list: the store is being closed");
    else
        rc = hf__show_info(l->h, key->text, row, l->see, l->arg, l->err);
    if (rc < 0) l->code = rc;
    if (rc > 0) l->stopped = 1;
    return rc != 0;
}

/* Reads a row if the store's clock isn't known, because every reply brings the clock. What a listed
   row says depends on it. */
static int learn_clock(hf *h, hf_error *err)
{
    hf_rowkey any;
    hf_row row;
    if (hf__port_now(&h->port).lo_us > 0) return 0;
    hf_row_init(&row);
    hf_key_make("holdfast", &any, NULL);
    int rc = hf__port_get(&h->port, &any, &row, err);
    hf_row_clear(&row);
    return rc == HF_CORRUPT ? 0 : rc; /* the clock is known; the scan reports a damaged row */
}

/* Reads a damaged row alone, so that the error says what is wrong with it. Returns 1 if the scan is
   to end. */
static int see_damaged(struct hf_scanning *s, const hf_rowkey *key)
{
    hf_row row;
    hf_error err;
    int stop = 1;
    hf_row_init(&row);
    int rc = hf__port_get(&s->h->port, key, &row, &err);
    if (!rc) { /* another client has repaired or removed the row */
        stop = row.rev ? s->see(s->arg, key, &row) : 0;
    } else if (rc == HF_CORRUPT && s->damaged) {
        s->damaged(s->damaged_arg, key->text, err.text);
        stop = 0;
    }
    hf_row_clear(&row);
    if (rc && (!s->code || rc != HF_CORRUPT)) {
        s->code = rc;
        s->err = err;
    }
    return stop;
}

/* Passes a row on, if its name is a legal key. Rows with other names are other data. */
static int see_scanned(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct hf_scanning *s = arg;
    hf_rowkey legal;
    if (hf_key_make(key->text, &legal, NULL)) return 0;
    return row ? s->see(s->arg, key, row) : see_damaged(s, key);
}

int hf__scan(struct hf_scanning *s, const char *prefix, hf_error *err)
{
    hf *h = s->h;
    if (!h->port.drv->scan)
        return hf_fail(err, HF_UNSUPPORTED, 0, "list: this store can't list its keys");
    int rc = learn_clock(h, err);
    if (rc) return rc;
    rc = hf__port_scan(&h->port, prefix ? prefix : "", see_scanned, s, err);
    if (!rc && s->code) {
        rc = s->code;
        if (err) *err = s->err;
    }
    return rc;
}

int hf__list(hf *h, const char *prefix, hf_info_fn *see,
             void (*damaged)(void *arg, const char *key, const char *why), void *arg, hf_error *err)
{
    HF_NOT_CANCELED;
    hf_error own;
    struct hf_listing l = {h, see, arg, &own, 0, 0};
    struct hf_scanning s = {.h = h, .see = hf__list_one, .arg = &l};
    s.damaged = damaged;
    s.damaged_arg = arg;
    int rc = hf__begin_call(h, "list", err);
    if (rc) return rc;
    rc = hf__scan(&s, prefix, err);
    hf__end_call(h);
    if (!l.code) return rc;
    if (err) *err = own;
    return l.code;
}

static void pass_over(void *arg, const char *key, const char *why)
{
    (void)arg, (void)key, (void)why;
}

int hf_list(hf *h, const char *prefix, hf_info_fn *see, void *arg, hf_error *err)
{
    return hf__list(h, prefix, see, pass_over, arg, err);
}
