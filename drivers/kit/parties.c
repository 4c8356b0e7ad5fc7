/*
 * parties.c - see parties.h.
 */
#include "parties.h"

#include "text.h"

#include <string.h>

/* ---- numbers ---- */

const struct hf__party_range hf__party_range[HF_PARTY_FIELDS] = {
    {"token", 0, INT64_MAX, 1},      {"since_us", 0, INT64_MAX, 0},
    {"expires_us", 0, INT64_MAX, 0}, {"session", INT64_MIN, INT64_MAX, 1},
    {"lease_ms", 0, UINT32_MAX, 0},  {"claim_ms", 0, UINT32_MAX, 1},
    {"mode", 0, HF_LIMITED, 1},      {"limit", 0, UINT32_MAX, 1},
    {"flags", 0, UINT8_MAX, 1},      {"bell", 0, UINT8_MAX, 1},
};

void hf__party_to_numbers(const hf_party *p, int64_t ret[HF_PARTY_FIELDS])
{
    const int64_t n[HF_PARTY_FIELDS] = {
        (int64_t)p->token, p->since_us, p->expires_us, (int64_t)p->session,
        p->lease_ms,       p->claim_ms, p->mode,       p->limit,
        p->flags,          p->wakeup};
    memcpy(ret, n, sizeof n);
}

void hf__party_from_numbers(hf_party *p, const int64_t n[HF_PARTY_FIELDS])
{
    p->token = (uint64_t)n[HF_PARTY_TOKEN];
    p->since_us = n[HF_PARTY_SINCE];
    p->expires_us = n[HF_PARTY_EXPIRES];
    p->session = (uint64_t)n[HF_PARTY_SESSION];
    p->lease_ms = (uint32_t)n[HF_PARTY_LEASE];
    p->claim_ms = (uint32_t)n[HF_PARTY_CLAIM];
    p->mode = (uint8_t)n[HF_PARTY_MODE];
    p->limit = (uint32_t)n[HF_PARTY_LIMIT];
    p->flags = (uint8_t)n[HF_PARTY_FLAGS];
    p->wakeup = (uint8_t)n[HF_PARTY_WAKEUP];
}

/* ---- parties to JSON ---- */

static int set_text(json_t *to, const char *name, const char *text, size_t len)
{
    return json_object_set_new(to, name, json_stringn(text, len));
}

static json_t *party_to_json(const hf_party *p)
{
    char id[33];
    int64_t number[HF_PARTY_FIELDS];
    json_t *j = json_object();
    hf__put_id(id, p->id);
    hf__party_to_numbers(p, number);
    int bad = set_text(j, "request", id, 32) || set_text(j, "owner", p->owner, p->owner_len) ||
              set_text(j, "note", p->note, p->note_len);
    for (int i = 0; i < HF_PARTY_FIELDS; i++)
        if (number[i] && json_object_set_new(j, hf__party_range[i].name, json_integer(number[i])))
            bad = 1;
    if (!bad) return j;
    json_decref(j);
    return NULL;
}

json_t *hf__parties_to_json(const hf_party *p, uint32_t n)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < n; i++)
        if (json_array_append_new(all, party_to_json(&p[i]))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

/* ---- JSON to parties ---- */

int hf__party_get_number(const json_t *object, enum hf__party_field which, int64_t *ret)
{
    const struct hf__party_range *range = &hf__party_range[which];
    json_t *j = json_object_get(object, range->name);
    *ret = 0;
    if (!j) return 1;
    if (!json_is_integer(j)) return 0;
    *ret = json_integer_value(j);
    return *ret >= range->least && *ret <= range->most;
}

int hf__get_text(const json_t *object, const char *name, char *to, size_t cap, size_t *ret_len)
{
    json_t *j = json_object_get(object, name);
    size_t len = json_string_length(j);
    if (!json_is_string(j) || len >= cap) return 0;
    memcpy(to, json_string_value(j), len + 1);
    *ret_len = len;
    return 1;
}

static int party_from_json(const json_t *j, hf_party *p)
{
    int64_t number[HF_PARTY_FIELDS];
    size_t owner_len, note_len;
    json_t *id = json_object_get(j, "request");
    if (!json_is_object(j) || !json_is_string(id) ||
        !hf__read_id(json_string_value(id), json_string_length(id), p->id) ||
        !hf__get_text(j, "owner", p->owner, HF_OWNER_CAP, &owner_len) ||
        !hf__get_text(j, "note", p->note, HF_NOTE_CAP, &note_len))
        return 0;
    for (int i = 0; i < HF_PARTY_FIELDS; i++)
        if (!hf__party_get_number(j, (enum hf__party_field)i, &number[i])) return 0;
    hf__party_from_numbers(p, number);
    p->owner_len = (uint8_t)owner_len;
    p->note_len = (uint8_t)note_len;
    return 1;
}

int hf__parties_from_json(const json_t *array, hf_row *row, uint32_t at, uint32_t *ret_n)
{
    *ret_n = 0;
    if (!array) return 0;
    if (!json_is_array(array)) return HF_CORRUPT;
    size_t n = json_array_size(array);
    int rc = hf_row_room(row, at + n);
    for (size_t i = 0; !rc && i < n; i++)
        if (!party_from_json(json_array_get(array, i), &row->party[at + i])) rc = HF_CORRUPT;
    *ret_n = (uint32_t)n;
    return rc;
}
