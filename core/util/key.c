/*
 * key.c - which keys and owners are legal, and the hash of a key.
 */
#include "key.h"

#include "bytes.h"
#include "holdfast_driver.h"
#include "shown.h"

#include <string.h>

static int is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t n; *s; s += n)
        if (!(n = hf__utf8(s))) return 0;
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

int hf_key_make(const char *text, hf_rowkey *ret, hf_error *err)
{
    if (!text || !*text)
        return hf_fail(err, HF_INVALID, 0, "the key is empty: it needs 1 to %d bytes",
                       HF_KEY_CAP - 1);
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0;
    for (size_t n; s[i]; i += n) {
        if (s[i] < 0x20 || s[i] == 0x7f || (s[i] == 0xc2 && s[i + 1] >= 0x80 && s[i + 1] < 0xa0))
            return hf_fail(err, HF_INVALID, 0, "key '%.40s': control character at byte %zu", text,
                           i);
        n = hf__utf8(s + i);
        if (!n) return hf_fail(err, HF_INVALID, 0, "key '%.40s': not UTF-8 at byte %zu", text, i);
        if (i + n >= HF_KEY_CAP)
            return hf_fail(err, HF_INVALID, 0, "key '%.40s...': longer than %d bytes", text,
                           HF_KEY_CAP - 1);
    }
    ret->text = text;
    ret->len = (uint32_t)i;
    ret->hash = hf_key_hash(text, i);
    ret->hint = NULL;
    ret->who = NULL;
    ret->in_line = 0;
    return 0;
}

uint64_t hf_key_hash(const char *text, size_t len) { return hf__hash(text, len); }
