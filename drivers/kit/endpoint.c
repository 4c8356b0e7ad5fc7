/*
 * endpoint.c - see endpoint.h.
 */
#include "endpoint.h"

#include "holdfast_driver.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

int hf__endpoint_local(struct hf__endpoint *ret, const char *path)
{
    size_t n = strlen(path);
    memset(ret, 0, sizeof *ret);
    if (n >= sizeof ret->to.local.sun_path) return HF_INVALID;
    ret->to.local.sun_family = AF_UNIX;
    memcpy(ret->to.local.sun_path, path, n + 1);
    ret->len = sizeof ret->to.local;
    return 0;
}

void hf__endpoint_text(const struct hf__endpoint *e, char to[HF_ENDPOINT_TEXT])
{
    char text[INET6_ADDRSTRLEN] = "", zone[IF_NAMESIZE];
    if (e->to.any.sa_family == AF_UNIX) {
        snprintf(to, HF_ENDPOINT_TEXT, "%s", e->to.local.sun_path);
    } else if (e->to.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &e->to.v6.sin6_addr, text, sizeof text);
        int named = e->to.v6.sin6_scope_id && if_indextoname(e->to.v6.sin6_scope_id, zone);
        snprintf(to, HF_ENDPOINT_TEXT, "%s%s%s", text, named ? "%" : "", named ? zone : "");
    } else {
        inet_ntop(AF_INET, &e->to.v4.sin_addr, text, sizeof text);
        snprintf(to, HF_ENDPOINT_TEXT, "%s", text);
    }
}
