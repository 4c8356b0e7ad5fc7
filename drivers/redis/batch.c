/*
 * batch.c - redis: commands as bytes, to be sent at once. See link.h.
 */
#include "link.h"
#include "os.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Writes the type, a number and the end of the line. */
static char *put_head(char *to, char type, size_t n)
{
    char digits[20];
    size_t len = 0;
    *to++ = type;
    do digits[len++] = (char)('0' + n % 10);
    while (n /= 10);
    while (len) *to++ = digits[--len];
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

/* Makes room for more bytes, without realloc: the old bytes may be a password, and are wiped.
   Returns 0 if there is no memory. */
static int make_room(struct hf__rd_batch *batch, size_t more)
{
    if (batch->cap - batch->len >= more) return 1;
    size_t cap = 2 * batch->cap > batch->len + more ? 2 * batch->cap : batch->len + more;
    char *text = malloc(cap);
    if (!text) return 0;
    if (batch->len) {
        memcpy(text, batch->text, batch->len);
        explicit_bzero(batch->text, batch->len);
    }
    free(batch->text);
    batch->text = text;
    batch->cap = cap;
    return 1;
}

/* Appends one command of argc words. hiredis can do that, too, but its printf for each word costs a
   client more than all its other work for an acquisition and a release. */
void hf__rd_put(struct hf__rd_batch *batch, int argc, const char *const *argv, const size_t *len)
{
    enum { SHORT = 1000, AROUND_SHORT = 1 + 3 + 2 + 2, AROUND = 1 + 20 + 2 + 2 };
    size_t most = AROUND;
    /* A tight bound: malloc is quick for small pieces. */
    for (int i = 0; i < argc; i++) most += len[i] + (len[i] < SHORT ? AROUND_SHORT : AROUND);
    if (!make_room(batch, most)) {
        batch->failed = 1;
        return;
    }
    char *to = put_head(batch->text + batch->len, '*', (size_t)argc);
    for (int i = 0; i < argc; i++) {
        to = put_head(to, '$', len[i]);
        memcpy(to, argv[i], len[i]);
        to += len[i];
        *to++ = '\r';
        *to++ = '\n';
    }
    batch->len = (size_t)(to - batch->text);
    batch->n++;
}

void hf__rd_say(struct hf__rd_batch *batch, ...)
{
    const char *word[8];
    size_t len[8];
    int n = 0;
    va_list args;
    va_start(args, batch);
    while (n < 8 && (word[n] = va_arg(args, const char *))) {
        len[n] = strlen(word[n]);
        n++;
    }
    va_end(args);
    hf__rd_put(batch, n, word, len);
}

void hf__rd_batch_free(struct hf__rd_batch *batch)
{
    if (batch->text) explicit_bzero(batch->text, batch->len);
    free(batch->text);
    memset(batch, 0, sizeof *batch);
}
