/*
 * values.c - between JavaScript's values and the library's: texts, options, errors, what is shown.
 */
#include "addon.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

napi_value number(napi_env env, double value)
{
    napi_value ret = NULL;
    napi_create_double(env, value, &ret);
    return ret;
}

napi_value text(napi_env env, const char *value)
{
    napi_value ret = NULL;
    napi_create_string_utf8(env, value, NAPI_AUTO_LENGTH, &ret);
    return ret;
}

static void put(napi_env env, napi_value object, const char *name, napi_value value)
{
    napi_set_named_property(env, object, name, value);
}

/* ---- errors ---- */

/* Returns a plain object, of which the calling copy of the module makes an error. This addon may
   serve several copies (a test runner has one for each test file), and each has its own error
   classes. */
napi_value failure(struct addon *a, const hf_error *err, int code, const char *key)
{
    napi_value ret = NULL;
    napi_create_object(a->env, &ret);
    put(a->env, ret, "failed", text(a->env, hf_code_name(code)));
    put(a->env, ret, "text", text(a->env, err->text));
    put(a->env, ret, "sys", number(a->env, err->sys));
    if (key) put(a->env, ret, "key", text(a->env, key));
    return ret;
}

void fail_with(struct addon *a, const hf_error *err, const char *key)
{
    napi_throw(a->env, failure(a, err, err->code, key));
}

void fail(struct addon *a, int code, const char *key, const char *format, ...)
{
    hf_error err = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(err.text, sizeof err.text, format, args);
    va_end(args);
    fail_with(a, &err, key);
}

void settle(struct addon *a, napi_deferred deferred, int code, const hf_error *err, const char *key,
            napi_value value)
{
    if (!deferred) return;
    if (code)
        napi_reject_deferred(a->env, deferred, failure(a, err, code, key));
    else {
        if (!value) napi_get_undefined(a->env, &value);
        napi_resolve_deferred(a->env, deferred, value);
    }
}

/* ---- texts ---- */

/* A surrogate without its other half becomes U+FFFD in UTF-8, so two such keys would be one. */
static bool well_formed(napi_env env, napi_value value)
{
    char16_t units[HF_KEY_CAP + 3];
    size_t n = 0;
    napi_get_value_string_utf16(env, value, units, sizeof units / sizeof *units, &n);
    for (size_t i = 0; i < n; i++) {
        if ((units[i] & 0xf800) != 0xd800) continue;
        if (units[i] & 0x400 || i + 1 >= n || (units[i + 1] & 0xfc00) != 0xdc00) return false;
        i++;
    }
    return true;
}

/* Fills up a text that was cut at `cap`. The cut is between two characters, so up to three bytes
   may be missing, and the library wouldn't see that the text was too long. */
static void fill_cut(napi_env env, napi_value value, char *to, size_t cap, size_t n)
{
    size_t all = n;
    if (n + 4 >= cap) napi_get_value_string_utf8(env, value, NULL, 0, &all);
    if (all == n) return;
    memset(to + n, '?', cap - 1 - n);
    to[cap - 1] = 0;
}

int take_text(napi_env env, napi_value value, char *to, size_t cap, const char *key,
              const char *what)
{
    struct addon *a;
    size_t n;
    const char *why;
    napi_get_instance_data(env, (void **)&a);
    if (napi_get_value_string_utf8(env, value, to, cap, &n))
        why = "must be a string";
    else if (memchr(to, 0, n))
        why = "contains a NUL";
    else if (strstr(to, "\xef\xbf\xbd") && !well_formed(env, value))
        why = "half of a surrogate pair";
    else
        why = NULL;
    if (!why) {
        fill_cut(env, value, to, cap, n);
        return 0;
    }
    if (key)
        fail(a, HF_INVALID, key, "acquire '%.100s': %s: %s", key, what, why);
    else
        fail(a, HF_INVALID, NULL, "%s: %s", what, why);
    return HF_INVALID;
}

int take_key(struct addon *a, napi_value value, char to[HF_KEY_CAP + 3])
{
    return take_text(a->env, value, to, HF_KEY_CAP + 3, NULL, "key");
}

int take_number(napi_env env, napi_value value, double *ret)
{
    return napi_get_value_double(env, value, ret) ? HF_INVALID : 0;
}

/* ---- options ---- */

/* JavaScript passes a wait alone, or an array in this order; see lib/options.js. */
enum {
    AT_WAIT,
    AT_LEASE,
    AT_MAX_HOLD,
    AT_AT_LEAST,
    AT_MODE,
    AT_LIMIT,
    AT_FLAGS,
    AT_OWNER,
    AT_NOTE,
    AT_REQUEST_ID
};

static double element(napi_env env, napi_value array, uint32_t at)
{
    napi_value value;
    double ret = 0;
    if (napi_get_element(env, array, at, &value) || take_number(env, value, &ret)) return -1;
    return ret;
}

/* Returns a number as an integer. A number that no integer holds is beyond every limit of the
   library, too. */
static int64_t whole(double ms)
{
    return ms == HUGE_VAL ? HF_FOREVER : ms < 0x1p53 ? (int64_t)ms : INT64_MAX;
}

/* Reads a text of an array. Returns 1; 0: it is undefined; negative: an exception is pending. */
static int element_text(napi_env env, napi_value array, uint32_t at, char *to, size_t cap,
                        const char *key, const char *what)
{
    napi_value value;
    napi_valuetype type;
    if (napi_get_element(env, array, at, &value) || napi_typeof(env, value, &type)) return -1;
    if (type == napi_undefined) return 0;
    return take_text(env, value, to, cap, key, what) ? -1 : 1;
}

static int take_request_id(struct addon *a, napi_value array, struct wanted *to)
{
    napi_value value;
    napi_typedarray_type type;
    size_t n;
    void *bytes;
    bool is = false;
    if (napi_get_element(a->env, array, AT_REQUEST_ID, &value) ||
        napi_is_typedarray(a->env, value, &is) || !is)
        return 0;
    if (napi_get_typedarray_info(a->env, value, &type, &n, &bytes, NULL, NULL) ||
        type != napi_uint8_array || n != sizeof to->id) {
        fail(a, HF_INVALID, NULL, "requestId: must have 16 bytes");
        return HF_INVALID;
    }
    memcpy(to->id, bytes, sizeof to->id);
    to->o.request_id = to->id;
    return 0;
}

int take_wanted(struct addon *a, napi_value options, const char *key, struct wanted *to)
{
    napi_env env = a->env;
    double wait;
    to->o = (hf_options)HF_OPTIONS_INIT;
    to->plain = !take_number(env, options, &wait);
    if (to->plain) {
        to->o.wait_ms = whole(wait);
        return 0;
    }
    to->o.wait_ms = whole(element(env, options, AT_WAIT));
    to->o.lease_ms = whole(element(env, options, AT_LEASE));
    to->o.max_hold_ms = whole(element(env, options, AT_MAX_HOLD));
    to->o.at_least_ms = whole(element(env, options, AT_AT_LEAST));
    to->o.mode = (enum hf_mode)element(env, options, AT_MODE);
    to->o.limit = (uint32_t)element(env, options, AT_LIMIT);
    to->o.flags = (unsigned)element(env, options, AT_FLAGS);
    int note = -1;
    int owner = element_text(env, options, AT_OWNER, to->owner, sizeof to->owner, key, "owner");
    if (owner >= 0)
        note = element_text(env, options, AT_NOTE, to->note, sizeof to->note, key, "note");
    if (note < 0) return HF_INVALID;
    if (owner) to->o.owner = to->owner;
    if (note) to->o.note = to->note;
    return take_request_id(a, options, to);
}

/* ---- what is shown ---- */

static napi_value party_value(napi_env env, const hf_party_info *p)
{
    static const char *const modes[] = {"exclusive", "shared", "limited"};
    napi_value ret, claimed;
    napi_create_object(env, &ret);
    napi_get_boolean(env, p->claimed != 0, &claimed);
    put(env, ret, "owner", text(env, p->owner));
    put(env, ret, "note", text(env, p->note));
    put(env, ret, "token", number(env, (double)p->token));
    put(env, ret, "since", number(env, (double)p->since_us / 1000));
    put(env, ret, "leftMs", number(env, p->left_ms == HF_FOREVER ? HUGE_VAL : (double)p->left_ms));
    put(env, ret, "mode", text(env, modes[p->mode <= HF_LIMITED ? p->mode : 0]));
    put(env, ret, "limit", number(env, p->limit));
    put(env, ret, "claimed", claimed);
    return ret;
}

static napi_value parties_value(napi_env env, const hf_party_info *first, size_t n)
{
    napi_value ret;
    napi_create_array_with_length(env, n, &ret);
    for (size_t i = 0; i < n; i++) {
        napi_handle_scope scope; /* a row may have thousands of parties */
        napi_open_handle_scope(env, &scope);
        napi_set_element(env, ret, (uint32_t)i, party_value(env, &first[i]));
        napi_close_handle_scope(env, scope);
    }
    return ret;
}

static napi_value time_or_null(napi_env env, bool there, int64_t us)
{
    napi_value ret;
    napi_get_null(env, &ret);
    return there ? number(env, us == HF_FOREVER ? HUGE_VAL : (double)us / 1000) : ret;
}

napi_value info_value(struct addon *a, const hf_info *info)
{
    napi_env env = a->env;
    napi_value ret, null;
    bool done = info->done_us != 0;
    napi_create_object(env, &ret);
    napi_get_null(env, &null);
    put(env, ret, "key", text(env, info->key));
    put(env, ret, "rev", number(env, (double)info->rev));
    put(env, ret, "token", number(env, (double)info->token));
    put(env, ret, "now", number(env, (double)info->now_us / 1000));
    put(env, ret, "held", number(env, (double)info->n_holders));
    put(env, ret, "waiting", number(env, (double)info->n_waiters));
    put(env, ret, "holders", parties_value(env, info->parties, info->n_holders));
    put(env, ret, "waiters", parties_value(env, info->parties + info->n_holders, info->n_waiters));
    put(env, ret, "done", time_or_null(env, done, info->done_us));
    put(env, ret, "keepUntil", time_or_null(env, done, info->keep_until_us));
    put(env, ret, "doneBy", done ? text(env, info->done_by) : null);
    put(env, ret, "result", done ? text(env, info->result) : null);
    return ret;
}

napi_value once_value(struct addon *a, const hf_once *once)
{
    napi_value ret;
    napi_create_object(a->env, &ret);
    put(a->env, ret, "at", number(a->env, (double)once->done_us / 1000));
    put(a->env, ret, "owner", text(a->env, once->owner));
    put(a->env, ret, "result", text(a->env, once->result));
    return ret;
}

struct info *info_copy(const hf_info *info)
{
    size_t n = info->n_holders + info->n_waiters;
    struct info *ret = malloc(sizeof *ret + n * sizeof *ret->parties);
    if (!ret) return NULL;
    ret->it = *info;
    if (n) memcpy(ret->parties, info->parties, n * sizeof *ret->parties);
    ret->it.parties = ret->parties;
    return ret;
}
