/*
 * columns.c - see columns.h.
 */
#include "columns.h"

#include "json.h"

#include <stdlib.h>
#include <string.h>

const char *const hf__column_name[HF_COLS] = {
#define NAME(NAME, name, is_text) name,
    HF_COLUMNS(NAME)
#undef NAME
};
const uint8_t hf__column_is_text[HF_COLS] = {
#define IS_TEXT(NAME, name, is_text) is_text,
    HF_COLUMNS(IS_TEXT)
#undef IS_TEXT
};

int hf__column_is_list(int column) { return column == HF_COL_OTHERS || column == HF_COL_QUEUE; }

/* ---- the numbers of a party ---- */

const struct hf__party_number hf__party_number[HF_PARTY_NUMBERS] = {
    {"token", 0, INT64_MAX},      {"since_us", 0, INT64_MAX},
    {"expires_us", 0, INT64_MAX}, {"session", INT64_MIN, INT64_MAX},
    {"lease_ms", 0, UINT32_MAX},  {"claim_ms", 0, UINT32_MAX},
    {"mode", 0, HF_LIMITED},      {"limit", 0, UINT32_MAX},
    {"flags", 0, UINT8_MAX},      {"bell", 0, UINT8_MAX},
};

void hf__party_numbers(const hf_party *p, int64_t ret[HF_PARTY_NUMBERS])
{
    const int64_t n[HF_PARTY_NUMBERS] = {
        (int64_t)p->token, p->since_us, p->expires_us, (int64_t)p->session,
        p->lease_ms,       p->claim_ms, p->mode,       p->limit,
        p->flags,          p->bell};
    memcpy(ret, n, sizeof n);
}

void hf__party_set_numbers(hf_party *p, const int64_t n[HF_PARTY_NUMBERS])
{
    p->token = (uint64_t)n[0];
    p->since_us = n[1];
    p->expires_us = n[2];
    p->session = (uint64_t)n[3];
    p->lease_ms = (uint32_t)n[4];
    p->claim_ms = (uint32_t)n[5];
    p->mode = (uint8_t)n[6];
    p->limit = (uint32_t)n[7];
    p->flags = (uint8_t)n[8];
    p->bell = (uint8_t)n[9];
}

/* ---- parties as JSON ---- */

static int set_text(json_t *to, const char *name, const char *text, size_t len)
{
    return json_object_set_new(to, name, json_stringn(text, len));
}

/* NULL: out of memory, or a text that isn't UTF-8. */
static json_t *party_json(const hf_party *p)
{
    char id[33];
    int64_t number[HF_PARTY_NUMBERS];
    json_t *j = json_object();
    hf__put_id(id, p->id);
    hf__party_numbers(p, number);
    int bad = set_text(j, "request", id, 32) || set_text(j, "owner", p->owner, p->owner_len) ||
              set_text(j, "note", p->note, p->note_len);
    /* Only what isn't 0 is written: a waiter of a store without sessions is short. */
    for (int i = 0; i < HF_PARTY_NUMBERS; i++)
        if (number[i] && json_object_set_new(j, hf__party_number[i].name, json_integer(number[i])))
            bad = 1;
    if (!bad) return j;
    json_decref(j);
    return NULL;
}

char *hf__waiter_json(const hf_party *p, size_t *ret_since)
{
    /* In a text the quotes would be escaped. */
    static const char mark[] = "\"since_us\":1111111111111111", digits[] = "1111111111111111";
    hf_party waits = *p;
    waits.token = 0;
    waits.expires_us = 0;
    waits.flags &= HF_PARTY_DETACHED;
    waits.since_us = INT64_C(1111111111111111);
    json_t *j = party_json(&waits);
    char *text = j ? hf__json_text(j) : NULL;
    json_decref(j);
    if (!text) return NULL;
    char *at = strstr(text, mark) + strlen(mark);
    memmove(at - strlen(digits), at, strlen(at) + 1);
    *ret_since = (size_t)(at - text) - strlen(digits);
    return text;
}

int hf__is_last(const hf_row *row, const hf_party *p)
{
    uint32_t n = row->n_holders + row->n_queue;
    return row->n_queue && !memcmp(row->party[n - 1].id, p->id, sizeof p->id);
}

uint32_t hf__list(const hf_row *row, int col, const hf_party **ret_first)
{
    uint32_t first = row->n_holders ? 1 : 0;
    *ret_first = row->party + (col == HF_COL_QUEUE ? row->n_holders : first);
    return col == HF_COL_QUEUE ? row->n_queue : row->n_holders - first;
}

json_t *hf__list_json(const hf_row *row, int col)
{
    const hf_party *p;
    uint32_t n = hf__list(row, col, &p);
    json_t *all = json_array();
    for (uint32_t i = 0; i < n; i++)
        if (json_array_append_new(all, party_json(&p[i]))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static int get_number(const json_t *from, const struct hf__party_number *is, int64_t *ret)
{
    json_t *j = json_object_get(from, is->name);
    *ret = 0;
    if (!j) return 1;
    if (!json_is_integer(j)) return 0;
    *ret = json_integer_value(j);
    return *ret >= is->least && *ret <= is->most;
}

static int get_text(const json_t *from, const char *name, char *to, size_t cap, uint8_t *ret_len)
{
    json_t *j = json_object_get(from, name);
    size_t len = json_string_length(j);
    if (!json_is_string(j) || len >= cap) return 0;
    memcpy(to, json_string_value(j), len + 1);
    *ret_len = (uint8_t)len;
    return 1;
}

static int read_party(const json_t *j, hf_party *p)
{
    int64_t number[HF_PARTY_NUMBERS];
    json_t *id = json_object_get(j, "request");
    if (!json_is_object(j) || !json_is_string(id) ||
        !hf__read_id(json_string_value(id), json_string_length(id), p->id) ||
        !get_text(j, "owner", p->owner, HF_OWNER_CAP, &p->owner_len) ||
        !get_text(j, "note", p->note, HF_NOTE_CAP, &p->note_len))
        return 0;
    for (int i = 0; i < HF_PARTY_NUMBERS; i++)
        if (!get_number(j, &hf__party_number[i], &number[i])) return 0;
    hf__party_set_numbers(p, number);
    return 1;
}

static const char *not_a_list(enum hf__column col)
{
    return col == HF_COL_QUEUE ? "the queue is not a list of waiters"
                               : "others is not a list of holders";
}

/* Appends the parties of a JSON array (NULL: none) behind the n that the row has. */
static int read_parties(const json_t *all, enum hf__column col, hf_row *row, uint32_t n,
                        uint32_t *ret_n, const char **ret_why)
{
    *ret_n = 0;
    if (!all) return 0;
    *ret_why = not_a_list(col);
    if (!json_is_array(all)) return HF_CORRUPT;
    size_t more = json_array_size(all);
    int rc = hf_row_room(row, n + more);
    for (size_t i = 0; !rc && i < more; i++)
        if (!read_party(json_array_get(all, i), &row->party[n + i])) rc = HF_CORRUPT;
    *ret_n = (uint32_t)more;
    /* hf_row_room copies as many as the row says that it has. */
    if (col == HF_COL_OTHERS)
        row->n_holders = n + *ret_n;
    else
        row->n_queue = *ret_n;
    return rc;
}

/* The list that the text of the column is; NULL if it is empty. */
static int parse_list(const struct hf__flat *flat, enum hf__column col, json_t **ret,
                      const char **ret_why)
{
    int nomem = 0;
    *ret = NULL;
    if (flat->len[col] == 2 && !memcmp(flat->text[col], "[]", 2)) return 0;
    *ret = hf__json_read(flat->text[col], flat->len[col], 0, &nomem);
    if (*ret) return 0;
    *ret_why = not_a_list(col);
    return nomem ? HF_NOMEM : HF_CORRUPT;
}

/* ---- there ---- */

static void put_text(struct hf__flat *flat, enum hf__column col, const char *text, size_t len)
{
    flat->text[col] = text;
    flat->len[col] = len;
}

static void flatten_holder(const hf_party *p, struct hf__flat *flat)
{
    hf__put_id(flat->request, p->id);
    put_text(flat, HF_COL_REQUEST, flat->request, 32);
    put_text(flat, HF_COL_OWNER, p->owner, p->owner_len);
    put_text(flat, HF_COL_NOTE, p->note, p->note_len);
    flat->n[HF_COL_GRANT] = (int64_t)p->token;
    flat->n[HF_COL_EXPIRES] = p->expires_us;
    flat->n[HF_COL_ACQUIRED] = p->since_us;
    flat->n[HF_COL_LEASE] = p->lease_ms;
    flat->n[HF_COL_MODE] = p->mode;
    flat->n[HF_COL_LIMIT] = p->limit;
    flat->n[HF_COL_SESSION] = (int64_t)p->session;
    flat->n[HF_COL_CLAIM] = p->claim_ms;
    flat->n[HF_COL_FLAGS] = p->flags;
    flat->n[HF_COL_BELL] = p->bell;
}

int hf__lists_failed(const hf_row *row, const char **ret_why)
{
    *ret_why = "an owner or a note is not UTF-8";
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        const hf_party *p = &row->party[i];
        if (!hf__is_utf8(p->owner, p->owner_len) || !hf__is_utf8(p->note, p->note_len))
            return HF_INVALID;
    }
    *ret_why = "out of memory";
    return HF_NOMEM;
}

int hf__flatten_head(const hf_row *row, struct hf__flat *flat, const char **ret_why)
{
    memset(flat->n, 0, sizeof flat->n);
    flat->others = flat->queue = NULL;
    for (int i = 0; i < HF_COLS; i++) put_text(flat, (enum hf__column)i, "", 0);
    put_text(flat, HF_COL_OTHERS, "[]", 2);
    put_text(flat, HF_COL_QUEUE, "[]", 2);
    flat->n[HF_COL_FORMAT] = HF_FORMAT_1;
    flat->n[HF_COL_REV] = (int64_t)row->rev;
    flat->n[HF_COL_TOKEN] = (int64_t)row->token;
    flat->n[HF_COL_DONE] = row->done_us;
    flat->n[HF_COL_KEEP_UNTIL] = row->keep_until_us;
    if (row->done_us) {
        put_text(flat, HF_COL_DONE_BY, row->done_by, row->done_by_len);
        put_text(flat, HF_COL_RESULT, row->result, row->result_len);
    }
    static const uint8_t nobody[16];
    if (row->n_holders) {
        flatten_holder(&row->party[0], flat);
    } else if (memcmp(row->last_id, nobody, sizeof nobody)) {
        hf__put_id(flat->request, row->last_id);
        put_text(flat, HF_COL_REQUEST, flat->request, 32);
    }
    *ret_why = "an owner, a note or a result is not UTF-8";
    if (row->n_holders && !row->party[0].owner_len) {
        *ret_why = "a holder without a name looks like none";
        return HF_INVALID;
    }
    static const enum hf__column told[] = {HF_COL_OWNER, HF_COL_NOTE, HF_COL_DONE_BY,
                                           HF_COL_RESULT};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (flat->len[told[i]] && !hf__is_utf8(flat->text[told[i]], flat->len[told[i]]))
            return HF_INVALID;
    return 0;
}

/* As a text, if there is anybody in it. 0: that failed. */
static int flatten_list(const hf_row *row, enum hf__column col, struct hf__flat *flat, char **ret)
{
    const hf_party *first;
    if (!hf__list(row, col, &first)) return 1;
    json_t *all = hf__list_json(row, col);
    *ret = all ? hf__json_text(all) : NULL;
    json_decref(all);
    if (*ret) put_text(flat, col, *ret, strlen(*ret));
    return *ret != NULL;
}

int hf__flatten(const hf_row *row, struct hf__flat *flat, const char **ret_why)
{
    int rc = hf__flatten_head(row, flat, ret_why);
    if (!rc && (!flatten_list(row, HF_COL_OTHERS, flat, &flat->others) ||
                !flatten_list(row, HF_COL_QUEUE, flat, &flat->queue)))
        rc = hf__lists_failed(row, ret_why);
    return rc;
}

void hf__flat_free(struct hf__flat *flat)
{
    free(flat->others);
    free(flat->queue);
    flat->others = flat->queue = NULL;
}

/* ---- and back ---- */

static int within(const struct hf__flat *flat, enum hf__column col, int64_t most)
{
    return flat->n[col] >= 0 && flat->n[col] <= most;
}

static int take_text(const struct hf__flat *flat, enum hf__column col, char *to, size_t cap)
{
    size_t len = flat->len[col];
    if (len >= cap || memchr(flat->text[col], 0, len)) return 0;
    memcpy(to, flat->text[col], len);
    to[len] = 0;
    return 1;
}

static const char *unflatten_holder(const struct hf__flat *flat, hf_party *p)
{
    if (!take_text(flat, HF_COL_OWNER, p->owner, HF_OWNER_CAP)) return "owner: too long";
    if (!take_text(flat, HF_COL_NOTE, p->note, HF_NOTE_CAP)) return "note: too long";
    if (!hf__read_id(flat->text[HF_COL_REQUEST], flat->len[HF_COL_REQUEST], p->id))
        return "request: not 32 hex digits";
    if (!within(flat, HF_COL_LEASE, UINT32_MAX) || !within(flat, HF_COL_MODE, HF_LIMITED) ||
        !within(flat, HF_COL_LIMIT, UINT32_MAX) || !within(flat, HF_COL_CLAIM, UINT32_MAX) ||
        !within(flat, HF_COL_FLAGS, UINT8_MAX) || !within(flat, HF_COL_BELL, UINT8_MAX) ||
        !within(flat, HF_COL_GRANT, INT64_MAX))
        return "a number out of range";
    p->owner_len = (uint8_t)flat->len[HF_COL_OWNER];
    p->note_len = (uint8_t)flat->len[HF_COL_NOTE];
    p->token = (uint64_t)flat->n[HF_COL_GRANT];
    p->expires_us = flat->n[HF_COL_EXPIRES];
    p->since_us = flat->n[HF_COL_ACQUIRED];
    p->lease_ms = (uint32_t)flat->n[HF_COL_LEASE];
    p->mode = (uint8_t)flat->n[HF_COL_MODE];
    p->limit = (uint32_t)flat->n[HF_COL_LIMIT];
    p->session = (uint64_t)flat->n[HF_COL_SESSION];
    p->claim_ms = (uint32_t)flat->n[HF_COL_CLAIM];
    p->flags = (uint8_t)flat->n[HF_COL_FLAGS];
    p->bell = (uint8_t)flat->n[HF_COL_BELL];
    return NULL;
}

static const char *unflatten_rest(const struct hf__flat *flat, hf_row *row)
{
    if (flat->n[HF_COL_FORMAT] != HF_FORMAT_1) return "written by another version of the format";
    if (flat->n[HF_COL_REV] <= 0 || flat->n[HF_COL_TOKEN] < 0) return "rev or token out of range";
    row->rev = (uint64_t)flat->n[HF_COL_REV];
    row->token = (uint64_t)flat->n[HF_COL_TOKEN];
    row->done_us = flat->n[HF_COL_DONE];
    row->keep_until_us = flat->n[HF_COL_KEEP_UNTIL];
    if (!row->done_us) return NULL;
    if (!take_text(flat, HF_COL_DONE_BY, row->done_by, HF_OWNER_CAP)) return "done_by: too long";
    if (!take_text(flat, HF_COL_RESULT, row->result, HF_RESULT_CAP)) return "result: too long";
    row->done_by_len = (uint8_t)flat->len[HF_COL_DONE_BY];
    row->result_len = (uint16_t)flat->len[HF_COL_RESULT];
    return NULL;
}

int hf__unflatten_head(const struct hf__flat *flat, hf_row *row, const char **ret_why)
{
    hf_row_clear(row);
    *ret_why = unflatten_rest(flat, row);
    if (!*ret_why && flat->len[HF_COL_OWNER]) {
        *ret_why = unflatten_holder(flat, &row->party[0]);
        row->n_holders = 1;
    } else if (!*ret_why &&
               !hf__read_id(flat->text[HF_COL_REQUEST], flat->len[HF_COL_REQUEST], row->last_id)) {
        memset(row->last_id, 0, sizeof row->last_id); /* freed by hand, say */
    }
    return *ret_why ? HF_CORRUPT : 0;
}

int hf__unflatten_lists(const struct hf__flat *flat, const json_t *others, const json_t *queue,
                        hf_row *row, const char **ret_why)
{
    uint32_t n = 0;
    int rc = hf__unflatten_head(flat, row, ret_why);
    if (!rc) rc = read_parties(others, HF_COL_OTHERS, row, row->n_holders, &n, ret_why);
    if (!rc && n && !flat->len[HF_COL_OWNER]) {
        *ret_why = "others hold it, but nobody does";
        rc = HF_CORRUPT;
    }
    if (!rc) rc = read_parties(queue, HF_COL_QUEUE, row, row->n_holders, &n, ret_why);
    if (!rc) rc = hf_row_check(row, ret_why);
    if (rc) hf_row_clear(row);
    return rc;
}

int hf__unflatten(const struct hf__flat *flat, hf_row *row, const char **ret_why)
{
    json_t *others = NULL, *queue = NULL;
    int rc = parse_list(flat, HF_COL_OTHERS, &others, ret_why);
    if (!rc) rc = parse_list(flat, HF_COL_QUEUE, &queue, ret_why);
    if (rc)
        hf_row_clear(row);
    else
        rc = hf__unflatten_lists(flat, others, queue, row, ret_why);
    json_decref(others);
    json_decref(queue);
    return rc;
}
