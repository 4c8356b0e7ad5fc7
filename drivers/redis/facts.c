/*
 * facts.c - redis: reads what a server's INFO says, and checks whether it can be a store.
 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the value of "name:value" at the beginning of a line. */
static void fact(const char *info, const char *name, char *to, size_t cap)
{
    size_t n = strlen(name);
    to[0] = 0;
    for (const char *at = info; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, name, n) && at[n] == ':') {
            snprintf(to, cap, "%.*s", (int)strcspn(at + n + 1, "\r\n"), at + n + 1);
            return;
        }
    }
}

void hf__rd_read_facts(const char *info, struct hf__rd_facts *f)
{
    char flag[8];
    memset(f, 0, sizeof *f);
    fact(info, "valkey_version", f->version, sizeof f->version);
    f->product = f->version[0] ? "Valkey" : "Redis";
    if (!f->version[0]) fact(info, "redis_version", f->version, sizeof f->version);
    fact(info, "maxmemory_policy", f->policy, sizeof f->policy);
    fact(info, "role", f->role, sizeof f->role);
    fact(info, "aof_enabled", f->aof, sizeof f->aof);
    fact(info, "rdb_last_bgsave_status", f->save_ok, sizeof f->save_ok);
    fact(info, "cluster_enabled", flag, sizeof flag);
    f->cluster = flag[0] == '1';
}

/* Returns 1 if the prefix puts all keys into one slot of a cluster. */
static int one_slot(const char *prefix)
{
    const char *open = strchr(prefix, '{'), *close = open ? strchr(open, '}') : NULL;
    return close && close > open + 1;
}

int hf__rd_fit(const struct hf__rd_how *how, const struct hf__rd_facts *f, char why[HF_KIT_WHY])
{
    why[0] = 0;
    if (f->version[0] && strtol(f->version, NULL, 10) < 5)
        snprintf(why, HF_KIT_WHY, "version %s is older than Redis 5", f->version);
    else if (!strcmp(f->role, "slave"))
        snprintf(why, HF_KIT_WHY, "it is a replica: it shows the past, and takes no writes");
    else if (!strncmp(f->policy, "allkeys-", 8))
        snprintf(why, HF_KIT_WHY,
                 "maxmemory-policy is %s: when memory is short it drops locks that are held "
                 "(noeviction doesn't)",
                 f->policy);
    else if (f->cluster && !one_slot(how->prefix))
        snprintf(why, HF_KIT_WHY,
                 "it is a node of a cluster, which has only some of the keys: put them all into "
                 "one slot, ?prefix={holdfast}:, and name its node");
    return why[0] ? HF_UNSUPPORTED : 0;
}

static void say_facts(const hf_store *st, const struct hf__rd_facts *f,
                      void (*say)(void *arg, int ok, const char *text), void *to)
{
    char text[300], why[HF_KIT_WHY];
    int unfit = hf__rd_fit(&st->how, f, why);
    if (unfit) say(to, 0, why);
    snprintf(text, sizeof text, "%s %s%s", f->product,
             f->version[0] ? f->version : "of a version that it doesn't tell",
             unfit ? "" : ", which may be written");
    say(to, 1, text);
    snprintf(text, sizeof text,
             !strncmp(f->policy, "volatile-", 9)
                 ? "maxmemory-policy %s: rows have no time to live and are never dropped"
                 : "maxmemory-policy %s: no row is ever dropped",
             f->policy[0] ? f->policy : "unknown");
    say(to, 1, text);
    say(to, 1,
        f->aof[0] == '1' ? "appendonly: a power cut loses about a second (appendfsync always: "
                           "nothing; no: more): two may hold a key then, though tokens go on "
                           "growing"
                         : "no appendonly: a crash of the server loses what came after its last "
                           "snapshot: two may hold a key then, though tokens go on growing");
    if (!strcmp(f->save_ok, "err")) say(to, 0, "the server could not write its last snapshot");
    if (f->cluster) say(to, 1, "a cluster, of which one slot is used");
    if (st->how.wait) {
        snprintf(text, sizeof text, "wait: every write is answered when %u replicas have it",
                 st->how.wait);
        say(to, 1, text);
    }
}

int hf__rd_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *to,
                   hf_error *err)
{
    struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
    struct hf__rd_facts facts;
    char why[HF_KIT_WHY], text[200];
    redisReply *r = NULL;
    int rc;
    struct hf__rd_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc) {
        hf__rd_say(&batch, "INFO", NULL);
        rc = hf__rd_talk(&st->how, link, &batch, &r);
        if (rc) rc = hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": inspect: %s", link->why);
    }
    hf__links_put(&st->links, link);
    if (rc) return rc;
    snprintf(text, sizeof text, "the locks are in the database %s, in keys that begin with '%s'",
             st->how.db, st->how.prefix);
    say(to, 1, text);
    if (r->type == REDIS_REPLY_STRING) {
        hf__rd_read_facts(r->str, &facts);
        say_facts(st, &facts, say, to);
    } else if (hf__rd_is_error(r, "NOPERM") || hf__rd_is_error(r, "ERR")) {
        say(to, 1, "this user may not ask the server (INFO): whether it evicts isn't known");
    } else {
        int told = r->type == REDIS_REPLY_ERROR;
        rc = told ? hf__rd_code(r->str) : HF_UNAVAILABLE;
        hf__rd_words(told ? r->str : "the answer doesn't fit the request", why);
        hf_fail(err, rc, 0, HF_RD ": inspect: %s", why);
    }
    freeReplyObject(r);
    return rc;
}
