/*
 * dial.c - mariadb: connecting. See store.h.
 *
 * Contents: what the URL says; what a refusal means; one attempt; the login; connecting.
 *
 * The library is given one numeric address at a time, so it never looks up a name, and never spends
 * the deadline on one server of a list: kit/dial.h divides the time.
 *
 * A thread is inside of kit/fork_gate.h while it is in the library, which has locks of the whole
 * process, as OpenSSL has.
 */
#include "kit/text.h"
#include "store.h"

#include <errmsg.h>
#include <fcntl.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SOCKET "/run/mysqld/mysqld.sock"

/* ---- what the URL says ---- */

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

/* Writes the table's name with its database, because a pooler may choose another database. */
static int name_table(hf_store *st, const hf_url *url, const char *name, hf_error *err)
{
    char database[HF_MY_NAME], quoted[HF_MY_NAME];
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    if (strpbrk(path, ".`") || hf__quote_name(path, '`', database, sizeof database))
        return bad(url, "the path", "no name of a database: write mariadb://HOST/DATABASE", err);
    if (!*name) name = "holdfast";
    if (strpbrk(name, ".`") || hf__quote_name(name, '`', quoted, sizeof quoted))
        return bad(url, "table", "not a NAME of 1 to 63 bytes without '`' and '.'", err);
    snprintf(st->how.database, sizeof st->how.database, "%.63s", path);
    snprintf(st->table, sizeof st->table, "%s.%s", database, quoted);
    snprintf(st->empty, sizeof st->empty, "DROP TABLE %s", st->table);
    return 0;
}

int hf__my_options(hf_store *st, const hf_url *url, hf_error *err)
{
    struct hf__my_how *how = &st->how;
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
    return rc ? rc : name_table(st, url, name, err);
}

/* ---- what a refusal means ---- */

struct login {
    const struct hf__my_how *how;
    struct hf__my_link *link;
    char password[HF_SECRET_CAP];
};

/* An attempt's own. */
struct pending {
    MYSQL *my;
    int status;              /* what the library's call waits for; 0: no call is under way */
    char host[HF_HOST_TEXT]; /* what the library is given */
};

/* Numbers that aren't listed are temporary: starting up and shutting down, too many connections of
   the server or the user, a host that is blocked for its errors, a node that isn't ready. */
static enum hf__attempt_state refused(const struct hf__my_how *how, struct hf__attempt *a,
                                      MYSQL *my)
{
    unsigned number = mysql_errno(my);
    int password = number == ER_ACCESS_DENIED_ERROR || number == ER_ACCESS_DENIED_NO_PASSWORD_ERROR;
    int tls = number == CR_SSL_CONNECTION_ERROR;
    a->busy = number == ER_CON_COUNT_ERROR || number == ER_TOO_MANY_USER_CONNECTIONS ||
              number == ER_USER_LIMIT_REACHED || number == ER_SERVER_SHUTDOWN;
    a->code = tls || number == CR_AUTH_PLUGIN_CANNOT_LOAD ? HF_DENIED
                                                          : hf__my_code(number, HF_UNAVAILABLE);
    /* The server has a new password already, and the password file will soon have it. TLS worked
       before, so certificates are being renewed. */
    if (how->opened && (tls || (password && how->secret.path[0]))) a->code = HF_UNAVAILABLE;
    snprintf(a->why, sizeof a->why, "%.*s", (int)strcspn(mysql_error(my), "\n"), mysql_error(my));
    return HF_ATTEMPT_FAILED;
}

/* ---- one attempt ---- */

static int set_options(const struct hf__my_how *how, MYSQL *my)
{
    static const my_bool yes = 1, no = 0;
    static const unsigned none = 0;
    int bad = mysql_options(my, MYSQL_OPT_NONBLOCK, NULL) ||
              mysql_options(my, MYSQL_OPT_RECONNECT, &no) ||
              mysql_options(my, MYSQL_OPT_LOCAL_INFILE, &none) ||
              mysql_options(my, MYSQL_SET_CHARSET_NAME, "utf8mb4") ||
              mysql_options4(my, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "holdfast");
    if (how->tls) {
        /* The handshake blocks, and may take twice as long as the limit. */
        unsigned seconds = how->io_timeout_ms < 4000 ? 1 : (unsigned)(how->io_timeout_ms / 2000);
        bad |= mysql_options(my, MYSQL_OPT_CONNECT_TIMEOUT, &seconds) ||
               mysql_options(my, MYSQL_OPT_SSL_ENFORCE, &yes) ||
               mysql_options(my, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, how->verify ? &yes : &no);
        if (how->files.ca[0]) bad |= mysql_options(my, MYSQL_OPT_SSL_CA, how->files.ca);
        if (how->files.cert[0]) bad |= mysql_options(my, MYSQL_OPT_SSL_CERT, how->files.cert);
        if (how->files.key[0]) bad |= mysql_options(my, MYSQL_OPT_SSL_KEY, how->files.key);
        /* The passphrase of the key; without one the library would ask for it on the terminal. */
        if (how->files.key[0]) bad |= mysql_options(my, MARIADB_OPT_TLS_PASSPHRASE, "none");
    }
    return !bad;
}

/* Sets what the attempt waits for. Returns its state. */
static enum hf__attempt_state became(const struct login *l, struct hf__attempt *a,
                                     const MYSQL *connected)
{
    struct pending *p = a->own;
    MYSQL *my = p->my;
    if (!p->status && !connected) return refused(l->how, a, my);
    a->fd = (int)mysql_get_socket(my);
    /* Where the library uses TLS, it goes on as if the socket were ready. */
    if (!p->status) fcntl(a->fd, F_SETFL, O_NONBLOCK);
    if (!p->status) return HF_ATTEMPT_READY;
    a->events = hf__my_events(p->status);
    return a->events & POLLIN ? HF_ATTEMPT_LINKED : HF_ATTEMPT_RUNS;
}

static enum hf__attempt_state start(void *arg, struct hf__attempt *a)
{
    const struct login *l = arg;
    const struct hf__my_how *how = l->how;
    int local = how->at.host[a->target][0] == '/';
    struct pending *p = a->own = calloc(1, sizeof *p);
    MYSQL *my = p ? p->my = mysql_init(NULL) : NULL, *connected = NULL;
    if (!my || !set_options(how, my)) {
        a->code = HF_NOMEM;
        snprintf(a->why, sizeof a->why, "out of memory");
        return HF_ATTEMPT_FAILED;
    }
    hf__endpoint_text(&a->at, p->host);
    p->status = mysql_real_connect_start(
        &connected, my, local ? NULL : p->host, how->user[0] ? how->user : NULL, l->password,
        how->database, (unsigned)strtoul(how->at.port[a->target], NULL, 10), local ? p->host : NULL,
        CLIENT_MULTI_STATEMENTS);
    int fd = (int)mysql_get_socket(my);
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
    /* The client has connected by the address. After the server's greeting it reads this text
       again, to compare the certificate with: so the text becomes the host's name. */
    if (!local && p->status) snprintf(p->host, sizeof p->host, "%s", how->at.host[a->target]);
    return became(l, a, connected);
}

static enum hf__attempt_state step(void *arg, struct hf__attempt *a)
{
    struct pending *p = a->own;
    MYSQL *connected = NULL;
    p->status = mysql_real_connect_cont(&connected, p->my, p->status & ~MYSQL_WAIT_TIMEOUT);
    return became(arg, a, connected);
}

/* Ends an attempt. A call that is under way is finished first, so that the library frees its
   memory. */
static void stop(void *arg, struct hf__attempt *a)
{
    struct pending *p = a->own;
    MYSQL *connected;
    (void)arg;
    while (p && p->status)
        p->status = mysql_real_connect_cont(&connected, p->my, hf__my_await(p->my, p->status, 0));
    if (p && p->my) mysql_close(p->my);
    free(p);
}

/* ---- the login ---- */

void hf__my_disconnect(struct hf__my_link *link)
{
    if (!link->my) return;
    struct hf__quiet quiet;
    hf__quiet(&quiet);
    mysql_close(link->my);
    hf__loud(&quiet);
    link->my = NULL;
}

/* Checks that this server can be a store. If this session's number isn't the one that the client
   was told, a pooler has told it a number of its own. */
static int inspect(struct hf__my_link *link, char why[HF_KIT_WHY])
{
    struct hf__sql sql = {NULL, 0, 0, 0};
    struct hf__my_reply r;
    int major = 0, minor = 0;
    hf__sql_put(&sql, "SELECT VERSION(), " HF_MY_READ_ONLY ", CONNECTION_ID() LIMIT 1");
    int rc = hf__my_ask(link, &sql, HF_UNAVAILABLE, &r);
    hf__sql_free(&sql);
    snprintf(why, HF_KIT_WHY, "%.*s", HF_KIT_WHY - 1, r.why);
    if (rc) return rc;
    if (!r.row || !r.row[0] || !r.row[1] || !r.row[2])
        snprintf(why, HF_KIT_WHY, HF_MY_UNFIT);
    else if (!strstr(r.row[0], "MariaDB"))
        snprintf(why, HF_KIT_WHY, "the server is MySQL %.40s: only MariaDB is supported", r.row[0]);
    else if (sscanf(r.row[0], "%d.%d", &major, &minor) != 2 || major < 10 ||
             (major == 10 && minor < 3))
        snprintf(why, HF_KIT_WHY, "older than MariaDB 10.3");
    else if (r.read_only)
        snprintf(why, HF_KIT_WHY, HF_MY_REPLICA);
    else
        link->pooled = strtoul(r.row[2], NULL, 10) != mysql_thread_id(link->my);
    mysql_free_result(r.rows);
    return why[0] ? HF_UNSUPPORTED : 0;
}

/* ---- connecting ---- */

/* Checks the server, and sets the session's settings. A pooler's number may be that of the session
   which the first request came to, by chance; the second one then probably comes to another one. */
static int log_in(void *arg, struct hf__attempt *a, int64_t until_us)
{
    struct login *l = arg;
    struct hf__my_link *link = l->link;
    *link = (struct hf__my_link){.how = l->how, .my = ((struct pending *)a->own)->my};
    free(a->own);
    a->own = NULL;
    link->until_us = until_us;
    int rc = inspect(link, a->why);
    link->settled = 1;
    if (!rc && !link->pooled) {
        link->pooled = 1; /* so that this request begins with the settings */
        rc = inspect(link, a->why);
    }
    link->until_us = 0;
    if (rc) hf__my_disconnect(link);
    return rc;
}

int hf__my_connect(hf_store *st, void *link, int64_t until_us, hf_error *err)
{
    const struct hf__my_how *how = &st->how;
    static const struct hf__dial_ops ops = {start, step, stop};
    const char *const files[][2] = {{"ssl_ca", how->files.ca},
                                    {"ssl_cert", how->files.cert},
                                    {"ssl_key", how->files.key},
                                    {NULL, NULL}};
    struct hf__dial_target targets[HF_DIAL_TARGETS];
    struct login l = {.how = how, .link = link};
    const struct hf__connection to = {"mariadb", targets, how->at.n, &ops, log_in, &l, how->opened};
    char why[HF_KIT_WHY];
    hf__hosts_targets(&how->at, targets);
    int rc = hf__password_get(&how->secret, how->password, l.password, why);
    if (!rc) rc = hf__credentials_check(files, how->opened, why);
    rc = rc ? hf_fail(err, rc, 0, "mariadb: connect: %s", why) : hf__connect(&to, until_us, err);
    explicit_bzero(l.password, sizeof l.password);
    return rc;
}
