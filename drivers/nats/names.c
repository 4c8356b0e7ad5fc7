/*
 * names.c - nats: keys as subjects; reads base64 and times of the server's JSON. See store.h.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- keys ---- */

/* Returns 1 if this byte of a key stands in a subject as it is. NATS allows letters, digits and
   -/_=. in the key of a bucket. These bytes are written as '=' and two hex digits: all others, '=',
   '.', and a '_' at the beginning (such keys are the server's). */
static int is_plain(char c, int first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '/' || (c == '_' && !first);
}

void hf__nats_subject(const hf_store *st, const char *key, size_t len, char to[HF_NATS_SUBJECT])
{
    char *at = to + snprintf(to, HF_NATS_SUBJECT, "$KV.%s.", st->bucket);
    for (size_t i = 0; i < len; i++)
        if (is_plain(key[i], !i))
            *at++ = key[i];
        else
            at = hf__put_marked(at, '=', key[i]);
    *at = 0;
}

int hf__nats_key(const hf_store *st, const char *name, char to[HF_KEY_CAP], uint32_t *ret_len)
{
    char again[HF_NATS_SUBJECT];
    if (!hf__read_marked(name, '=', to, ret_len)) return 0;
    hf__nats_subject(st, to, *ret_len, again);
    return *ret_len && !strcmp(again + strlen(st->bucket) + 5, name); /* another name isn't one that
                                                                         this driver has made */
}

/* ---- texts ---- */

static int sextet_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

char *hf__nats_bytes(const char *text, size_t *ret_len)
{
    char *bytes = malloc(strlen(text) + 1);
    unsigned held = 0, bits = 0;
    *ret_len = 0;
    for (; bytes && *text && *text != '='; text++) {
        int value = sextet_of(*text);
        if (value < 0) break;
        held = (held << 6 | (unsigned)value) & 0xffff;
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        bytes[(*ret_len)++] = (char)(held >> bits);
    }
    if (bytes && !text[strspn(text, "=")]) return bytes;
    free(bytes);
    return NULL;
}

int64_t hf__nats_time(const char *text)
{
    struct tm t = {.tm_isdst = 0};
    int at = 0;
    int64_t us = 0, unit = 100000;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &t.tm_sec, &at) != 6)
        return 0;
    if (text[at] == '.')
        for (at++; text[at] >= '0' && text[at] <= '9'; at++, unit /= 10)
            us += (text[at] - '0') * unit;
    if (strcmp(text + at, "Z") != 0) return 0;
    t.tm_year -= 1900;
    t.tm_mon--;
    return (int64_t)timegm(&t) * 1000000 + us;
}
