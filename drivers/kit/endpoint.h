/*
 * endpoint.h - a socket address to which a connection is made. Compiled into each module that uses
 * it.
 *
 * Thread safety: any thread. Nothing is allocated.
 */
#ifndef HF_KIT_ENDPOINT_H
#define HF_KIT_ENDPOINT_H

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Room for the reason of an error, and for an endpoint as a text. */
enum { HF_KIT_WHY = 200, HF_ENDPOINT_TEXT = 112 };

struct hf__endpoint {
    socklen_t len;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    } to;
};

/* Makes the endpoint of a Unix socket. Returns 0, or HF_INVALID: the path is too long. */
int hf__endpoint_local(struct hf__endpoint *ret, const char *path);
/* Writes the address without its port, or the path: "192.0.2.1", "2001:db8::1", "/run/x". */
void hf__endpoint_text(const struct hf__endpoint *e, char to[HF_ENDPOINT_TEXT]);

#endif
