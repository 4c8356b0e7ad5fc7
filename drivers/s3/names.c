/*
 * names.c - s3: the names of objects. See store.h.
 *
 * A name has only letters, digits and - . _ ~, which no server, proxy or signature encodes, and
 * which need no entity in XML. Every other byte of the key is written as ~ and two hex digits. Some
 * servers keep objects as files; so no name is a directory in the path of another name.
 *
 * If that would be longer than a file's name may be, the name is ~~ and the key in base64 (RFC
 * 4648, section 5), cut into parts by slashes, which are directories for such a server. Each part
 * but the last ends with ~.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <string.h>

enum { PLAIN_MOST = 200, PART = 180 };

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Writes the name in its short form. Returns 0 if that is too long. */
static int put_plain(const char *key, size_t len, char to[HF_S3_NAME + 1])
{
    char *at = to;
    for (size_t i = 0; i < len; i++) {
        int plain = key[i] && (strchr(digits, key[i]) || (key[i] == '.' && i));
        if (at - to + (plain ? 1 : 3) > PLAIN_MOST) return 0;
        if (plain)
            *at++ = key[i];
        else
            at = hf__put_marked(at, '~', key[i]);
    }
    *at = 0;
    return 1;
}

int hf__s3_name_prefix(const char *prefix, char to[HF_S3_NAME + 1])
{
    return put_plain(prefix, strlen(prefix), to);
}

void hf__s3_name(const char *key, size_t len, char to[HF_S3_NAME + 1])
{
    const unsigned char *from = (const unsigned char *)key;
    size_t n = 0, in_part = 0;
    if (put_plain(key, len, to)) return;
    memcpy(to, HF_S3_LONGS, 2);
    n = 2;
    for (size_t bit = 0; bit < 8 * len; bit += 6) {
        size_t at = bit / 8;
        unsigned two = from[at] << 8 | (at + 1 < len ? from[at + 1] : 0u);
        if (in_part++ == PART) {
            to[n++] = '~';
            to[n++] = '/';
            in_part = 1;
        }
        to[n++] = digits[two >> (10 - bit % 8) & 63];
    }
    to[n] = 0;
}

/* Decodes the base64 of a long name, skipping the slashes and ~ of its parts. Returns 0 if the key
   is too long. */
static int read_long(const char *name, char to[HF_KEY_CAP], uint32_t *ret_len)
{
    unsigned bits = 0, have = 0;
    uint32_t n = 0;
    for (const char *p = name; *p; p++) {
        const char *digit = strchr(digits, *p);
        if (!digit) continue;
        bits = bits << 6 | (unsigned)(digit - digits);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        if (n + 1 >= HF_KEY_CAP) return 0;
        to[n++] = (char)(bits >> have & 255);
    }
    to[n] = 0;
    *ret_len = n;
    return 1;
}

int hf__s3_key(const char *name, char to[HF_KEY_CAP], uint32_t *ret_len)
{
    char again[HF_S3_NAME + 1];
    int is_long = !strncmp(name, HF_S3_LONGS, 2);
    int got = is_long ? read_long(name + 2, to, ret_len) : hf__read_marked(name, '~', to, ret_len);
    if (!got || strlen(to) != *ret_len || !*ret_len) return 0;
    /* A key has exactly one name. Another name that decodes to it isn't one of this driver. */
    hf__s3_name(to, *ret_len, again);
    return !strcmp(name, again);
}

/* Returns the character of the XML entity at `from`; 0: it isn't one of the five. */
static char entity(const char *from, size_t *ret_len)
{
    static const struct {
        const char *text;
        char means;
    } all[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *ret_len = strlen(all[i].text);
        if (!strncmp(from, all[i].text, *ret_len)) return all[i].means;
    }
    return 0;
}

const char *hf__s3_element(const char *xml, const char *name, char *to, size_t cap)
{
    char open[32], close[32];
    size_t n = 0, len;
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    const char *at = xml ? strstr(xml, open) : NULL, *end = at ? strstr(at, close) : NULL;
    *to = 0;
    if (!end) return NULL;
    for (at += strlen(open); at < end && n + 1 < cap; at++) {
        char c = *at == '&' ? entity(at, &len) : 0;
        if (c) at += len - 1;
        to[n++] = c ? c : *at;
    }
    to[n] = 0;
    return end;
}
