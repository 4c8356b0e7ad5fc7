/*
 * fill.c - templates and quoting. See guard.h.
 */
#include "guard.h"

#include <stdio.h>
#include <string.h>

static const char *value_of(const struct word *words, const char *name, size_t len)
{
    for (; words->name; words++)
        if (strlen(words->name) == len && !memcmp(words->name, name, len)) return words->value;
    return NULL;
}

static void fill_line(const char *at, const struct word *words)
{
    while (*at) {
        if (*at == '@') {
            size_t len = strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
            const char *value = len && at[1 + len] == '@' ? value_of(words, at + 1, len) : NULL;
            if (value) {
                fputs(value, stdout);
                at += len + 2;
                continue;
            }
        }
        putchar(*at++);
    }
}

void guard_fill(const char *const *template, const struct word *words)
{
    int skipping = 0;
    for (const char *line; (line = *template); template ++) {
        if (!strncmp(line, "@if ", 4))
            skipping = !value_of(words, line + 4, strcspn(line + 4, "\n"));
        else if (!strncmp(line, "@end", 4))
            skipping = 0;
        else if (!skipping)
            fill_line(line, words);
    }
}

/* UTF-8 without control characters? */
static int is_plain(const char *text, size_t least, size_t most)
{
    size_t len = strlen(text);
    if (len < least || len > most) return 0;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t more = *s < 0x80 ? 0 : *s < 0xc2 ? 9 : *s < 0xe0 ? 1 : *s < 0xf0 ? 2 : 3;
        if (*s < 0x20 || *s == 0x7f || *s > 0xf4 || more == 9) return 0;
        if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) ||
            (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f) ||
            (*s == 0xc2 && s[1] < 0xa0))
            return 0;
        for (s++; more; more--, s++)
            if ((*s & 0xc0) != 0x80) return 0;
    }
    return 1;
}

enum { SQL_ESCAPES = 1, JSON };

static char *quoted(char *to, const char *text, char quote, int escapes)
{
    *to++ = quote;
    for (; *text; text++) {
        if (*text == quote || (escapes && *text == '\\')) *to++ = escapes == JSON ? '\\' : *text;
        *to++ = *text;
    }
    *to++ = quote;
    *to = 0;
    return to;
}

int guard_name(const char *schema, const char *name, size_t most, char ret[GUARD_NAME_CAP])
{
    if (!is_plain(name, 1, most) || (schema && !is_plain(schema, 1, most))) return 0;
    if (schema) {
        ret = quoted(ret, schema, '"', 0);
        *ret++ = '.';
    }
    quoted(ret, name, '"', 0);
    return 1;
}

int guard_tick_name(const char *name, size_t most, char ret[GUARD_NAME_CAP])
{
    if (!is_plain(name, 1, most)) return 0;
    quoted(ret, name, '`', 0);
    return 1;
}

int guard_text(const char *text, int escapes, char ret[GUARD_TEXT_CAP])
{
    if (!is_plain(text, 0, 512)) return 0;
    int marked = escapes == GUARD_E_ESCAPES;
    escapes = escapes && strchr(text, '\\') ? SQL_ESCAPES : 0;
    if (escapes && marked) *ret++ = 'E';
    quoted(ret, text, '\'', escapes);
    return 1;
}

int guard_json(const char *text, char ret[GUARD_TEXT_CAP])
{
    if (!is_plain(text, 0, 512)) return 0;
    quoted(ret, text, '"', JSON);
    return 1;
}
