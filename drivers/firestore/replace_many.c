/*
 * replace_many.c - firestore: many replaces by one batchWrite, which carries out each write by
 * itself and returns a status for each. See store.h, and replace_many in holdfast_driver.h.
 *
 * A write has the same precondition as in a commit. Rows whose update time isn't known are read
 * before, by one request. Rows whose write was refused are read afterwards, by one request.
 *
 * Only service accounts may call batchWrite; users with ID tokens may not, whatever the rules say.
 * If the server refuses the whole call, nothing was done, and the writes are committed one after
 * the other.
 */
#include "store.h"

#include "os.h"

#include <string.h>

/* Firestore takes 500 writes and 10 MB in a request; 2,000 parties are about 1 MB. NO_BATCH_US: how
   long after a refusal batchWrite isn't tried again. */
enum { AT_ONCE = 500, PARTIES_MOST = 2000, NO_BATCH_US = 60000000 };
/* Codes of gRPC. */
enum { NOT_FOUND = 5, ALREADY_EXISTS = 6, FAILED_PRECONDITION = 9, ABORTED = 10 };

enum state { TO_READ, TO_WRITE, REFUSED, HAS_RESULT };

/* The replaces of one request. */
struct part {
    hf_store *st;
    int64_t until_us;
    size_t n;
    hf_replace *item[AT_ONCE];
    enum state state[AT_ONCE];
    int64_t
        update_us[AT_ONCE]; /* the update time for the write's precondition; negative: unknown */
};

static int fail(hf_replace *item, int code, const char *why)
{
    return item->result =
               hf_fail(item->err, code, 0, "firestore: replace '%s': %s", item->key->text, why);
}

static void end_with(struct part *p, size_t i, int code, const char *why)
{
    p->state[i] = HAS_RESULT;
    if (code)
        fail(p->item[i], code, why);
    else
        p->item[i]->result = 0;
}

static void end_all(struct part *p, enum state state, int code, const char *why)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->state[i] == state) end_with(p, i, code, why);
}

static size_t count(const struct part *p, enum state state)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += p->state[i] == state;
    return n;
}

/* Returns the reason in an error, without the key that the message names. */
static const char *reason(const hf_error *err)
{
    const char *why = strstr(err->text, "': ");
    return why ? why + 3 : err->text;
}

/* ---- reading ---- */

/* Returns the index of the replace in that state whose document has this name; p->n: there is none.
   Searches from `at` on, because that mostly is the one. */
static size_t item_of(const struct part *p, enum state state, const char *name, size_t at)
{
    char own[HF_FS_NAME_CAP];
    for (size_t k = 0; name && k < p->n; k++) {
        size_t i = (at + k) % p->n;
        if (p->state[i] != state) continue;
        hf__fs_name(&p->st->place, p->item[i]->key->text, own);
        if (!strcmp(own, name)) return i;
    }
    return p->n;
}

/* Takes in a document that was read (NULL: there is none). If that was done before the write
   (TO_READ), and the row is the one that was seen, the replace is to be written; otherwise its
   result is HF_CONFLICT. */
static void see(struct part *p, enum state state, size_t i, const json_t *found, int64_t clock_us)
{
    hf_replace *r = p->item[i];
    hf_error err = {0, 0, ""};
    hf_row_clear(r->cur);
    int rc = found ? hf__fs_decode(p->st, found, r->key, r->cur, "replace", &err) : 0;
    r->clock_us = clock_us;
    if (rc) {
        end_with(p, i, rc, reason(&err));
    } else if (state == TO_READ && r->cur->rev == r->seen) {
        p->update_us[i] = r->seen ? hf__fs_recall(p->st, r->key, r->seen) : 0;
        p->state[i] = p->update_us[i] < 0 ? HAS_RESULT : TO_WRITE;
        if (p->update_us[i] < 0) fail(r, HF_UNAVAILABLE, "not sent: too many rows at once");
    } else {
        end_with(p, i, HF_CONFLICT, "");
        r->result = HF_CONFLICT;
    }
}

/* Reads by one request the rows of all replaces in that state. If the reply lacks a row, its
   replace fails; nothing was done for it. */
static void read_all(struct part *p, enum state state)
{
    struct hf__fs_call call = {.what = "replace", .many_until_us = p->until_us};
    json_t *names = json_array(), *answer = NULL, *one;
    hf_error err = {0, 0, ""};
    size_t k, at = 0;
    for (size_t i = 0; i < p->n; i++) {
        char name[HF_FS_NAME_CAP];
        if (p->state[i] != state) continue;
        hf__fs_name(&p->st->place, p->item[i]->key->text, name);
        json_array_append_new(names, json_string(name));
        call.key = p->item[i]->key->text;
    }
    if (!call.key) {
        json_decref(names);
        return;
    }
    int rc = hf__fs_ask(&p->st->api, &call, p->st->place.documents, "batchGet",
                        json_pack("{s:o}", "documents", names), &answer, &err);
    json_array_foreach(answer, k, one)
    {
        const json_t *found = json_object_get(one, "found");
        const json_t *name =
            found ? json_object_get(found, "name") : json_object_get(one, "missing");
        int64_t clock_us = hf__fs_time(json_object_get(one, "readTime"));
        size_t i = item_of(p, state, json_string_value(name), at);
        if (i == p->n || clock_us <= 0) continue;
        see(p, state, i, found, clock_us);
        at = i + 1;
    }
    json_decref(answer);
    end_all(p, state, rc ? rc : HF_UNAVAILABLE, rc ? reason(&err) : "an answer without its row");
}

/* ---- writing ---- */

/* Returns the HF_ code for the status of a write that failed. For a status that isn't listed it is
   HF_UNKNOWN. */
static int code_of(int64_t status)
{
    switch (status) {
    case 3:
    case 11: return HF_INVALID;
    case 7:
    case 16: return HF_DENIED;
    case 8: return HF_UNAVAILABLE;
    case 12: return HF_UNSUPPORTED;
    default: return HF_UNKNOWN;
    }
}

static void judge(struct part *p, size_t i, const json_t *status, const json_t *result)
{
    hf_replace *r = p->item[i];
    int64_t code = json_integer_value(json_object_get(status, "code"));
    const char *why = json_string_value(json_object_get(status, "message"));
    int64_t update_us = hf__fs_time(json_object_get(result, "updateTime"));
    if (!json_is_object(status) || (!code && update_us <= 0)) {
        end_with(p, i, HF_UNKNOWN, "an answer without its status");
    } else if (!code) {
        hf__fs_remember(p->st, r->key, r->row->rev, update_us);
        r->clock_us = update_us;
        end_with(p, i, 0, "");
    } else if (code == NOT_FOUND || code == ALREADY_EXISTS || code == FAILED_PRECONDITION ||
               code == ABORTED) {
        p->state[i] = REFUSED;
    } else {
        char text[200];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(why ? why : "", "\r\n"), why ? why : "");
        end_with(p, i, code_of(code), text);
    }
}

/* Makes the body of a batchWrite of the replaces that are to be written. NULL: there are none, or
   memory ran out. */
static json_t *body_of(struct part *p)
{
    json_t *writes = json_array();
    int bad = !writes;
    for (size_t i = 0; i < p->n; i++) {
        const char *why = "out of memory";
        const hf_replace *r = p->item[i];
        int rc = HF_NOMEM;
        if (p->state[i] != TO_WRITE) continue;
        json_t *one = hf__fs_write(p->st, r->key, r->row, r->seen, p->update_us[i], &rc, &why);
        if (one)
            bad |= json_array_append_new(writes, one);
        else
            end_with(p, i, rc, why);
    }
    if (bad) end_all(p, TO_WRITE, HF_NOMEM, "out of memory");
    if (!bad && count(p, TO_WRITE)) return json_pack("{s:o}", "writes", writes);
    json_decref(writes);
    return NULL;
}

/* Writes the rows one after the other, each by its own commit. */
static void write_singly(struct part *p)
{
    for (size_t i = 0; i < p->n; i++) {
        hf_replace *r = p->item[i];
        if (p->state[i] == HAS_RESULT) continue;
        p->state[i] = HAS_RESULT;
        if (hf__local_us() < p->until_us)
            r->result = hf__fs_replace_until(p->st, r->key, r->seen, r->row, r->cur, &r->clock_us,
                                             p->until_us, r->err);
        else
            fail(r, HF_UNAVAILABLE, "not sent: there was no time left");
    }
}

static void write_all(struct part *p)
{
    struct hf__fs_call call = {.what = "replace", .writes = 1, .many_until_us = p->until_us};
    json_t *body = body_of(p), *answer = NULL;
    hf_error err = {0, 0, ""};
    size_t k = 0;
    if (!body) return;
    for (size_t i = 0; i < p->n && !call.key; i++)
        if (p->state[i] == TO_WRITE) call.key = p->item[i]->key->text;
    int rc =
        hf__fs_ask(&p->st->api, &call, p->st->place.documents, "batchWrite", body, &answer, &err);
    int refused = rc == HF_DENIED || rc == HF_UNSUPPORTED;
    if (refused)
        __atomic_store_n(&p->st->no_batch_until_us, hf__local_us() + NO_BATCH_US, __ATOMIC_RELAXED);
    if (refused || rc == HF_INVALID || call.condition) {
        write_singly(p);
        return;
    }
    if (rc) {
        end_all(p, TO_WRITE, rc, reason(&err));
        return;
    }
    const json_t *status = json_object_get(answer, "status");
    const json_t *results = json_object_get(answer, "writeResults");
    for (size_t i = 0; i < p->n; i++) {
        if (p->state[i] != TO_WRITE) continue;
        judge(p, i, json_array_get(status, k), json_array_get(results, k));
        k++;
    }
    json_decref(answer);
}

/* ---- all of it ---- */

static int is_user(const hf_store *st)
{
    return st->api.auth.who == HF_FS_USER || st->api.auth.who == HF_FS_USER_FILE;
}

/* Takes as many of the n replaces as fit into a request, with their update times. */
static void take(struct part *p, hf_replace *item, size_t n)
{
    uint32_t parties = 0;
    for (p->n = 0; p->n < n && p->n < AT_ONCE && parties < PARTIES_MOST; p->n++) {
        hf_replace *r = p->item[p->n] = &item[p->n];
        int64_t us = r->seen ? hf__fs_recall(p->st, r->key, r->seen) : 0;
        parties += r->row->n_holders + r->row->n_queue;
        p->update_us[p->n] = us;
        p->state[p->n] = us < 0 ? TO_READ : TO_WRITE;
    }
}

int hf__fs_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    struct part p = {.st = st, .until_us = until_us};
    for (size_t at = 0; at < n; at += p.n) {
        take(&p, &item[at], n - at);
        int64_t not_until = __atomic_load_n(&st->no_batch_until_us, __ATOMIC_RELAXED);
        if (is_user(st) || p.n == 1 || hf__local_us() >= until_us || hf__local_us() < not_until) {
            write_singly(&p);
            continue;
        }
        read_all(&p, TO_READ);
        write_all(&p);
        read_all(&p, REFUSED);
    }
    return 0;
}
