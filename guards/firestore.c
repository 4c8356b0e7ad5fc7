/*
 * firestore.c - guards for Cloud Firestore: security rules. See guard.h, doc/guards.md.
 */
#include "guard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"

/* A collection: an odd number of parts that rules can spell. */
static int is_collection(const char *path)
{
    int parts = 0;
    if (strlen(path) > 400) return 0;
    for (const char *p = path;; p++) {
        size_t len = strspn(p, LETTERS DIGITS "_-.~");
        if (!len || (p[len] && p[len] != '/')) return 0;
        if (strspn(p, ".") == len || !strncmp(p, "__", 2)) return 0;
        parts++;
        p += len;
        if (!*p) return parts % 2;
    }
}

/* auth.uid, auth.token.NAME: names between dots. */
static int is_claim(const char *text)
{
    int parts = 0;
    if (strlen(text) > 200 || strncmp(text, "auth.", 5)) return 0;
    for (const char *p = text;; p++) {
        size_t len = strspn(p, LETTERS DIGITS "_");
        if (!len || strspn(p, DIGITS) || (p[len] && p[len] != '.')) return 0;
        parts++;
        p += len;
        if (!*p) return parts > 1;
    }
}

const char *guard_firestore(const struct guard_options *o)
{
    char lease[32], field[GUARD_TEXT_CAP], prefix[GUARD_TEXT_CAP];
    const char *owner = o->owner ? o->owner : "auth.uid";
    if (!o->lock) return "no --lock: the collection of the locks";
    if (!o->data) return "no --data: the collection of the documents that they guard";
    if (!is_collection(o->lock))
        return "--lock: not a collection, of letters, digits and _-.~, with an odd number of parts";
    if (!is_collection(o->data))
        return "--data: not a collection, of letters, digits and _-.~, with an odd number of parts";
    if (!strcmp(o->lock, o->data)) return "--lock and --data are the same collection";
    if (!is_claim(owner)) return "--owner: not auth.uid, or auth.token.NAME";
    if (o->token_field && (!*o->token_field || !guard_text(o->token_field, 1, field)))
        return "--token-field: not the name of a field";
    snprintf(lease, sizeof lease, "%" PRId64, o->max_lease_ms * 1000);
    /* Rules have no E'...': what is quoted there is with backslashes. */
    if (o->token_field && strpbrk(o->token_field, "'\\"))
        return "--token-field: no quotes and backslashes in it, please";
    if (o->key_prefix && (!guard_text(o->key_prefix, 0, prefix) || strpbrk(o->key_prefix, "'\\")))
        return "--key-prefix: not a text of up to 512 bytes without quotes and backslashes";
    const struct word words[] = {
        {"LOCK", o->lock},
        {"DATA", o->data},
        {"OWNER", owner},
        {"MAX_LEASE_US", lease},
        {"KEY_PREFIX", o->key_prefix ? prefix : NULL},
        {"NO_KEY_PREFIX", o->key_prefix ? NULL : ""},
        {"TOKEN_FIELD", o->token_field ? field : NULL},
        {"NO_TOKEN_FIELD", o->token_field ? NULL : ""},
        {NULL, NULL},
    };
    guard_fill(guard_firestore_rules, words);
    return NULL;
}
