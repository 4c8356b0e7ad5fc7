/*
 * etcd_said.c - see etcd_said.h.
 */
#include "etcd_said.h"

#include "etcd.pb-c.h"
#include "etcd_serve.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct answer well = {"", 200, "{" HEADER "}", 0};

void are(struct answer first)
{
    const struct answer two[] = {first, well};
    answers_are(two, 2);
}

int etcd_said_begin(void)
{
    answers_by(etcd_serve);
    return answered_begin("etcd");
}

hf_store *opened(void)
{
    hf_store *st = NULL;
    answers_are(&well, 1);
    if (opens("etcd://127.0.0.1:PORT/p/", &st)) fail_msg("%s", err.text);
    return st;
}

/* Hex as 16 bytes, another text as it is. */
static ProtobufCBinaryData bytes_of(const json_t *j, int *ret_has)
{
    const char *text = json_string_value(j);
    ProtobufCBinaryData b = {text ? strlen(text) : 0, NULL};
    *ret_has = text != NULL;
    if (!text) return b;
    b.data = malloc(b.len + 1);
    memcpy(b.data, text, b.len + 1);
    if (b.len != 32) return b;
    b.len = 16;
    for (size_t i = 0; i < b.len; i++) {
        const char byte[3] = {text[2 * i], text[2 * i + 1], 0};
        b.data[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return b;
}

#define NUMBER(to, from, name)                                  \
    ((to)->has_##name = json_object_get((from), #name) != NULL, \
     (to)->name = (__typeof__((to)->name))json_integer_value(json_object_get((from), #name)))
#define BYTES(to, from, name) \
    ((to)->name = bytes_of(json_object_get((from), #name), &(to)->has_##name))

static size_t parties_of(const json_t *from, HfEt__Party ***ret)
{
    size_t n = json_array_size(from);
    *ret = calloc(n + 1, sizeof **ret);
    for (size_t i = 0; i < n; i++) {
        const json_t *j = json_array_get(from, i);
        HfEt__Party *p = (*ret)[i] = malloc(sizeof *p);
        hf_et__party__init(p);
        BYTES(p, j, request);
        BYTES(p, j, owner);
        BYTES(p, j, note);
        NUMBER(p, j, token);
        NUMBER(p, j, expires_us);
        NUMBER(p, j, session);
        NUMBER(p, j, lease_ms);
        NUMBER(p, j, claim_ms);
        NUMBER(p, j, mode);
        NUMBER(p, j, limit);
        NUMBER(p, j, flags);
        NUMBER(p, j, wakeup);
    }
    return n;
}

static size_t row_of(const char *text, uint8_t *to)
{
    HfEt__Row *row = malloc(sizeof *row);
    json_t *j = json_loads(text, 0, NULL);
    if (!j) fail_msg("no JSON: %s", text);
    hf_et__row__init(row);
    NUMBER(row, j, format);
    NUMBER(row, j, rev);
    NUMBER(row, j, token);
    row->n_holders = parties_of(json_object_get(j, "holders"), &row->holders);
    row->n_queue = parties_of(json_object_get(j, "queue"), &row->queue);
    size_t len = hf_et__row__pack(row, to);
    hf_et__row__free_unpacked(row, NULL);
    json_decref(j);
    return len;
}

const char *value_of(const char *text)
{
    char all[8192];
    const char *row = strchr(text, '{');
    size_t len = row ? (size_t)(row - text) : strlen(text);
    memcpy(all, text, len);
    if (row) len += row_of(row, (uint8_t *)all + len);
    return answers_base64(all, len);
}

const char *kv(const char *name, const char *value)
{
    static char ring[4][8192];
    static int at;
    char *to = ring[at++ % 4];
    const char *tab = strchr(name, '\t');
    snprintf(to, sizeof ring[0], "{\"key\": \"%s\", \"value\": \"%s\"%s}",
             answers_base64(name, strlen(name)), value_of(value),
             tab && strlen(tab) == 17 ? ", \"lease\": \"7\"" : "");
    return to;
}
