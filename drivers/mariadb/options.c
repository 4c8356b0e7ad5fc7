/*
 * options.c - mariadb: what the URL says. See link.h.
 */
#include "kit/text.h"
#include "link.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_SOCKET "/run/mysqld/mysqld.sock"

static int bad(const hf_url *url, const char *what, hf_error *err)
{
    return hf_fail(err, HF_INVALID, 0, "mariadb: open '%s': %s", url->safe, what);
}

/* ---- where the servers are ---- */

static int read_hosts(struct hf__my_how *how, const hf_url *url, hf_error *err)
{
    char socket[HF_HOST_TEXT];
    int rc = hf_url_get(url, "socket", socket, sizeof socket);
    if (rc == HF_INVALID) return bad(url, "socket: too long, or given twice", err);
    if (!rc && (url->host[0] || url->port)) return bad(url, "socket: there is a host, too", err);
    if (!rc && socket[0] != '/') return bad(url, "socket: not a whole path", err);
    if (!rc) return hf__hosts_add(&how->at, socket, strlen(socket), "") ? 0 : HF_INVALID;
    if (!url->host[0] && !url->port)
        return hf__hosts_add(&how->at, DEFAULT_SOCKET, sizeof DEFAULT_SOCKET - 1, "") ? 0
                                                                                      : HF_INVALID;
    return hf__hosts_read(&how->at, url, 3306) ? 0 : bad(url, "not a list of up to 16 hosts", err);
}

/* ---- the user, and TLS ---- */

/* Reads an option that is a path; "" if it isn't given. */
static int read_path(const hf_url *url, const char *name, char to[HF_MY_PATH], hf_error *err)
{
    int rc = hf_url_get(url, name, to, HF_MY_PATH);
    if (rc != HF_INVALID && (rc || *to)) return 0;
    return hf_fail(err, HF_INVALID, 0, "mariadb: open '%s': %s: empty, too long, or given twice",
                   url->safe, name);
}

/* Reads an option that is `on` or `off`. If it isn't given, *ret stays as it is. */
static int read_switch(const hf_url *url, const char *name, int *ret, hf_error *err)
{
    char text[8];
    int rc = hf_url_get(url, name, text, sizeof text);
    if (rc == HF_UNSUPPORTED) return 0;
    if (rc || (strcmp(text, "on") && strcmp(text, "off")))
        return hf_fail(err, HF_INVALID, 0, "mariadb: open '%s': %s: not 'on' or 'off'", url->safe,
                       name);
    *ret = !strcmp(text, "on");
    return 0;
}

static int read_tls(struct hf__my_how *how, const hf_url *url, hf_error *err)
{
    int rc = read_path(url, "ssl_ca", how->ssl_ca, err);
    if (!rc) rc = read_path(url, "ssl_cert", how->ssl_cert, err);
    if (!rc) rc = read_path(url, "ssl_key", how->ssl_key, err);
    int more = how->ssl_ca[0] || how->ssl_cert[0] || how->ssl_key[0];
    how->tls = more;
    how->verify = 1;
    if (!rc) rc = read_switch(url, "ssl", &how->tls, err);
    if (!rc) rc = read_switch(url, "ssl_verify", &how->verify, err);
    if (!rc && more && !how->tls) rc = bad(url, "ssl: off, but there are other ssl options", err);
    return rc;
}

static int read_login(struct hf__my_how *how, const hf_url *url, hf_error *err)
{
    char path[HF_SECRET_PATH], why[HF_KIT_WHY];
    memcpy(how->password, url->password, sizeof how->password);
    int rc = hf_url_get(url, "user", how->user, sizeof how->user);
    if (rc == HF_INVALID) return bad(url, "user: too long, or given twice", err);
    if (!rc && url->user[0]) return bad(url, "user: there is one already", err);
    if (rc) memcpy(how->user, url->user, sizeof how->user);
    rc = hf_url_get(url, "passfile", path, sizeof path);
    if (rc == HF_INVALID) return bad(url, "passfile: too long, or given twice", err);
    if (!rc && how->password[0]) return bad(url, "passfile: there is a password already", err);
    if (!rc && (rc = hf__secret_open(&how->secret, path, why)))
        return hf_fail(err, rc, 0, "mariadb: open '%s': %s", url->safe, why);
    return 0;
}

/* ---- the table ---- */

/* Writes a name in backquotes; names have up to 64 characters. */
static int quote(const char *name, size_t len, char *to, size_t cap)
{
    if (!len || len > 63 || len + 3 > cap || memchr(name, '`', len)) return 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == '.') return 0;
    snprintf(to, cap, "`%.*s`", (int)len, name);
    return hf__is_utf8(name, len);
}

/* Writes the table's name with its database, because a pooler may choose another database. */
static int read_table(struct hf__my_how *how, const hf_url *url, char table[2 * HF_MY_NAME],
                      hf_error *err)
{
    char text[128], database[HF_MY_NAME], name[HF_MY_NAME];
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    if (!*path) return bad(url, "no database: write mariadb://HOST/DATABASE", err);
    if (!quote(path, strlen(path), database, sizeof database))
        return bad(url, "the path isn't the name of a database", err);
    snprintf(how->database, sizeof how->database, "%s", path);
    int rc = hf_url_get(url, "table", text, sizeof text);
    if (rc == HF_UNSUPPORTED) snprintf(text, sizeof text, "holdfast");
    if (rc == HF_INVALID || !quote(text, strlen(text), name, sizeof name))
        return bad(url, "table: not a NAME of 1 to 63 bytes without '`' and '.'", err);
    snprintf(table, 2 * HF_MY_NAME, "%s.%s", database, name);
    return 0;
}

int hf__my_options(const hf_url *url, struct hf__my_how *how, char table[2 * HF_MY_NAME],
                   hf_error *err)
{
    static const char *const known[] = {"passfile", "socket",     "ssl",   "ssl_ca", "ssl_cert",
                                        "ssl_key",  "ssl_verify", "table", "user",   NULL};
    char name[64];
    if (hf__unknown_option(url, known, name, sizeof name))
        return hf_fail(err, HF_INVALID, 0, "mariadb: open '%s': unknown option '%s'", url->safe,
                       name);
    int rc = read_hosts(how, url, err);
    if (!rc) rc = read_login(how, url, err);
    if (!rc) rc = read_tls(how, url, err);
    return rc ? rc : read_table(how, url, table, err);
}
