/*
 * url_advice.c - the advice for each foreign scheme and option. See url_advice.h.
 */
#include "url_advice.h"

#include <stdio.h>
#include <string.h>

const char *hf__scheme_advice(const char *scheme)
{
    static const char *const others[][2] = {
        {"mongodb+srv", "write mongodb: with the hosts and options that its DNS records name"},
        {"valkey", "write redis:"},
        {"valkeys", "write rediss:"},
        {"redis+sentinel", "Sentinel isn't asked: write redis: with the primary's host"},
        {"redis+cluster", "write redis: with one host, and keys that are all in one slot"},
        {"unix", "write redis:?socket=/PATH"},
        {"postgresql+psycopg", "write postgres:"},
        {"postgresql+psycopg2", "write postgres:"},
        {"postgresql+asyncpg", "write postgres:"},
        {"psql", "write postgres:"},
        {"pgsql", "write postgres:"},
        {"mysql", "MySQL isn't supported; write mariadb: for a MariaDB server"},
        {"sqlite3", "write sqlite:"},
        {"memory", "write mem:"},
        {"etcd3", "write etcd:"},
        {"etcd+http", "write etcd:"},
        {"etcd+https", "write etcds:"},
        {"http", "a store has a scheme of its own, such as etcd: or firestore:"},
        {"https", "a store has a scheme of its own, such as etcds: or firestore:"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i][0], scheme)) return others[i][1];
    return NULL;
}

/* Options of other programs' URLs, and the advice to a user who writes them here. */
static const struct {
    const char *name, *advice;
} foreign[] = {
    {"pool_size", "Holdfast has no connection pool to set up: remove it"},
    {"max_connections", "Holdfast has no connection pool to set up: remove it"},
    {"max_overflow", "Holdfast has no connection pool to set up: remove it"},
    {"maxPoolSize", "Holdfast has no connection pool to set up: remove it"},
    {"minPoolSize", "Holdfast has no connection pool to set up: remove it"},
    {"decode_responses", "it is for a client library of Python: remove it"},
    {"encoding", "it is for a client library of Python: remove it"},
    {"health_check_interval", "it is for a client library of Python: remove it"},
    {"protocol", "it is for another client library: remove it"},
    {"check_same_thread", "it is for a module of Python: remove it"},
    {"charset", "it is for another program: remove it"},
    {"application_name", "hf_open's note names the client instead: remove it"},
    {"timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"connect_timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"socket_timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"socket_connect_timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"connectTimeoutMS", "the limit of a request is hf_open's io_timeout_ms"},
    {"socketTimeoutMS", "the limit of a request is hf_open's io_timeout_ms"},
    {"serverSelectionTimeoutMS", "the limit of a request is hf_open's io_timeout_ms"},
    {"ssl", "TLS is chosen by the scheme or by the options in the store's page"},
    {"tls", "TLS is chosen by the scheme or by the options in the store's page"},
    {"ssl_cert_reqs", "certificates are checked as the store's page says"},
    {"db", "write the database behind the host: /NAME"},
    {"database", "write the database behind the host: /NAME"},
    {"username", "write it before the host: USER:PASSWORD@HOST"},
    {"password", "write it before the host: USER:PASSWORD@HOST"},
};

void hf__explain_option(hf_error *err)
{
    static const char said[] = "unknown option '";
    const char *at = err ? strstr(err->text, said) : NULL;
    for (size_t i = 0; at && i < sizeof foreign / sizeof *foreign; i++) {
        size_t n = strlen(foreign[i].name), used = strlen(err->text);
        const char *name = at + sizeof said - 1;
        if (strncmp(name, foreign[i].name, n) || name[n] != '\'') continue;
        snprintf(err->text + used, sizeof err->text - used, ": %s", foreign[i].advice);
        return;
    }
}
