/*
 * mariadb_url.h - a connection to the MariaDB server of a test (tests/servers/mariadb), by
 * libmariadb alone. What fails ends the program.
 */
#ifndef MARIADB_URL_H
#define MARIADB_URL_H

#include <mysql.h>

/* The URL names the server's socket, or its port on loopback; or it is the path of the socket. */
MYSQL *mariadb_connected(const char *url);
void mariadb_ask(MYSQL *to, const char *sql);
MYSQL_STMT *mariadb_prepared(MYSQL *to, const char *sql);

#endif
