/*
 * dial.c - redis: connecting. See link.h.
 *
 * Contents: the socket; the greeting; connecting.
 */
#include "kit/dial.h"
#include "link.h"

#include "os.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- the socket ---- */

/* Sets options of the socket. No result is checked, because nothing depends on them. */
static void tune(int fd, int64_t timeout_ms)
{
    int on = 1, idle = 15, between = 5, times = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
#ifdef TCP_USER_TIMEOUT
    int ms = (int)timeout_ms;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
#else
    (void)timeout_ms;
#endif
}

/* Makes the socket blocking, with a time limit. */
static void settle(const struct hf__rd_how *how, const struct hf__rd_link *link)
{
    struct timeval t = {how->io_timeout_ms / 1000, how->io_timeout_ms % 1000 * 1000};
    if (setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t)) return;
    fcntl(link->fd, F_SETFL, fcntl(link->fd, F_GETFL) & ~O_NONBLOCK);
}

/* ---- the greeting ---- */

static int refuse(struct hf__rd_link *link, int code, const char *why)
{
    snprintf(link->why, sizeof link->why, "%s", why);
    return code;
}

/* Notes the text of the error reply to a step of the greeting, and returns the HF_ code: `code` for
   a plain ERR, else that of the error's first word. */
static int unwelcome(struct hf__rd_link *link, const redisReply *r, int code)
{
    int ordinary = !strncmp(r->str, "ERR", 3);
    hf__rd_words(r->str, link->why);
    return ordinary ? code : hf__rd_code(r->str);
}

/* Does what unwelcome does, for the error reply to AUTH. The text is left out unless it begins with
   a code of Redis's, because it may quote the password. */
static int not_let_in(struct hf__rd_link *link, const redisReply *r)
{
    int rc = unwelcome(link, r, HF_DENIED);
    if (hf__rd_is_coded(r->str)) return rc;
    return refuse(link, rc, "AUTH was refused, by an error without a code");
}

enum { MAX_GREETING = 5 + HF_RD_SCRIPTS };

/* The commands of a login, which are sent at once, and the index of each step among them; -1: the
   step isn't sent. */
struct greeting {
    struct hf__rd_batch batch;
    int auth, select, facts, scripts, wait;
};

static struct greeting make_greeting(const struct hf__rd_how *how, const char *password, int whole)
{
    struct greeting g = {.auth = -1, .select = -1, .facts = -1, .wait = -1};
    if (password[0]) g.auth = g.batch.n;
    if (password[0] && how->user[0])
        hf__rd_say(&g.batch, "AUTH", how->user, password, NULL);
    else if (password[0])
        hf__rd_say(&g.batch, "AUTH", password, NULL);
    if (strcmp(how->db, "0") && whole) {
        g.select = g.batch.n;
        hf__rd_say(&g.batch, "SELECT", how->db, NULL);
    }
    hf__rd_say(&g.batch, "CLIENT", "SETNAME", "holdfast", NULL);
    if (!whole) return g;
    g.facts = g.batch.n;
    hf__rd_say(&g.batch, "INFO", NULL);
    g.scripts = g.batch.n;
    for (int i = 0; i < HF_RD_SCRIPTS; i++)
        hf__rd_say(&g.batch, "SCRIPT", "LOAD", how->script[i], NULL);
    if (!how->wait) return g;
    g.wait = g.batch.n;
    hf__rd_say(&g.batch, "WAIT", "0", "1", NULL); /* asks only whether this user may use WAIT */
    return g;
}

/* Returns 0 if the login may go on after the reply to this step; else the code. An error of another
   step than AUTH, SELECT or WAIT doesn't matter yet if the server only refuses the command: the
   request that needs it fails then. */
static int judge(const struct greeting *g, struct hf__rd_link *link, int step, const redisReply *r)
{
    if (r->type != REDIS_REPLY_ERROR) return 0;
    if (step == g->auth) return not_let_in(link, r);
    if (step == g->select) return unwelcome(link, r, HF_INVALID);
    if (step == g->wait) return unwelcome(link, r, hf__rd_code(r->str));
    int may = !strncmp(r->str, "NOPERM", 6) || !strncmp(r->str, "ERR", 3);
    return may ? 0 : unwelcome(link, r, HF_UNAVAILABLE);
}

static int read_replies(const struct hf__rd_how *how, const struct greeting *g,
                        struct hf__rd_link *link, redisReply *const *reply, int n)
{
    struct hf__rd_facts facts;
    for (int i = 0; i < n; i++) {
        int rc = judge(g, link, i, reply[i]);
        if (rc) return rc;
    }
    for (int i = 0; g->facts >= 0 && i < HF_RD_SCRIPTS; i++) {
        const redisReply *r = reply[g->scripts + i];
        snprintf(link->sha[i], sizeof link->sha[i], "%s",
                 r->type == REDIS_REPLY_STRING ? r->str : "");
    }
    if (g->facts < 0 || reply[g->facts]->type != REDIS_REPLY_STRING) return 0;
    hf__rd_read_facts(reply[g->facts]->str, &facts);
    return hf__rd_fit(how, &facts, link->why);
}

static int greet(const struct hf__rd_how *how, struct hf__rd_link *link, const char *password,
                 int whole)
{
    redisReply *reply[MAX_GREETING];
    struct greeting g = make_greeting(how, password, whole);
    int n = g.batch.n, rc = hf__rd_talk(how, link, &g.batch, reply);
    if (rc) return rc == HF_NOMEM ? rc : link->code;
    rc = read_replies(how, &g, link, reply, n);
    hf__rd_free(reply, n);
    return rc;
}

/* ---- connecting ---- */

/* Logs in. A password file is read at each login, because the password may be changed while the
   store is open. */
static int say_hello(const struct hf__rd_how *how, struct hf__rd_link *link, int whole)
{
    char password[HF_SECRET_CAP];
    int rc = hf__password_get(&how->secret, how->password, password, link->why);
    if (rc) return rc;
    link->asked = 0;
    link->code = HF_UNAVAILABLE;
    link->reader = redisReaderCreate();
    if (!link->reader) rc = refuse(link, HF_NOMEM, "out of memory");
    if (!rc && hf__rd_filter) {
        rc = hf__rd_secure(how, link, link->until_us);
        /* TLS worked when the store was opened, so the certificates are probably being renewed. */
        if (rc == HF_DENIED && how->opened) rc = HF_UNAVAILABLE;
    }
    if (!rc) rc = greet(how, link, password, whole);
    /* The password was probably changed on the server first, and will be in the file soon. */
    if (rc == HF_DENIED && how->secret.path[0] && how->opened) rc = HF_UNAVAILABLE;
    explicit_bzero(password, sizeof password);
    return rc;
}

struct login {
    const struct hf__rd_how *how;
    struct hf__rd_link *link;
    int whole;
};

static int log_in(void *arg, struct hf__attempt *a, int64_t until_us)
{
    const struct login *l = arg;
    struct hf__rd_link *link = l->link;
    link->fd = hf__dial_take(a);
    if (!l->how->socket[0]) tune(link->fd, l->how->io_timeout_ms);
    link->until_us = until_us;
    int rc = say_hello(l->how, link, l->whole);
    link->until_us = 0;
    if (rc) hf__rd_disconnect(link);
    if (rc) memcpy(a->why, link->why, sizeof a->why);
    /* The first error has no code of its own, but the same text on all servers. */
    a->busy = strstr(a->why, "max number of clients") || !strncmp(a->why, "LOADING", 7);
    return rc;
}

int hf__rd_connect(const struct hf__rd_how *how, struct hf__rd_link *link, int whole,
                   int64_t until_us, hf_error *err)
{
    const struct hf__dial_target target = {how->socket[0] ? how->socket : how->host, how->port};
    struct login l = {how, link, whole};
    const struct hf__connection to = {HF_RD, &target, 1, NULL, log_in, &l, how->opened};
    int rc = hf__connect(&to, until_us, err);
    if (!rc) settle(how, link);
    return rc;
}
