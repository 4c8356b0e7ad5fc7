/*
 * explore_kernel.c - the system under the virtual processes: their clock, sleep, sessions, files;
 * and how they open the store. See explore.h.
 */
#include "explore.h"

#include <stdio.h>
#include <stdlib.h>

int v_slot_of[V_SLOT_CAP];

/* ---- system calls ---- */

static int64_t k_now(struct hf__client *c)
{
    (void)c;
    v_learn((uint64_t)v_clock_us);
    return v_clock_us;
}

static int64_t k_rough_now(struct hf__client *c) { return k_now(c); }

static void k_wait(struct hf__client *c, _Atomic uint32_t *word, uint32_t seen, int64_t us)
{
    (void)c;
    v_sleep(word, seen, us);
}

static void k_wake(struct hf__client *c, _Atomic uint32_t *word, int n)
{
    (void)c;
    v_wake(word, n);
}

static int k_probe(struct hf__client *c, int64_t byte)
{
    int client = byte >= HF_BYTE_CLIENT;
    int64_t slot = byte - (client ? HF_BYTE_CLIENT : HF_BYTE_SESSION);
    if (slot < 0 || slot >= HF_FILE_SLOTS || slot >= V_SLOT_CAP) abort();
    int owner = v_slot_of[slot] - 1, lives = 0;
    if (owner == V_PROCS)
        lives = c != &v_heir.st->c;
    else if (owner >= 0)
        lives = client ? v_proc[owner].life < V_HALF : v_proc[owner].life < V_BURIED;
    if (owner >= 0 && owner < V_PROCS && v_proc[owner].st && c == &v_proc[owner].st->c) lives = 0;
    v_learn((uint64_t)lives + 4);
    return lives;
}

static int k_take_slot(struct hf__client *c, uint32_t slot)
{
    const struct v_proc *p = c->env_arg;
    if (slot >= V_SLOT_CAP) return -28;
    int owner = v_slot_of[slot] - 1;
    int taken = owner == V_PROCS || (owner >= 0 && v_proc[owner].life != V_BURIED);
    if (!taken) v_slot_of[slot] = p->number + 1;
    v_learn((uint64_t)taken + 6);
    return !taken;
}

static int k_grow(struct hf__client *c, uint64_t lines)
{
    (void)c;
    return lines > V_SPACE / HF_LINE ? 28 : 0;
}

static int k_sync(struct hf__client *c, uint64_t line, uint64_t n)
{
    (void)c, (void)line, (void)n;
    return 0;
}

static int k_same_file(struct hf__client *c, const char **ret_why)
{
    (void)c, (void)ret_why;
    return 0;
}

static const struct hf__file_env kernel = {
    .now = k_now,
    .rough_now = k_rough_now,
    .futex_wait = k_wait,
    .futex_wake = k_wake,
    .probe = k_probe,
    .take_slot = k_take_slot,
    .grow = k_grow,
    .sync = k_sync,
    .same_file = k_same_file,
};

/* ---- opening ---- */

static hf_rowkey keys[V_KEYS];

/* Two keys of one bucket, and one of another. */
void v_name_keys(void)
{
    static char text[V_KEYS][8];
    for (int i = 0, n = 0; i < V_KEYS; n++) {
        snprintf(text[i], sizeof text[i], "seat/%d", n % 100);
        if (hf_key_make(text[i], &keys[i], NULL)) abort();
        int same = (keys[i].hash & (HF_FILE_BUCKETS - 1)) == (keys[0].hash & (HF_FILE_BUCKETS - 1));
        if (same == (i != 1)) i++;
    }
}

void v_attach(struct v_proc *p, int number)
{
    p->number = number;
    for (int i = 0; i < V_KEYS; i++) {
        p->key[i] = keys[i];
        p->key[i].hint = &p->hint[i];
    }
    p->port.drv = &hf__file_driver;
    p->port.caps = hf__file_driver.caps;
    p->port.io_timeout_ms = 5000;
    if (number == V_PROCS || !(v_scene->flags & V_UNOPENED)) v_open(p);
}

void v_open(struct v_proc *p)
{
    hf_error err;
    if (hf__file_attach(v_base(), V_SPACE / HF_LINE, &kernel, p, &p->st, &err))
        v_fail("%s", err.text);
    p->port.st = p->st;
    if (hf__file_session(p->st, &p->port.session, &err)) v_fail("%s", err.text);
}
