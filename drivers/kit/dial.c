/*
 * dial.c - see dial.h.
 *
 * Contents: stream sockets; calls of ops; failures; names; attempts; the loop; what was tried.
 */
#include "dial.h"

#include "holdfast_driver.h"
#include "os.h"
#include "quiet.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct target {
    struct hf__dial_target name;
    struct hf__lookup *lookup; /* NULL: answered, or failed */
    int code;                  /* the error of the lookup, if it failed; else 0 */
    char why[HF_KIT_WHY];
};

struct hf__dial {
    const struct hf__dial_ops *ops;
    void *arg;
    struct target target[HF_DIAL_TARGETS];
    size_t n_targets, n;
    int64_t wait_us;  /* local: until then this name's addresses wait for those of earlier names */
    int64_t start_us; /* local: the next attempt doesn't begin before this */
    struct hf__attempt attempt[HF_DIAL_ATTEMPTS];
};

/* ---- stream sockets ---- */

static enum hf__attempt_state failed(struct hf__attempt *a, int sys)
{
    a->code = HF_UNAVAILABLE;
    a->busy = sys == EAGAIN; /* the server's queue of a Unix socket is full */
    snprintf(a->why, sizeof a->why, "%s", strerror(sys));
    return HF_ATTEMPT_FAILED;
}

static enum hf__attempt_state socket_start(void *arg, struct hf__attempt *a)
{
    (void)arg;
    a->fd = hf__socket_nonblocking(a->at.to.any.sa_family, SOCK_STREAM, 0);
    if (a->fd < 0) return failed(a, errno);
    /* No result is checked: a Unix socket has no such option. */
    setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (!connect(a->fd, &a->at.to.any, a->at.len)) return HF_ATTEMPT_READY;
    /* EAGAIN: the queue of a Unix socket is full, which can't be waited for */
    if (errno != EINPROGRESS && errno != EINTR) return failed(a, errno);
    a->events = POLLOUT;
    return HF_ATTEMPT_RUNS;
}

static enum hf__attempt_state socket_step(void *arg, struct hf__attempt *a)
{
    int sys = 0;
    socklen_t size = sizeof sys;
    (void)arg;
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &sys, &size)) sys = errno;
    return sys ? failed(a, sys) : HF_ATTEMPT_READY;
}

static void socket_stop(void *arg, struct hf__attempt *a)
{
    (void)arg;
    if (a->fd >= 0) close(a->fd);
}

static const struct hf__dial_ops sockets = {socket_start, socket_step, socket_stop};

/* ---- calls of ops ---- */

/* Calls start or step of an attempt. A library may open files and sockets, and write to a
   connection that is gone. */
static enum hf__attempt_state call(struct hf__dial *d, struct hf__attempt *a,
                                   enum hf__attempt_state (*op)(void *, struct hf__attempt *))
{
    struct hf__quiet quiet;
    if (d->ops == &sockets) return op(d->arg, a);
    hf_low_hold();
    hf__quiet(&quiet);
    enum hf__attempt_state state = op(d->arg, a);
    hf__loud(&quiet);
    hf_low_free();
    return state;
}

/* ---- failures ---- */

static int unfinished(const struct hf__attempt *a)
{
    return a->state == HF_ATTEMPT_WAITS || a->state == HF_ATTEMPT_RUNS ||
           a->state == HF_ATTEMPT_LINKED || a->state == HF_ATTEMPT_READY;
}

static void stop(struct hf__dial *d, struct hf__attempt *a)
{
    struct hf__quiet quiet;
    if (d->ops != &sockets) hf__quiet(&quiet);
    d->ops->stop(d->arg, a);
    if (d->ops != &sockets) hf__loud(&quiet);
    a->fd = -1;
    a->own = NULL;
}

/* Sets the attempt to the state that start or step returned, and its deadline. */
static void became(struct hf__dial *d, struct hf__attempt *a, enum hf__attempt_state state,
                   int64_t until_us)
{
    int64_t now_us = hf__local_us();
    if (state == HF_ATTEMPT_FAILED) {
        stop(d, a);
        d->start_us = now_us;
    } else if (state == HF_ATTEMPT_LINKED && a->state != HF_ATTEMPT_LINKED) {
        d->start_us = now_us + (until_us > now_us ? (until_us - now_us) / 2 : 0);
    }
    a->state = state;
}

void hf__dial_fail(struct hf__dial *d, struct hf__attempt *a, int code, const char *why)
{
    a->code = code;
    snprintf(a->why, sizeof a->why, "%s", why);
    became(d, a, HF_ATTEMPT_FAILED, 0);
}

/* Ends all attempts and lookups, because the time is up. */
static void give_up(struct hf__dial *d)
{
    for (size_t i = 0; i < d->n; i++) {
        struct hf__attempt *a = &d->attempt[i];
        if (!unfinished(a)) continue;
        hf__dial_fail(d, a, HF_UNAVAILABLE,
                      a->state == HF_ATTEMPT_WAITS ? "not tried in time" : "no answer in time");
    }
    for (size_t i = 0; i < d->n_targets; i++) {
        struct target *t = &d->target[i];
        if (!t->lookup) continue;
        hf__lookup_end(t->lookup);
        t->lookup = NULL;
        t->code = HF_UNAVAILABLE;
        snprintf(t->why, sizeof t->why, "the name servers don't answer in time");
    }
}

static int verdict(const struct hf__dial *d)
{
    int all_unsupported = d->n > 0;
    for (size_t i = 0; i < d->n; i++) {
        int code = d->attempt[i].code;
        if (d->attempt[i].state != HF_ATTEMPT_FAILED) continue;
        if (code != HF_UNAVAILABLE && code != HF_UNSUPPORTED) return code;
        all_unsupported &= code == HF_UNSUPPORTED;
    }
    for (size_t i = 0; i < d->n_targets; i++) {
        if (d->target[i].code == HF_NOMEM) return HF_NOMEM;
        all_unsupported &= !d->target[i].code;
    }
    return all_unsupported ? HF_UNSUPPORTED : HF_UNAVAILABLE;
}

/* Returns 1 if a server was there, and had no room for a client. */
static int any_busy(const struct hf__dial *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->attempt[i].state == HF_ATTEMPT_FAILED && d->attempt[i].busy) return 1;
    return 0;
}

/* ---- names ---- */

static void answered(struct hf__dial *d, size_t i)
{
    struct hf__endpoint at[HF_ENDPOINTS];
    struct target *t = &d->target[i];
    size_t n = 0;
    int rc = hf__lookup_take(t->lookup, at, &n, t->why);
    if (rc == HF_LOOKUP_PENDING) return;
    hf__lookup_end(t->lookup);
    t->lookup = NULL;
    t->code = rc;
    for (size_t k = 0; k < n && d->n < HF_DIAL_ATTEMPTS; k++) {
        struct hf__attempt *a = &d->attempt[d->n++];
        memset(a, 0, sizeof *a);
        a->target = i;
        a->at = at[k];
        a->fd = -1;
    }
}

static int looks_up(const struct hf__dial *d, size_t before)
{
    for (size_t i = 0; i < before; i++)
        if (d->target[i].lookup) return 1;
    return 0;
}

/* ---- attempts ---- */

/* Returns the first attempt in that state, by target, then by address. */
static struct hf__attempt *first(struct hf__dial *d, enum hf__attempt_state state)
{
    struct hf__attempt *found = NULL;
    for (size_t i = 0; i < d->n; i++) {
        struct hf__attempt *a = &d->attempt[i];
        if (a->state == state && (!found || a->target < found->target)) found = a;
    }
    return found;
}

/* Starts the attempts that may start now. Returns the local time at which the next one may start;
   INT64_MAX: there is none. */
static int64_t start_next(struct hf__dial *d, int64_t until_us)
{
    struct hf__attempt *a;
    while ((a = first(d, HF_ATTEMPT_WAITS))) {
        int64_t now_us = hf__local_us(), at_us = d->start_us;
        if (looks_up(d, a->target) && at_us < d->wait_us) at_us = d->wait_us;
        if (now_us < at_us) return at_us;
        d->start_us = now_us + HF_DIAL_STAGGER_MS * 1000;
        became(d, a, call(d, a, d->ops->start), until_us);
        if (a->state == HF_ATTEMPT_READY) break;
    }
    return INT64_MAX;
}

/* ---- the loop ---- */

/* Waits until a socket is ready or a name is looked up, until wake_us at most. Then steps the
   attempts whose sockets are ready. until_us: the time limit of the whole dial. */
static void wait_and_step(struct hf__dial *d, int64_t wake_us, int64_t until_us)
{
    struct pollfd p[HF_DIAL_TARGETS + HF_DIAL_ATTEMPTS];
    struct hf__attempt *of[HF_DIAL_TARGETS + HF_DIAL_ATTEMPTS];
    nfds_t n = 0;
    for (size_t i = 0; i < d->n_targets; i++) {
        if (!d->target[i].lookup) continue;
        of[n] = NULL;
        p[n++] = (struct pollfd){hf__lookup_fd(d->target[i].lookup), POLLIN, 0};
    }
    for (size_t i = 0; i < d->n; i++) {
        struct hf__attempt *a = &d->attempt[i];
        if (a->state != HF_ATTEMPT_RUNS && a->state != HF_ATTEMPT_LINKED) continue;
        of[n] = a;
        p[n++] = (struct pollfd){a->fd, a->events, 0};
    }
    int64_t left_us = wake_us - hf__local_us();
    if (left_us < 0) left_us = 0;
    if (poll(p, n, left_us > 60000000 ? 60000 : (int)((left_us + 999) / 1000)) <= 0) return;
    for (nfds_t i = 0; i < n; i++)
        if (of[i] && p[i].revents) became(d, of[i], call(d, of[i], d->ops->step), until_us);
}

int hf__dial_next(struct hf__dial *d, int64_t until_us, struct hf__attempt **ret)
{
    *ret = NULL;
    for (;;) {
        for (size_t i = 0; i < d->n_targets; i++)
            if (d->target[i].lookup) answered(d, i);
        int64_t wake_us = first(d, HF_ATTEMPT_READY) ? INT64_MAX : start_next(d, until_us);
        struct hf__attempt *a = first(d, HF_ATTEMPT_READY);
        if (a) {
            a->state = HF_ATTEMPT_GIVEN;
            *ret = a;
            return 0;
        }
        int goes_on = looks_up(d, d->n_targets) || wake_us != INT64_MAX ||
                      first(d, HF_ATTEMPT_RUNS) || first(d, HF_ATTEMPT_LINKED);
        if (goes_on && hf__local_us() >= until_us) {
            give_up(d);
            goes_on = 0;
        }
        if (!goes_on) return verdict(d);
        wait_and_step(d, wake_us < until_us ? wake_us : until_us, until_us);
    }
}

int hf__dial_begin(const struct hf__dial_target *targets, size_t n, const struct hf__dial_ops *ops,
                   void *arg, struct hf__dial **ret)
{
    *ret = NULL;
    if (!n || n > HF_DIAL_TARGETS) return HF_INVALID;
    struct hf__dial *d = malloc(sizeof *d);
    if (!d) return HF_NOMEM;
    d->ops = ops ? ops : &sockets;
    d->arg = arg;
    d->n_targets = n;
    d->n = 0;
    d->start_us = hf__local_us();
    d->wait_us = d->start_us + HF_DIAL_STAGGER_MS * 1000;
    for (size_t i = 0; i < n; i++) {
        struct target *t = &d->target[i];
        t->name = targets[i];
        t->code = hf__lookup_start(t->name.host, t->name.port, &t->lookup, t->why);
    }
    *ret = d;
    return 0;
}

int hf__dial_take(struct hf__attempt *a)
{
    int fd = a->fd;
    a->fd = -1;
    return fd;
}

int64_t hf__dial_share(const struct hf__dial *d, int64_t until_us)
{
    int64_t now_us = hf__local_us();
    int others = looks_up(d, d->n_targets);
    for (size_t i = 0; i < d->n && !others; i++) others = unfinished(&d->attempt[i]);
    return others && now_us < until_us ? now_us + (until_us - now_us) / 2 : until_us;
}

void hf__dial_end(struct hf__dial *d)
{
    if (!d) return;
    for (size_t i = 0; i < d->n_targets; i++) hf__lookup_end(d->target[i].lookup);
    for (size_t i = 0; i < d->n; i++) {
        int begun = d->attempt[i].state != HF_ATTEMPT_WAITS;
        if (begun && d->attempt[i].state != HF_ATTEMPT_FAILED) stop(d, &d->attempt[i]);
    }
    free(d);
}

/* ---- what was tried ---- */

struct text {
    char *to;
    size_t cap, len;
    int left_out;
};

/* Appends a failure to the text. If there is no room for it, only counts it. */
static void tell(struct text *t, const struct hf__dial_target *name, const char *at,
                 const char *why)
{
    char one[HF_KIT_WHY + HF_ENDPOINT_TEXT + 400];
    const char *open = strchr(name->host, ':') ? "[" : "", *close = *open ? "]" : "";
    int local = name->host[0] == '/', same = !*at || !strcmp(at, name->host);
    snprintf(one, sizeof one, "%s'%s%s%s%s%s'%s%s%s: %s", t->len ? "; " : "", open, name->host,
             close, local ? "" : ":", local ? "" : name->port, same ? "" : " (", same ? "" : at,
             same ? "" : ")", why);
    size_t n = strlen(one), room = t->cap - t->len;
    if (t->len && n + sizeof "; 99 more" > room) {
        t->left_out++;
    } else {
        snprintf(t->to + t->len, room, "%s", one);
        t->len += n < room ? n : room - 1;
    }
}

void hf__dial_why(const struct hf__dial *d, char *to, size_t cap)
{
    struct text t = {to, cap, 0, 0};
    to[0] = 0;
    for (size_t i = 0; i < d->n_targets; i++) {
        const struct target *of = &d->target[i];
        if (of->code) tell(&t, &of->name, "", of->why);
        for (size_t k = 0; k < d->n; k++) {
            char at[HF_ENDPOINT_TEXT];
            if (d->attempt[k].target != i || d->attempt[k].state != HF_ATTEMPT_FAILED) continue;
            hf__endpoint_text(&d->attempt[k].at, at);
            tell(&t, &of->name, at, d->attempt[k].why);
        }
    }
    if (t.left_out) snprintf(to + t.len, cap - t.len, "; %d more", t.left_out);
}

/* ---- all of it ---- */

/* Notes that a login failed with `code`; the reason is in a->why. */
static void log_in_failed(struct hf__dial *d, struct hf__attempt *a, int code)
{
    a->code = code == HF_UNSUPPORTED && d->n_targets > 1 ? HF_UNAVAILABLE : code;
    became(d, a, HF_ATTEMPT_FAILED, 0);
}

int hf__connect(const struct hf__connection *to, int64_t until_us, hf_error *err)
{
    struct hf__attempt *a;
    struct hf__dial *d;
    char why[HF_TEXT_CAP - 32];
    int rc = hf__dial_begin(to->targets, to->n, to->ops, to->arg, &d);
    if (rc == HF_NOMEM) return hf_fail(err, rc, 0, "%s: connect: out of memory", to->store);
    if (rc)
        return hf_fail(err, rc, 0, "%s: connect: %zu servers are named; it can be 1 to %d",
                       to->store, to->n, HF_DIAL_TARGETS);
    while (!(rc = hf__dial_next(d, until_us, &a))) {
        rc = to->log_in(to->arg, a, hf__dial_share(d, until_us));
        if (!rc) break;
        log_in_failed(d, a, rc);
    }
    if (rc == HF_UNSUPPORTED && to->opened) rc = HF_UNAVAILABLE;
    hf__dial_why(d, why, sizeof why);
    int busy = rc == HF_UNAVAILABLE && any_busy(d);
    hf__dial_end(d);
    return rc ? hf_fail(err, rc, busy ? EBUSY : 0, "%s: connect %s", to->store, why) : 0;
}
