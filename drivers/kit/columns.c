/*
 * columns.c - see columns.h.
 *
 * Contents: the holder; the marker; a row into fields; fields into a row; messages.
 */
#include "columns.h"

#include "json.h"
#include "parties.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

const struct hf__field_type hf__field[HF_FIELDS] = {
#define TYPE(NAME, name, kind) {name, kind},
    HF_FIELDS_OF_A_ROW(TYPE)
#undef TYPE
};

enum { MAY_BE_MISSING = 1 << HF_FIELD_MORE | 1 << HF_FIELD_QUEUE | 1 << HF_FIELD_DONE };

int hf__field_of(const char *name)
{
    for (int i = 0; i < HF_FIELDS; i++)
        if (!strcmp(hf__field[i].name, name)) return i;
    return -1;
}

/* ---- the holder ---- */

static int is_reserved(const char *owner, size_t len)
{
    return len == strlen(HF_OWNER_ENDED) && !memcmp(owner, HF_OWNER_ENDED, len);
}

/* Returns those numbers of the first holder that are put into `more`; the others are 0. */
static void numbers_in_more(const hf_row *row, int64_t ret[HF_PARTY_FIELDS])
{
    hf__party_to_numbers(&row->party[0], ret);
    if (row->party[0].token == row->token) ret[HF_PARTY_TOKEN] = 0;
    for (int i = 0; i < HF_PARTY_FIELDS; i++)
        if (!hf__party_range[i].in_more) ret[i] = 0;
}

/* Makes `more`; *ret is NULL if it is empty. Returns 0; -1: no memory, or a text that isn't
   UTF-8. */
static int put_more(const hf_row *row, json_t **ret)
{
    const hf_party *p = &row->party[0];
    int64_t number[HF_PARTY_FIELDS];
    int bad = 0, ended = p->flags & HF_PARTY_ENDING, any = ended || row->n_holders > 1;
    numbers_in_more(row, number);
    for (int i = 0; i < HF_PARTY_FIELDS; i++) any |= number[i] != 0;
    if (!any) return 0;
    json_t *more = *ret = json_object();
    for (int i = 0; i < HF_PARTY_FIELDS; i++)
        if (number[i])
            bad |= json_object_set_new(more, hf__party_range[i].name, json_integer(number[i]));
    if (ended) bad |= json_object_set_new(more, "owner", json_stringn(p->owner, p->owner_len));
    if (row->n_holders > 1)
        bad |= json_object_set_new(more, "holders",
                                   hf__parties_to_json(row->party + 1, row->n_holders - 1));
    return bad;
}

static const char bad_more[] = "more does not describe a holder";

/* Returns 1 if this version knows the member of `more`. A row with an unknown member is refused,
   because it may change what a hold means. */
static int is_known_in_more(const char *name)
{
    for (int i = 0; i < HF_PARTY_FIELDS; i++)
        if (hf__party_range[i].in_more && !strcmp(name, hf__party_range[i].name)) return 1;
    return !strcmp(name, "owner") || !strcmp(name, "holders");
}

/* Reads the members of `more` that belong to the first holder, which has its fields already.
   Returns NULL, or what is wrong. */
static const char *read_first(json_t *more, hf_row *row)
{
    hf_party *p = &row->party[0];
    int64_t number[HF_PARTY_FIELDS] = {0};
    int reserved = is_reserved(p->owner, p->owner_len);
    size_t len;
    const char *name;
    json_t *value;
    if (more && !json_is_object(more)) return bad_more;
    json_object_foreach(more, name, value)
    {
        if (!is_known_in_more(name)) return "more has a member that this version doesn't know";
    }
    for (int i = 0; i < HF_PARTY_FIELDS; i++)
        if (hf__party_range[i].in_more &&
            !hf__party_get_number(more, (enum hf__party_field)i, &number[i]))
            return bad_more;
    number[HF_PARTY_SINCE] = p->since_us;
    number[HF_PARTY_EXPIRES] = p->expires_us;
    number[HF_PARTY_LEASE] = p->lease_ms;
    if (!number[HF_PARTY_TOKEN]) number[HF_PARTY_TOKEN] = (int64_t)row->token;
    hf__party_from_numbers(p, number);
    int ended = (p->flags & HF_PARTY_ENDING) != 0;
    if (ended != reserved)
        return "only a hold that has ended has the reserved owner, and each such hold has it";
    if (!ended) return json_object_get(more, "owner") ? bad_more : NULL;
    if (!hf__get_text(more, "owner", p->owner, HF_OWNER_CAP, &len)) return bad_more;
    p->owner_len = (uint8_t)len;
    return NULL;
}

static int read_more(json_t *more, hf_row *row, const char **ret_why)
{
    uint32_t n = 0;
    json_t *holders = json_object_get(more, "holders");
    *ret_why = read_first(more, row);
    if (*ret_why) return HF_CORRUPT;
    *ret_why = "holders in more is not a list of holders";
    int rc = hf__parties_from_json(holders, row, row->n_holders, &n);
    if (!rc) row->n_holders += n;
    return rc;
}

/* ---- the marker ---- */

/* Makes `done`. Returns NULL if there is no memory, or a text isn't UTF-8. */
static json_t *put_done(const hf_row *row)
{
    json_t *done = json_object();
    int bad = json_object_set_new(done, "done_us", json_integer(row->done_us)) |
              json_object_set_new(done, "keep_until_us", json_integer(row->keep_until_us)) |
              json_object_set_new(done, "by", json_stringn(row->done_by, row->done_by_len)) |
              json_object_set_new(done, "result", json_stringn(row->result, row->result_len));
    if (!bad) return done;
    json_decref(done);
    return NULL;
}

static int get_time(const json_t *done, const char *name, int64_t least, int64_t *ret)
{
    json_t *j = json_object_get(done, name);
    *ret = json_integer_value(j);
    return json_is_integer(j) && *ret >= least;
}

static int read_done(const json_t *done, hf_row *row, const char **ret_why)
{
    size_t by_len, result_len;
    if (!done) return 0;
    *ret_why = "done is not a marker";
    if (!json_is_object(done) || !get_time(done, "done_us", 1, &row->done_us) ||
        !get_time(done, "keep_until_us", 0, &row->keep_until_us) ||
        !hf__get_text(done, "by", row->done_by, HF_OWNER_CAP, &by_len) ||
        !hf__get_text(done, "result", row->result, HF_RESULT_CAP, &result_len))
        return HF_CORRUPT;
    row->done_by_len = (uint8_t)by_len;
    row->result_len = (uint16_t)result_len;
    return 0;
}

/* ---- a row into fields ---- */

static void put_text(struct hf__fields *f, int i, const char *text, size_t len)
{
    f->text[i] = text;
    f->len[i] = len;
}

static int texts_are_utf8(const hf_row *row)
{
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        const hf_party *p = &row->party[i];
        if (!hf__is_utf8(p->owner, p->owner_len) || !hf__is_utf8(p->note, p->note_len)) return 0;
    }
    return !row->done_us || (hf__is_utf8(row->done_by, row->done_by_len) &&
                             hf__is_utf8(row->result, row->result_len));
}

static const char *put_holder(const hf_row *row, struct hf__fields *f)
{
    static const uint8_t not_known[16];
    const hf_party *p = &row->party[0];
    int known = row->n_holders || memcmp(row->last_id, not_known, sizeof not_known) != 0;
    hf__put_id(f->request, row->n_holders ? p->id : row->last_id);
    put_text(f, HF_FIELD_REQUEST, f->request, known ? 32 : 0);
    if (!row->n_holders) return NULL;
    if (!p->owner_len) return "a holder without a name looks like none";
    if (is_reserved(p->owner, p->owner_len)) return "its owner has a name that is reserved";
    if (p->flags & HF_PARTY_ENDING)
        put_text(f, HF_FIELD_OWNER, HF_OWNER_ENDED, strlen(HF_OWNER_ENDED));
    else
        put_text(f, HF_FIELD_OWNER, p->owner, p->owner_len);
    put_text(f, HF_FIELD_NOTE, p->note, p->note_len);
    f->n[HF_FIELD_EXPIRES] = p->expires_us;
    f->n[HF_FIELD_ACQUIRED] = p->since_us;
    f->n[HF_FIELD_LEASE] = p->lease_ms;
    return NULL;
}

/* Makes the texts of the JSON fields that aren't empty. Returns 0; -1: no memory. */
static int print_json(struct hf__fields *f)
{
    for (int i = 0; i < HF_FIELDS; i++) {
        if (!f->json[i]) continue;
        char *text = f->made[i] = hf__json_text(f->json[i]);
        if (!text) return -1;
        put_text(f, i, text, strlen(text));
    }
    return 0;
}

int hf__put_fields(const hf_row *row, enum hf__json_as as, struct hf__fields *f,
                   const char **ret_why)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < HF_FIELDS; i++) f->text[i] = "";
    f->n[HF_FIELD_FORMAT] = HF_ROW_FORMAT;
    f->n[HF_FIELD_REV] = (int64_t)row->rev;
    f->n[HF_FIELD_TOKEN] = (int64_t)row->token;
    *ret_why = put_holder(row, f);
    if (*ret_why) return HF_INVALID;
    *ret_why = "an owner, a note or a result is not UTF-8";
    if (!texts_are_utf8(row)) return HF_INVALID;
    *ret_why = "out of memory";
    if (row->n_holders && put_more(row, &f->json[HF_FIELD_MORE])) return HF_NOMEM;
    if (row->n_queue) {
        f->json[HF_FIELD_QUEUE] = hf__parties_to_json(row->party + row->n_holders, row->n_queue);
        if (!f->json[HF_FIELD_QUEUE]) return HF_NOMEM;
    }
    if (row->done_us && !(f->json[HF_FIELD_DONE] = put_done(row))) return HF_NOMEM;
    return as == HF_JSON_TEXT && print_json(f) ? HF_NOMEM : 0;
}

void hf__free_fields(struct hf__fields *f)
{
    for (int i = 0; i < HF_FIELDS; i++) {
        json_decref(f->json[i]);
        free(f->made[i]);
        f->json[i] = NULL;
        f->made[i] = NULL;
    }
}

/* ---- fields into a row ---- */

static const char *const missing[HF_FIELDS] = {
#define MISSING(NAME, name, kind) "its field '" name "' is missing, or of another type",
    HF_FIELDS_OF_A_ROW(MISSING)
#undef MISSING
};

static const char *not_all_there(const struct hf__fields *f)
{
    if (!(f->got >> HF_FIELD_FORMAT & 1)) return missing[HF_FIELD_FORMAT];
    if (f->n[HF_FIELD_FORMAT] != HF_ROW_FORMAT) return "written in another format of the row";
    for (int i = 0; i < HF_FIELDS; i++) {
        unsigned bit = 1u << i;
        if (f->wrong & bit || !((f->got | MAY_BE_MISSING) & bit)) return missing[i];
    }
    return NULL;
}

static int take_text(const struct hf__fields *f, int i, char *to, size_t cap)
{
    size_t len = f->len[i];
    if (len >= cap || memchr(f->text[i], 0, len)) return 0;
    memcpy(to, f->text[i], len);
    to[len] = 0;
    return 1;
}

static const char *read_holder(const struct hf__fields *f, hf_row *row)
{
    hf_party *p = &row->party[0];
    if (!take_text(f, HF_FIELD_OWNER, p->owner, HF_OWNER_CAP)) return "owner: too long";
    if (!take_text(f, HF_FIELD_NOTE, p->note, HF_NOTE_CAP)) return "note: too long";
    if (!hf__read_id(f->text[HF_FIELD_REQUEST], f->len[HF_FIELD_REQUEST], p->id))
        return "request: not 32 hex digits";
    if (f->n[HF_FIELD_LEASE] < 0 || f->n[HF_FIELD_LEASE] > UINT32_MAX)
        return "lease_ms out of range";
    p->owner_len = (uint8_t)f->len[HF_FIELD_OWNER];
    p->note_len = (uint8_t)f->len[HF_FIELD_NOTE];
    p->expires_us = f->n[HF_FIELD_EXPIRES];
    p->since_us = f->n[HF_FIELD_ACQUIRED];
    p->lease_ms = (uint32_t)f->n[HF_FIELD_LEASE];
    row->n_holders = 1;
    return NULL;
}

/* Turns JSON texts into trees; "" becomes no tree. Refuses two members of one name, because a guard
   may read the first and the driver the last. */
static int parse_json(struct hf__fields *f, const char **ret_why)
{
    static const char *const why[HF_FIELDS] = {[HF_FIELD_MORE] = bad_more,
                                               [HF_FIELD_QUEUE] = "the queue is not a list of "
                                                                  "waiters",
                                               [HF_FIELD_DONE] = "done is not a marker"};
    int nomem = 0;
    for (int i = 0; i < HF_FIELDS; i++) {
        if (hf__field[i].kind != HF_JSON || !f->len[i]) continue;
        f->json[i] = hf__json_read(f->text[i], f->len[i], JSON_REJECT_DUPLICATES, &nomem);
        *ret_why = why[i];
        if (!f->json[i]) return nomem ? HF_NOMEM : HF_CORRUPT;
    }
    return 0;
}

/* Returns HF_NOMEM if hf__got_json was called without a tree, for lack of memory: the field would
   look empty. Otherwise 0. */
static int has_trees(const struct hf__fields *f)
{
    for (int i = 0; i < HF_FIELDS; i++)
        if (hf__field[i].kind == HF_JSON && f->got >> i & 1 && !f->json[i]) return HF_NOMEM;
    return 0;
}

/* Returns 1 for an empty object, which a web client leaves when it releases a lock. */
static int is_empty_object(const json_t *json)
{
    return json_is_object(json) && !json_object_size(json);
}

static int read_row(const struct hf__fields *f, hf_row *row, const char **ret_why)
{
    uint32_t n = 0;
    int rc = 0;
    row->rev = (uint64_t)f->n[HF_FIELD_REV];
    row->token = (uint64_t)f->n[HF_FIELD_TOKEN];
    if (f->n[HF_FIELD_REV] <= 0 || f->n[HF_FIELD_TOKEN] < 0) *ret_why = "rev or token out of range";
    if (!*ret_why && f->len[HF_FIELD_OWNER])
        *ret_why = read_holder(f, row);
    else if (!*ret_why && f->json[HF_FIELD_MORE] && !is_empty_object(f->json[HF_FIELD_MORE]))
        *ret_why = "`more` describes a holder, but there is none";
    else if (!*ret_why &&
             !hf__read_id(f->text[HF_FIELD_REQUEST], f->len[HF_FIELD_REQUEST], row->last_id))
        memset(row->last_id, 0, sizeof row->last_id); /* no last id is known, for example after a
                                                         person has freed the key */
    if (*ret_why) return HF_CORRUPT;
    if (row->n_holders) rc = read_more(f->json[HF_FIELD_MORE], row, ret_why);
    if (!rc) {
        *ret_why = "the queue is not a list of waiters";
        rc = hf__parties_from_json(f->json[HF_FIELD_QUEUE], row, row->n_holders, &n);
    }
    if (!rc) row->n_queue = n;
    if (!rc) rc = read_done(f->json[HF_FIELD_DONE], row, ret_why);
    return rc ? rc : hf_row_check(row, ret_why);
}

int hf__read_fields(struct hf__fields *f, enum hf__json_as as, hf_row *row, const char **ret_why)
{
    hf_row_clear(row);
    *ret_why = not_all_there(f);
    if (*ret_why) return HF_CORRUPT;
    int rc = as == HF_JSON_TEXT ? parse_json(f, ret_why) : has_trees(f);
    if (!rc) *ret_why = NULL;
    if (!rc) rc = read_row(f, row, ret_why);
    if (rc) hf_row_clear(row);
    return rc;
}

/* ---- messages ---- */

int hf__format_refused(const struct hf__row_reader *where, int64_t format, hf_error *err)
{
    if (format < 1 || format > HF_ROW_FORMAT)
        return hf_fail(err, HF_CORRUPT, 0,
                       "%s: %s '%.100s': the row is of format %lld, and this version reads format "
                       "%d: it is damaged, or a newer version wrote it, which is to be used then",
                       where->store, where->what, where->key, (long long)format, HF_ROW_FORMAT);
    return hf_fail(err, HF_CORRUPT, 0,
                   "%s: %s '%.100s': this store has rows of format %lld, and this version reads "
                   "format %d. Stop what uses the store and empty it: %s; the markers of events "
                   "that were done once go with it",
                   where->store, where->what, where->key, (long long)format, HF_ROW_FORMAT,
                   where->empty);
}

int hf__fields_refused(const struct hf__row_reader *where, const struct hf__fields *f, int rc,
                       const char *why, hf_error *err)
{
    int there = f->got >> HF_FIELD_FORMAT & 1;
    if (rc == HF_CORRUPT && there && f->n[HF_FIELD_FORMAT] != HF_ROW_FORMAT)
        return hf__format_refused(where, f->n[HF_FIELD_FORMAT], err);
    if (rc == HF_NOMEM)
        return hf_fail(err, rc, 0, "%s: %s '%s': out of memory", where->store, where->what,
                       where->key);
    return hf_fail(err, rc, 0, "%s: %s '%s': the row is damaged: %s", where->store, where->what,
                   where->key, why);
}
