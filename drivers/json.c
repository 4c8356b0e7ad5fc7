/*
 * json.c - see json.h.
 *
 * jansson's reader collects the characters of a token in a buffer that grows. If the buffer can't
 * grow, the reader doesn't notice. Then characters of a string or a number are missing; or the
 * quote that ends a string is missing, and the reader reads beyond its buffer.
 *
 * jansson keeps the buffer from one token to the next. So the JSON to be read is given to it as the
 * second element of an array: ["FILLER", JSON]. FILLER is longer than any token of the JSON. Its
 * closing quote and the JSON are given to jansson only if errno isn't ENOMEM after all of FILLER
 * was read. Then the buffer has room for every token, and doesn't have to grow any more.
 */
#include "json.h"

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading ---- */

struct part {
    const char *at;
    size_t len;
};

struct feed {
    struct part part[4]; /* the filler is put between the first two */
    int now;
    size_t filler;
};

/* Returns an upper bound of the length of the text's longest token, with the byte after it. */
static size_t longest(const char *text, size_t len)
{
    size_t from = 0, most = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '"' || (i && text[i - 1] == '\\')) continue;
        if (i - from > most) most = i - from;
        from = i;
    }
    return (len - from > most ? len - from : most) + 2;
}

static size_t give(void *to, size_t cap, void *arg)
{
    struct feed *f = arg;
    /* the buffer had no room for the filler: -1 makes jansson stop with an error */
    if (f->now == 1 && errno == ENOMEM) return (size_t)-1;
    if (f->now == 1 && f->filler) {
        size_t n = f->filler < cap ? f->filler : cap;
        memset(to, ' ', n);
        f->filler -= n;
        return n;
    }
    if (f->now == 4) return 0;
    struct part *p = &f->part[f->now];
    size_t n = p->len < cap ? p->len : cap;
    memcpy(to, p->at, n);
    p->at += n;
    p->len -= n;
    if (!p->len) f->now++;
    return n;
}

json_t *hf__json_read(const char *text, size_t len, size_t flags, int *ret_nomem)
{
    /* The buffer's sizes are powers of two. The filler ends halfway between two of them, so the
       buffer doesn't have to grow for the quote that ends the filler. */
    size_t filler = 24, need = longest(text, len);
    while (filler < need) filler *= 2;
    struct feed f = {{{"[\"", 2}, {"\",", 2}, {text, len}, {"]", 1}}, 0, filler - 2};
    int before = errno;
    *ret_nomem = 0;
    if (!len) return NULL;
    errno = 0;
    json_t *all = json_load_callback(give, &f, flags, NULL), *own = json_array_get(all, 1);
    if (!all) *ret_nomem = errno == ENOMEM;
    errno = before;
    if (json_array_size(all) != 2 || (!json_is_array(own) && !json_is_object(own))) own = NULL;
    json_incref(own);
    json_decref(all);
    return own;
}

/* Reads all of an open file into new memory. Returns NULL if that fails; errno says why. */
static char *read_all(int fd, size_t *ret_len)
{
    struct stat s;
    if (fstat(fd, &s)) return NULL;
    size_t cap = (size_t)s.st_size, len = 0;
    char *text = malloc(cap + 1);
    while (text && len < cap) {
        ssize_t n = read(fd, text + len, cap - len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int sys = errno;
            free(text);
            errno = sys;
            return NULL;
        }
        if (!n) break; /* the file was truncated since fstat */
        len += (size_t)n;
    }
    *ret_len = len;
    return text;
}

int hf__json_load(int dir, const char *file, json_t **ret)
{
    size_t len = 0;
    int nomem = 0, fd = hf__open_at(dir, file, O_RDONLY, 0);
    *ret = NULL;
    if (fd < 0) return errno;
    char *text = read_all(fd, &len);
    int sys = errno;
    close(fd);
    if (!text) return sys;
    *ret = hf__json_read(text, len, JSON_REJECT_DUPLICATES, &nomem);
    free(text);
    return *ret ? 0 : nomem ? ENOMEM : EBADMSG;
}

/* ---- writing ---- */

struct text {
    char *at;
    size_t len, cap;
    int bad;
};

static int put(const char *bytes, size_t n, void *arg)
{
    struct text *t = arg;
    if (t->bad) return -1;
    if (t->len + n >= t->cap) {
        size_t cap = (t->len + n + 32) * 2;
        char *more = realloc(t->at, cap);
        t->bad = !more;
        if (!more) return -1;
        t->at = more;
        t->cap = cap;
    }
    memcpy(t->at + t->len, bytes, n);
    t->len += n;
    t->at[t->len] = 0;
    return 0;
}

char *hf__json_text(const json_t *json)
{
    struct text t = {NULL, 0, 0, 0};
    /* jansson ignores the callback's failure for a member's name: hence t.bad. */
    if (!json_dump_callback(json, put, &t, JSON_COMPACT) && !t.bad) return t.at;
    free(t.at);
    return NULL;
}
