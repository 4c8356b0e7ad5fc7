/*
 * options.c - mariadb: what the URL says. See store.h.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_SOCKET "/run/mysqld/mysqld.sock"

static int bad(const hf_url *url, const char *name, const char *what, hf_error *err)
{
    return hf__option_refused("mariadb", url, name, what, err);
}

static int find_hosts(struct hf__my_how *how, const hf_url *url, const char *socket, hf_error *err)
{
    int named = url->host[0] || url->port;
    if (*socket && named) return bad(url, "socket", "there is a host, too", err);
    if (*socket && *socket != '/') return bad(url, "socket", "not a whole path", err);
    if (!*socket) socket = DEFAULT_SOCKET;
    int is = named ? hf__hosts_read(&how->at, url, 3306)
                   : hf__hosts_add(&how->at, socket, strlen(socket), "");
    return is ? 0 : bad(url, "the host", "not a list of up to 16 hosts", err);
}

/* Writes a name in backquotes; names have up to 64 characters. */
static int quote(const char *name, char to[HF_MY_NAME])
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == '.' || name[i] == '`') return 0;
    if (len > 63) return 0;
    snprintf(to, HF_MY_NAME, "`%s`", name);
    return len && hf__is_utf8(name, len);
}

/* Writes the table's name with its database, because a pooler may choose another database. */
static int name_table(struct hf__my_how *how, const hf_url *url, const char *name,
                      char table[2 * HF_MY_NAME], hf_error *err)
{
    char database[HF_MY_NAME], quoted[HF_MY_NAME];
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    if (!quote(path, database))
        return bad(url, "the path", "no name of a database: write mariadb://HOST/DATABASE", err);
    if (!quote(*name ? name : "holdfast", quoted))
        return bad(url, "table", "not a NAME of 1 to 63 bytes without '`' and '.'", err);
    snprintf(how->database, sizeof how->database, "%s", path);
    snprintf(table, 2 * HF_MY_NAME, "%s.%s", database, quoted);
    return 0;
}

int hf__my_options(const hf_url *url, struct hf__my_how *how, char table[2 * HF_MY_NAME],
                   hf_error *err)
{
    char socket[HF_HOST_TEXT], passfile[HF_SECRET_PATH], name[128];
    const struct hf__option options[] = {{"passfile", HF_TEXT_OPTION(passfile)},
                                         {"socket", HF_TEXT_OPTION(socket)},
                                         {"ssl", .is_on = &how->tls},
                                         {"ssl_ca", HF_TEXT_OPTION(how->files.ca)},
                                         {"ssl_cert", HF_TEXT_OPTION(how->files.cert)},
                                         {"ssl_key", HF_TEXT_OPTION(how->files.key)},
                                         {"ssl_verify", .is_on = &how->verify},
                                         {"table", HF_TEXT_OPTION(name)},
                                         {"user", HF_TEXT_OPTION(how->user)}};
    how->tls = -1;
    how->verify = 1;
    int rc = hf__options("mariadb", url, options, sizeof options / sizeof *options, err);
    if (!rc) rc = find_hosts(how, url, socket, err);
    if (!rc && how->user[0] && url->user[0]) rc = bad(url, "user", "there is one already", err);
    if (!rc && !how->user[0]) memcpy(how->user, url->user, sizeof how->user);
    memcpy(how->password, url->password, sizeof how->password);
    if (!rc) rc = hf__option_passfile("mariadb", url, passfile, &how->secret, err);
    if (!rc) rc = hf__option_tls("mariadb", url, "ssl", &how->files, &how->tls, err);
    return rc ? rc : name_table(how, url, name, table, err);
}
