/*
 * sqlite_own.c - see sqlite_own.h.
 */
#include "sqlite_own.h"

#include "scratch.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

const hf_driver *drv;
const char *url_text;
sqlite3 *other;
int64_t clock_us;

int opens(hf_store **ret)
{
    hf_url url;
    memset(&err, 0, sizeof err);
    int rc = hf_url_parse(url_text, &url, &err);
    return rc ? rc : drv->open(&url, 60000, ret, &(hf_caps){0}, &err);
}

hf_store *opened(void)
{
    hf_store *st = NULL;
    said(opens(&st), 0, NULL);
    return st;
}

void writes(const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(other, sql, NULL, NULL, &why)) fail_msg("%s: %s", sql, why);
}

int sqlite_begin(void)
{
    hf_store *st = NULL;
    url_text = scratch("sqlite:@");
    drv = hf__driver("sqlite", &err);
    if (url_text && drv && !hf_key_make("k", &key, &err) && !opens(&st)) {
        drv->close(st);
        if (!sqlite3_open(strchr(url_text, ':') + 1, &other)) return 0;
    }
    printf("Bail out! %s\n", err.text);
    return 1;
}
