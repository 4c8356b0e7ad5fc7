/*
 * hosts.h - the servers that the host of a URL names: one, or a list. Compiled into each module
 * that uses it.
 *
 * Thread safety: any thread. Nothing is allocated.
 */
#ifndef HF_KIT_HOSTS_H
#define HF_KIT_HOSTS_H

#include "dial.h"
#include "holdfast_driver.h"

enum { HF_HOST_TEXT = 256 };

struct hf__hosts { /* zeroed at first */
    char host[HF_DIAL_TARGETS][HF_HOST_TEXT], port[HF_DIAL_TARGETS][8];
    size_t n;
};

/* Adds a host, or the path of a socket. Returns 1; 0: it is empty or too long, or there are too
   many. */
int hf__hosts_add(struct hf__hosts *to, const char *host, size_t len, const char *port);
/* Reads url->host, a list of up to 16 hosts: a, a:1, [::1], [::1]:1. A host without a port has
   `port`; an empty list is 127.0.0.1. Returns 1; 0: the text is no such list. */
int hf__hosts_read(struct hf__hosts *to, const hf_url *url, int port);
/* Makes targets for hf__dial_begin of the hosts. Their texts belong to *hosts. */
void hf__hosts_targets(const struct hf__hosts *hosts, struct hf__dial_target to[HF_DIAL_TARGETS]);

#endif
