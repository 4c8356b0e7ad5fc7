/*
 * file_common.c - see file_common.h.
 */
#include "file_common.h"

#include "step.h"

#include <unistd.h>

char dir[64], path[128], url_text[160];

int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/holdfast-unit-XXXXXX");
    return !mkdtemp(dir);
}

int remove_dir(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) != 0;
}

int new_path(void **state)
{
    static int n;
    (void)state;
    snprintf(path, sizeof path, "%s/store-%d", dir, n++);
    snprintf(url_text, sizeof url_text, "file:%s", path);
    return 0;
}

int open_code(const char *text, hf_error *err)
{
    hf_url url;
    hf_store *st = NULL;
    assert_int_equal(hf_url_parse(text, &url, err), 0);
    int rc = drv->open(&url, 5000, &st, &(hf_caps){0}, err);
    if (!rc) drv->close(st);
    return rc;
}

hf_store *open_store(void)
{
    hf_url url;
    hf_error err;
    hf_store *st = NULL;
    assert_int_equal(hf_url_parse(url_text, &url, &err), 0);
    if (drv->open(&url, 5000, &st, &(hf_caps){0}, &err)) fail_msg("%s", err.text);
    return st;
}

hf_rowkey key_of(const char *text)
{
    hf_rowkey key;
    hf_error err;
    assert_int_equal(hf_key_make(text, &key, &err), 0);
    return key;
}

int sync_event(hf_store *st, hf_error *err)
{
    hf_rowkey key = key_of("event");
    return drv->sync(st, &key, err);
}

void fill_party(hf_party *p, int n, const char *note)
{
    memset(p, 0, sizeof *p);
    memcpy(p->id, &n, sizeof n);
    p->id[15] = 1;
    p->session = 7 << 16;
    p->lease_ms = 1000;
    p->claim_ms = 77;
    p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "owner-%d", n);
    p->note_len = (uint8_t)snprintf(p->note, sizeof p->note, "%s", note);
}

void fill_row(hf_row *row, uint64_t rev, uint32_t holders, uint32_t waiters)
{
    assert_int_equal(hf_row_room(row, holders + waiters), 0);
    row->rev = rev;
    row->token = holders ? rev : rev - 1;
    row->n_holders = holders;
    row->n_queue = waiters;
    for (uint32_t i = 0; i < holders + waiters; i++) {
        fill_party(&row->party[i], (int)i, i % 3 ? "host pid 1 user cmd" : "");
        row->party[i].token = i < holders ? rev : 0;
        row->party[i].mode = holders > 1 && i < holders ? HF_SHARED : HF_EXCLUSIVE;
        row->party[i].since_us = 1000 + i;
    }
}

void get(hf_store *st, const char *text, hf_row *row)
{
    hf_rowkey key = key_of(text);
    hf_error err;
    int64_t clock_us;
    if (drv->get(st, &key, row, &clock_us, &err)) fail_msg("%s", err.text);
}

int replace(hf_store *st, const char *text, uint64_t seen, const hf_row *row, hf_row *cur)
{
    hf_rowkey key = key_of(text);
    hf_error err;
    int64_t clock_us;
    int rc = drv->replace(st, &key, seen, row, cur, &clock_us, &err);
    if (rc < 0) fail_msg("%s", err.text);
    return rc;
}

int take(hf_store *st, const char *text, const hf_party *p, hf_row *cur)
{
    hf_rowkey key = key_of(text);
    hf_error err;
    int64_t clock_us;
    int rc = drv->acquire(st, &key, p, 0, cur, &clock_us, &err);
    if (rc < 0) fail_msg("%s", err.text);
    if (!rc) hf__row_taken(cur, p);
    return rc;
}
