/*
 * staged.c - see staged.h. One mutex, one list of rows; what is told to one watcher is told to all.
 */
#include "staged.h"

#include "drivers.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 256, CUES = 16, SESSIONS = 256 };

struct cue {
    enum stage_op op;
    uint64_t from, until; /* calls */
    enum stage_way way;
    int code;
    void (*first)(void);
};

struct hf_store {
    int rival;
    uint64_t session;
    uint64_t interrupted, noted;  /* noted: by the last sleep for notifications */
    hf_event_count flushed, told; /* the count at the last flush; the count before the last event */
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct {
    char key[ROWS][64];
    hf_row row[ROWS];
    size_t rows;
    struct cue cue[CUES];
    size_t cues;
    uint64_t calls[S_OPS];
    uint64_t news;      /* grows with every change */
    int64_t step_us;    /* of the clock */
    int64_t tick_us;    /* of the clock, if not 0 */
    int hidden;         /* the clock */
    uint64_t sessions;  /* the last one made */
    uint64_t stale;     /* the last one that is */
    uint64_t dead_upto; /* these are dead */
    uint64_t dead;      /* and this one */
    int64_t ends_us[SESSIONS], ms[SESSIONS];
    void (*forge)(hf_row *row);
    int death_fd;
} s = {.death_fd = -1};
hf_error stage_error;
int stage_sys;

const hf_driver *__real_hf__driver(const char *scheme, hf_error *err);
const hf_driver *__wrap_hf__driver(const char *scheme, hf_error *err);
const hf_driver *__wrap_hf__driver(const char *scheme, hf_error *err)
{
    return strcmp(scheme, "staged") ? __real_hf__driver(scheme, err) : &stage_driver;
}

/* ---- cues ---- */

/* Begins a call, and takes the mutex. Returns 1 if the call isn't made; *ret_code is its result. */
static int begin(hf_store *st, enum stage_op op, struct cue *ret)
{
    memset(ret, 0, sizeof *ret);
    pthread_mutex_lock(&mu);
    if (st && st->rival) return 0;
    uint64_t n = ++s.calls[op];
    pthread_cond_broadcast(&changed);
    for (size_t i = 0; i < s.cues; i++)
        if (s.cue[i].op == op && n >= s.cue[i].from && n < s.cue[i].until) {
            *ret = s.cue[i];
            break;
        }
    if (ret->first) {
        pthread_mutex_unlock(&mu);
        ret->first();
        pthread_mutex_lock(&mu);
    }
    return ret->code && ret->way == INSTEAD;
}

static int end(const struct cue *cue, int rc, hf_error *err)
{
    pthread_mutex_unlock(&mu);
    if (cue->code) return hf_fail(err, cue->code, stage_sys, "staged: %s", hf_code_text(cue->code));
    return rc < 0 ? hf_fail(err, rc, 0, "staged: %s", hf_code_text(rc)) : rc;
}

void stage_cue(enum stage_op op, int from, int n, enum stage_way way, int code, void (*first)(void))
{
    pthread_mutex_lock(&mu);
    uint64_t at = s.calls[op] + (uint64_t)from;
    assert_true(s.cues < CUES);
    s.cue[s.cues++] = (struct cue){op, at, at + (uint64_t)n, way, code, first};
    pthread_mutex_unlock(&mu);
}

void stage_uncue(void)
{
    pthread_mutex_lock(&mu);
    s.cues = 0;
    pthread_mutex_unlock(&mu);
}

uint64_t stage_calls(enum stage_op op)
{
    pthread_mutex_lock(&mu);
    uint64_t n = s.calls[op];
    pthread_mutex_unlock(&mu);
    return n;
}

void stage_await(enum stage_op op, uint64_t calls)
{
    pthread_mutex_lock(&mu);
    while (s.calls[op] < calls) pthread_cond_wait(&changed, &mu);
    pthread_mutex_unlock(&mu);
}

/* ---- rows, clock, sessions ---- */

static int64_t clock_us(void)
{
    int64_t us = hf__day_us() + s.step_us;
    return s.tick_us ? us / s.tick_us * s.tick_us : us;
}

static void tell_clock(int64_t *ret)
{
    *ret = s.hidden || stage_driver.caps.local ? 0 : clock_us();
}

static hf_row *find(const char *key, int make)
{
    for (size_t i = 0; i < s.rows; i++)
        if (!strcmp(s.key[i], key)) return &s.row[i];
    if (!make) return NULL;
    assert_true(s.rows < ROWS && strlen(key) < sizeof s.key[0]);
    memcpy(s.key[s.rows], key, strlen(key) + 1);
    hf_row_init(&s.row[s.rows]);
    return &s.row[s.rows++];
}

static int lives(uint64_t session)
{
    if (session > s.sessions || session <= s.dead_upto || session == s.dead) return 0;
    return !stage_driver.caps.sessions || hf__local_us() < s.ends_us[session % SESSIONS];
}

static int show(const char *key, hf_row *to)
{
    const hf_row *row = find(key, 0);
    int rc = 0;
    if (row)
        rc = hf_row_copy(to, row);
    else
        hf_row_clear(to);
    for (uint32_t i = 0; !rc && i < to->n_holders + to->n_queue; i++)
        if (stage_driver.caps.sessions && !lives(to->party[i].session))
            to->party[i].flags |= HF_PARTY_DEAD;
    if (!rc && s.forge) s.forge(to);
    return rc;
}

static void tell(void)
{
    s.news++;
    pthread_cond_broadcast(&changed);
}

struct seen {
    hf_row *row;
    uint32_t waiting;
    hf_party first;
};

static struct seen look_at(const char *key)
{
    pthread_mutex_lock(&mu);
    struct seen seen = {.row = find(key, 0), .waiting = UINT32_MAX};
    if (seen.row) seen.waiting = seen.row->n_queue;
    if (seen.row && seen.row->n_holders) hf_party_copy(&seen.first, &seen.row->party[0]);
    pthread_mutex_unlock(&mu);
    return seen;
}

hf_row *stage_row(const char *key) { return look_at(key).row; }
uint32_t stage_waiting(const char *key) { return look_at(key).waiting; }
hf_party stage_first(const char *key) { return look_at(key).first; }

void stage_forge(void (*forge)(hf_row *row))
{
    pthread_mutex_lock(&mu);
    s.forge = forge;
    pthread_mutex_unlock(&mu);
}

void stage_step_clock(int64_t us)
{
    pthread_mutex_lock(&mu);
    s.step_us += us;
    pthread_mutex_unlock(&mu);
}

void stage_tick_clock(int64_t us)
{
    pthread_mutex_lock(&mu);
    s.tick_us = us;
    pthread_mutex_unlock(&mu);
}

void stage_hide_clock(int hide)
{
    pthread_mutex_lock(&mu);
    s.hidden = hide;
    pthread_mutex_unlock(&mu);
}

void stage_make_sessions_stale(void) { __atomic_store_n(&s.stale, s.sessions, __ATOMIC_SEQ_CST); }

void stage_kill_sessions(void)
{
    pthread_mutex_lock(&mu);
    s.dead_upto = s.sessions;
    tell();
    pthread_mutex_unlock(&mu);
    stage_tell_deaths(1);
}

void stage_kill(uint64_t session)
{
    pthread_mutex_lock(&mu);
    s.dead = session;
    pthread_mutex_unlock(&mu);
}

void stage_tells_no_deaths(void)
{
    close(s.death_fd);
    s.death_fd = -1;
}

void stage_tell_deaths(int readable)
{
    uint64_t one = 1;
    if (s.death_fd < 0) return;
    ssize_t n = readable ? write(s.death_fd, &one, sizeof one) : 0;
    (void)n;
}

/* ---- the driver ---- */

static int st_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    struct cue cue;
    (void)io_timeout_ms, (void)caps;
    int skip = begin(NULL, S_OPEN, &cue);
    int rc = end(&cue, 0, err);
    if (skip || rc) return rc;
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "staged: open: out of memory");
    st->rival = !strcmp(url->path, "rival");
    *ret = st;
    return 0;
}

static void st_close(hf_store *st) { free(st); }

static int st_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    struct cue cue;
    int rc = begin(st, S_GET, &cue) ? 0 : show(key->text, row);
    if (!cue.code || cue.way == ALTHOUGH) tell_clock(ret_clock_us);
    return end(&cue, rc, err);
}

static int st_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct cue cue;
    int rc = 0;
    if (!begin(st, S_SWAP, &cue)) {
        hf_row *now = find(key->text, 1);
        uint32_t n = row ? row->n_holders + row->n_queue : 0;
        for (uint32_t i = 0; stage_driver.caps.sessions && i < n; i++)
            if (row->party[i].session && !lives(row->party[i].session)) rc = HF_LOST;
        if (!rc && now->rev != seen) rc = HF_CONFLICT;
        if (rc == HF_CONFLICT && cur && !(cue.code && cue.way == ALTHOUGH) && show(key->text, cur))
            rc = HF_NOMEM;
        if (!rc && row && hf_row_copy(now, row)) rc = HF_NOMEM; /* and is as it was */
        if (!rc && !row) hf_row_clear(now);
        if (!rc) tell();
        tell_clock(ret_clock_us);
    }
    return end(&cue, rc, err);
}

static int st_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct cue cue;
    int rc = 0;
    if (!begin(st, S_ACQUIRE, &cue)) {
        uint32_t most = stage_appends ? may_queue : 0;
        if (!(rc = hf_row_acquire(find(key->text, 1), party, most, clock_us()))) tell();
        if (!(cue.code && cue.way == ALTHOUGH) && show(key->text, cur)) rc = HF_NOMEM;
        tell_clock(ret_clock_us);
    }
    return end(&cue, rc, err);
}

static int st_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                   int64_t *ret_clock_us, hf_error *err)
{
    struct cue cue;
    int skip = begin(st, S_SCAN, &cue);
    tell_clock(ret_clock_us);
    for (size_t i = 0; !skip && i < s.rows; i++) {
        hf_rowkey key;
        hf_row row;
        if (strncmp(s.key[i], prefix, strlen(prefix)) != 0 || !s.row[i].rev) continue;
        hf_row_init(&row);
        int stop = hf_key_make(s.key[i], &key, err);
        int damaged = !stop && show(s.key[i], &row) == 0 && row.rev == UINT64_MAX;
        pthread_mutex_unlock(&mu);
        if (!stop) stop = see(arg, &key, damaged ? NULL : &row);
        pthread_mutex_lock(&mu);
        hf_row_clear(&row);
        if (stop) break;
    }
    return end(&cue, 0, err);
}

static int st_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    struct cue cue;
    (void)key;
    begin(st, S_SYNC, &cue);
    return end(&cue, 0, err);
}

static int st_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    struct cue cue;
    (void)key, (void)token, (void)alone, (void)where;
    begin(st, S_ENTER, &cue);
    return end(&cue, 0, err);
}

static int64_t st_now(hf_store *st)
{
    (void)st;
    return clock_us();
}

static uint64_t new_session(int64_t ms)
{
    uint64_t n = ++s.sessions;
    s.ends_us[n % SESSIONS] = hf__local_us() + ms * 1000;
    s.ms[n % SESSIONS] = ms;
    return n;
}

static int st_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    struct cue cue;
    if (!begin(st, S_SESSION, &cue)) {
        if (!st->session) st->session = new_session(0);
        *ret = st->session;
    }
    return end(&cue, 0, err);
}

static int st_alive(hf_store *st, uint64_t session, hf_error *err)
{
    struct cue cue;
    int rc = begin(st, S_ALIVE, &cue) ? 0 : lives(session);
    return end(&cue, rc, err);
}

static int st_session_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                           int64_t *ret_clock_us, hf_error *err)
{
    struct cue cue;
    if (!begin(st, S_MAKE, &cue)) {
        *ret = new_session(lease_ms);
        *ret_ms = lease_ms;
        tell_clock(ret_clock_us);
    }
    return end(&cue, 0, err);
}

static int st_session_keep(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                           hf_error *err)
{
    struct cue cue;
    (void)until_us;
    int rc = 0;
    if (!begin(st, S_KEEP, &cue)) {
        if (!lives(session)) rc = HF_LOST;
        *ret_ms = s.ms[session % SESSIONS];
        if (!rc) s.ends_us[session % SESSIONS] = hf__local_us() + *ret_ms * 1000;
    }
    return end(&cue, rc, err);
}

static int st_session_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    struct cue cue;
    int rc = 0;
    if (!begin(st, S_LEFT, &cue)) {
        if (!lives(session)) rc = HF_LOST;
        *ret_ms = (s.ends_us[session % SESSIONS] - hf__local_us()) / 1000;
    }
    return end(&cue, rc, err);
}

static int st_session_stale(hf_store *st, uint64_t session)
{
    return !st->rival && session <= __atomic_load_n(&s.stale, __ATOMIC_SEQ_CST);
}

static int st_session_end(hf_store *st, uint64_t session, hf_error *err)
{
    struct cue cue;
    if (!begin(st, S_END, &cue)) {
        s.ends_us[session % SESSIONS] = 0;
        tell();
    }
    return end(&cue, 0, err);
}

/* An interruption of a local store's wakeup is an event; of a sleep for notifications it isn't. */
static int rings(void) { return stage_driver.caps.local != NULL; }

static int st_flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    struct cue cue;
    if (!begin(st, S_LISTEN, &cue)) {
        *ret = (hf_event_count){{s.news, rings() ? st->interrupted : 0}};
        st->flushed = *ret;
    }
    return end(&cue, 0, err);
}

/* Every change concerns every key. */
static int st_next_event(hf_store *st, hf_key_event *ret)
{
    pthread_mutex_lock(&mu);
    int is = memcmp(&st->told, &st->flushed, sizeof st->told) != 0;
    st->told = st->flushed;
    pthread_mutex_unlock(&mu);
    *ret = (hf_key_event){0, 0};
    return is;
}

static int st_subscribe(hf_store *st, const hf_rowkey *key)
{
    (void)st, (void)key;
    return 0;
}

static void st_unsubscribe(hf_store *st, const hf_rowkey *key) { (void)st, (void)key; }

static int st_sleep(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    struct cue cue;
    int skip = begin(st, S_WATCH, &cue);
    uint64_t before = rings() ? since->n[1] : st->noted;
    while (!skip && s.news == since->n[0] && st->interrupted == before) {
        if (hf__local_us() >= until_us) break;
        hf__cond_until(&changed, &mu, until_us);
    }
    st->noted = st->interrupted;
    return end(&cue, 0, err);
}

static void st_interrupt(hf_store *st)
{
    pthread_mutex_lock(&mu);
    st->interrupted++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static int st_death_fd(hf_store *st)
{
    (void)st;
    return s.death_fd;
}

static int st_death_read(hf_store *st)
{
    uint64_t n;
    (void)st;
    return read(s.death_fd, &n, sizeof n) > 0;
}

static int st_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                           hf_error *err)
{
    (void)wakeup, (void)n;
    return st_flush(st, ret, err);
}

static int st_wakeup_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since,
                           int64_t until_us, hf_error *err)
{
    (void)wakeup;
    return st_sleep(st, since, until_us, err);
}

static void st_wake(hf_store *st, uint8_t wakeup)
{
    (void)wakeup;
    st_interrupt(st);
}

static int st_wakeup_event(hf_store *st, uint8_t wakeup, hf_key_event *ret)
{
    (void)wakeup;
    return st_next_event(st, ret);
}

hf_driver stage_driver;
int stage_appends;
hf_notify_ops stage_notify;
hf_local_ops stage_local;
hf_liveness_ops stage_liveness;
hf_session_ops stage_sessions;

static void set_driver(unsigned has)
{
    stage_local = (hf_local_ops){.now = st_now,
                                 .wakeup_begin = st_wakeup_begin,
                                 .sleep = st_wakeup_sleep,
                                 .interrupt = st_wake,
                                 .next_event = st_wakeup_event};
    stage_notify = (hf_notify_ops){.subscribe = st_subscribe,
                                   .unsubscribe = st_unsubscribe,
                                   .flush = st_flush,
                                   .sleep = st_sleep,
                                   .next_event = st_next_event,
                                   .interrupt = st_interrupt};
    stage_liveness = (hf_liveness_ops){.session = st_session,
                                       .alive = st_alive,
                                       .death_fd = st_death_fd,
                                       .death_read = st_death_read};
    stage_sessions = (hf_session_ops){.make = st_session_make,
                                      .keep = st_session_keep,
                                      .left = st_session_left,
                                      .end = st_session_end,
                                      .stale = st_session_stale};
    stage_driver = (hf_driver){.abi = HF_DRIVER_ABI,
                               .name = "staged",
                               .about = "for tests",
                               .caps = {.queue_cap = 16,
                                        .holders_cap = 8,
                                        .poll_ms = 20,
                                        .threads = 1,
                                        .queues = !(has & STAGE_NOT_QUEUE),
                                        .notify = has & STAGE_WATCHES ? &stage_notify : NULL,
                                        .local = has & STAGE_LOCAL ? &stage_local : NULL,
                                        .liveness = has & STAGE_LIVENESS ? &stage_liveness : NULL,
                                        .sessions = has & STAGE_SESSIONS ? &stage_sessions : NULL},
                               .open = st_open,
                               .close = st_close,
                               .get = st_get,
                               .replace = st_replace,
                               .acquire = has & STAGE_SESSIONS ? NULL : st_acquire,
                               .sync = st_sync,
                               .scan = st_scan,
                               .enter = st_enter};
}

void stage(unsigned has)
{
    static int made;
    if (!made) hf__thread_condition(&changed);
    made = 1;
    for (size_t i = 0; i < s.rows; i++) hf_row_clear(&s.row[i]);
    if (s.death_fd >= 0) close(s.death_fd);
    uint64_t sessions = s.sessions;
    memset(&s, 0, sizeof s);
    stage_appends = 0;
    s.dead_upto = s.sessions = sessions;
    s.death_fd = has & STAGE_LIVENESS ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    set_driver(has);
}
