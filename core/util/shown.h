/*
 * shown.h - makes text of other programs fit to be shown to people
 */
#ifndef HF_SHOWN_H
#define HF_SHOWN_H

#include <stddef.h>

/* Returns the length of the UTF-8 sequence at s (Unicode 15, table 3-7); 0 if it isn't one. */
static inline size_t hf__utf8(const unsigned char *s)
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

/* Copies a text for people to see. A control character becomes '?', and so does one that has no
   width, reorders the text or breaks the line; and each byte that isn't UTF-8. `to` may be
   `from`. */
void hf__show_text(const char *from, char *to, size_t cap);
/* Replaces each byte that isn't part of valid UTF-8 by '?'. */
void hf__clean_utf8(char *text);

#endif
