/*
 * handle.c - opens a handle, opens it again in the child of a fork, and counts the calls under way.
 */
#include "handle.h"

#include "above.h"
#include "drivers.h"
#include "key.h"
#include "machine_store.h"
#include "os.h"
#include "peers.h"
#include "renewal_queue.h"
#include "shown.h"
#include "thread.h"
#include "url_advice.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_BUCKETS = 64, DEFAULT_LEASE_MS = 30000, IO_TIMEOUT_MS = 5000 };

/* What hf_open was asked for, to be used again after a fork. */
struct hf_asked {
    hf_url url; /* resolved; with its password */
    int64_t io_timeout_ms;
    char owner[HF_OWNER_CAP], note[HF_NOTE_CAP]; /* "": none was given */
};

/* ---- small things ---- */

int hf__dead(const char *what, hf_error *err)
{
    return hf_fail(err, HF_LOST, 0, "%s: this lock belongs to the parent of a fork", what);
}

/* ---- the party of this handle ---- */

/* Appends " name=value". Spaces, '%' and what isn't printable ASCII are percent-encoded. */
static void add_field(char *to, size_t cap, const char *name, const char *value)
{
    size_t n = strlen(to);
    size_t put = (size_t)snprintf(to + n, cap - n, "%s%s=", n ? " " : "", name);
    if (put >= cap - n) {
        to[n] = 0;
        return;
    }
    n += put;
    for (const unsigned char *s = (const unsigned char *)value; *s && n + 4 < cap; s++) {
        if (*s > 0x20 && *s < 0x7f && *s != '%')
            to[n++] = (char)*s;
        else
            n += (size_t)snprintf(to + n, cap - n, "%%%02X", *s);
    }
    to[n] = 0;
}

static void default_note(char note[HF_NOTE_CAP])
{
    char host[65] = "", pid[24], pidns[24], user[64];
    gethostname(host, sizeof host - 1);
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    snprintf(pidns, sizeof pidns, "%llu", (unsigned long long)hf__pid_namespace());
    hf__user_name(user, sizeof user);
    note[0] = 0;
    add_field(note, HF_NOTE_CAP, "host", host);
    add_field(note, HF_NOTE_CAP, "pid", pid);
    add_field(note, HF_NOTE_CAP, "pidns", pidns);
    add_field(note, HF_NOTE_CAP, "user", user);
    add_field(note, HF_NOTE_CAP, "command", program_invocation_short_name);
}

static void own_party(hf *h)
{
    hf_party *p = &h->party;
    hf__random(h->next_id, sizeof h->next_id);
    if (*h->asked->owner)
        memcpy(p->owner, h->asked->owner, sizeof p->owner);
    else {
        uint64_t r[2];
        hf__random(r, sizeof r);
        snprintf(p->owner, sizeof p->owner, "%016llx%016llx", (unsigned long long)r[0],
                 (unsigned long long)r[1]);
    }
    if (*h->asked->note)
        memcpy(p->note, h->asked->note, sizeof p->note);
    else
        default_note(p->note);
    hf__clean_utf8(p->note);
    hf__new_id(h, p->id);
    p->owner_len = (uint8_t)strlen(p->owner);
    p->note_len = (uint8_t)strlen(p->note);
    p->session = h->port.session;
    p->flags = HF_PARTY_AT_ONCE; /* the party is used under the mutex */
    uint32_t poll_ms = hf__port_poll_ms(&h->port);
    p->claim_ms = h->port.caps.local ? HF_CLAIM_MS : poll_ms * 4;
    if (p->claim_ms < HF_CLAIM_MS) p->claim_ms = HF_CLAIM_MS;
    /* If the store's clock is coarse, a waiter that was granted the key by a handover stops
       believing earlier, by the clock's resolution. So the claim timeout is longer by that. */
    p->claim_ms += (uint32_t)(h->port.caps.clock_resolution_us / 1000);
    if (!h->port.session) p->lease_ms = DEFAULT_LEASE_MS;
}

/* ---- opening ---- */

/* Opens the store of a resolved URL into a port of zeros. After a failure the caller closes
   port->st, unless it is NULL. */
static int open_port(struct hf_port *port, const struct hf_asked *asked, hf_error *err)
{
    hf_error why = {0, 0, ""}; /* `err` may be NULL, and the code is needed */
    port->io_timeout_ms = asked->io_timeout_ms;
    port->drv = hf__driver(asked->url.scheme, &why);
    if (!port->drv) return hf_fail(err, why.code, why.sys, "%s", why.text);
    int rc =
        hf__open_store(port->drv, &asked->url, port->io_timeout_ms, &port->st, &port->caps, err);
    if (rc == HF_INVALID) hf__explain_option(err);
    if (!rc && hf__wrap_opened) rc = hf__wrap_opened(&port->drv, &port->st, &port->caps, err);
    if (rc) return rc;
    if (port->caps.liveness) rc = port->caps.liveness->session(port->st, &port->session, err);
    return rc;
}

/* Checks and copies the options of hf_open. The copy of the URL is resolved: it names the same
   store from any working directory. */
static int read_asked(struct hf_asked *to, const char *url, const hf_open_options *o, hf_error *err)
{
    const char *owner = o ? o->owner : NULL, *note = o ? o->note : NULL;
    hf_error why = {0, 0, ""};
    if (o && o->io_timeout_ms && (o->io_timeout_ms < 100 || o->io_timeout_ms > 3600000))
        return hf_fail(err, HF_INVALID, 0, "open: io_timeout_ms: must be 100 to 3,600,000");
    if (o && o->flags & ~(unsigned)HF_OPEN_EXISTING)
        return hf_fail(err, HF_INVALID, 0, "open: flags: %u isn't one", o->flags);
    to->io_timeout_ms = o && o->io_timeout_ms ? o->io_timeout_ms : IO_TIMEOUT_MS;
    int rc = hf_url_parse(url, &to->url, err);
    if (rc) return rc;
    const hf_driver *drv = hf__driver(to->url.scheme, &why);
    if (!drv) return hf_fail(err, why.code, why.sys, "%s", why.text);
    to->url.existing = o && o->flags & HF_OPEN_EXISTING;
    rc = hf__resolve_url(drv, &to->url, err);
    if (rc) return rc;
    const char *wrong = hf__owner_wrong(owner);
    if (wrong) return hf_fail(err, HF_INVALID, 0, "open: %s", wrong);
    if (note && strlen(note) >= HF_NOTE_CAP)
        return hf_fail(err, HF_INVALID, 0, "open: note: longer than %d bytes", HF_NOTE_CAP - 1);
    if (owner) memcpy(to->owner, owner, strlen(owner) + 1);
    if (note) memcpy(to->note, note, strlen(note) + 1);
    return 0;
}

static void free_asked(struct hf_asked *asked)
{
    if (asked) explicit_bzero(asked, sizeof *asked);
    free(asked);
}

void hf__ref(hf *h) { __atomic_add_fetch(&h->refs, 1, __ATOMIC_RELAXED); }

void hf__unref(hf *h)
{
    if (__atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL)) return;
    pthread_mutex_destroy(&h->mu);
    pthread_cond_destroy(&h->changed);
    free(h);
}

void hf__destroy(hf *h)
{
    if (h->port.st) h->port.drv->close(h->port.st);
    for (uint32_t i = 0; h->table && i < h->buckets; i++)
        for (struct hf_entry *e = h->table[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    for (hf_lock *l = h->free_locks, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    free(h->last_row.row);
    hf__peers_close(h);
    free(h->table);
    free(h->safe_url);
    free_asked(h->asked);
    if (h->monitor_fd >= 0) close(h->monitor_fd);
    pthread_mutex_destroy(&h->port.mu);
    pthread_mutex_destroy(&h->port.serial);
    pthread_cond_destroy(&h->dispatcher_cond);
    pthread_cond_destroy(&h->renewer_cond);
    pthread_cond_destroy(&h->renewals.work);
    pthread_cond_destroy(&h->sessions.keepers.work);
    hf__unref(h);
}

/* Initializes the fields of a handle that don't outlive a fork. From here on the handle closes what
   `port` has opened. */
static void begin(hf *h, const struct hf_port *port, struct hf_entry **table)
{
    memset(h, 0, offsetof(hf, safe_url));
    h->port = *port;
    h->monitor_fd = -1;
    h->refs = 1;
    pthread_mutex_init(&h->mu, NULL);
    pthread_mutex_init(&h->port.mu, NULL);
    pthread_mutex_init(&h->port.serial, NULL);
    hf_row_init(&h->row);
    hf__thread_condition(&h->changed);
    hf__thread_condition(&h->dispatcher_cond);
    hf__thread_condition(&h->renewer_cond);
    hf__renewals_open(h);
    h->sessions = (struct hf_sessions){.above = h->above->sessions,
                                       .of = h,
                                       .port = &h->port,
                                       .mu = &h->mu,
                                       .changed = &h->changed};
    hf__thread_condition(&h->sessions.keepers.work);
    h->buckets = FIRST_BUCKETS;
    h->table = table;
}

/* Held while a handle is reopened. A child initializes it anew, because a thread of the parent may
   have held it at the fork. */
static pthread_mutex_t reopening = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;

static void in_child(void) { pthread_mutex_init(&reopening, NULL); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

static int open_url(const char *url, const hf_open_options *options, const struct hf_above *above,
                    hf **ret, hf_error *err)
{
    hf *h = calloc(1, sizeof *h);
    struct hf_port port = {0};
    if (!h) return hf_fail(err, HF_NOMEM, 0, "open: out of memory");
    h->above = above;
    struct hf_entry **table = calloc(FIRST_BUCKETS, sizeof *table);
    pthread_once(&forks_watched, watch_forks);
    h->fork_generation = hf__fork_generation();
    h->asked = calloc(1, sizeof *h->asked);
    int rc = table && h->asked ? 0 : hf_fail(err, HF_NOMEM, 0, "open: out of memory");
    if (!rc) rc = read_asked(h->asked, url, options, err);
    if (!rc && !(h->safe_url = strdup(h->asked->url.safe)))
        rc = hf_fail(err, HF_NOMEM, 0, "open: out of memory");
    if (!rc) rc = open_port(&port, h->asked, err);
    begin(h, &port, table);
    if (rc) {
        hf__destroy(h);
        return rc;
    }
    own_party(h);
    *ret = h;
    return 0;
}

int hf__open_handle(const char *url, const hf_open_options *options, const struct hf_above *above,
                    hf **ret, hf_error *err)
{
    if (options && options->size < sizeof *options)
        return hf_fail(err, HF_INVALID, 0, "open: options of size %zu: not initialized",
                       options->size);
    char *found = NULL;
    const char *from;
    int rc = url ? 0 : hf__default_url(&found, &from, err);
    if (!rc) rc = open_url(url ? url : found, options, above, ret, err);
    free(found);
    return rc;
}

/* ---- after a fork ---- */

/* Opens the store anew in the child of a fork. Nothing of the parent's handle is used or freed: its
   mutexes may be locked by threads that don't exist here, and the child must not send anything on
   the parent's connections. So that memory leaks in the child, on purpose. */
static int reopen(hf *h, const char *what, hf_error *err)
{
    struct hf_port port = {0};
    if (h->closing)
        return hf_fail(err, HF_CANCELED, 0,
                       "%s: the store was being closed as this process was forked", what);
    struct hf_entry **table = calloc(FIRST_BUCKETS, sizeof *table);
    if (!table) return hf_fail(err, HF_NOMEM, 0, "%s: out of memory", what);
    int rc = open_port(&port, h->asked, err);
    if (rc) {
        if (port.st) port.drv->close(port.st);
        free(table);
        return rc;
    }
    begin(h, &port, table);
    own_party(h);
    __atomic_store_n(&h->fork_generation, hf__forks, __ATOMIC_RELEASE);
    return 0;
}

int hf__reopen(hf *h, const char *what, hf_error *err)
{
    HF_NOT_CANCELED;
    pthread_mutex_lock(&reopening);
    int rc = hf__own(h) ? 0 : reopen(h, what, err);
    pthread_mutex_unlock(&reopening);
    return rc;
}

/* ---- calls ---- */

int hf__begin_call(hf *h, const char *what, hf_error *err)
{
    int rc = hf__alive(h, what, err);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    if (h->closing)
        rc = hf_fail(err, HF_CANCELED, 0, "%s: the store is being closed", what);
    else
        h->callers++;
    pthread_mutex_unlock(&h->mu);
    return rc;
}

int hf__begin_key_call(hf *h, const char *what, const char *key, struct hf_entry **ret,
                       hf_error *err)
{
    int rc = hf__begin_call(h, what, err);
    if (rc) return rc;
    const struct hf_name name = hf__name(key);
    pthread_mutex_lock(&h->mu);
    rc = hf__entry(h, name, ret, err);
    if (rc) hf__leave_call(h);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

void hf__leave_call(hf *h)
{
    h->callers--;
    if (h->closing) pthread_cond_broadcast(&h->changed);
}

void hf__end_call(hf *h)
{
    pthread_mutex_lock(&h->mu);
    hf__leave_call(h);
    pthread_mutex_unlock(&h->mu);
}

int hf__closing(hf *h)
{
    pthread_mutex_lock(&h->mu);
    int closing = h->closing;
    pthread_mutex_unlock(&h->mu);
    return closing;
}

const char *hf_store_url(const hf *h) { return h->safe_url; }

int hf_session_fd(const hf *h)
{
    /* The handle is const to the caller only. */
    if (hf__alive((hf *)(uintptr_t)h, "session", NULL)) return -1;
    const hf_liveness_ops *of = h->port.caps.liveness;
    if (!of || !of->session_fd) return -1;
    return of->session_fd(h->port.st);
}
