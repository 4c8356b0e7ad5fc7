/*
 * endpoints.c - the endpoints of a handle, and which of them is in use. See http.h.
 */
#include "http.h"

#include <stdio.h>
#include <string.h>

enum { PORT = 2379 };

int hf__et_add_endpoint(struct hf__et_http *http, const char *from, size_t len, int port, int tls)
{
    char text[300], host[256];
    if (!len || len >= sizeof host || http->n_endpoints == HF_ET_ENDPOINTS) return HF_INVALID;
    memcpy(host, from, len);
    host[len] = 0;
    const char *colon = strrchr(host, ':'), *bracket = strrchr(host, ']');
    int bare6 = colon && strchr(host, ':') != colon && !bracket;
    int has_port = colon && !bare6 && (!bracket || bracket < colon);
    int n = snprintf(text, sizeof text, "%s://%s%s%s", tls ? "https" : "http", bare6 ? "[" : "",
                     host, bare6 ? "]" : "");
    if (n < 0) return HF_INVALID;
    if (!has_port)
        snprintf(text + n, sizeof text - (size_t)n, ":%d", port ? port : PORT);
    else if (!colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return HF_INVALID;
    char *own = strdup(text);
    if (!own) return HF_NOMEM;
    http->endpoint[http->n_endpoints++] = own;
    return 0;
}

void hf__et_next(struct hf__et_http *http)
{
    unsigned at = __atomic_load_n(&http->at, __ATOMIC_RELAXED);
    __atomic_store_n(&http->at, (at + 1) % http->n_endpoints, __ATOMIC_RELAXED);
}

void hf__et_split(const char *endpoint, char host[HF_ET_HOST_CAP], char port[HF_ET_PORT_CAP])
{
    const char *at = strstr(endpoint, "://") + 3, *colon = strrchr(at, ':');
    size_t len = (size_t)(colon - at);
    if (*at == '[') {
        at++;
        len -= 2;
    }
    snprintf(host, HF_ET_HOST_CAP, "%.*s", (int)len, at);
    snprintf(port, HF_ET_PORT_CAP, "%s", colon + 1);
}
