/*
 * calls.c - redis: runs a script on a free connection. See store.h.
 *
 * If the reply to a script is an error with a known code, nothing was done: the write of a script
 * is the first of its commands that can fail.
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- connections ---- */

static int usable(void *of)
{
    struct hf__rd_link *link = of;
    if (link->fd >= 0 && hf__rd_broken(link)) hf__rd_disconnect(link);
    return link->fd >= 0;
}

static int make(hf_store *st, void *link, int64_t until_us, hf_error *err)
{
    return hf__rd_connect(&st->how, link, 1, until_us, err);
}

static int works(const void *link) { return ((const struct hf__rd_link *)link)->fd >= 0; }

const struct hf__link_kind hf__rd_link_kind = {HF_RD, sizeof(struct hf__rd_link), 8, usable, make,
                                               works, hf__rd_replace_some};

/* ---- scripts ---- */

void hf__rd_arg(struct hf__rd_args *a, const char *text, size_t len)
{
    a->text[a->n] = text;
    a->len[a->n++] = len;
}

void hf__rd_arg_text(struct hf__rd_args *a, const char *text) { hf__rd_arg(a, text, strlen(text)); }

void hf__rd_call_args(struct hf__rd_args *a, const hf_store *st, const hf_rowkey *key,
                      char name[HF_RD_NAME_CAP])
{
    size_t before = strlen(st->how.prefix);
    memcpy(name, st->how.prefix, before);
    memcpy(name + before, key->text, (size_t)key->len + 1);
    a->n = 2;
    hf__rd_arg(a, "1", 1);
    hf__rd_arg(a, name, before + key->len);
}

void hf__rd_put_call(const hf_store *st, const struct hf__rd_link *link, enum hf__rd_script which,
                     int whole, struct hf__rd_args *a, struct hf__rd_batch *batch)
{
    const char *sha = link->sha[which];
    int by_name = *sha && !whole;
    a->text[0] = by_name ? "EVALSHA" : "EVAL";
    a->text[1] = by_name ? sha : st->how.script[which];
    for (int i = 0; i < 2; i++) a->len[i] = strlen(a->text[i]);
    hf__rd_put(batch, a->n, a->text, a->len);
}

int hf__rd_is_error(const redisReply *r, const char *word)
{
    return r->type == REDIS_REPLY_ERROR && !strncmp(r->str, word, strlen(word));
}

/* Fills in the error for a server's error reply, and returns its code. If the server has become a
   replica, disconnects it, so that the next request finds the new master. */
int hf__rd_complain(struct hf__rd_link *link, const redisReply *r, const char *what,
                    const char *key, hf_error *err)
{
    char why[HF_KIT_WHY];
    int code = hf__rd_code(r->str);
    hf__rd_words(r->str, why);
    int replica = hf__rd_says(r->str, "READONLY") || hf__rd_says(r->str, "MASTERDOWN");
    if (replica) hf__rd_disconnect(link);
    return hf_fail(err, code, 0, HF_RD ": %s '%s': %s", what, key, why);
}

/* Returns 1 if the reply is a time as the command TIME gives it (seconds, microseconds), and a rev
   can have it. */
static int is_clock(const redisReply *r)
{
    static const int64_t end[] = {(INT64_C(1) << 53) / 1000000, 1000000};
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2) return 0;
    for (int i = 0; i < 2; i++) {
        int64_t n;
        if (!hf__rd_number(r->element[i], &n) || n < 0 || n >= end[i]) return 0;
    }
    return 1;
}

int hf__rd_shaped(const redisReply *r)
{
    return r->type == REDIS_REPLY_ARRAY && r->elements >= 2 &&
           r->element[0]->type == REDIS_REPLY_INTEGER && is_clock(r->element[1]);
}

int hf__rd_done(const redisReply *r)
{
    return r->element[0]->type != REDIS_REPLY_INTEGER || r->element[0]->integer;
}

static int is_answer(enum hf__rd_script which, const redisReply *r)
{
    if (which == HF_RD_ENTER) return r->type == REDIS_REPLY_STATUS;
    if (which != HF_RD_SWAP) return hf__rd_shaped(r);
    return is_clock(r) || (hf__rd_shaped(r) && !hf__rd_done(r));
}

int hf__rd_verdict(const hf_store *st, struct hf__rd_link *link, enum hf__rd_script which,
                   const redisReply *r, const redisReply *wait, int ambiguous, const char *what,
                   const char *key, hf_error *err)
{
    char why[HF_KIT_WHY];
    if (which == HF_RD_ENTER && hf__rd_is_error(r, "LOST ")) {
        hf__rd_words(r->str + strlen("LOST "), why);
        return hf_fail(err, HF_LOST, 0, HF_RD ": %s '%s': %s", what, key, why);
    }
    int refused = r->type == REDIS_REPLY_ERROR;
    /* An error without a known code doesn't prove that nothing was written. */
    if (refused && hf__rd_code(r->str) == HF_UNAVAILABLE && !hf__rd_is_refusal(r->str)) {
        hf__rd_words(r->str, why);
        return hf_fail(err, ambiguous, 0, HF_RD ": %s '%s': %s", what, key, why);
    }
    if (refused) return hf__rd_complain(link, r, what, key, err);
    if (!is_answer(which, r))
        snprintf(why, sizeof why, "the answer doesn't fit the request");
    else if (wait && wait->type == REDIS_REPLY_ERROR)
        hf__rd_words(wait->str, why);
    else if (wait && wait->integer < (long long)st->how.wait)
        snprintf(why, sizeof why, "%lld of %u replicas have it", wait->integer, st->how.wait);
    else
        return 0;
    return hf_fail(err, ambiguous, 0, HF_RD ": %s '%s': %s", what, key, why);
}

int hf__rd_ask(hf_store *st, enum hf__rd_script which, struct hf__rd_args *a, int ambiguous,
               redisReply **ret, const char *what, const hf_rowkey *key, hf_error *err)
{
    redisReply *reply[2] = {NULL, NULL};
    char replicas[12], ms[24];
    int rc, waits = st->how.wait != 0;
    struct hf__rd_link *link = hf__links_get(&st->links, &rc, err);
    if (waits) {
        snprintf(replicas, sizeof replicas, "%u", st->how.wait);
        snprintf(ms, sizeof ms, "%lld", (long long)(st->how.io_timeout_ms * 3 / 4 + 1));
    }
    for (int whole = 0, again = 1; !rc && again; whole = 1) {
        struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
        hf__rd_put_call(st, link, which, whole, a, &batch);
        if (waits) hf__rd_say(&batch, "WAIT", replicas, ms, NULL);
        rc = hf__rd_talk(&st->how, link, &batch, reply);
        if (rc) {
            if (rc == HF_UNKNOWN) rc = ambiguous;
            rc = hf_fail(err, rc, 0, HF_RD ": %s '%s': %s", what, key->text, link->why);
            break;
        }
        /* NOSCRIPT: the server doesn't have the script, so nothing was done. */
        again = !whole && hf__rd_is_error(reply[0], "NOSCRIPT");
        if (!again)
            rc = hf__rd_verdict(st, link, which, reply[0], reply[1], ambiguous, what, key->text,
                                err);
        if (again || rc) freeReplyObject(reply[0]);
        if (waits) freeReplyObject(reply[1]);
    }
    hf__links_put(&st->links, link);
    if (!rc) *ret = reply[0];
    return rc;
}

/* ---- replies ---- */

int64_t hf__rd_clock_of(const redisReply *r)
{
    int alone = r->element[0]->type != REDIS_REPLY_INTEGER;
    redisReply *const *t = alone ? r->element : r->element[1]->element; /* seconds, microseconds */
    return strtoll(t[0]->str, NULL, 10) * 1000000 + strtoll(t[1]->str, NULL, 10);
}
