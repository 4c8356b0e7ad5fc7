/*
 * bytes.h - inline functions that hash and compare keys. Each acquisition does both.
 */
#ifndef HF_BYTES_H
#define HF_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the `len` bytes at s (fewer than 8) as a number, its other bytes 0. */
static inline uint64_t hf__tail(const char *s, size_t len)
{
    uint64_t w = 0;
    uint32_t first, last;
    if (len >= 4) {
        memcpy(&first, s, 4);
        memcpy(&last, s + len - 4, 4);
        /* two reads that overlap: the bytes they share are the same */
        return first | (uint64_t)last << (len - 4) * 8;
    }
    for (size_t i = 0; i < len; i++) w |= (uint64_t)(unsigned char)s[i] << i * 8;
    return w;
}

static inline int hf__same_bytes(const char *a, const char *b, size_t len)
{
    uint64_t v, w;
    for (; len >= 8; len -= 8, a += 8, b += 8) {
        memcpy(&v, a, 8);
        memcpy(&w, b, 8);
        if (v != w) return 0;
    }
    return hf__tail(a, len) == hf__tail(b, len);
}

/* Hashes a key, as FNV-1a does but 8 bytes at a time, with the final mix of splitmix64. Not safe
   against chosen keys: keys with one hash make a chain of a table longer, and are still told apart,
   because the keys themselves are compared. */
static inline uint64_t hf__hash(const char *text, size_t len)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ len, w;
    while (len >= 8) {
        memcpy(&w, text, 8);
        h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
        text += 8;
        len -= 8;
    }
    w = hf__tail(text, len);
    h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 30;
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    h ^= h >> 27;
    return h;
}

#endif
