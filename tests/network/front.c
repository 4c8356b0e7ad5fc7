/*
 * front.c - see front.h.
 */
#include "front.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int front_url(const char *url, char *server, size_t cap, char *front, size_t front_cap, int port)
{
    const char *at;
    if ((at = strstr(url, "?socket=")) && !strncmp(url, "redis:", 6)) {
        snprintf(server, cap, "%s", at + 8);
        snprintf(front, front_cap, "redis://127.0.0.1:%d", port);
    } else if ((at = strstr(url, "?host=")) && !strncmp(url, "postgres:", 9)) {
        snprintf(server, cap, "%.*s/.s.PGSQL.5432", (int)strcspn(at + 6, "&"), at + 6);
        snprintf(front, front_cap,
                 "postgres://holdfast@127.0.0.1:%d/postgres?sslmode=disable&gssencmode=disable",
                 port);
    } else if ((at = strstr(url, "?socket=")) && !strncmp(url, "mariadb:", 8)) {
        snprintf(server, cap, "%.*s", (int)strcspn(at + 8, "&"), at + 8);
        snprintf(front, front_cap, "mariadb://127.0.0.1:%d/holdfast?user=holdfast", port);
    } else if (!strncmp(url, "firestore:", 10)) {
        const char *host = getenv("FIRESTORE_EMULATOR_HOST");
        snprintf(server, cap, "%s", host ? host : "");
        snprintf(front, front_cap, "%s", url);
    } else if ((at = strstr(url, "//127.0.0.1:"))) {
        const char *rest = at + 12 + strspn(at + 12, "0123456789");
        snprintf(server, cap, "%.*s", (int)(rest - at - 2), at + 2);
        snprintf(front, front_cap, "%.*s//127.0.0.1:%d%s", (int)(at - url), url, port, rest);
    } else {
        return -1;
    }
    return 0;
}
