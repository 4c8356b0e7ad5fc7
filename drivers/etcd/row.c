/*
 * row.c - a row as bytes: the message Row of etcd.proto. It isn't JSON, because with a long queue
 * each handover reads and writes the whole row, and parsing JSON takes longer than etcd's answer.
 * last_id is left out, because this driver has no `acquire`.
 */
#include "etcd.h"

#include <stdlib.h>
#include <string.h>

enum { ROW_FORMAT = 1 }; /* the format of this message; other stores number theirs separately */

/* ---- row to bytes ---- */

/* Makes a message's field of bytes that it only borrows: the message is packed, never freed. */
static ProtobufCBinaryData borrowed(const void *at, size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)at};
}

#define SET(to, name, value) ((to)->has_##name = (value) != 0, (to)->name = (value))

static void put_party(HfEt__Party *to, const hf_party *p)
{
    hf_et__party__init(to);
    to->has_request = to->has_owner = to->has_note = 1;
    to->request = borrowed(p->id, sizeof p->id);
    to->owner = borrowed(p->owner, p->owner_len);
    to->note = borrowed(p->note, p->note_len);
    SET(to, token, p->token);
    SET(to, since_us, p->since_us);
    SET(to, expires_us, p->expires_us);
    SET(to, session, p->session);
    SET(to, lease_ms, p->lease_ms);
    SET(to, claim_ms, p->claim_ms);
    SET(to, mode, p->mode);
    SET(to, limit, p->limit);
    SET(to, flags, p->flags & ~HF_PARTY_DEAD); /* never stored: each reader finds it out */
    SET(to, wakeup, p->wakeup);
}

static void put_head(HfEt__Row *to, const hf_row *row)
{
    hf_et__row__init(to);
    to->has_format = to->has_rev = to->has_token = 1;
    to->format = ROW_FORMAT;
    to->rev = row->rev;
    to->token = row->token;
    SET(to, done_us, row->done_us);
    SET(to, keep_until_us, row->keep_until_us);
    to->has_done_by = to->has_result = row->done_us != 0;
    to->done_by = borrowed(row->done_by, row->done_by_len);
    to->result = borrowed(row->result, row->result_len);
}

uint8_t *hf__et_row_bytes(const hf_row *row, size_t *ret_len)
{
    size_t n = row->n_holders + row->n_queue;
    HfEt__Party *party = malloc((n + 1) * sizeof *party);
    HfEt__Party **list = malloc((n + 1) * sizeof *list);
    uint8_t *packed = NULL;
    HfEt__Row all;
    if (party && list) {
        for (size_t i = 0; i < n; i++) {
            put_party(&party[i], &row->party[i]);
            list[i] = &party[i];
        }
        put_head(&all, row);
        all.n_holders = row->n_holders;
        all.holders = list;
        all.n_queue = row->n_queue;
        all.queue = list + row->n_holders;
        *ret_len = hf_et__row__get_packed_size(&all);
        packed = malloc(*ret_len + 1);
        if (packed) hf_et__row__pack(&all, packed);
    }
    free(party);
    free((void *)list);
    return packed;
}

/* ---- bytes to row ---- */

static int get_text(const ProtobufCBinaryData *from, char *to, size_t cap, size_t *ret_len)
{
    *ret_len = from->len;
    if (from->len >= cap) return 0;
    if (from->len) memcpy(to, from->data, from->len);
    to[from->len] = 0;
    return 1;
}

static int get_id(const ProtobufCBinaryData *from, uint8_t to[16])
{
    if (from->len != 16) return 0;
    memcpy(to, from->data, 16);
    return 1;
}

static int get_party(const HfEt__Party *from, hf_party *p)
{
    size_t owner_len, note_len;
    if (from->base.n_unknown_fields || !get_id(&from->request, p->id) ||
        !get_text(&from->owner, p->owner, HF_OWNER_CAP, &owner_len) ||
        !get_text(&from->note, p->note, HF_NOTE_CAP, &note_len) || from->lease_ms > UINT32_MAX ||
        from->claim_ms > UINT32_MAX || from->limit > UINT32_MAX || from->mode > UINT8_MAX ||
        from->flags > UINT8_MAX || from->wakeup > UINT8_MAX)
        return 0;
    p->owner_len = (uint8_t)owner_len;
    p->note_len = (uint8_t)note_len;
    p->token = from->token;
    p->since_us = from->since_us;
    p->expires_us = from->expires_us;
    p->session = from->session;
    p->lease_ms = (uint32_t)from->lease_ms;
    p->claim_ms = (uint32_t)from->claim_ms;
    p->mode = (uint8_t)from->mode;
    p->limit = (uint32_t)from->limit;
    p->flags = (uint8_t)from->flags;
    p->wakeup = (uint8_t)from->wakeup;
    return 1;
}

static int get_head(const HfEt__Row *from, hf_row *row, const char **ret_why)
{
    size_t done_by_len, result_len;
    *ret_why = "written by another version of the format";
    if (from->format != ROW_FORMAT) return HF_CORRUPT;
    *ret_why = "not a row";
    if (from->base.n_unknown_fields ||
        !get_text(&from->done_by, row->done_by, HF_OWNER_CAP, &done_by_len) ||
        !get_text(&from->result, row->result, HF_RESULT_CAP, &result_len))
        return HF_CORRUPT;
    row->done_by_len = (uint8_t)done_by_len;
    row->result_len = (uint16_t)result_len;
    row->rev = from->rev;
    row->token = from->token;
    row->done_us = from->done_us;
    row->keep_until_us = from->keep_until_us;
    return 0;
}

static int get_row(const HfEt__Row *from, hf_row *row, const char **ret_why)
{
    size_t n = from->n_holders + from->n_queue;
    int rc = hf_row_room(row, n);
    if (!rc) rc = get_head(from, row, ret_why);
    if (rc) return rc;
    *ret_why = "a holder or waiter that isn't a valid one";
    for (size_t i = 0; i < n; i++) {
        const HfEt__Party *p =
            i < from->n_holders ? from->holders[i] : from->queue[i - from->n_holders];
        if (!get_party(p, &row->party[i])) return HF_CORRUPT;
    }
    row->n_holders = (uint32_t)from->n_holders;
    row->n_queue = (uint32_t)from->n_queue;
    return hf_row_check(row, ret_why);
}

int hf__et_read_row(const ProtobufCBinaryData *bytes, hf_row *row, const char **ret_why)
{
    int nomem;
    *ret_why = "not a row";
    ProtobufCMessage *all = hf__et_unpack(&hf_et__row__descriptor, bytes->data, bytes->len, &nomem);
    int rc = all ? get_row((HfEt__Row *)all, row, ret_why) : nomem ? HF_NOMEM : HF_CORRUPT;
    hf__et_free_message(all);
    if (rc) hf_row_clear(row);
    return rc;
}
