/*
 * mariadb_url.c - see mariadb_url.h.
 */
#include "mariadb_url.h"

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

MYSQL *mariadb_connected(const char *url)
{
    char socket[200] = "";
    const char *at = strstr(url, "socket="), *port = strstr(url, "//127.0.0.1:");
    at = *url == '/' ? url : at ? at + 7 : NULL;
    MYSQL *to = mysql_init(NULL);
    if (at) snprintf(socket, sizeof socket, "%.*s", (int)strcspn(at, "&"), at);
    if (!to || !(*socket || port)) bench_die("libmariadb: not a server of a test: %s", url);
    if (!mysql_real_connect(to, *socket ? NULL : "127.0.0.1", "holdfast", NULL, "holdfast",
                            *socket ? 0 : (unsigned)strtoul(port + 12, NULL, 10),
                            *socket ? socket : NULL, 0))
        bench_die("libmariadb: %s", mysql_error(to));
    return to;
}

void mariadb_ask(MYSQL *to, const char *sql)
{
    if (mysql_query(to, sql)) bench_die("libmariadb: %s", mysql_error(to));
}

MYSQL_STMT *mariadb_prepared(MYSQL *to, const char *sql)
{
    MYSQL_STMT *s = mysql_stmt_init(to);
    if (!s || mysql_stmt_prepare(s, sql, strlen(sql)))
        bench_die("libmariadb: %s", s ? mysql_stmt_error(s) : "out of memory");
    return s;
}
