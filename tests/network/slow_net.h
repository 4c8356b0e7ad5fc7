/*
 * slow_net.h - a process that stands between clients and a server of this machine like a network
 * that is far away, and of which a part hangs: what a client asks, and the answer, each arrive half
 * of `delay_ms` later, and a share of the requests is swallowed. A swallowed request, and all that
 * comes behind it on its connection, is never answered; the connection stays open.
 */
#ifndef SLOW_NET_H
#define SLOW_NET_H

#include <stdint.h>
#include <sys/types.h>

struct slow_net {
    pid_t pid;
    int port; /* on loopback */
    struct slow_net_orders *orders;
    unsigned seed; /* set before the start: which requests hang */
};

/* `server`: HOST:PORT of IPv4, or the path of a Unix socket. Returns 0, or -1 and errno. */
int slow_net_start(struct slow_net *net, const char *server, int delay_ms);
/* From here on this many of 1,000 requests hang: random ones, from a fixed seed. A request begins
   with the first bytes after an answer. */
void slow_net_hang(struct slow_net *net, int of_1000);
/* From here on one request hangs: the next one. slow_net_again_ms: how long after it the first
   request came on another connection; -1: none has. */
void slow_net_hang_once(struct slow_net *net);
int64_t slow_net_again_ms(const struct slow_net *net);
/* How many have, so far; and how many requests there were meanwhile. */
int slow_net_hung(const struct slow_net *net);
int slow_net_asked(const struct slow_net *net);
void slow_net_end(struct slow_net *net);

#endif
