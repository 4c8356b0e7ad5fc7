/*
 * cases_table.c - see cases_table.h.
 */
#include "cases_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void fail(struct state *s, const char *format, ...)
{
    va_list args;
    if (s->failure[0]) return;
    va_start(args, format);
    vsnprintf(s->failure, sizeof s->failure, format, args);
    va_end(args);
}

int64_t local_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- reading the table ---- */

const char *word(const json_t *step, const char *name)
{
    return json_string_value(json_object_get(step, name));
}

/* "short" is a lease that the store keeps, "longer" a second more than that; else NULL. */
static const char *lease_word(const char *piece)
{
    static char text[40];
    const char *ms = getenv("HOLDFAST_TEST_LEASE_MS");
    int longer = !strcmp(piece, "longer");
    if (!longer && strcmp(piece, "short") != 0) return NULL;
    snprintf(text, sizeof text, "%ldms", (ms ? strtol(ms, NULL, 10) : 3000) + (longer ? 1000 : 0));
    return text;
}

/* A string, or ["x", 3] for "xxx". Lives until the end of the step. */
const char *text_of(struct state *s, const json_t *from)
{
    const char *piece = json_string_value(json_is_array(from) ? json_array_get(from, 0) : from);
    size_t times = json_is_array(from) ? (size_t)json_integer_value(json_array_get(from, 1)) : 1;
    if (piece && lease_word(piece)) piece = lease_word(piece);
    char *to = piece && s->n_texts < TEXTS ? malloc(strlen(piece) * times + 1) : NULL;
    if (!to) abort();
    *to = 0;
    for (size_t i = 0, n = strlen(piece); i < times; i++) memcpy(to + i * n, piece, n + 1);
    return s->text[s->n_texts++] = to;
}

const char *with_prefix(struct state *s, const char *name)
{
    size_t cap = strlen(s->prefix) + strlen(name) + 1;
    char *to = s->n_texts < TEXTS ? malloc(cap) : NULL;
    if (!to) abort();
    snprintf(to, cap, "%s%s", s->prefix, name);
    return s->text[s->n_texts++] = to;
}

const char *key_of(struct state *s, const json_t *step)
{
    const json_t *raw = json_object_get(step, "raw_key");
    if (raw) return text_of(s, raw);
    if (!word(step, "key")) abort();
    return with_prefix(s, word(step, "key"));
}

enum { NO_UNIT = -2 };

/* Reads a time as the packages do: digits with at most one point, and a unit, which only 0 may
   lack. Returns -1 if the text is none. */
static int64_t time_of(const char *text)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"", 1e3}, {"s", 1e3}, {"ms", 1}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
    size_t n = strspn(text, "0123456789.");
    if (!n || (text[0] == '.' && n == 1)) return -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(text + n, units[i].name))
            return i || atof(text) == 0 ? (int64_t)(atof(text) * units[i].ms + 0.5) : NO_UNIT;
    return -1;
}

/* Sets *ret if there is one; INVALID if it is none. */
int take_time(struct state *s, const json_t *options, const char *name, int64_t *ret, hf_error *err)
{
    const json_t *value = json_object_get(options, name);
    if (!value) return 0;
    const char *text = text_of(s, value);
    int64_t ms = time_of(text);
    if (ms < 0) {
        snprintf(err->text, sizeof err->text,
                 ms == NO_UNIT ? "%s: '%.40s' has no unit: write '%.40ss' or '%.40sms'"
                               : "%s: not a time",
                 name, text, text, text);
        return err->code = HF_INVALID;
    }
    *ret = ms;
    return 0;
}

static int refuse(hf_error *err, const char *why)
{
    snprintf(err->text, sizeof err->text, "%s", why);
    return err->code = HF_INVALID;
}

int read_options(struct state *s, const json_t *step, struct asked *to, hf_error *err)
{
    static const struct {
        const char *name;
        unsigned flag;
    } flags[] = {{"detached", HF_DETACHED},
                 {"unqueued", HF_UNQUEUED},
                 {"recursive", HF_ALLOW_RECURSIVE},
                 {"at_most_once", HF_AT_MOST_ONCE},
                 {"no_renew", HF_NO_RENEW}};
    const json_t *options = json_object_get(step, "options"), *value;
    hf_options *o = &to->o;
    *o = (hf_options)HF_OPTIONS_INIT;
    to->keep_ms = INT64_C(7) * 86400000;
    int rc = take_time(s, options, "wait", &o->wait_ms, err);
    if (!rc) rc = take_time(s, options, "lease", &o->lease_ms, err);
    if (!rc) rc = take_time(s, options, "max_hold", &o->max_hold_ms, err);
    if (!rc) rc = take_time(s, options, "at_least", &o->at_least_ms, err);
    if (!rc) rc = take_time(s, options, "keep", &to->keep_ms, err);
    if (rc) return rc;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_true(json_object_get(options, flags[i].name))) o->flags |= flags[i].flag;
    if ((value = json_object_get(options, "owner"))) o->owner = text_of(s, value);
    if ((value = json_object_get(options, "note"))) o->note = text_of(s, value);
    if (json_is_true(json_object_get(options, "shared"))) o->mode = HF_SHARED;
    if ((value = json_object_get(options, "limit"))) {
        if (o->mode == HF_SHARED) return refuse(err, "limit: not with shared");
        o->mode = HF_LIMITED;
        o->limit = (uint32_t)json_integer_value(value);
    }
    if ((value = json_object_get(options, "request_id"))) {
        const char *hex = json_string_value(value);
        for (size_t i = 0; i < sizeof to->request; i++)
            sscanf(hex + 2 * i, "%2hhx", &to->request[i]);
        o->request_id = to->request;
    }
    return 0;
}

/* ---- what has names ---- */

hf *store_of(struct state *s, const char *name)
{
    hf_error err = {0, 0, ""};
    size_t i = 0;
    while (i < NAMES && s->store[i].name && strcmp(s->store[i].name, name)) i++;
    if (!name || i == NAMES) abort();
    s->store[i].name = name;
    if (!s->store[i].h && hf_open(store_url, NULL, &s->store[i].h, &err))
        fail(s, "open %s: %s", name, err.text);
    return s->store[i].h;
}

struct grant *find(struct state *s, const char *name)
{
    for (size_t i = 0; name && i < NAMES; i++)
        if (s->grant[i].name && !strcmp(s->grant[i].name, name)) return &s->grant[i];
    fail(s, "nothing is called '%s'", name ? name : "");
    return NULL;
}

struct grant *name_grant(struct state *s, const json_t *step)
{
    const char *name = word(step, "as");
    size_t i = 0;
    while (i < NAMES && s->grant[i].name) i++;
    if (i == NAMES) abort();
    s->grant[i].name = name ? name : "-";
    return &s->grant[i];
}

/* ---- what came of it ---- */

void check_code(struct state *s, const json_t *step, int code, const hf_error *err)
{
    const char *expected = word(step, "expect"), *says = word(step, "says");
    if (!expected) expected = "OK";
    if (strcmp(hf_code_name(code), expected))
        fail(s, "%s instead of %s: %s", hf_code_name(code), expected, code ? err->text : "");
    if (code && (strchr(err->text, '\n') || !*err->text)) fail(s, "not one line: %s", err->text);
    if (says && !strstr(err->text, says)) fail(s, "'%s' doesn't say '%s'", err->text, says);
}

static void check_token(struct state *s, const json_t *step, const struct grant *g)
{
    const json_t *token = json_object_get(step, "token");
    const char *above = word(token, "above"), *same = word(token, "same");
    const struct grant *other = token ? find(s, above ? above : same) : NULL;
    if (other && (above ? g->token <= other->token : g->token != other->token))
        fail(s, "token %llu after %llu", (unsigned long long)g->token,
             (unsigned long long)other->token);
    if (g->lock && !g->token) fail(s, "token 0");
}

/* A lock, or why not, of a step that asked for one. */
void note_lock(struct state *s, const json_t *step, struct grant *g, int code, const hf_error *err)
{
    check_code(s, step, code, err);
    if (code || !g->lock) return;
    g->token = hf_token(g->lock);
    if (g->token >= UINT64_C(1) << 53) fail(s, "token %llu", (unsigned long long)g->token);
    if (word(step, "key") && strcmp(hf_key(g->lock), key_of(s, step)))
        fail(s, "the key is '%s'", hf_key(g->lock));
    check_token(s, step, g);
}

uint64_t token_named(struct state *s, const json_t *name)
{
    if (json_is_integer(name)) return (uint64_t)json_integer_value(name);
    const struct grant *g = find(s, json_string_value(name));
    return g ? g->token : 0;
}

void same_text(struct state *s, const json_t *shows, const char *name, const char *is)
{
    const char *should = word(shows, name);
    if (should && strcmp(should, is)) fail(s, "%s: '%s' instead of '%s'", name, is, should);
}

void same_number(struct state *s, const json_t *shows, const char *name, int64_t is)
{
    const json_t *should = json_object_get(shows, name);
    int64_t n = json_is_boolean(should) ? json_is_true(should) : json_integer_value(should);
    if (should && n != is) fail(s, "%s: %lld instead of %lld", name, (long long)is, (long long)n);
}

static void same_token(struct state *s, const json_t *shows, uint64_t is)
{
    const json_t *token = json_object_get(shows, "token");
    uint64_t should = json_is_string(token) ? token_named(s, token) : 0;
    if (token && is != should)
        fail(s, "token: %llu instead of %llu", (unsigned long long)is, (unsigned long long)should);
}

static void check_info(struct state *s, const json_t *shows, const hf_info *info)
{
    static const char *const modes[] = {"exclusive", "shared", "limited"};
    json_t *party;
    size_t i;
    same_number(s, shows, "used", info->rev > 0);
    same_number(s, shows, "holders", (int64_t)info->n_holders);
    same_number(s, shows, "waiters", (int64_t)info->n_waiters);
    same_number(s, shows, "done", info->done_us > 0);
    same_text(s, shows, "result", info->result);
    if (word(shows, "key")) same_text(s, shows, "key", info->key + strlen(s->prefix));
    same_token(s, shows, info->token);
    json_array_foreach(json_object_get(shows, "parties"), i, party)
    {
        if (i >= info->n_holders + info->n_waiters) {
            fail(s, "only %zu parties", i);
            return;
        }
        const hf_party_info *p = &info->parties[i];
        same_text(s, party, "owner", p->owner);
        same_text(s, party, "note", p->note);
        same_text(s, party, "mode", modes[p->mode]);
        same_number(s, party, "limit", p->limit);
        same_number(s, party, "claimed", p->claimed);
        same_token(s, party, p->token);
    }
}

int see_one(void *arg, const hf_info *info)
{
    struct shown *shown = arg;
    if (!info) return 0;
    check_info(shown->s, shown->shows, info);
    shown->n++;
    return 1;
}
