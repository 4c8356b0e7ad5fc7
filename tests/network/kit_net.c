/*
 * kit_net.c - see kit_net.h.
 */
#include "kit_net.h"

#include "os.h"
#include "test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int mute = 1;
static unsigned asked, waiting;
static int low;

static int system_looks_up(const char *host, const char *port, const struct addrinfo *want,
                           struct addrinfo **ret)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *found = dlsym(RTLD_NEXT, "getaddrinfo");
    assert_non_null(found);
    memcpy(&next, &found, sizeof next);
    return next(host, port, want, ret);
}

static int one(char name, const char *port, const struct addrinfo *want, struct addrinfo **ret)
{
    char text[] = "127.0.0.0";
    text[8] = name;
    return system_looks_up(name == 'x' ? "::1" : text, port, want, ret);
}

/* Opens a descriptor, as the system's getaddrinfo does for /etc/hosts and its sockets. */
static void open_one(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    if (fd >= 0 && fd <= 2) __atomic_store_n(&low, 1, __ATOMIC_RELAXED);
    if (fd >= 0) close(fd);
}

int kit_names_opened_low(void) { return __atomic_load_n(&low, __ATOMIC_RELAXED); }

int getaddrinfo(const char *host, const char *port, const struct addrinfo *want,
                struct addrinfo **ret)
{
    struct addrinfo **at = ret;
    unsigned char number[sizeof(struct in6_addr)]; /* some libraries don't say that it is one */
    if (want->ai_flags & AI_NUMERICHOST || inet_pton(AF_INET, host, number) == 1 ||
        inet_pton(AF_INET6, host, number) == 1)
        return system_looks_up(host, port, want, ret);
    open_one();
    pthread_mutex_lock(&mu);
    asked++;
    int is_mute = !strncmp(host, "mute", 4);
    waiting++;
    pthread_cond_broadcast(&changed);
    while (is_mute && mute) pthread_cond_wait(&changed, &mu);
    waiting--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
    if (!strncmp(host, "none", 4)) return EAI_NONAME;
    if (is_mute) return one('1', port, want, ret);
    for (const char *p = host; *p; p++) {
        if (!strchr("123456789x", *p)) continue;
        int rc = one(*p, port, want, at);
        if (rc) return rc;
        at = &(*at)->ai_next;
    }
    return 0;
}

void kit_names_answer(void)
{
    pthread_mutex_lock(&mu);
    mute = 0;
    pthread_cond_broadcast(&changed);
    while (waiting) pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

void kit_names_mute(void)
{
    pthread_mutex_lock(&mu);
    mute = 1;
    pthread_mutex_unlock(&mu);
}

unsigned kit_names_asked(void)
{
    pthread_mutex_lock(&mu);
    unsigned n = asked;
    pthread_mutex_unlock(&mu);
    return n;
}

void kit_names_wait(unsigned n)
{
    pthread_mutex_lock(&mu);
    while (waiting != n) pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

void kit_names_in_child(void)
{
    mute = 0;
    waiting = 0;
}

static int bound(int n, int *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t len = sizeof to;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(0x7f000000U + (unsigned)n);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &len), 0);
    *port = ntohs(to.sin_port);
    return fd;
}

int kit_listen(int n, int *port)
{
    int fd = bound(n, port);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

/* A queue of length 0 holds one connection; then the kernel drops further attempts. */
int kit_silent(int n, int *port, int *ret_filler)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    int fd = bound(n, port);
    to.sin_addr.s_addr = htonl(0x7f000000U + (unsigned)n);
    to.sin_port = htons((uint16_t)*port);
    assert_int_equal(listen(fd, 0), 0);
    *ret_filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(*ret_filler, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

int kit_refusing(int n, int *port) { return bound(n, port); }

int kit_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

int64_t kit_in_ms(int64_t ms) { return hf__local_us() + ms * 1000; }
