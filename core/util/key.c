/*
 * key.c - which keys and owners are legal, and the hash of a key.
 */
#include "key.h"

#include "bytes.h"
#include "holdfast_driver.h"

#include <string.h>

/* Returns the length of the UTF-8 sequence at s (Unicode 15, table 3-7); 0 if it isn't one. */
static size_t sequence(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    unsigned char low = 0x80, high = 0xbf;
    if (s[0] == 0xe0) low = 0xa0;
    if (s[0] == 0xed) high = 0x9f;
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xf4) high = 0x8f;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return n;
}

static int is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t n; *s; s += n)
        if (!(n = sequence(s))) return 0;
    return 1;
}

const char *hf__owner_wrong(const char *owner)
{
    if (!owner) return NULL;
    if (!*owner || strlen(owner) >= HF_OWNER_CAP) return "owner: must have 1 to 127 bytes";
    if (!is_utf8(owner)) return "owner: not UTF-8";
    if (!strcmp(owner, HF_OWNER_ENDED))
        return "owner: '" HF_OWNER_ENDED "' is what rows show for a hold that has ended";
    return NULL;
}

void hf__clean_utf8(char *text)
{
    unsigned char *s = (unsigned char *)text;
    for (size_t n; *s; s += n ? n : 1)
        if (!(n = sequence(s))) *s = '?';
}

int hf_key_make(const char *text, hf_rowkey *ret, hf_error *err)
{
    if (!text || !*text)
        return hf_fail(err, HF_INVALID, 0, "the key is empty: it needs 1 to %d bytes",
                       HF_KEY_CAP - 1);
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    while (s[i]) {
        if (i >= HF_KEY_CAP - 1)
            return hf_fail(err, HF_INVALID, 0, "key '%.40s...': longer than %d bytes", text,
                           HF_KEY_CAP - 1);
        if (s[i] < 0x20 || s[i] == 0x7f || (s[i] == 0xc2 && s[i + 1] >= 0x80 && s[i + 1] < 0xa0))
            return hf_fail(err, HF_INVALID, 0, "key '%.40s': control character at byte %zu", text,
                           i);
        size_t n = sequence(s + i);
        if (!n) return hf_fail(err, HF_INVALID, 0, "key '%.40s': not UTF-8 at byte %zu", text, i);
        i += n;
    }
    if (i > HF_KEY_CAP - 1)
        return hf_fail(err, HF_INVALID, 0, "key '%.40s...': longer than %d bytes", text,
                       HF_KEY_CAP - 1);
    ret->text = text;
    ret->len = (uint32_t)i;
    ret->hash = hf_key_hash(text, i);
    ret->hint = NULL;
    ret->who = NULL;
    ret->in_line = 0;
    return 0;
}

uint64_t hf_key_hash(const char *text, size_t len) { return hf__hash(text, len); }
