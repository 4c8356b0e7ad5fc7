/*
 * scan.c - the calls of a driver's scan, inspect, sync and warning. See port.h.
 */
#include "port.h"

#include "os.h"

#include <stdlib.h>
#include <string.h>

/* ---- scan ---- */

/* A row that is kept until the driver is unlocked. */
struct kept {
    struct kept *next;
    hf_row row;
    uint64_t hash;
    uint32_t len; /* as the driver gave it, like hash; `text` ends at the key's first NUL */
    int damaged;  /* shown as NULL */
    char text[];
};

struct keeping {
    struct kept *first, **last;
    int nomem;
};

static int keep(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct keeping *k = arg;
    size_t n = strlen(key->text);
    struct kept *one = malloc(sizeof *one + n + 1);
    k->nomem = !one;
    if (!one) return 1;
    one->next = NULL;
    one->hash = key->hash;
    one->len = key->len;
    one->damaged = !row;
    memcpy(one->text, key->text, n + 1);
    hf_row_init(&one->row);
    *k->last = one;
    k->last = &one->next;
    if (row && hf_row_copy(&one->row, row)) k->nomem = 1;
    return k->nomem;
}

/* Shows the rows until `see` returns nonzero (`see` NULL: none), and frees all of them. */
static void show(struct kept *first, int (*see)(void *arg, const hf_rowkey *key, hf_row *row),
                 void *arg)
{
    int enough = !see;
    for (struct kept *one = first, *next; one; one = next) {
        hf_rowkey key = {.text = one->text, .len = one->len, .hash = one->hash};
        next = one->next;
        if (!enough) enough = see(arg, &key, one->damaged ? NULL : &one->row);
        hf_row_clear(&one->row);
        free(one);
    }
}

int hf__port_scan(struct hf_port *port, const char *prefix,
                  int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg,
                  hf_error *err)
{
    struct keeping k = {NULL, &k.first, 0};
    int at_once = port->caps.threads;
    hf__port_lock(port);
    int64_t clock_us = 0, sent_us = hf__local_us();
    int rc =
        port->drv->scan(port->st, prefix, at_once ? see : keep, at_once ? arg : &k, &clock_us, err);
    hf__port_unlock(port);
    hf__port_clock(port, sent_us, clock_us);
    if (k.nomem) rc = hf_fail(err, HF_NOMEM, 0, "list '%s': out of memory", prefix);
    show(k.first, k.nomem ? NULL : see, arg);
    return rc;
}

/* ---- inspect, sync, warning ---- */

int hf__port_inspect(struct hf_port *port, void (*say)(void *arg, int ok, const char *text),
                     void *arg, hf_error *err)
{
    if (!port->drv->inspect) return 0;
    hf__port_lock(port);
    int rc = port->drv->inspect(port->st, say, arg, err);
    hf__port_unlock(port);
    return rc;
}

int hf__port_sync(struct hf_port *port, const hf_rowkey *key, hf_error *err)
{
    if (!port->drv->sync) return 0;
    hf__port_lock(port);
    int rc = port->drv->sync(port->st, key, err);
    hf__port_unlock(port);
    return rc;
}

int hf__port_warning(struct hf_port *port, char *ret, size_t cap)
{
    if (!port->drv->warning) return 0;
    hf__port_lock(port);
    int found = port->drv->warning(port->st, ret, cap);
    hf__port_unlock(port);
    return found;
}
