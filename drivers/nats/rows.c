/*
 * rows.c - nats: reading rows. See store.h.
 *
 * A row is read by $JS.API.STREAM.MSG.GET, which only the server that leads the stream answers.
 * "Direct" reads are not used, even if the bucket permits them, because a replica may answer them
 * with an old row.
 */
#include "store.h"

#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a row ---- */

void hf__nats_ask_row(const hf_store *st, const hf_rowkey *key, char query[HF_NATS_QUERY],
                      struct hf__nats_request *r)
{
    char subject[HF_NATS_SUBJECT];
    hf__nats_subject(st, key->text, key->len, subject);
    int len = snprintf(query, HF_NATS_QUERY, "{\"last_by_subj\":\"%s\"}", subject);
    *r = (struct hf__nats_request){.subject = st->query, .data = query, .len = (size_t)len};
}

/* Returns 1 if the message marks the key as deleted; 0 if not; HF_NOMEM. */
static int is_deleted(const json_t *message)
{
    const char *text = json_string_value(json_object_get(message, "hdrs"));
    size_t len = 0;
    char *header = text ? hf__nats_bytes(text, &len) : NULL;
    if (text && !header) return HF_NOMEM;
    int is = header && (memmem(header, len, "KV-Operation:", 13) ||
                        memmem(header, len, "Nats-Marker-Reason:", 19));
    free(header);
    return is;
}

static int decode(const hf_store *st, const json_t *message, const char *what, const char *key,
                  hf_row *row, hf_error *err)
{
    const struct hf__row_reader where = {"nats", what, key, st->empty};
    const char *text = json_string_value(json_object_get(message, "data"));
    int no_memory = 0;
    size_t len = 0;
    char *bytes = text ? hf__nats_bytes(text, &len) : NULL;
    json_t *document = bytes ? hf__json_read(bytes, len, JSON_REJECT_DUPLICATES, &no_memory) : NULL;
    free(bytes);
    if (no_memory || (text && !bytes))
        return hf_fail(err, HF_NOMEM, 0, "nats: %s '%s': out of memory", what, key);
    if (!json_is_object(document)) {
        json_decref(document);
        return hf_fail(err, HF_CORRUPT, 0, "nats: %s '%s': what is there is no JSON object", what,
                       key);
    }
    int rc = hf__row_from_document(document, &where, row, err);
    json_decref(document);
    return rc;
}

int hf__nats_read_row(const hf_store *st, const natsMsg *reply, const char *what, const char *key,
                      hf_row *row, uint64_t *ret_seq, int *ret_said, hf_error *err)
{
    char why[HF_NATS_WHY];
    json_t *all;
    hf_row_clear(row);
    *ret_seq = 0;
    *ret_said = hf__nats_reply(reply, &all, why);
    if (*ret_said == HF_NATS_NO_MESSAGE) return 0;
    if (*ret_said)
        return hf_fail(err, hf__nats_code(*ret_said), 0, "nats: %s '%s': %s", what, key, why);
    const json_t *message = json_object_get(all, "message");
    json_int_t seq = json_integer_value(json_object_get(message, "seq"));
    int deleted = is_deleted(message), rc = 0;
    if (seq <= 0)
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "nats: %s '%s': not a reply to this request", what,
                     key);
    else if (deleted < 0)
        rc = hf_fail(err, deleted, 0, "nats: %s '%s': out of memory", what, key);
    else if (!deleted)
        rc = decode(st, message, what, key, row, err);
    *ret_seq = (uint64_t)seq;
    json_decref(all);
    return rc;
}

/* Makes the result of a read if the bucket doesn't exist and must not be made: no row, and the
   clock of the server. */
static int get_nothing(hf_store *st, struct hf__nats_link *link, const char *key, hf_row *row,
                       int64_t *ret_clock_us, int64_t until_us, hf_error *err)
{
    char why[HF_NATS_WHY] = "";
    hf_row_clear(row);
    int rc = hf__nats_server_clock(st, link, until_us, ret_clock_us, why);
    return rc ? hf_fail(err, rc, 0, "nats: get '%s': %s", key, why) : 0;
}

/* Reads the row and the clock of the bucket's leader. *ret_said: the status of the reply. */
static int get_once(hf_store *st, struct hf__nats_link *link, const hf_rowkey *key, hf_row *row,
                    int64_t *ret_clock_us, int64_t until_us, int *ret_said, hf_error *err)
{
    char query[HF_NATS_QUERY], why[HF_NATS_WHY] = "";
    struct hf__nats_request r[2] = {{0}, {.subject = st->info, .data = ""}};
    json_t *info = NULL;
    uint64_t seq;
    *ret_said = 0;
    hf__nats_ask_row(st, key, query, &r[0]);
    int rc = hf__nats_ask(link, r, 2, until_us, why);
    if (rc) {
        hf_fail(err, rc, 0, "nats: get '%s': %s", key->text, why);
    } else {
        rc = hf__nats_read_row(st, r[0].reply, "get", key->text, row, &seq, ret_said, err);
        if (!rc || rc == HF_CORRUPT) {
            int of_info = hf__nats_reply(r[1].reply, &info, why);
            *ret_clock_us = of_info ? 0 : hf__nats_clock(info);
            if (!*ret_clock_us)
                rc = hf_fail(err, HF_UNAVAILABLE, 0, "nats: get '%s': the server tells no time%s%s",
                             key->text, of_info ? ": " : "", of_info ? why : "");
            json_decref(info);
        }
    }
    hf__nats_done(r, 2);
    return rc;
}

/* Reads the row and the clock. If the bucket is gone, makes it first, because all clients use the
   clock of its leader. */
static int get(hf_store *st, struct hf__nats_link *link, const hf_rowkey *key, hf_row *row,
               int64_t *ret_clock_us, int64_t until_us, hf_error *err)
{
    char why[HF_NATS_WHY] = "";
    int said, rc = get_once(st, link, key, row, ret_clock_us, until_us, &said, err);
    if (said != HF_NATS_NO_STREAM) return rc;
    if (st->existing) return get_nothing(st, link, key->text, row, ret_clock_us, until_us, err);
    rc = hf__nats_make(st, link, until_us, why);
    if (rc) return hf_fail(err, rc, 0, "nats: get '%s': %s", key->text, why);
    return get_once(st, link, key, row, ret_clock_us, until_us, &said, err);
}

int hf__nats_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                 hf_error *err)
{
    int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
    int rc;
    struct hf__nats_link *link = hf__links_get(&st->links, &rc, err);
    hf_row_clear(row);
    if (!rc) rc = get(st, link, key, row, ret_clock_us, until_us, err);
    hf__links_put(&st->links, link);
    return rc;
}
