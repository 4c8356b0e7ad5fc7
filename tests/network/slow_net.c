/*
 * slow_net.c - see slow_net.h. One process, one epoll; what is read waits in one queue, for all of
 * it waits for the same time.
 */
#include "slow_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINKS = 1024, CHUNK = 1 << 18, CLIENT = 0, SERVER = 1, ONCE = -1 };

struct slow_net_orders {
    int hang, hung, asked;     /* atomic; asked: while some were to hang */
    int64_t hung_us, again_us; /* atomic; of slow_net_hang_once */
};

/* A unique number: a chunk of a link that is closed meanwhile must not go to the next link in its
   place. */
struct link {
    int fd[2];
    uint32_t number;
    int answered, mute;
    struct chunk *out[2]; /* the chunks that this side hasn't taken yet */
};

struct chunk {
    struct chunk *next;
    int64_t due_us;
    struct link *link;
    uint32_t number;
    int to;
    size_t n, sent; /* n is 0: the connection was closed */
    char data[];
};

static struct link links[LINKS];
static struct chunk *first, **last = &first;
static struct slow_net_orders *orders;
static const char *server_at;
static int64_t half_us;
static int epoll, listener, stuck; /* stuck: chunks that wait to be taken */
static uint64_t dice;
static uint32_t numbers;

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void close_link(struct link *l)
{
    for (int side = 0; side < 2; side++) {
        for (struct chunk *c; (c = l->out[side]); stuck--) {
            l->out[side] = c->next;
            free(c);
        }
        close(l->fd[side]);
    }
    l->number = 0;
}

static int dial(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET};
    const char *colon = strrchr(server_at, ':');
    int path = *server_at == '/', rc;
    int fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (path) {
        snprintf(un.sun_path, sizeof un.sun_path, "%s", server_at);
        rc = connect(fd, (struct sockaddr *)&un, sizeof un);
    } else {
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        in.sin_port = htons((uint16_t)(colon ? strtol(colon + 1, NULL, 10) : 0));
        rc = connect(fd, (struct sockaddr *)&in, sizeof in);
    }
    if (!rc) return fd;
    close(fd);
    return -1;
}

static void welcome(void)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct link *l = links;
    while (l < links + LINKS && l->number) l++;
    int to = fd < 0 || l == links + LINKS ? -1 : dial();
    if (to < 0) {
        if (fd >= 0) close(fd);
        return;
    }
    *l = (struct link){{fd, to}, ++numbers, 1, 0, {NULL, NULL}};
    for (int side = 0; side < 2; side++) {
        setsockopt(l->fd[side], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN,
                                .data.u64 = (uint64_t)(l - links) * 2 + (uint64_t)side};
        epoll_ctl(epoll, EPOLL_CTL_ADD, l->fd[side], &e);
    }
}

/* Keeps what came from that side, to be sent to the other one later. */
static void keep(struct link *l, int side, const char *data, size_t n)
{
    struct chunk *c = malloc(sizeof *c + n);
    if (!c) _exit(1);
    *c = (struct chunk){NULL, now_us() + half_us, l, l->number, !side, n, 0};
    memcpy(c->data, data, n);
    *last = c;
    last = &c->next;
}

/* Returns 1 if this request hangs. That is random: if each tenth one did, a client that makes ten
   requests in each attempt would always have the same one hang. The seed decides which ones. */
static int hangs(void)
{
    int of_1000 = __atomic_load_n(&orders->hang, __ATOMIC_RELAXED);
    if (!of_1000) return 0;
    if (of_1000 == ONCE) {
        __atomic_store_n(&orders->hang, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&orders->hung_us, now_us(), __ATOMIC_RELAXED);
        return 1;
    }
    __atomic_fetch_add(&orders->asked, 1, __ATOMIC_RELAXED);
    dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (int)((dice >> 33) % 1000) < of_1000;
}

static void carry(struct link *l, int side)
{
    static char data[CHUNK];
    ssize_t n = recv(l->fd[side], data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n < 0 || (!n && l->mute)) {
        close_link(l);
        return;
    }
    if (!n) { /* after the bytes that it has sent */
        epoll_ctl(epoll, EPOLL_CTL_DEL, l->fd[side], NULL);
        keep(l, side, data, 0);
        return;
    }
    if (side == SERVER) l->answered = 1;
    if (side == CLIENT && l->answered && !l->mute) {
        l->answered = 0;
        l->mute = hangs();
        if (!l->mute && orders->hung_us && !orders->again_us)
            __atomic_store_n(&orders->again_us, now_us(), __ATOMIC_RELAXED);
        __atomic_fetch_add(&orders->hung, l->mute, __ATOMIC_RELAXED);
    }
    if (!l->mute) keep(l, side, data, (size_t)n);
}

/* Writes what the other side takes now; the rest stays queued. While bytes wait for one side, bytes
   from that side are still read. */
static void flush(struct link *l, int to)
{
    struct chunk *c;
    while (l->number && (c = l->out[to])) {
        ssize_t sent =
            send(l->fd[to], c->data + c->sent, c->n - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) {
            close_link(l);
            return;
        }
        c->sent += (size_t)sent;
        if (c->sent < c->n) continue;
        int closed = !c->n;
        l->out[to] = c->next;
        free(c);
        stuck--;
        if (closed) close_link(l);
    }
}

/* Its time has come. */
static void pass(struct chunk *c)
{
    struct link *l = c->link;
    if (l->number != c->number || l->mute) {
        free(c);
        return;
    }
    struct chunk **at = &l->out[c->to];
    while (*at) at = &(*at)->next;
    *at = c;
    c->next = NULL;
    stuck++;
    flush(l, c->to);
}

/* Sends the chunks whose delay is over. Returns for how many ms the next one waits; -1: there is
   none. */
static int let_go(void)
{
    struct chunk *c;
    for (struct link *l = links; stuck && l < links + LINKS; l++)
        for (int side = 0; side < 2; side++) flush(l, side);
    while ((c = first) && c->due_us <= now_us()) {
        first = c->next;
        if (!first) last = &first;
        pass(c);
    }
    if (stuck) return 1;
    if (!c) return -1;
    int64_t left = c->due_us - now_us();
    return left > 0 ? (int)((left + 999) / 1000) : 0;
}

_Noreturn static void run(void)
{
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event l = {.events = EPOLLIN, .data.u64 = 2 * LINKS};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &l);
    for (;;) {
        struct epoll_event e[64];
        int n = epoll_wait(epoll, e, 64, let_go());
        for (int i = 0; i < n; i++) {
            uint64_t what = e[i].data.u64;
            if (what == 2 * LINKS)
                welcome();
            else if (links[what / 2].number)
                carry(&links[what / 2], (int)(what % 2));
        }
    }
}

int slow_net_start(struct slow_net *net, const char *server, int delay_ms)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t len = sizeof in;
    void *shared =
        mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return -1;
    net->orders = orders = shared;
    dice = net->seed;
    half_us = (int64_t)delay_ms * 500;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&in, sizeof in) ||
        listen(listener, LINKS) || getsockname(listener, (struct sockaddr *)&in, &len))
        return -1;
    net->port = ntohs(in.sin_port);
    fflush(stdout);
    pid_t parent = getpid();
    net->pid = fork();
    if (net->pid < 0) return -1;
    if (!net->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        server_at = server;
        run();
    }
    close(listener);
    return 0;
}

void slow_net_hang(struct slow_net *net, int of_1000)
{
    __atomic_store_n(&net->orders->hang, of_1000, __ATOMIC_RELAXED);
}

void slow_net_hang_once(struct slow_net *net) { slow_net_hang(net, ONCE); }

int64_t slow_net_again_ms(const struct slow_net *net)
{
    int64_t again_us = __atomic_load_n(&net->orders->again_us, __ATOMIC_RELAXED);
    return again_us ? (again_us - __atomic_load_n(&net->orders->hung_us, __ATOMIC_RELAXED)) / 1000
                    : -1;
}

int slow_net_hung(const struct slow_net *net)
{
    return __atomic_load_n(&net->orders->hung, __ATOMIC_RELAXED);
}

int slow_net_asked(const struct slow_net *net)
{
    return __atomic_load_n(&net->orders->asked, __ATOMIC_RELAXED);
}

void slow_net_end(struct slow_net *net)
{
    if (net->pid > 0) kill(net->pid, SIGKILL), waitpid(net->pid, NULL, 0);
    net->pid = 0;
}
