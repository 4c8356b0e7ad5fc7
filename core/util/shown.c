/*
 * shown.c - see shown.h.
 */
#include "shown.h"

#include <stdint.h>

/* Characters that no terminal should be given, though they are UTF-8: some of them have no width,
   others reorder the text around them, or break the line. A text could look like another one by
   them. U+200C and U+200D stay: words of some languages need them. */
static const struct {
    uint32_t first, last;
} hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},       {0xad, 0xad},       {0x61c, 0x61c},   {0x180e, 0x180e},
    {0x200b, 0x200b}, {0x200e, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f}, {0xfeff, 0xfeff},
    {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe007f},
};

/* Returns the number of the character at s, whose sequence has n bytes. */
static uint32_t character(const unsigned char *s, size_t n)
{
    uint32_t c = n == 1 ? s[0] : s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3f);
    return c;
}

static int is_hidden(uint32_t c)
{
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (c >= hidden[i].first && c <= hidden[i].last) return 1;
    return 0;
}

void hf__show_text(const char *from, char *to, size_t cap)
{
    size_t at = 0;
    for (const unsigned char *s = (const unsigned char *)from; *s;) {
        size_t n = hf__utf8(s);
        int hide = !n || is_hidden(character(s, n));
        if (at + (hide ? 1 : n) >= cap) break;
        const unsigned char *next = s + (n ? n : 1);
        if (hide)
            to[at++] = '?';
        else
            while (s < next) to[at++] = (char)*s++;
        s = next;
    }
    to[at] = 0;
}

void hf__clean_utf8(char *text)
{
    unsigned char *s = (unsigned char *)text;
    for (size_t n; *s; s += n ? n : 1)
        if (!(n = hf__utf8(s))) *s = '?';
}
