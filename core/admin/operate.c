/*
 * operate.c - for operators: ends grants, removes markers, deletes idle rows, inspects the store's
 * settings, gives the counts of a handle.
 */
#include "admin.h"
#include "cas_loop.h"
#include "deadline_list.h"
#include "handle.h"
#include "list.h"
#include "os.h"
#include "thread.h"

enum { PRUNE_MIN_MS = 60000 };

/* Applies an operator's event to the row of a key. `what`: the call, for messages. */
static int operate(hf *h, const char *what, const char *key, struct hf_event *ev,
                   struct hf_outcome *out, hf_error *err)
{
    HF_NOT_CANCELED;
    hf_row row;
    struct hf_entry *e;
    int rc = hf__begin_key_call(h, what, key, &e, err);
    if (rc) return rc;
    hf_row_init(&row);
    int64_t until = hf__local_us() + h->port.io_timeout_ms * 1000;
    rc = hf__cas_loop(&h->port, &e->key, ev, &row, 0, until, out, err);
    if (!rc) hf__watch_claim(h, e, &row);
    hf_row_clear(&row);
    /* A power cut must not bring the marker back. */
    if (!rc && ev->kind == HF_EV_FORGET && out->answer == HF_ANS_OK)
        rc = hf__port_sync(&h->port, &e->key, err);
    pthread_mutex_lock(&h->mu);
    hf__entry_unref(e);
    hf__leave_call(h);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

int hf_break(hf *h, const char *key, uint64_t token, hf_error *err)
{
    struct hf_event ev = {.kind = HF_EV_BREAK, .token = token};
    struct hf_outcome out;
    int rc = operate(h, "break", key, &ev, &out, err);
    if (!rc && out.answer != HF_ANS_OK)
        rc = hf_fail(err, HF_LOST, 0, "break '%s': no current grant has token %llu", key,
                     (unsigned long long)token);
    return rc;
}

int hf_forget(hf *h, const char *key, hf_error *err)
{
    struct hf_event ev = {.kind = HF_EV_FORGET};
    struct hf_outcome out;
    int rc = operate(h, "forget", key, &ev, &out, err);
    if (!rc && out.answer != HF_ANS_OK)
        rc = hf_fail(err, HF_LOST, 0, "forget '%s': it is not marked as done", key);
    return rc;
}

struct pruning {
    hf *h;
    int64_t idle_us;
    uint64_t n;
    hf_error *err;
    int code;
};

static int prune_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct pruning *p = arg;
    if (!hf__prunable(row, hf__port_now(&p->h->port), p->idle_us)) return 0;
    if (hf__closing(p->h)) {
        p->code = hf_fail(p->err, HF_CANCELED, 0, "prune: the store is being closed");
        return 1;
    }
    int rc = hf__port_replace(&p->h->port, key, row->rev, NULL, NULL, p->err);
    /* Neither is an error. A conflict: a client has used the key meanwhile, and its row stays.
       UNKNOWN: the row may have been deleted. */
    if (!rc) p->n++;
    if (rc < 0 && rc != HF_UNKNOWN) p->code = rc;
    return p->code != 0;
}

int hf_prune(hf *h, int64_t idle_ms, uint64_t *ret_n, hf_error *err)
{
    HF_NOT_CANCELED;
    struct pruning p = {h, 0, 0, err, 0};
    struct hf_scanning s = {.h = h, .see = prune_one, .arg = &p};
    int rc = hf__alive(h, "prune", err);
    if (!rc && (idle_ms < PRUNE_MIN_MS || idle_ms > INT64_C(3153600000000)))
        rc = hf_fail(err, HF_INVALID, 0, "prune: idle_ms: must be 60,000 to 3,153,600,000,000");
    if (rc) return rc;
    rc = hf__begin_call(h, "prune", err);
    if (rc) return rc;
    p.idle_us = idle_ms * 1000;
    rc = hf__scan(&s, "", err);
    hf__end_call(h);
    if (!rc) rc = p.code;
    if (!rc && ret_n) *ret_n += p.n;
    return rc;
}

int hf__inspect(hf *h, void (*say)(void *arg, int ok, const char *text), void *arg, hf_error *err)
{
    HF_NOT_CANCELED;
    int rc = hf__begin_call(h, "inspect", err);
    if (rc) return rc;
    rc = hf__port_inspect(&h->port, say, arg, err);
    hf__end_call(h);
    return rc;
}

int hf_store_warning(hf *h, char *ret, size_t cap)
{
    HF_NOT_CANCELED;
    if (!cap || hf__begin_call(h, "warning", NULL)) return 0;
    int found = hf__port_warning(&h->port, ret, cap);
    hf__end_call(h);
    return found;
}

int hf_get_stats(hf *h, hf_stats *ret)
{
    if (ret->size < sizeof *ret) return HF_INVALID;
    int rc = hf__alive(h, "stats", NULL);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    size_t size = ret->size;
    *ret = h->stats;
    ret->size = size;
    ret->store_ops += __atomic_load_n(&h->port.ops, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&h->mu);
    return 0;
}

int hf__give_up(hf_lock *l, hf_error *err)
{
    int rc = l ? hf__held_here(l, "release", err) : 0;
    if (!l || rc) return rc;
    pthread_mutex_lock(&l->h->mu);
    l->at_least_ms = 0;
    pthread_mutex_unlock(&l->h->mu);
    return hf_release(l, err);
}
