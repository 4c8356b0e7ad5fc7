/*
 * names.c - a name server that turns mute, for a program that has this preloaded. "localhost" is
 * 127.0.0.1 until there is a file "mute" in the working directory. From then on it isn't answered
 * any more.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) int
getaddrinfo(const char *host, const char *port, const struct addrinfo *want, struct addrinfo **ret)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *found = dlsym(RTLD_NEXT, "getaddrinfo");
    int looks_up = !want || !(want->ai_flags & AI_NUMERICHOST);
    int ours = looks_up && host && !strcmp(host, "localhost");
    memcpy(&next, &found, sizeof next);
    while (ours && !access("mute", F_OK)) pause();
    return next(ours ? "127.0.0.1" : host, port, want, ret);
}
