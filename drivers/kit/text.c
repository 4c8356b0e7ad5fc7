/*
 * text.c - see text.h.
 */
#include "text.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

void hf__put_id(char to[33], const uint8_t id[16])
{
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        to[2 * i] = hex[id[i] >> 4];
        to[2 * i + 1] = hex[id[i] & 15];
    }
    to[32] = 0;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hf__read_id(const char *text, size_t len, uint8_t ret[16])
{
    if (len != 32) return 0;
    for (int i = 0; i < 16; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return 0;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return 1;
}

int hf__is_utf8(const char *text, size_t len)
{
    size_t ascii = 0; /* how many bytes at the beginning are ASCII; nearly always all of them */
    while (ascii < len && (unsigned char)text[ascii] < 0x80) ascii++;
    if (ascii == len) return 1;
    json_t *j = json_stringn(text, len);
    json_decref(j);
    return j != NULL;
}

static const char capitals[] = "0123456789ABCDEF";

char *hf__put_marked(char *to, char mark, char byte)
{
    *to++ = mark;
    *to++ = capitals[(unsigned char)byte >> 4];
    *to++ = capitals[(unsigned char)byte & 15];
    return to;
}

int hf__read_marked(const char *from, char mark, char to[HF_KEY_CAP], uint32_t *ret_len)
{
    uint32_t n = 0;
    for (; *from; from++) {
        char c = *from;
        if (c == mark) {
            const char *high = from[1] ? strchr(capitals, from[1]) : NULL;
            const char *low = high && from[2] ? strchr(capitals, from[2]) : NULL;
            if (!low) return 0;
            c = (char)((high - capitals) << 4 | (low - capitals));
            from += 2;
        }
        if (!c || n + 1 == HF_KEY_CAP) return 0;
        to[n++] = c;
    }
    to[n] = 0;
    *ret_len = n;
    return 1;
}

int hf__quote_name(const char *name, char quote, char *ret, size_t cap)
{
    size_t n = 0, len = strlen(name);
    if (!len || len > 63 || cap < 2 * len + 3 || !hf__is_utf8(name, len)) return HF_INVALID;
    ret[n++] = quote;
    for (const char *s = name; *s; s++) {
        if ((unsigned char)*s < 0x20) return HF_INVALID;
        if (*s == quote) ret[n++] = quote;
        ret[n++] = *s;
    }
    ret[n++] = quote;
    ret[n] = 0;
    return 0;
}

int hf__next_option(const char **at, char *ret, size_t cap)
{
    *at += strspn(*at, "&");
    size_t len = strcspn(*at, "=&");
    snprintf(ret, cap, "%.*s", (int)len, *at);
    int more = **at != 0;
    *at += strcspn(*at, "&");
    return more;
}

const char *hf__unknown_option(const hf_url *url, const char *const *known, char *ret, size_t cap)
{
    for (const char *at = url->query; hf__next_option(&at, ret, cap);) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], ret)) i++;
        if (!known[i]) return ret;
    }
    return NULL;
}
