/*
 * resp.c - see resp.h. A thread for each connection, which ends with it.
 */
#include "resp.h"

#include "test.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the server ---- */

enum { RULES = 12, WORDS = 64, ASKED = 1 << 16 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct resp_rule rules[RULES];
static size_t n_rules;
static int used[RULES], asked_whole, port;
static char password[64];
static const char info[] = "$22\r\nredis_version:7.0.15\r\n\r\n";

void resp_are(const struct resp_rule *list, size_t n)
{
    pthread_mutex_lock(&mu);
    if (n > RULES) abort();
    if (n) memcpy(rules, list, n * sizeof *list);
    n_rules = n;
    asked_whole = 0;
    memset(used, 0, sizeof used);
    pthread_mutex_unlock(&mu);
}

int resp_whole(void)
{
    pthread_mutex_lock(&mu);
    int n = asked_whole;
    pthread_mutex_unlock(&mu);
    return n;
}

char *resp_password(void)
{
    pthread_mutex_lock(&mu);
    char *is = strdup(password);
    pthread_mutex_unlock(&mu);
    return is;
}

int resp_port(void) { return port; }

/* Finds the rule for a command. Without one the reply is a server's usual reply. */
static struct resp_rule find(const char *command)
{
    struct resp_rule found = {NULL, "+OK\r\n", 0, 0};
    if (!strcmp(command, "INFO")) found.reply = info;
    if (!strcmp(command, "SCRIPT")) found.reply = "$3\r\nsha\r\n";
    if (!strcmp(command, "WAIT")) found.reply = ":0\r\n";
    pthread_mutex_lock(&mu);
    asked_whole += !strcmp(command, "EVAL");
    for (size_t i = 0; i < n_rules; i++) {
        if (rules[i].command && strcmp(rules[i].command, command) != 0) continue;
        if (rules[i].times && used[i] >= rules[i].times) continue;
        used[i]++;
        found = rules[i];
        break;
    }
    pthread_mutex_unlock(&mu);
    return found;
}

static void keep_password(const char *word, int len)
{
    pthread_mutex_lock(&mu);
    snprintf(password, sizeof password, "%.*s", len, word);
    pthread_mutex_unlock(&mu);
}

/* Reads one command, of which the first word is kept. Returns 0 if the client has gone. */
static int hear(FILE *from, char *command, size_t cap)
{
    char line[64], *word;
    long n = fgets(line, sizeof line, from) ? strtol(line + 1, NULL, 10) : 0;
    for (long i = 0; i < n; i++) {
        size_t len = fgets(line, sizeof line, from) ? strtoul(line + 1, NULL, 10) + 2 : 0;
        if (len < 2 || !(word = calloc(1, len + 1))) return 0;
        if (fread(word, 1, len, from) != len) n = 0;
        if (!i) snprintf(command, cap, "%.*s", (int)len - 2, word);
        if (i == n - 1 && !strcmp(command, "AUTH")) keep_password(word, (int)len - 2);
        free(word);
    }
    return n > 0;
}

static void *serve(void *arg)
{
    char command[32];
    FILE *from = arg;
    while (hear(from, command, sizeof command)) {
        struct resp_rule r = find(command);
        if (r.reply) send(fileno(from), r.reply, strlen(r.reply), MSG_NOSIGNAL);
        if (!r.closes) continue;
        /* The client's further commands are read, so that it gets the whole answer. */
        shutdown(fileno(from), SHUT_WR);
        while (hear(from, command, sizeof command)) {
        }
        break;
    }
    fclose(from);
    return NULL;
}

static void *let_in(void *arg)
{
    int listener = *(int *)arg, fd, yes = 1;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        pthread_t thread;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        FILE *from = fdopen(fd, "r");
        if (!from || pthread_create(&thread, NULL, serve, from)) abort();
        pthread_detach(thread);
    }
    return NULL;
}

static void begin(void)
{
    static int fd;
    pthread_t thread;
    fd = said_listens(0, &port);
    if (fd < 0 || pthread_create(&thread, NULL, let_in, &fd)) {
        printf("Bail out! no server\n");
        exit(1);
    }
    pthread_detach(thread);
}

/* ---- the driver ---- */

const hf_driver *redis;
int64_t clock_us;

int resp_opens(const char *form, hf_store **ret)
{
    return said_opens(redis, form, port, 60000, ret);
}

hf_store *resp_opened(const char *form)
{
    hf_store *st = NULL;
    resp_are(NULL, 0);
    if (resp_opens(form, &st)) fail_msg("%s", err.text);
    return st;
}

/* ---- rows ---- */

const char *resp_row_but(int done, const char *name, const char *value)
{
    static char ring[4][6000];
    static int at;
    char *to = ring[at++ % 4];
    int n = snprintf(to, sizeof ring[0], "*4\r\n:%d\r\n" CLOCK ":1\r\n*%d\r\n", done,
                     (int)COUNT(said_fields));
    for (size_t i = 0; i < COUNT(said_fields); i++) {
        const char *text = strcmp(said_fields[i][0], name) != 0 ? said_fields[i][1] : value;
        if (text)
            n += snprintf(to + n, sizeof ring[0] - (size_t)n, "$%zu\r\n%s\r\n", strlen(text), text);
        else
            n += snprintf(to + n, sizeof ring[0] - (size_t)n, "$-1\r\n");
    }
    return to;
}

int resp_begin(void)
{
    begin();
    redis = hf__driver("redis", &err);
    if (redis && !hf_key_make("k", &key, &err)) return 1;
    printf("Bail out! %s\n", err.text);
    return 0;
}
