/*
 * raw_etcd.c - a conditional write by libcurl alone: a transaction of etcd's gateway that compares
 * one key and puts two, as a row of Holdfast is two.
 */
#include "bench.h"
#include "raw.h"

#include <stdio.h>
#include <string.h>

enum { ROW_CAP = 2048, TEXT_CAP = 4 * ROW_CAP };

static char txn[300], range[300], row_key[64], rev_key[64];
static unsigned long long rev;

static void base64(const char *from, char *to)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t left = strlen(from); left; left -= left < 3 ? left : 3, from += 3) {
        unsigned n = (unsigned char)from[0] << 16;
        if (left > 1) n |= (unsigned char)from[1] << 8;
        if (left > 2) n |= (unsigned char)from[2];
        *to++ = digit[n >> 18 & 63];
        *to++ = digit[n >> 12 & 63];
        *to++ = '=';
        *to++ = '=';
        if (left > 1) to[-2] = digit[n >> 6 & 63];
        if (left > 2) to[-1] = digit[n & 63];
    }
    *to = 0;
}

static void write_it(void)
{
    static char row[ROW_CAP], row_text[TEXT_CAP], body[2 * TEXT_CAP];
    char seen[24], next[24], seen_text[40], next_text[40];
    size_t n = 0;
    long status;
    snprintf(seen, sizeof seen, "%llu", rev++);
    snprintf(next, sizeof next, "%llu", rev);
    for (int i = 0; i < HF_COLS; i++) {
        const char *quote = raw_is_text[i] && raw_value[i][0] != '[' ? "\"" : "";
        n += (size_t)snprintf(row + n, sizeof row - n, "%s\"%s\": %s%s%s", i ? ", " : "{",
                              raw_name[i], quote, i == HF_COL_REV ? next : raw_value[i], quote);
    }
    snprintf(row + n, sizeof row - n, "}");
    base64(row, row_text);
    base64(seen, seen_text);
    base64(next, next_text);
    snprintf(body, sizeof body,
             "{\"compare\": [{\"key\": \"%s\", \"target\": \"VALUE\", \"result\": \"EQUAL\", "
             "\"value\": \"%s\"}], \"success\": [{\"request_put\": {\"key\": \"%s\", \"value\": "
             "\"%s\"}}, {\"request_put\": {\"key\": \"%s\", \"value\": \"%s\"}}]}",
             rev_key, seen_text, row_key, row_text, rev_key, next_text);
    const char *answer = raw_http(txn, body, NULL, &status);
    if (!strstr(answer, "\"succeeded\":true")) bench_die("etcd: not replaced: %s", answer);
}

/* Of the server's own memory: it asks no other. */
static void trip(void)
{
    long status;
    const char *answer =
        raw_http(range, "{\"key\": \"AA==\", \"serializable\": true}", NULL, &status);
    if (status != 200) bench_die("etcd: %s", answer);
}

/* Whether it was told not to sync nobody can ask: that is for who has started it. */
static void open_it(const char *url, int durable)
{
    char put[300], body[300], first[24];
    long status;
    const char *host = strstr(url, "://");
    int len = host ? (int)strcspn(host + 3, "/?") : 0;
    (void)durable;
    if (!host) bench_die("'%s': no host", url);
    snprintf(txn, sizeof txn, "http://%.*s/v3/kv/txn", len, host + 3);
    snprintf(range, sizeof range, "http://%.*s/v3/kv/range", len, host + 3);
    snprintf(put, sizeof put, "http://%.*s/v3/kv/put", len, host + 3);
    base64("bench/raw", row_key);
    base64("bench/raw\trev", rev_key);
    base64("0", first);
    snprintf(body, sizeof body, "{\"key\": \"%s\", \"value\": \"%s\"}", rev_key, first);
    const char *answer = raw_http(put, body, NULL, &status);
    if (status != 200) bench_die("etcd: %s", answer);
    write_it();
}

const struct raw raw_etcd = {"etcd", open_it, write_it, trip};
