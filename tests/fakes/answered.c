/*
 * answered.c - see answered.h.
 */
#include "answered.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const hf_driver *driver;
static int port;

int answered_begin(const char *name)
{
    port = answers_begin();
    driver = hf__driver(name, &err);
    if (driver && !hf_key_make("k", &key, &err)) return 0;
    printf("Bail out! %s\n", err.text);
    return 1;
}

void is(int status, const char *form, ...)
{
    static char text[16384];
    va_list args;
    va_start(args, form);
    vsnprintf(text, sizeof text, form, args);
    va_end(args);
    const struct answer one = {"", status, text, 0};
    answers_are(&one, 1);
}

void answers_mean(hf_store *st, const struct meaning *all, size_t n, const hf_row *row)
{
    hf_row now;
    int64_t clock_us;
    hf_row_init(&now);
    for (const struct meaning *m = all; m < all + n; m++) {
        is(m->status, "%s", m->body);
        said(driver->get(st, &key, &now, &clock_us, &err), m->read, m->text);
        int rc = driver->replace(st, &key, 0, row, NULL, &clock_us, &err);
        said(rc, m->written, m->written ? m->text : NULL);
    }
    hf_row_clear(&now);
}

const char *ported(const char *form)
{
    static char text[4096];
    const char *at = strstr(form, "PORT");
    if (at)
        snprintf(text, sizeof text, "%.*s%d%s", (int)(at - form), form, port, at + 4);
    else
        snprintf(text, sizeof text, "%s", form);
    return text;
}

int opens(const char *form, hf_store **ret)
{
    hf_url url;
    memset(&err, 0, sizeof err);
    int rc = hf_url_parse(ported(form), &url, &err);
    return rc ? rc : driver->open(&url, 60000, ret, &(hf_caps){0}, &err);
}
