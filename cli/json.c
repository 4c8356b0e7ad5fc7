/*
 * json.c - the JSON documents that `--json` prints.
 */
#include "cli.h"
#include "shown.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>

/* Returns a text as a JSON string. If it isn't UTF-8, as text of other clients may be, returns it
   as hf__show_text changes it. */
static json_t *text(const char *from)
{
    char shown[HF_KEY_CAP];
    json_t *exact = json_string(from);
    if (exact) return exact;
    hf__show_text(from, shown, sizeof shown);
    return json_string(shown);
}

static json_t *text_or_null(const char *from) { return *from ? text(from) : json_null(); }

static json_t *time_text(int64_t us)
{
    char date[40], full[56];
    show_time(us, date, sizeof date);
    date[10] = 'T';
    snprintf(full, sizeof full, "%s.%06dZ", date, (int)(us % 1000000));
    return us > 0 ? json_string(full) : json_null();
}

const char *mode_name(enum hf_mode mode)
{
    return mode == HF_SHARED ? "shared" : mode == HF_LIMITED ? "limited" : "exclusive";
}

/* Sets the fields that holders and waiters have in common. `p` NULL: there is no such party, and
   the fields are empty. */
static void set_party(json_t *to, const hf_party_info *p)
{
    static const hf_party_info nobody;
    struct person who;
    int there = p != NULL;
    if (!there) p = &nobody;
    read_note(p->note, &who);
    json_object_set_new(to, "owner", text_or_null(p->owner));
    json_object_set_new(to, "mode", there ? json_string(mode_name(p->mode)) : json_null());
    if (p->mode == HF_LIMITED) json_object_set_new(to, "limit", json_integer(p->limit));
    json_object_set_new(to, "since", time_text(p->since_us));
    json_object_set_new(to, "left_ms",
                        there && p->token && p->left_ms != HF_FOREVER ? json_integer(p->left_ms)
                                                                      : json_null());
    json_object_set_new(to, "host", text_or_null(who.host));
    json_object_set_new(to, "pid", who.pid ? json_integer(who.pid) : json_null());
    json_object_set_new(to, "user", text_or_null(who.user));
    json_object_set_new(to, "command", text_or_null(who.command));
    if (is_carried(p)) json_object_set_new(to, "carried", json_true());
}

static json_t *party(const char *key, const hf_party_info *p, int held)
{
    json_t *to = json_object();
    json_object_set_new(to, "key", text(key));
    json_object_set_new(to, "held", json_boolean(held));
    json_object_set_new(to, "token", held ? json_integer((json_int_t)p->token) : json_null());
    set_party(to, p);
    if (held && !p->claimed) json_object_set_new(to, "claimed", json_false());
    return to;
}

/* Returns the document on one line, with its newline; frees `from`. */
static char *line_of(json_t *from)
{
    char *compact = from ? json_dumps(from, JSON_COMPACT) : NULL, *line = NULL;
    json_decref(from);
    if (compact && asprintf(&line, "%s\n", compact) < 0) line = NULL;
    free(compact);
    return line;
}

char *json_info(const hf_info *info)
{
    json_t *to = json_object(), *holders = json_array(), *waiters = json_array();
    const hf_party_info *first = info->n_holders ? &info->parties[0] : NULL;
    json_object_set_new(to, "key", text(info->key));
    json_object_set_new(to, "held", json_boolean(info->n_holders > 0));
    json_object_set_new(to, "token",
                        json_integer((json_int_t)(first ? first->token : info->token)));
    set_party(to, first);
    for (size_t i = 0; i < info->n_holders + info->n_waiters; i++)
        json_array_append_new(i < info->n_holders ? holders : waiters,
                              party(info->key, &info->parties[i], i < info->n_holders));
    json_object_set_new(to, "holders", holders);
    json_object_set_new(to, "waiters", waiters);
    if (info->done_us) {
        json_object_set_new(to, "done", time_text(info->done_us));
        json_object_set_new(to, "keep_until",
                            info->keep_until_us == HF_FOREVER ? json_null()
                                                              : time_text(info->keep_until_us));
        json_object_set_new(to, "done_by", text(info->done_by));
        json_object_set_new(to, "result", text(info->result));
    }
    return line_of(to);
}

char *json_damaged(const char *key, const char *why)
{
    json_t *to = json_object();
    json_object_set_new(to, "key", text(key));
    json_object_set_new(to, "damaged", text(why));
    return line_of(to);
}

char *json_fields(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *to = json_vpack_ex(NULL, 0, format, args);
    va_end(args);
    return line_of(to);
}
