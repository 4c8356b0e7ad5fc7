/*
 * url_options.c - see url_options.h.
 */
#include "url_options.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

enum { NAME_CAP = 64 };

int hf__option_refused(const char *store, const hf_url *url, const char *name, const char *what,
                       hf_error *err)
{
    return hf_fail(err, HF_INVALID, 0, "%s: open '%s': %s: %s", store, url->safe, name, what);
}

/* ---- an option that there isn't ---- */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Returns how many letters have to be put in, left out or changed to make one word the other. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_CAP], n = strlen(b);
    if (n >= NAME_CAP) return NAME_CAP;
    for (size_t k = 0; k <= n; k++) row[k] = k;
    for (size_t i = 0; a[i]; i++) {
        size_t before = row[0];
        row[0] = i + 1;
        for (size_t k = 0; k < n; k++) {
            size_t changed = before + (a[i] != b[k]);
            before = row[k + 1];
            row[k + 1] = least(changed, least(before, row[k]) + 1);
        }
    }
    return row[n];
}

static int unknown(const char *store, const hf_url *url, const char *name,
                   const struct hf__option *option, size_t n, hf_error *err)
{
    const char *meant = NULL;
    size_t best =
        least(3, strlen(name) / 2 + 1); /* two letters may be wrong, of a short name one */
    for (size_t i = 0; i < n; i++) {
        size_t far = distance(name, option[i].name);
        if (far < best) meant = option[i].name;
        best = least(best, far);
    }
    return hf_fail(err, HF_INVALID, 0, "%s: open '%s': unknown option '%s'%s%s%s", store, url->safe,
                   name, meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
}

static int all_known(const char *store, const hf_url *url, const struct hf__option *option,
                     size_t n, hf_error *err)
{
    char name[NAME_CAP];
    for (const char *at = url->query; hf__next_option(&at, name, sizeof name);) {
        size_t i = 0;
        while (i < n && strcmp(option[i].name, name)) i++;
        if (i == n) return unknown(store, url, name, option, n, err);
    }
    return 0;
}

/* ---- the values ---- */

static int read_one(const char *store, const hf_url *url, const struct hf__option *o, hf_error *err)
{
    char text[8];
    char *to = o->is_on ? text : o->to;
    int rc = hf_url_get(url, o->name, to, o->is_on ? sizeof text : o->cap);
    if (rc == HF_UNSUPPORTED) return 0; /* it isn't given */
    if (o->is_on && (rc || (strcmp(text, "on") && strcmp(text, "off"))))
        return hf__option_refused(store, url, o->name, "not 'on' or 'off'", err);
    if (rc || !*to)
        return hf__option_refused(store, url, o->name, "empty, too long, or given twice", err);
    if (o->is_on) *o->is_on = !strcmp(text, "on");
    return 0;
}

int hf__options(const char *store, const hf_url *url, const struct hf__option *option, size_t n,
                hf_error *err)
{
    int rc = all_known(store, url, option, n, err);
    for (size_t i = 0; !rc && i < n; i++) rc = read_one(store, url, &option[i], err);
    return rc;
}

int hf__option_passfile(const char *store, const hf_url *url, const char *path,
                        struct hf__secret *secret, hf_error *err)
{
    char why[HF_KIT_WHY];
    if (!*path) return 0;
    if (url->password[0])
        return hf__option_refused(store, url, "passfile", "there is a password already", err);
    int rc = hf__secret_open(secret, path, why);
    return rc ? hf_fail(err, rc, 0, "%s: open '%s': %s", store, url->safe, why) : 0;
}

int hf__option_tls(const char *store, const hf_url *url, const char *name,
                   const struct hf__tls_files *files, int *tls, hf_error *err)
{
    int more = files->ca[0] || files->cert[0] || files->key[0];
    if (*tls < 0) *tls = more;
    if (*tls || !more) return 0;
    return hf__option_refused(store, url, name, "off, but there are files for TLS", err);
}
