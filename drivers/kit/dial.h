/*
 * dial.h - connects to the first of several servers, or addresses, that can be used, under one
 * deadline. Compiled into each module that uses it.
 *
 * All names are looked up at once (resolve.h). The addresses are tried in order, those of one name
 * with the families in turn. The next attempt begins when one fails, or HF_DIAL_STAGGER_MS after
 * the last one began (RFC 8305, section 5); the earlier ones go on. So neither a mute name server
 * nor a mute address takes the time of the others.
 *
 * A server may accept the connection and then be mute. So a login has until hf__dial_share: half of
 * the time that is left, if other addresses are left. hf__connect does all of this. A driver whose
 * own way is another one takes its parts:
 *
 *     int rc = hf__dial_begin(targets, n, NULL, NULL, &d);
 *     while (!rc && !(rc = hf__dial_next(d, until_us, &a))) {
 *         rc = log_in(hf__dial_take(a), hf__dial_share(d, until_us), why);
 *         if (!rc) break;
 *         hf__dial_fail(d, a, rc, why);
 *     }
 *     if (rc) hf__dial_why(d, why, sizeof why);
 *     hf__dial_end(d);
 *
 * Thread safety: any thread; one dial by one thread at a time. What hf__dial_next returns is
 * borrowed until hf__dial_end.
 */
#ifndef HF_KIT_DIAL_H
#define HF_KIT_DIAL_H

#include "holdfast_driver.h"
#include "resolve.h"

enum { HF_DIAL_STAGGER_MS = 250, HF_DIAL_TARGETS = 16, HF_DIAL_ATTEMPTS = 64 };

/* A server: see hf__lookup_start. Its texts are borrowed until hf__dial_end. */
struct hf__dial_target {
    const char *host, *port;
};

enum hf__attempt_state {
    HF_ATTEMPT_WAITS,  /* not begun */
    HF_ATTEMPT_RUNS,   /* connecting */
    HF_ATTEMPT_LINKED, /* the server has accepted, and the library is still logging in
                          (hf__dial_ops) */
    HF_ATTEMPT_READY,  /* connected */
    HF_ATTEMPT_GIVEN,  /* returned by hf__dial_next */
    HF_ATTEMPT_FAILED
};

/* An attempt to connect to one address. */
struct hf__attempt {
    size_t target; /* the index of its target */
    struct hf__endpoint at;
    enum hf__attempt_state state;
    int fd; /* the descriptor to wait for, with poll's `events`; -1: none */
    short events;
    void *own; /* what hf__dial_ops keep for the attempt */
    int code;  /* if FAILED: an HF_ code, and the reason */
    int busy;  /* if that is UNAVAILABLE: 1: the server is there, and has no room for a client now,
                  or  isn't ready yet */
    char why[HF_KIT_WHY];
};

/*
 * How one address is connected to; without it: by a stream socket, whose attempt is READY when it
 * is connected. With it a library that has its own sockets (libpq) logs in: `step` is called when
 * `fd` is ready for `events`. start and step set fd and events, and return the next state: RUNS,
 * LINKED, READY, or FAILED with code and why set. `stop` frees what is left in `own`; also after a
 * failure. They are called as quiet.h says, start and step with descriptors 0, 1 and 2 occupied.
 */
struct hf__dial_ops {
    enum hf__attempt_state (*start)(void *arg, struct hf__attempt *a);
    enum hf__attempt_state (*step)(void *arg, struct hf__attempt *a);
    void (*stop)(void *arg, struct hf__attempt *a);
};

/* What a driver connects to, and how. */
struct hf__connection {
    const char *store; /* the driver's name, for messages */
    const struct hf__dial_target *targets;
    size_t n;
    const struct hf__dial_ops *ops; /* or NULL */
    /*
     * Logs in at an address that is connected, until the local time until_us at most, and checks
     * that this server can be a store. It takes the socket (hf__dial_take), or what ops have in
     * `own`. Returns 0; or the code, with the reason in a->why, and has closed what it took.
     */
    int (*log_in)(void *arg, struct hf__attempt *a, int64_t until_us);
    void *arg;  /* of log_in and of ops */
    int opened; /* 1: the store was open once. If a server can't be a store now, another server may
                   have the address for a while, so the code is HF_UNAVAILABLE */
};
/*
 * Connects to the first server that can be used, until the local time until_us. Returns 0, or the
 * code and the error, which names each address. A server of several that can't be a store (a
 * replica) is HF_UNAVAILABLE: another one may soon be able to. If a server is busy, err->sys is
 * EBUSY: a wait without a limit goes on then. HF_INVALID: no target, or too many.
 */
int hf__connect(const struct hf__connection *to, int64_t until_us, hf_error *err);

struct hf__dial;

/* Starts to look up the names. Returns 0 and *ret, to be ended by hf__dial_end; HF_NOMEM;
   HF_INVALID: no target, or too many. */
int hf__dial_begin(const struct hf__dial_target *targets, size_t n, const struct hf__dial_ops *ops,
                   void *arg, struct hf__dial **ret);
/*
 * Waits for the next address that is connected, until the local time until_us (hf__local_us).
 * Returns 0 and *ret, borrowed. If no address is left, returns a code, and hf__dial_why says why:
 * the code of the first attempt whose failure waiting does not mend (neither HF_UNAVAILABLE nor
 * HF_UNSUPPORTED); else HF_UNSUPPORTED if all attempts failed with that; else HF_UNAVAILABLE.
 */
int hf__dial_next(struct hf__dial *d, int64_t until_us, struct hf__attempt **ret);
/* Takes over the connected socket: non-blocking, sending at once (TCP_NODELAY), closed on exec,
   above 2. With ops it isn't called: there the caller takes `own`, and sets it to NULL. */
int hf__dial_take(struct hf__attempt *a);
/* Returns the local time until which the caller should log in: until_us, or, if other addresses are
   left, half of the way to it. */
int64_t hf__dial_share(const struct hf__dial *d, int64_t until_us);
/* Notes that the login failed. The reason may be of any length. */
void hf__dial_fail(struct hf__dial *d, struct hf__attempt *a, int code, const char *why);
/* Writes what was tried, and what came of it: "'db:6379' (10.0.0.1): Connection refused; ...". */
void hf__dial_why(const struct hf__dial *d, char *to, size_t cap);
/* Closes every connection that wasn't taken. `d` may be NULL. */
void hf__dial_end(struct hf__dial *d);

#endif
