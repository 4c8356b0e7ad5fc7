/*
 * table.c - postgres: the name of the table that has the rows; finds the table, or makes it.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hf__pg_quote_table(hf_store *st)
{
    char schema[HF_PG_NAME] = "", name[HF_PG_NAME];
    int has = *st->schema != 0;
    if ((has && hf__quote_name(st->schema, '"', schema, sizeof schema)) ||
        hf__quote_name(st->name, '"', name, sizeof name))
        return HF_INVALID;
    snprintf(st->how.table, sizeof st->how.table, "%s%s%s", schema, has ? "." : "", name);
    return 0;
}

int hf__pg_read_table(hf_store *st, const hf_url *url, hf_error *err)
{
    char text[128];
    int rc = hf_url_get(url, "table", text, sizeof text);
    if (rc == HF_UNSUPPORTED) snprintf(text, sizeof text, "holdfast");
    char *dot = strchr(text, '.'), *name = dot ? dot + 1 : text;
    if (dot) *dot = 0;
    int fits = strlen(text) < sizeof st->schema && strlen(name) < sizeof st->name;
    if (rc == HF_INVALID || !fits || strchr(text, '"') || strchr(name, '"') || (dot && !*text))
        rc = HF_INVALID;
    else
        rc = strchr(name, '.') ? HF_INVALID : 0;
    if (!rc && dot) memcpy(st->schema, text, strlen(text) + 1);
    if (!rc) memcpy(st->name, name, strlen(name) + 1);
    if (!rc) rc = hf__pg_quote_table(st);
    return rc ? hf_fail(err, HF_INVALID, 0,
                        "postgres: open '%s': table: not NAME or SCHEMA.NAME, each of 1 to 63 "
                        "bytes without '\"' and '.'",
                        url->safe)
              : 0;
}

int hf__pg_find_schema(hf_store *st, hf_error *err)
{
    char state[6];
    PGresult *r;
    int rc;
    struct hf__pg_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc && !*link->schema && st->existing) rc = hf__pg_no_table(st, "open", st->name, err);
    if (!rc && !*link->schema) {
        char *create = hf__pg_sql_create(st->how.table);
        if (!create) rc = hf_fail(err, HF_NOMEM, 0, "postgres: open: out of memory");
        if (!rc)
            rc = hf__pg_ask(&st->how, link, HF_PG_ONCE(create), 0, NULL, HF_UNAVAILABLE, &r, state,
                            "open", st->name, err);
        if (create && !rc) PQclear(r);
        if (create && hf__pg_was_made(rc, state)) rc = hf__pg_locate(&st->how, link, err);
        free(create);
    }
    if (!rc && !*link->schema)
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "postgres: open: the table '%s' was dropped meanwhile",
                     st->name);
    if (!rc) memcpy(st->schema, link->schema, sizeof st->schema);
    hf__links_put(&st->links, link);
    return rc;
}

void hf__pg_name_channel(hf_store *st)
{
    char whole[160], *channel = st->listener.channel;
    size_t n = (size_t)snprintf(whole, sizeof whole, "holdfast:%s.%s", st->schema, st->name);
    if (n >= sizeof st->listener.channel || strchr(whole, '"'))
        snprintf(channel, sizeof st->listener.channel, "holdfast:%016llx",
                 (unsigned long long)hf_key_hash(whole, n));
    else
        memcpy(channel, whole, n + 1);
}
