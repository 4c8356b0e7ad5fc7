/*
 * peer_get_lock.c - MariaDB's GET_LOCK by libmariadb; by prepared statements. See peer_lock.h.
 *
 * Such a lock is held by a connection: it has neither lease nor token, is lost with the connection
 * (which nobody notices before the next statement), each waiter keeps one, and in a Galera cluster
 * it excludes nobody on another node.
 */
#include "bench.h"
#include "mariadb_url.h"
#include "peer_lock.h"

#include <string.h>

enum { TAKE, GIVE, TAKE_HANDOVER, GIVE_HANDOVER, WRITE, STATEMENTS };

static MYSQL *to;
static MYSQL_STMT *statement[STATEMENTS];

static void connect_to(const char *url)
{
    static const char *const text[STATEMENTS] = {
        "SELECT GET_LOCK('bench', 60)", "SELECT RELEASE_LOCK('bench')",
        "SELECT GET_LOCK('handover', 60)", "SELECT RELEASE_LOCK('handover')",
        "UPDATE peer SET rev = rev + 1 WHERE name = 'k' AND rev >= 0"};
    to = mariadb_connected(url);
    /* On this server there may have been others before. */
    mariadb_ask(to, "CREATE TABLE IF NOT EXISTS peer (name VARBINARY(64) PRIMARY KEY, rev BIGINT)");
    mariadb_ask(to, "INSERT IGNORE INTO peer VALUES ('k', 1)");
    for (int i = 0; i < STATEMENTS; i++) statement[i] = mariadb_prepared(to, text[i]);
}

static void ask(int which)
{
    if (mysql_stmt_execute(statement[which]))
        bench_die("libmariadb: %s", mysql_stmt_error(statement[which]));
}

/* Asks for a lock or gives it back; both answer 1 where they did it, 0 or NULL where they didn't.
 */
static void ask_lock(int which)
{
    MYSQL_STMT *st = statement[which];
    long long did = 0;
    my_bool none = 0;
    MYSQL_BIND bind = {.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &did, .is_null = &none};
    ask(which);
    if (mysql_stmt_bind_result(st, &bind) || mysql_stmt_fetch(st) || none || did != 1)
        bench_die("libmariadb: a lock wasn't obtained, or not given back: %s",
                  mysql_stmt_error(st));
    mysql_stmt_free_result(st);
}

static void take(int lock) { ask_lock(lock == LOCK_HANDOVER ? TAKE_HANDOVER : TAKE); }
static void give(int lock) { ask_lock(lock == LOCK_HANDOVER ? GIVE_HANDOVER : GIVE); }
static void write_it(void) { ask(WRITE); }

static int is_wanted(void)
{
    mariadb_ask(to, "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'");
    MYSQL_RES *rows = mysql_store_result(to);
    if (!rows) bench_die("libmariadb: %s", mysql_error(to));
    int some = mysql_num_rows(rows) > 0;
    mysql_free_result(rows);
    return some;
}

static void close_it(void)
{
    for (int i = 0; i < STATEMENTS; i++) mysql_stmt_close(statement[i]);
    mysql_close(to);
}

const struct lock_peer lock_peer = {connect_to, take, give, write_it, is_wanted, close_it};
