/*
 * proxy.c - see proxy.h. One process, one epoll; what is read is written on at once.
 */
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINKS = 256, CHUNK = 16384, KEPT = 1 << 18 };
enum { CLIENT, SERVER };

/* A connection. One side's descriptor is -1 if it was closed while the other one is still
   needed. */
struct link {
    int fd[2];
    int used, kept; /* kept: it is the one whose bytes are kept */
    int still;      /* the side from which nothing is read */
    int64_t still_until_us;
};

static struct link links[LINKS];
static struct proxy_order order;
static struct proxy_state state;
static char kept[KEPT];
static size_t n_kept;
static int refuse, delivered, epoll, listener;
static const char *server_at;

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void attend(int fd, uint64_t what, int on)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = what};
    epoll_ctl(epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &e);
}

static void close_side(struct link *l, int side)
{
    if (l->fd[side] >= 0) close(l->fd[side]);
    l->fd[side] = -1;
    if (l->fd[!side] < 0) l->used = l->kept = 0;
}

static void close_link(struct link *l)
{
    close_side(l, CLIENT);
    close_side(l, SERVER);
}

static int dial(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET};
    const char *colon = strrchr(server_at, ':');
    int path = *server_at == '/', one = 1;
    int fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;
    if (fd < 0) return -1;
    if (path) {
        snprintf(un.sun_path, sizeof un.sun_path, "%s", server_at);
        rc = connect(fd, (struct sockaddr *)&un, sizeof un);
    } else {
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        in.sin_port = htons((uint16_t)(colon ? strtol(colon + 1, NULL, 10) : 0));
        rc = connect(fd, (struct sockaddr *)&in, sizeof in);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (!rc) return fd;
    close(fd);
    return -1;
}

static void welcome(void)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    state.connections++;
    struct link *l = links;
    while (l < links + LINKS && l->used) l++;
    int to = state.hit && refuse > 0 ? -1 : l < links + LINKS ? dial() : -1;
    if (to < 0) {
        refuse -= refuse > 0;
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *l = (struct link){{fd, to}, 1, 0, 0, 0};
    for (int side = 0; side < 2; side++)
        attend(l->fd[side], (uint64_t)(l - links) * 2 + (uint64_t)side, 1);
}

/* Sends a little at a time. On one machine, the kernel refuses bytes only if the other side doesn't
   read. */
static void pass(struct link *l, int side, const char *data, size_t n)
{
    while (n > 0 && l->fd[side] >= 0) {
        ssize_t sent = send(l->fd[side], data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) {
            close_link(l);
            return;
        }
        data += sent;
        n -= (size_t)sent;
    }
}

static void keep(struct link *l, const char *data, size_t n)
{
    if (n > KEPT - n_kept) n = KEPT - n_kept;
    memcpy(kept + n_kept, data, n);
    n_kept += n;
    l->kept = 1;
    if ((int64_t)n_kept < order.bytes) return;
    state.hit = 1;
    close_side(l, CLIENT);
}

/* Does what was ordered to n bytes. `before` bytes went in this direction before; the first `free`
   of these go in any case. */
static void fault(struct link *l, int side, const char *data, size_t n, size_t free)
{
    int to = !side;
    if (order.what == PROXY_LATE || order.what == PROXY_TWICE) {
        pass(l, to, data, order.what == PROXY_TWICE ? n : free);
        if (l->used) keep(l, data + free, n - free);
        return;
    }
    if (order.what == PROXY_DELAY) {
        state.hit = 1;
        order.what = PROXY_PASS;
        pass(l, to, data, free);
        if (!l->used) return;
        l->still_until_us = now_us() + (int64_t)order.ms * 1000;
        l->still = side;
        n_kept = n - free;
        memcpy(kept, data + free, n_kept);
        attend(l->fd[side], 0, 0); /* from here on nothing more is read */
        return;
    }
    pass(l, to, data, free);
    state.hit = 1;
    if (order.what != PROXY_CUT) return;
    close_link(l);
    order.what = PROXY_PASS;
}

static void carry(struct link *l, int side)
{
    char data[CHUNK];
    /* The event may belong to a connection that was closed since, whose place another one has. That
       one may never send anything. */
    ssize_t n = recv(l->fd[side], data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (l->fd[CLIENT] < 0) { /* the client is gone, and the server's bytes are dropped */
        if (delivered) state.answered = 1;
        if (n <= 0) close_side(l, side);
        return;
    }
    if (n <= 0) {
        close_link(l);
        return;
    }
    int64_t before = state.bytes[side];
    state.bytes[side] += n;
    int over = state.hit && order.what != PROXY_SILENT;
    if (over || order.what == PROXY_PASS || (int)order.way != side || before + n <= order.at) {
        pass(l, !side, data, (size_t)n);
        return;
    }
    fault(l, side, data, (size_t)n, before < order.at ? (size_t)(order.at - before) : 0);
}

static void deliver(void)
{
    struct link *l = links;
    while (l < links + LINKS && !(l->used && l->kept)) l++;
    delivered = 1;
    if (l == links + LINKS || l->fd[SERVER] < 0)
        state.answered = 1; /* the server closed it */
    else
        pass(l, SERVER, kept, n_kept);
}

/* 0: the process that gives orders is gone. */
static int obey(int orders)
{
    struct proxy_order next;
    if (recv(orders, &next, sizeof next, 0) != sizeof next) return 0;
    struct proxy_state was = state;
    if (next.what == PROXY_DELIVER) {
        deliver();
    } else if (next.what != PROXY_COUNT) {
        /* Connections that are silent, or whose bytes were kept, aren't used any more. */
        for (struct link *l = links; l < links + LINKS; l++)
            if (l->used &&
                (l->kept || l->still_until_us || (order.what == PROXY_SILENT && state.hit)))
                close_link(l);
        memset(&state, 0, sizeof state);
        order = next;
        refuse = next.refuse;
        n_kept = 0;
        delivered = 0;
    }
    return send(orders, &was, sizeof was, MSG_NOSIGNAL) == sizeof was;
}

/* Sends the bytes whose delay is over. Returns how long epoll may wait. */
static int let_go(void)
{
    int wait = -1;
    for (struct link *l = links; l < links + LINKS; l++) {
        if (!l->used || !l->still_until_us) continue;
        wait = 2;
        if (now_us() < l->still_until_us) continue;
        l->still_until_us = 0;
        pass(l, !l->still, kept, n_kept);
        if (l->fd[l->still] >= 0)
            attend(l->fd[l->still], (uint64_t)(l - links) * 2 + (uint64_t)l->still, 1);
    }
    return wait;
}

_Noreturn static void run(int orders)
{
    enum { LISTENER = 2 * LINKS, ORDERS };
    epoll = epoll_create1(EPOLL_CLOEXEC);
    attend(listener, LISTENER, 1);
    attend(orders, ORDERS, 1);
    for (;;) {
        struct epoll_event e[16];
        int n = epoll_wait(epoll, e, 16, let_go());
        for (int i = 0; i < n; i++) {
            uint64_t what = e[i].data.u64;
            struct link *l = &links[what / 2 % LINKS];
            if (what == LISTENER)
                welcome();
            else if (what == ORDERS && !obey(orders))
                _exit(0);
            else if (what < LISTENER && l->used && l->fd[what % 2] >= 0)
                carry(l, (int)(what % 2));
        }
    }
}

int proxy_start(struct proxy *p, const char *server)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t len = sizeof in;
    int pair[2];
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&in, sizeof in) ||
        listen(listener, LINKS) || getsockname(listener, (struct sockaddr *)&in, &len) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -1;
    p->port = ntohs(in.sin_port);
    p->orders = pair[0];
    fflush(stdout);
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid < 0) return -1;
    if (!p->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        close(pair[0]);
        server_at = server;
        run(pair[1]);
    }
    close(pair[1]);
    close(listener);
    return 0;
}

int proxy_tell(struct proxy *p, const struct proxy_order *what, struct proxy_state *ret)
{
    struct proxy_state was;
    if (send(p->orders, what, sizeof *what, MSG_NOSIGNAL) != sizeof *what) return -1;
    ssize_t n;
    do n = recv(p->orders, &was, sizeof was, 0);
    while (n < 0 && errno == EINTR);
    if (n != sizeof was) return -1;
    if (ret) *ret = was;
    return 0;
}

void proxy_end(struct proxy *p)
{
    if (p->pid > 0) kill(p->pid, SIGKILL), waitpid(p->pid, NULL, 0);
    close(p->orders);
    p->pid = 0;
}
