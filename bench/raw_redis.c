/*
 * raw_redis.c - a conditional write of a hash by hiredis alone: a script that compares one field
 * and sets as many as a row of Holdfast has.
 */
#include "bench.h"
#include "raw.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

enum { FIELDS = 9, WORDS = 5 + 2 * FIELDS };

static redisContext *to;
static char sha[64], name[FIELDS][16], seen[24], next[24];
static const char *word[WORDS];
static size_t length[WORDS];
static unsigned long long rev;

static redisReply *must(void *reply)
{
    redisReply *r = reply;
    if (!r) bench_die("hiredis: %s", to->errstr);
    if (r->type == REDIS_REPLY_ERROR) bench_die("redis: %s", r->str);
    return r;
}

static void put(int i, const char *text)
{
    word[i] = text;
    length[i] = strlen(text);
}

static void write_it(void)
{
    snprintf(seen, sizeof seen, "%llu", rev++);
    snprintf(next, sizeof next, "%llu", rev);
    put(4, seen);
    put(6, next);
    redisReply *r = must(redisCommandArgv(to, WORDS, word, length));
    if (r->type != REDIS_REPLY_INTEGER || r->integer != 1) bench_die("redis: not replaced");
    freeReplyObject(r);
}

static void trip(void) { freeReplyObject(must(redisCommand(to, "PING"))); }

static void must_sync(void)
{
    redisReply *r = must(redisCommand(to, "CONFIG GET appendfsync"));
    if (r->elements != 2 || strcmp(r->element[1]->str, "always") != 0)
        bench_die("redis: the server doesn't sync its writes");
    freeReplyObject(r);
}

static void open_it(const char *url, int durable)
{
    const char *path = strstr(url, "socket=");
    if (!path) bench_die("'%s': a Unix socket is needed", url);
    to = redisConnectUnix(path + strlen("socket="));
    if (!to || to->err) bench_die("hiredis: %s", to ? to->errstr : "out of memory");
    if (durable) must_sync();
    redisReply *r = must(redisCommand(to, "SCRIPT LOAD %s",
                                      "if (redis.call('HGET', KEYS[1], 'rev') or '0') ~= ARGV[1] "
                                      "then return 0 end "
                                      "redis.call('HSET', KEYS[1], unpack(ARGV, 2)) return 1"));
    snprintf(sha, sizeof sha, "%s", r->str);
    freeReplyObject(r);
    freeReplyObject(must(redisCommand(to, "DEL bench:raw")));
    put(0, "EVALSHA");
    put(1, sha);
    put(2, "1");
    put(3, "bench:raw");
    for (int i = 0; i < FIELDS; i++) {
        snprintf(name[i], sizeof name[i], i ? "field_%d" : "rev", i);
        put(5 + 2 * i, name[i]);
        put(6 + 2 * i, i < 5   ? "1700000000000000"
                       : i < 7 ? "0123456789abcdef0123456789abcdef"
                               : "0");
    }
    write_it();
}

const struct raw raw_redis = {"redis", open_it, write_it, trip};
