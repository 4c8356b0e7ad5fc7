/*
 * session.c - sessions and their liveness: slots held by byte-range locks, wakeups, deaths, forks.
 *
 * A store has two open file descriptions, each with a locked byte for its slot. One carries the
 * session: the session's holds live as long as it is open, and `holdfast run` passes it to its
 * command. The other carries the client: the client owns lock words as long as it is open. If
 * `holdfast run` is killed and its command survives, the key stays held; but a lock word that
 * `holdfast run` left behind can be taken over.
 */
#include "store.h"

#include "os.h"

#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- slots ---- */

static uint32_t first_slot(void)
{
#ifdef HF_SEAM
    return 0; /* tests: the same in every run */
#else
    uint32_t r;
    hf__random(&r, sizeof r); /* spreads the generations, and the slots that processes try first */
    return r;
#endif
}

int hf__session_open(const struct hf__op *op)
{
    struct hf__client *c = op->c;
    uint32_t start = first_slot(), damaged = 0;
    for (uint32_t i = 0; i < HF_FILE_SLOTS; i++) {
        uint32_t slot = (start + i) % HF_FILE_SLOTS;
        struct hf__slot *s = hf__slot_at(c, slot);
        uint64_t word = HF_LOAD("session.look", &s->generation);
        if (!hf__sealed(word) || hf__unseal(word) + 1 >= UINT64_C(1) << 40) {
            damaged++;
            continue;
        }
        int rc = (HF_AT("session.take"), HF_ENV(c, take_slot)(c, slot));
        if (rc < 0)
            return hf_fail(op->err, HF_UNAVAILABLE, -rc, "file: open '%s': locking a byte: %s",
                           c->path, strerror(-rc));
        if (!rc) continue;
        /* This client has locked the slot, so no other process writes this word. A slot with its
           next generation is a new session. */
        word = HF_LOAD("session.again", &s->generation);
        if (!hf__sealed(word)) return hf__damaged(op, s, "the generation of a session");
        uint64_t generation = hf__unseal(word) + 1;
        HF_STORE("session.begin", &s->generation, hf__seal(generation));
        c->session = hf__session_id(generation, slot);
        c->word = hf__lock_word(c->session);
        return 0;
    }
    return hf_fail(op->err, HF_FULL, 0, "file: open '%s': all %u sessions are in use%s", c->path,
                   HF_FILE_SLOTS, damaged ? " or damaged" : "");
}

int hf__file_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "session", NULL, err};
    int rc = hf__broken(&op);
    if (!rc) *ret = c->session;
    return rc;
}

int hf__file_alive(hf_store *st, uint64_t session, hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "alive", NULL, err};
    uint32_t slot = (uint32_t)(session & 0xffff);
    int rc = hf__broken(&op);
    if (rc) return rc;
    if (session == c->session) return 1;
    if (slot >= HF_FILE_SLOTS || !(session >> 16)) return 0;
    struct hf__slot *s = hf__slot_at(c, slot);
    /* Pairs with the store in hf__session_open. */
    uint64_t word = HF_LOAD("alive.generation", &s->generation);
    if (!hf__sealed(word)) return hf__damaged(&op, s, "the generation of a session");
    if (hf__unseal(word) != session >> 16) return 0;
    rc = HF_PROBE("alive.probe", c, HF_BYTE_SESSION + slot);
    if (rc < 0)
        return hf_fail(err, HF_UNAVAILABLE, -rc, "file: alive: asking '%s': %s", c->path,
                       strerror(-rc));
    return rc;
}

int hf__file_session_fd(hf_store *st)
{
    struct hf__client *c = hf__client_of(st);
    return atomic_load_explicit(&c->broken, memory_order_acquire) == HF_LOST ? -1 : c->session_fd;
}

/* ---- wakeups ---- */

static _Atomic uint32_t *own_wakeup(struct hf__client *c, uint8_t wakeup)
{
    return &hf__slot_at(c, (uint32_t)(c->session & 0xffff))->wakeup[wakeup % HF_FILE_WAKEUPS];
}

/* Makes the marks of wakeup 0. If that fails (the disk may be full), it is tried again when there
   are twice as many waits as now: n. */
static void make_marks(hf_store *st, size_t n)
{
    const struct hf__op op = {hf__client_of(st), "listen", NULL, NULL};
    int rc = hf__marks_room(&op, hf__slot_at(op.c, (uint32_t)(op.c->session & 0xffff)));
    if (rc) st->marks_for = 2 * n;
    st->marked = st->shared_wakeup.all = !rc; /* earlier wakeups weren't marked */
}

static int marks_are_worth_it(const hf_store *st, uint8_t wakeup, size_t n)
{
    return !wakeup && !st->marked && n >= HF_MARKS_FROM && n >= st->marks_for;
}

int hf__file_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                          hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "listen", NULL, err};
    int rc = hf__broken(&op);
    if (!rc && marks_are_worth_it(st, wakeup, n)) make_marks(st, n);
    /* Pairs with the addition in hf__ring: a row that is read after this is at least as new as the
       write that the counter counts. */
    if (!rc) ret->n[0] = HF_LOAD("listen", own_wakeup(c, wakeup));
    return rc;
}

int hf__file_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                   hf_error *err)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "watch", NULL, err};
    const char *why;
    int rc = hf__broken(&op);
    if (rc) return rc;
    _Atomic uint32_t *word = own_wakeup(c, wakeup);
    uint32_t seen = (uint32_t)since->n[0];
    if (HF_LOAD("watch.look", word) != seen) return 0;
    if (atomic_exchange_explicit(&st->interrupted[wakeup], 0, memory_order_acq_rel)) return 0;
    int64_t left_us = until_us - HF_NOW(c);
    if (left_us <= 0) return 0;
    HF_FUTEX_WAIT("watch.sleep", c, word, seen, left_us);
    if (HF_LOAD("watch.heard", word) != seen || !HF_ENV(c, same_file)(c, &why)) return 0;
    /* No wakeup came until the timeout, and the path leads to another file. */
    hf__break(c, HF_CORRUPT, why);
    return hf__broken(&op);
}

int hf__file_next_event(hf_store *st, uint8_t wakeup, hf_key_event *ret)
{
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "watch", NULL, NULL};
    int missed = 0;
    if (atomic_load_explicit(&c->broken, memory_order_acquire)) return 0;
    struct hf__slot *s = hf__slot_at(c, (uint32_t)(c->session & 0xffff));
    struct hf__key_marks *m = st->marked ? hf__marks_of(&op, s, &missed) : NULL;
    uint32_t counted = HF_LOAD("event.wakeup", own_wakeup(c, wakeup));
    if (m && HF_LOAD("event.missed", &s->missed)) {
        HF_STORE("event.all", &s->missed, 0);
        st->shared_wakeup.all = 1;
    }
    return hf__wakeup_event(&st->shared_wakeup, m, counted, ret);
}

void hf__file_interrupt(hf_store *st, uint8_t wakeup)
{
    struct hf__client *c = hf__client_of(st);
    if (atomic_load_explicit(&c->broken, memory_order_acquire) == HF_LOST) return;
    _Atomic uint32_t *word = own_wakeup(c, wakeup);
    atomic_store_explicit(&st->interrupted[wakeup], 1, memory_order_release);
    HF_XADD("interrupt", word, 1);
    HF_FUTEX_WAKE("interrupt.wake", c, word, INT32_MAX);
}

/* ---- the death of others ---- */

/*
 * Returns an inotify descriptor that reports deaths and changes of the file; -1: there is none. A
 * process that dies closes its descriptors of the file, and inotify reports that a moment before
 * the kernel drops the locks. The watch is set on the path under /proc, which leads to the open
 * inode, whatever became of the file's name.
 */
int hf__file_death_fd(hf_store *st)
{
    struct hf__client *c = hf__client_of(st);
    char name[64];
    if (atomic_load_explicit(&c->broken, memory_order_acquire) == HF_LOST) return -1;
    pthread_mutex_lock(&st->mu);
    if (st->death_fd == -1 && !st->attached) {
        int fd = hf__fd_above(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
        snprintf(name, sizeof name, "/proc/self/fd/%d", c->fd);
        uint32_t mask = IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;
        if (fd >= 0 && inotify_add_watch(fd, name, mask) < 0 &&
            inotify_add_watch(fd, c->path, mask) < 0) {
            close(fd);
            fd = -1;
        }
        struct stat s;
        st->death_size = fd >= 0 && !fstat(c->fd, &s) ? s.st_size : 0;
        st->death_fd = fd < 0 ? -2 : fd;
    }
    int fd = st->death_fd;
    pthread_mutex_unlock(&st->mu);
    return fd < 0 ? -1 : fd;
}

/* Returns 1 if the file has only grown. inotify reports that, too, but no waiter has to look. */
static int has_grown(hf_store *st)
{
    struct stat s;
    if (fstat(st->c.fd, &s)) return 0;
    int grown = s.st_size >= st->death_size && s.st_nlink;
    st->death_size = s.st_size;
    return grown;
}

int hf__file_death_read(hf_store *st)
{
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t n;
    int matters = 0;
    if (st->death_fd < 0) return 0;
    while ((n = read(st->death_fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(buffer + at);
            /* The file was removed, truncated or moved: the next operation checks it. */
            if (e->mask & ~(uint32_t)IN_CLOSE_WRITE)
                atomic_store_explicit(&st->c.look, 1, memory_order_release);
            matters |= e->mask != IN_MODIFY || !has_grown(st);
            at += (ssize_t)(sizeof *e + e->len);
        }
    return matters;
}

/* ---- fork ---- */

static pthread_mutex_t all_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t all_once = PTHREAD_ONCE_INIT;
static hf_store *all;

/* The child must not keep its parent's sessions alive, nor touch its mapping (which it doesn't
   have: see hf__map). Only calls that a forked child may make. */
static void in_child(void)
{
    for (hf_store *st = all; st; st = st->next) {
        atomic_store_explicit(&st->c.broken, HF_LOST, memory_order_release);
        if (st->c.fd >= 0) close(st->c.fd);
        if (st->c.session_fd >= 0) close(st->c.session_fd);
        if (st->death_fd >= 0) close(st->death_fd);
        st->c.fd = st->c.session_fd = st->death_fd = -1;
    }
    all = NULL;
    pthread_mutex_unlock(&all_mu);
}

static void at_fork(void) { pthread_atfork(hf__fork_hold, hf__fork_release, in_child); }

void hf__fork_hold(void) { pthread_mutex_lock(&all_mu); }
void hf__fork_release(void) { pthread_mutex_unlock(&all_mu); }

void hf__fork_watch(hf_store *st)
{
    pthread_once(&all_once, at_fork);
    pthread_mutex_lock(&all_mu);
    st->next = all;
    st->link = &all;
    if (all) all->link = &st->next;
    all = st;
    pthread_mutex_unlock(&all_mu);
}

void hf__fork_forget(hf_store *st)
{
    pthread_mutex_lock(&all_mu);
    if (st->link && atomic_load_explicit(&st->c.broken, memory_order_acquire) != HF_LOST) {
        *st->link = st->next;
        if (st->next) st->next->link = st->link;
    }
    pthread_mutex_unlock(&all_mu);
}
