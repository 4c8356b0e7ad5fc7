/*
 * names.c - a name server that turns mute, for a program that has this preloaded. "localhost" and
 * "store.test" are 127.0.0.1 until there is a file "mute" in the working directory. From then on a
 * look-up makes a file "asked", and isn't answered any more.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) int
getaddrinfo(const char *host, const char *port, const struct addrinfo *want, struct addrinfo **ret)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *found = dlsym(RTLD_NEXT, "getaddrinfo");
    int looks_up = !want || !(want->ai_flags & AI_NUMERICHOST);
    int ours = looks_up && host && (!strcmp(host, "localhost") || !strcmp(host, "store.test"));
    memcpy(&next, &found, sizeof next);
    if (ours && !access("mute", F_OK)) {
        int fd = creat("asked", 0600);
        if (fd >= 0) close(fd);
        while (!access("mute", F_OK)) pause();
    }
    return next(ours ? "127.0.0.1" : host, port, want, ret);
}
