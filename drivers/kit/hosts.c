/*
 * hosts.c - see hosts.h.
 */
#include "hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hf__hosts_add(struct hf__hosts *to, const char *host, size_t len, const char *port)
{
    if (to->n == HF_DIAL_TARGETS || len >= HF_HOST_TEXT || !len) return 0;
    memcpy(to->host[to->n], host, len);
    to->host[to->n][len] = 0;
    snprintf(to->port[to->n++], sizeof to->port[0], "%.7s", port);
    return 1;
}

/* Adds one entry of a list: a, a:1, [::1], [::1]:1. */
static int add_entry(struct hf__hosts *to, const char *at, size_t all, const char *default_port)
{
    size_t open = *at == '[', len = strcspn(at, open ? "]," : ":,");
    const char *behind = at + len + (open && at[len] == ']');
    char port[8], *end;
    snprintf(port, sizeof port, "%.7s", default_port);
    if ((open && at[len] != ']') || (behind < at + all && *behind != ':')) return 0;
    if (behind < at + all) {
        size_t digits = (size_t)(at + all - behind - 1);
        if (!digits || digits >= sizeof port) return 0;
        memcpy(port, behind + 1, digits);
        port[digits] = 0;
        long number = strtol(port, &end, 10);
        if (*end || number < 1 || number > 65535) return 0;
    }
    return hf__hosts_add(to, at + open, len - open, port);
}

int hf__hosts_read(struct hf__hosts *to, const hf_url *url, int default_port)
{
    char port[8];
    const char *host = url->host[0] ? url->host : "127.0.0.1";
    snprintf(port, sizeof port, "%hu", (unsigned short)(url->port ? url->port : default_port));
    if (!strchr(host, ',')) return hf__hosts_add(to, host, strlen(host), port);
    snprintf(port, sizeof port, "%hu", (unsigned short)default_port);
    for (const char *at = host;; at++) {
        size_t all = strcspn(at, ",");
        if (!add_entry(to, at, all, port)) return 0;
        at += all;
        if (!*at) return 1;
    }
}

void hf__hosts_targets(const struct hf__hosts *hosts, struct hf__dial_target to[HF_DIAL_TARGETS])
{
    for (size_t i = 0; i < hosts->n; i++)
        to[i] = (struct hf__dial_target){hosts->host[i], hosts->port[i]};
}
