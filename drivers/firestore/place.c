/*
 * place.c - see place.h.
 *
 * Firestore refuses these IDs: ".", "..", IDs that begin and end with "__", empty ones, IDs with a
 * slash or of more than 1,500 bytes. It also refuses documents more than 100 collections deep.
 *
 * If a key is a path of an even number of legal IDs, its document has exactly that path below the
 * root. Any other key's document is in the collection; its ID is the key, with the characters that
 * Firestore refuses percent-encoded. If a path leads to a document of that collection, its document
 * is named like that of any other key, so that no two keys have one document.
 */
#include "place.h"

#include "kit/text.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 100, ID_MOST = 1500 };

/* ---- IDs ---- */

/* Returns 1 if Firestore refuses this ID although its characters are allowed. */
static int reserved(const char *id, size_t len)
{
    if (len == 1 || len == 2) return !memcmp(id, "..", len);
    return len >= 4 && !memcmp(id, "__", 2) && !memcmp(id + len - 2, "__", 2);
}

static int legal_id(const char *id, size_t len)
{
    return len && len <= ID_MOST && !reserved(id, len) && !memchr(id, '/', len);
}

/* Returns how many IDs the path has; 0: one of them isn't legal. */
static int count_parts(const char *path)
{
    int n = 0;
    for (const char *p = path;; p++) {
        size_t len = strcspn(p, "/");
        if (!legal_id(p, len)) return 0;
        n++;
        p += len;
        if (!*p) return n;
    }
}

/* Writes the key with slashes and percent signs percent-encoded. Returns 0 if the result is longer
   than an ID may be. */
static int escape_url(const char *key, size_t len, char ret[HF_FS_ID_CAP])
{
    char *at = ret;
    for (size_t i = 0; i < len; i++) {
        if (at - ret + 3 > ID_MOST) return 0;
        if (key[i] == '/' || key[i] == '%' || (!i && reserved(key, len)))
            at = hf__put_marked(at, '%', key[i]);
        else
            *at++ = key[i];
    }
    *at = 0;
    return 1;
}

void hf__fs_escape(const char *key, char ret[HF_FS_ID_CAP])
{
    size_t len = strlen(key), n = 2;
    if (escape_url(key, len, ret)) return;
    /* A key with very many slashes and percent signs: here a slash becomes two bytes instead of
       three, and a percent sign stays one. No ID of escape_url begins with "%~". */
    memcpy(ret, "%~", 2);
    for (size_t i = 0; i < len; i++) {
        if (key[i] == '/' || key[i] == '~') ret[n++] = '~';
        ret[n++] = (char)(key[i] == '/' ? '-' : key[i]);
    }
    ret[n] = 0;
}

/* ---- places ---- */

/* Copies a path without slashes at its ends. Returns 0 if it is too long. */
static int trimmed(const char *path, char *to, size_t cap)
{
    path += strspn(path, "/");
    size_t len = strlen(path);
    while (len && path[len - 1] == '/') len--;
    if (len >= cap) return 0;
    memcpy(to, path, len);
    to[len] = 0;
    return 1;
}

static const char *set_root(struct hf__fs_place *place, const char *root)
{
    place->has_root = 1;
    if (!trimmed(root, place->root, sizeof place->root)) return "root: too long";
    place->root_parts = *place->root ? count_parts(place->root) : 0;
    if (*place->root && !place->root_parts) return "root: not a path of Firestore";
    if (place->root_parts % 2)
        return "root: must be the path of a document, an even number of parts (or / for the "
               "database)";
    return place->root_parts / 2 < DEPTH ? NULL : "root: too deep";
}

const char *hf__fs_place(struct hf__fs_place *place, const char *root, const char *collection)
{
    char path[sizeof place->root];
    const char *why = root ? set_root(place, root) : NULL;
    if (why) return why;
    if (!trimmed(collection ? collection : "holdfast", path, sizeof path))
        return "collection: too long";
    int parts = count_parts(path);
    if (!parts) return "collection: not a path of Firestore";
    if (parts % 2 == 0) return "collection: must be a collection, an odd number of parts";
    if (root && parts > 1) return "collection: with root= one name, of a collection below it";
    const char *slash = strrchr(path, '/'), *id = slash ? slash + 1 : path;
    if (strlen(id) >= sizeof place->collection_id) return "collection: too long";
    snprintf(place->collection_id, sizeof place->collection_id, "%s", id);
    int n = root ? snprintf(place->parent, sizeof place->parent, "%s", place->root)
                 : snprintf(place->parent, sizeof place->parent, "%.*s",
                            slash ? (int)(slash - path) : 0, path);
    n += snprintf(place->collection, sizeof place->collection, "%s%s%s", place->parent,
                  *place->parent ? "/" : "", id);
    return n < (int)sizeof place->collection ? NULL : "collection: too long";
}

int hf__fs_is_path(const struct hf__fs_place *place, const char *key)
{
    int parts = place->has_root ? count_parts(key) : 0;
    size_t own = strlen(place->collection_id);
    if (!parts || parts % 2 || (place->root_parts + parts) / 2 > DEPTH) return 0;
    return parts > 2 || strcspn(key, "/") != own || memcmp(key, place->collection_id, own) != 0;
}

void hf__fs_name(const struct hf__fs_place *place, const char *key, char ret[HF_FS_NAME_CAP])
{
    char id[HF_FS_ID_CAP];
    if (hf__fs_is_path(place, key)) {
        snprintf(ret, HF_FS_NAME_CAP, "%s/%s%s%s", place->documents, place->root,
                 *place->root ? "/" : "", key);
        return;
    }
    hf__fs_escape(key, id);
    snprintf(ret, HF_FS_NAME_CAP, "%s/%s/%s", place->documents, place->collection, id);
}

void hf__fs_above(const struct hf__fs_place *place, const char *prefix, char ret[HF_FS_NAME_CAP])
{
    size_t whole = 0; /* the part of the prefix that consists of complete pairs of IDs */
    int parts = 0;
    for (const char *p = prefix; (p = strchr(p, '/')); p++)
        if (++parts % 2 == 0) whole = (size_t)(p - prefix);
    char part[HF_KEY_CAP];
    snprintf(part, sizeof part, "%.*s", (int)whole, prefix);
    if (whole && (!count_parts(part) || whole >= sizeof part)) part[0] = 0;
    snprintf(ret, HF_FS_NAME_CAP, "%s%s%s%s%s", place->documents, *place->root ? "/" : "",
             place->root, *part ? "/" : "", part);
}
