/*
 * proxy.h - a process that stands between a client and a server of this machine, and does to their
 * connections what networks do: cuts them at a byte, delays, goes silent, delivers late, or twice.
 *
 * It listens on a port of the loopback; the server is at HOST:PORT of IPv4, or at a path of a Unix
 * socket. The process that started it orders what it does; an order holds from then on, for
 * all connections together: bytes are counted from the order on.
 */
#ifndef PROXY_H
#define PROXY_H

#include <stdint.h>
#include <sys/types.h>

enum proxy_what {
    PROXY_PASS,    /* nothing */
    PROXY_CUT,     /* closes the connection, once, when `at` bytes have gone in this direction */
    PROXY_SILENT,  /* from then on nothing goes in this direction any more, on any connection */
    PROXY_DELAY,   /* there the connection stands still for `ms`, once */
    PROXY_LATE,    /* from there on the bytes are kept; the client's side is closed when `bytes`
                      have come. PROXY_DELIVER sends them. */
    PROXY_TWICE,   /* the same, but it goes at once, and with PROXY_DELIVER again */
    PROXY_DELIVER, /* to the server, on the old connection; its reply goes nowhere */
    PROXY_COUNT    /* nothing new; only says how things are */
};
enum proxy_way { PROXY_UP, PROXY_DOWN }; /* to the server, from it */

struct proxy_order {
    enum proxy_what what;
    enum proxy_way way;
    int64_t at, bytes;
    int ms;
    int refuse; /* this many connections that are made after the cut are closed at once */
};

struct proxy_state {
    int64_t bytes[2]; /* the bytes since the order before, by direction */
    int hit;          /* what was ordered has happened */
    int connections;  /* made since then */
    int answered;     /* PROXY_DELIVER: the server has answered, or has closed */
};

struct proxy {
    pid_t pid;
    int port, orders;
};

/* 0, or -1 and errno. */
int proxy_start(struct proxy *p, const char *server);
/* Gives an order, and returns the state before it. Returns 0 or -1. */
int proxy_tell(struct proxy *p, const struct proxy_order *order, struct proxy_state *ret);
void proxy_end(struct proxy *p);

#endif
