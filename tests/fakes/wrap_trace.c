/*
 * wrap_trace.c - a driver around a driver that writes a line per call: local time in seconds, the
 * operation, the key, the rev it compared with, the result, the rev it left, how long it took.
 *
 *     1234.567890 replace 'seats/7' seen=17 -> OK rev=18 parties=1+0 3us
 *
 * Lines are written whole, so that several threads and processes may append to one file.
 */
#include "faults.h"
#include "os.h"
#include "wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct trace {
    struct hf__wrap wrap;
    int fd, owns_fd;
};

struct line {
    char text[HF_KEY_CAP + 256];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->len, sizeof l->text - l->len, format, args);
    va_end(args);
    if (n > 0) l->len += (size_t)n;
    if (l->len >= sizeof l->text) l->len = sizeof l->text - 1;
}

static int before(struct hf__wrap *w, struct hf__call *call, hf_error *err)
{
    (void)w, (void)call, (void)err;
    return 0;
}

static const char *result(const struct hf__call *c, int rc)
{
    if (c->op == HF__OP_ALIVE && rc >= 0) return rc ? "ALIVE" : "DEAD";
    if (rc == HF_WOULD_WAIT) return "WOULD_WAIT";
    return rc == HF_CONFLICT ? "CONFLICT" : hf_code_name(rc);
}

static int after(struct hf__wrap *w, struct hf__call *c, int rc, hf_error *err)
{
    const struct trace *t = (const struct trace *)w;
    int64_t now = hf__local_us();
    struct line l;
    (void)err;
    l.len = 0;
    put(&l, "%lld.%06lld %s", (long long)(c->start_us / 1000000),
        (long long)(c->start_us % 1000000), hf__op_name(c->op));
    if (c->key) put(&l, " '%s'", c->key->text);
    if (c->op == HF__OP_SWAP) put(&l, " seen=%llu", (unsigned long long)c->seen);
    if (c->op >= HF__OP_ALIVE && c->op <= HF__OP_END)
        put(&l, " %llu", (unsigned long long)c->session);
    if (c->op == HF__OP_SCAN) put(&l, " '%.512s'", c->prefix);
    put(&l, " -> %s", result(c, rc));
    if (c->row)
        put(&l, " rev=%llu parties=%u+%u", (unsigned long long)c->row->rev, c->row->n_holders,
            c->row->n_queue);
    else if (c->op == HF__OP_SWAP && !rc)
        put(&l, " deleted");
    put(&l, " %lldus\n", (long long)(now - c->start_us));
    /* A prefix may be anything: still one line, and nothing that a terminal would obey. */
    for (size_t i = 0; i + 1 < l.len; i++)
        if ((unsigned char)l.text[i] < 0x20 || l.text[i] == 0x7f) l.text[i] = '?';
    /* A trace that cannot be written must not stop a lock. */
    ssize_t n = write(t->fd, l.text, l.len);
    (void)n;
    return rc;
}

static void end(struct hf__wrap *w)
{
    struct trace *t = (struct trace *)w;
    if (t->owns_fd) close(t->fd);
}

int hf__wrap_trace(const hf_driver **drv, hf_store **st, hf_caps *caps, const char *where,
                   hf_error *err)
{
    struct trace *t = calloc(1, sizeof *t);
    if (!t) return hf_fail(err, HF_NOMEM, 0, "trace: open '%s': out of memory", where);
    t->fd = STDERR_FILENO;
    if (strcmp(where, "stderr")) {
        /* 0600, because keys and owners may be private. */
        t->fd = hf__open(where, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 0600);
        t->owns_fd = 1;
    }
    if (t->fd < 0) {
        int why = errno;
        free(t);
        return hf_fail(err, HF_INVALID, why, "trace: open '%s': %s", where, strerror(why));
    }
    t->wrap.before = before;
    t->wrap.after = after;
    t->wrap.end = end;
    hf__wrap(&t->wrap, drv, st, caps);
    return 0;
}
