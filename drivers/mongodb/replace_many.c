/*
 * replace_many.c - mongodb: many replaces, one after the other, by a connection that is kept for
 * this. See store.h, and replace_many in holdfast_driver.h.
 *
 * A command that updates many documents tells only how many of them it has found: neither which,
 * nor when. So each replace is the findAndModify that a swap is. What there is no time for isn't
 * sent; a connection on which something wasn't answered in time is closed.
 */
#include "store.h"

#include "os.h"

static int fail(hf_replace *item, int code, const char *why)
{
    return item->result =
               hf_fail(item->err, code, 0, "mongodb: swap '%s': %s", item->key->text, why);
}

/* Connected. NULL: there is none, as `err` says; *ret_code. */
static struct hf__mg_link *get_link(hf_store *st, int64_t until_us, int *ret_code, hf_error *err)
{
    struct hf__mg_how how = st->how; /* what it points to stays the store's */
    int number = hf__pool_take(&st->many_pool, until_us);
    if (number < 0) {
        *ret_code = hf_fail(err, HF_UNAVAILABLE, 0, "mongodb: " HF_POOL_BUSY);
        return NULL;
    }
    struct hf__mg_link *link = &st->many[number];
    how.io_timeout_ms = (hf__pool_connect_until(until_us) - hf__local_us()) / 1000;
    if (!link->client) *ret_code = hf__mg_connect(&how, link, err);
    if (!*ret_code) return link;
    hf__pool_give(&st->many_pool, number, link->client != NULL);
    return NULL;
}

int hf__mg_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    int64_t patience_us = until_us - hf__local_us();
    hf_error err = {0, 0, ""};
    int rc = 0;
    struct hf__mg_link *link = get_link(st, until_us, &rc, &err);
    if (link) until_us = hf__local_us() + patience_us; /* a new connection has taken its time */
    for (size_t i = 0; i < n; i++) {
        hf_replace *r = &item[i];
        if (!link)
            fail(r, rc, err.text);
        else if (!link->client)
            fail(r, HF_UNAVAILABLE, "not sent: another one wasn't answered in time");
        else if (hf__local_us() >= until_us)
            fail(r, HF_UNAVAILABLE, "not sent: there was no time left");
        if (!link || !link->client || r->result == HF_UNAVAILABLE) continue;
        link->first_until_us = until_us;
        r->result = hf__mg_swap_by(st, link, r->key, r->seen, r->row, r->cur, &r->clock_us, r->err);
    }
    if (link) hf__pool_give(&st->many_pool, (int)(link - st->many), link->client != NULL);
    return rc;
}
