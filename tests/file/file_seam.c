/*
 * file_seam.c - see file_seam.h.
 */
#include "file_seam.h"

#include <errno.h>

struct seam_world seam;

void hf__seam(const char *where, const volatile void *at, size_t n, int kind)
{
    (void)where, (void)at, (void)n, (void)kind;
    seam.steps++;
    if (seam.on_step) seam.on_step(seam.arg);
    if (seam.stop_at && --seam.stop_at == 0) longjmp(seam.stopped, 1);
}

/* ---- the system, as the virtual processes see it ---- */

static int64_t see_now(struct hf__client *c)
{
    (void)c;
    return seam.now_us++;
}

static void see_wait(struct hf__client *c, _Atomic uint32_t *word, uint32_t value, int64_t us)
{
    (void)c, (void)word, (void)value;
    seam.now_us += us;
    if (++seam.naps > 20) { /* no other process runs, so nothing can change any more */
        fprintf(stderr, "# stuck on a lock word\n");
        abort();
    }
}

static void see_wake(struct hf__client *c, _Atomic uint32_t *word, int n)
{
    (void)c, (void)n;
    seam.wakes += word == seam.wakeup;
}

static int see_probe(struct hf__client *c, int64_t byte)
{
    uint32_t slot = (uint32_t)((byte - HF_BYTE_SESSION) % 65536);
    if (seam.probe_error) return -seam.probe_error;
    for (int i = 0; i < SEAM_CLIENTS; i++) {
        const struct seam_client *other = &seam.client[i];
        if (other->st && hf__client_of(other->st) != c && other->slot == slot && !other->dead)
            return 1;
    }
    return 0;
}

static int see_take_slot(struct hf__client *c, uint32_t slot)
{
    int taken = see_probe(c, HF_BYTE_SESSION + slot);
    if (taken) return taken < 0 ? taken : 0;
    seam.client[seam.running].slot = slot;
    return 1;
}

static int see_grow(struct hf__client *c, uint64_t lines)
{
    (void)c, (void)lines;
    return ENOSPC;
}

static int see_sync(struct hf__client *c, uint64_t line, uint64_t n)
{
    (void)c;
    if (seam.on_sync) seam.on_sync(seam.arg, line, n);
    return seam.sync_error;
}

static int see_same_file(struct hf__client *c, const char **ret_why)
{
    (void)c;
    *ret_why = seam.gone;
    return seam.gone != NULL;
}

static const struct hf__file_env env = {
    .now = see_now,
    .rough_now = see_now,
    .futex_wait = see_wait,
    .futex_wake = see_wake,
    .probe = see_probe,
    .take_slot = see_take_slot,
    .grow = see_grow,
    .sync = see_sync,
    .same_file = see_same_file,
};

/* ---- clients ---- */

void seam_open(int i)
{
    hf_error err;
    seam.running = i;
    seam.client[i] = (struct seam_client){.dead = 0, .slot = UINT32_MAX};
    if (hf__file_attach(seam.base, SEAM_LINES, &env, NULL, &seam.client[i].st, &err))
        fail_msg("%s", err.text);
}

void seam_format(int n)
{
    struct hf__boot boot;
    memset(&seam, 0, sizeof seam);
    memset(&boot, 0, sizeof boot);
    boot.offset_us = 1000000000;
    seam.now_us = 1000;
    seam.base = aligned_alloc(4096, SEAM_BYTES);
    assert_non_null(seam.base);
    memset(seam.base, 0, SEAM_BYTES);
    hf__format(seam.base, SEAM_LINES, 0600, &boot);
    for (int i = 0; i < n; i++) seam_open(i);
}

void seam_free(void)
{
    for (int i = 0; i < SEAM_CLIENTS; i++)
        if (seam.client[i].st) drv->close(seam.client[i].st);
    free(seam.base);
    memset(&seam, 0, sizeof seam);
}

int seam_run(int i, long at, void (*what)(hf_store *st, void *arg), void *arg)
{
    seam.running = i;
    seam.stop_at = at;
    seam.naps = 0;
    if (setjmp(seam.stopped)) {
        seam.client[i].dead = 1;
        return 1;
    }
    what(seam.client[i].st, arg);
    seam.stop_at = 0;
    return 0;
}

void seam_save(struct seam_image *to)
{
    memcpy(to->base, seam.base, SEAM_BYTES);
    memcpy(to->client, seam.client, sizeof to->client);
    for (int i = 0; i < SEAM_CLIENTS; i++)
        if (seam.client[i].st) memcpy(&to->own[i], seam.client[i].st, sizeof to->own[i]);
    to->now_us = seam.now_us;
}

void seam_restore(const struct seam_image *from)
{
    memcpy(seam.base, from->base, SEAM_BYTES);
    for (int i = 0; i < SEAM_CLIENTS; i++) {
        hf_store *st = seam.client[i].st;
        if (st && !from->client[i].st) drv->close(st);
        seam.client[i] = from->client[i];
        if (from->client[i].st) memcpy(from->client[i].st, &from->own[i], sizeof from->own[i]);
    }
    seam.now_us = from->now_us;
    seam.wakes = 0;
}

char *seam_key(uint32_t bucket, int n, size_t len)
{
    char text[HF_KEY_CAP];
    for (int i = 0;; i++) {
        int wide = (int)len;
        size_t has = (size_t)snprintf(text, sizeof text, "%0*d", wide > 1 ? wide : 1, i);
        if ((hf_key_hash(text, has) & (HF_FILE_BUCKETS - 1)) == bucket && n-- == 0)
            return strdup(text);
    }
}

/* ---- the heap ---- */

static unsigned char taken[SEAM_LINES];
static uint64_t in_use;

static const char *claim(uint64_t line, uint64_t n, uint64_t end)
{
    if (line < HF_AT_HEAP / HF_LINE || line + n > end) return "something beyond bump";
    for (uint64_t i = line; i < line + n; i++)
        if (taken[i]++) return "two things in one place";
    in_use += n;
    return NULL;
}

static const char *check_cell(const struct hf__cell *cell, uint64_t line, uint64_t end)
{
    const char *wrong = claim(line, 1 + (hf__unseal(cell->self) & 0xff), end);
    for (int i = 0; i < 2 && !wrong; i++) {
        uint64_t body = hf__unseal(cell->body[i]);
        wrong = claim(body >> 8, HF_BODY_LINES(body & 0xff), end);
    }
    if (!wrong && cell->marker)
        wrong = claim(hf__unseal(cell->marker), 2 * HF_SECTOR / HF_LINE, end);
    return wrong;
}

const char *seam_check(uint64_t *ret_lines)
{
    const struct hf__client c = {.base = seam.base};
    const char *wrong = NULL;
    uint64_t end = hf__unseal(HF_ALLOC(&c)->bump);
    memset(taken, 0, sizeof taken);
    in_use = 0;
    for (uint32_t i = 0; i < HF_FILE_BUCKETS; i++)
        for (uint64_t line = hf__unseal(hf__bucket_at(&c, i)->head); line && !wrong;) {
            const struct hf__cell *cell = hf__line_at(&c, line);
            wrong = check_cell(cell, line, end);
            line = hf__unseal(cell->next);
        }
    *ret_lines = in_use;
    return wrong;
}
