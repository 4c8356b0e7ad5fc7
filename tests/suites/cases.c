/*
 * cases.c - what the library and its packages do alike: the steps of bindings/cases.json.
 *
 *     cases TABLE URL [NAME]
 */
#include "cases_table.h"
#include "scratch.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *store_url;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ---- the steps ---- */

static void do_open(struct state *s, const json_t *step)
{
    const json_t *options = json_object_get(step, "options"), *value;
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf_error err = {0, 0, ""};
    hf *h = NULL;
    size_t i = 0;
    int rc = take_time(s, options, "io_timeout", &o.io_timeout_ms, &err);
    if ((value = json_object_get(options, "owner"))) o.owner = text_of(s, value);
    if ((value = json_object_get(options, "note"))) o.note = text_of(s, value);
    if (!rc) rc = hf_open(word(step, "url") ? word(step, "url") : store_url, &o, &h, &err);
    check_code(s, step, rc, &err);
    while (i < NAMES && s->store[i].name) i++;
    if (i == NAMES) abort();
    if (h) s->store[i] = (struct store){word(step, "as"), h};
}

static void do_close(struct state *s, const json_t *step)
{
    for (size_t i = 0; i < NAMES; i++)
        if (s->store[i].name && !strcmp(s->store[i].name, word(step, "store"))) {
            hf_close(s->store[i].h);
            s->store[i].h = NULL;
        }
}

static void do_acquire(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    struct grant *g = name_grant(s, step);
    hf_error err = {0, 0, ""};
    struct asked asked;
    int rc = read_options(s, step, &asked, &err);
    if (!rc) rc = hf_acquire(h, key_of(s, step), &asked.o, &g->lock, &err);
    note_lock(s, step, g, rc, &err);
}

static void acquired(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct grant *g = arg;
    pthread_mutex_lock(&mu);
    g->told = 1;
    g->code = code;
    g->lock = lock;
    if (err) g->err = *err;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
}

static void do_start(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    struct grant *g = name_grant(s, step);
    hf_error err = {0, 0, ""};
    struct asked asked;
    int rc = read_options(s, step, &asked, &err);
    if (!rc) rc = hf_acquire_start(h, key_of(s, step), &asked.o, acquired, g, &g->wait, &err);
    check_code(s, step, rc, &err);
}

static void do_settle(struct state *s, const json_t *step)
{
    struct grant *w = find(s, word(step, "wait"));
    if (!w || !w->wait) return;
    struct timespec end;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_MS / 1000;
    pthread_mutex_lock(&mu);
    while (!w->told && !rc) rc = pthread_cond_timedwait(&changed, &mu, &end);
    pthread_mutex_unlock(&mu);
    if (rc) fail(s, "'%s' has not ended", w->name);
    hf_wait_free(w->wait);
    w->wait = NULL;
    if (rc) return;
    struct grant *g = name_grant(s, step);
    g->lock = w->lock;
    w->lock = NULL;
    note_lock(s, step, g, w->code, &w->err);
}

static void do_cancel(struct state *s, const json_t *step)
{
    struct grant *w = find(s, word(step, "wait"));
    if (w) hf_wait_cancel(w->wait);
}

static int count_waiters(void *arg, const hf_info *info)
{
    *(int64_t *)arg = (int64_t)info->n_waiters;
    return 0;
}

static void do_queue(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    int64_t want = json_integer_value(json_object_get(step, "n")), n = -1;
    hf_error err = {0, 0, ""};
    for (int64_t end = local_ms() + PATIENCE_MS; n != want && local_ms() < end; usleep(5000))
        if (hf_peek(h, key_of(s, step), count_waiters, &n, &err)) {
            fail(s, "%s", err.text);
            return;
        } else {
            free(s->text[--s->n_texts]);
        }
    if (n != want) fail(s, "%lld waiters", (long long)n);
}

static void do_release(struct state *s, const json_t *step)
{
    struct grant *g = find(s, word(step, "lock"));
    hf_error err = {0, 0, ""};
    if (!g) return;
    hf_lock *lock = g->lock;
    g->lock = NULL;
    check_code(s, step, hf_release(lock, &err), &err);
}

static void do_renew(struct state *s, const json_t *step)
{
    struct grant *g = find(s, word(step, "lock"));
    hf_error err = {0, 0, ""};
    int64_t lease_ms = 0;
    int rc = take_time(s, step, "lease", &lease_ms, &err);
    if (g && !rc) rc = hf_renew(g->lock, lease_ms, &err);
    check_code(s, step, rc, &err);
}

static void do_confirm(struct state *s, const json_t *step)
{
    struct grant *g = find(s, word(step, "lock"));
    hf_error err = {0, 0, ""};
    if (g) check_code(s, step, hf_confirm(g->lock, &err), &err);
}

static void do_lost(struct state *s, const json_t *step)
{
    struct grant *g = find(s, word(step, "lock"));
    struct pollfd fd = {g ? hf_lost_fd(g->lock) : -1, POLLIN, 0};
    if (poll(&fd, 1, PATIENCE_MS) != 1) fail(s, "not lost");
}

static void do_left(struct state *s, const json_t *step)
{
    struct grant *g = find(s, word(step, "lock"));
    if (!g) return;
    int64_t left = hf_left_ms(g->lock);
    const char *is = left == INT64_MAX ? "ever" : left > 0 ? "some" : "none";
    if (strcmp(is, word(step, "is"))) fail(s, "%s left: %lld ms", is, (long long)left);
}

static void do_adopt(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    struct grant *g = name_grant(s, step);
    hf_error err = {0, 0, ""};
    uint64_t token = token_named(s, json_object_get(step, "of"));
    int rc = hf_adopt(h, key_of(s, step), token, &g->lock, &err);
    note_lock(s, step, g, rc, &err);
}

static void do_break(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    hf_error err = {0, 0, ""};
    int rc = hf_break(h, key_of(s, step), token_named(s, json_object_get(step, "of")), &err);
    check_code(s, step, rc, &err);
}

static void do_once(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    const char *key = key_of(s, step), *until = word(step, "until"), *state = word(step, "state");
    struct grant *g = name_grant(s, step);
    hf_error err = {0, 0, ""};
    hf_once once = {0};
    struct asked asked;
    int rc = read_options(s, step, &asked, &err);
    for (int64_t end = local_ms() + PATIENCE_MS; !rc; usleep(50000)) {
        rc = hf_once_begin(h, key, asked.keep_ms, &asked.o, &once, &err);
        if (!until || !strcmp(until, once.lock ? "RUN" : "DONE") || local_ms() > end) break;
    }
    g->lock = once.lock;
    g->keep_ms = asked.keep_ms;
    note_lock(s, step, g, rc, &err);
    if (rc) return;
    if (!state) state = until;
    if (state && strcmp(state, g->lock ? "RUN" : "DONE")) fail(s, "not %s", state);
    if (g->lock) return;
    if (once.done_us <= 0) fail(s, "done at %lld", (long long)once.done_us);
    same_text(s, json_object_get(step, "shows"), "result", once.result);
    same_text(s, json_object_get(step, "shows"), "owner", once.owner);
}

static void do_finish(struct state *s, const json_t *step)
{
    struct grant *g = find(s, word(step, "event"));
    hf_error err = {0, 0, ""};
    if (!g) return;
    hf_lock *lock = g->lock;
    g->lock = NULL;
    check_code(s, step, hf_once_finish(lock, word(step, "result"), g->keep_ms, &err), &err);
}

static void do_fail(struct state *s, const json_t *step)
{
    struct grant *g = find(s, word(step, "event"));
    hf_error err = {0, 0, ""};
    if (!g) return;
    hf_lock *lock = g->lock;
    g->lock = NULL;
    check_code(s, step, hf_release(lock, &err), &err);
}

static void do_peek(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    struct shown shown = {s, json_object_get(step, "shows"), 0};
    hf_error err = {0, 0, ""};
    check_code(s, step, hf_peek(h, key_of(s, step), see_one, &shown, &err), &err);
    if (shown.shows && !shown.n) fail(s, "nothing shown");
}

static int listed(void *arg, const hf_info *info)
{
    struct shown *shown = arg;
    json_t *should;
    size_t i;
    json_array_foreach(shown->shows, i, should)
    {
        if (strcmp(json_string_value(should), info->key + strlen(shown->s->prefix))) continue;
        shown->n++;
        return 0;
    }
    fail(shown->s, "lists '%s'", info->key);
    return 0;
}

static void do_list(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    struct shown shown = {s, json_object_get(step, "shows"), 0};
    hf_error err = {0, 0, ""};
    int rc = hf_list(h, with_prefix(s, word(step, "prefix")), listed, &shown, &err);
    check_code(s, step, rc, &err);
    if (shown.n != (int)json_array_size(shown.shows)) fail(s, "%d listed", shown.n);
}

static void do_watch(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    struct shown shown = {s, json_object_get(step, "shows"), 0};
    hf_error err = {0, 0, ""};
    int rc = hf_watch(h, with_prefix(s, word(step, "prefix")), see_one, &shown, &err);
    check_code(s, step, rc, &err);
}

static void do_prune(struct state *s, const json_t *step)
{
    hf *h = store_of(s, word(step, "by"));
    int64_t idle_ms = 0;
    uint64_t n = 0;
    hf_error err = {0, 0, ""};
    int rc = take_time(s, step, "idle", &idle_ms, &err);
    if (!rc) rc = hf_prune(h, idle_ms, &n, &err);
    check_code(s, step, rc, &err);
}

static void do_stats(struct state *s, const json_t *step)
{
    hf_stats is = {.size = sizeof is};
    const json_t *shows = json_object_get(step, "shows");
    if (hf_get_stats(store_of(s, word(step, "by")), &is)) fail(s, "no stats");
    same_number(s, shows, "acquired", (int64_t)is.acquired);
    same_number(s, shows, "released", (int64_t)is.released);
    same_number(s, shows, "busy", (int64_t)is.busy);
    same_number(s, shows, "timeouts", (int64_t)is.timeouts);
    same_number(s, shows, "canceled", (int64_t)is.canceled);
    same_number(s, shows, "lost", (int64_t)is.lost);
    same_number(s, shows, "held", is.held);
    same_number(s, shows, "waiting", is.waiting);
}

static const struct {
    const char *name;
    void (*run)(struct state *s, const json_t *step);
} deeds[] = {
    {"open", do_open},   {"close", do_close},     {"acquire", do_acquire}, {"start", do_start},
    {"queue", do_queue}, {"settle", do_settle},   {"cancel", do_cancel},   {"release", do_release},
    {"renew", do_renew}, {"confirm", do_confirm}, {"lost", do_lost},       {"left", do_left},
    {"adopt", do_adopt}, {"break", do_break},     {"once", do_once},       {"finish", do_finish},
    {"fail", do_fail},   {"peek", do_peek},       {"list", do_list},       {"watch", do_watch},
    {"prune", do_prune}, {"stats", do_stats}};

static void do_step(struct state *s, const json_t *step)
{
    size_t i = 0, n = sizeof deeds / sizeof *deeds;
    while (i < n && strcmp(deeds[i].name, word(step, "do"))) i++;
    if (i == n)
        fail(s, "no such step");
    else
        deeds[i].run(s, step);
    while (s->n_texts) free(s->text[--s->n_texts]);
}

/* Plays one case. Returns 1 if every step did what it should. */
static int do_case(const json_t *one, size_t number)
{
    struct state *s = calloc(1, sizeof *s);
    char prefix[128];
    json_t *step;
    size_t i;
    if (!s) abort();
    snprintf(prefix, sizeof prefix, "cases/%d-%lld/%zu/", (int)getpid(),
             (long long)time(NULL) % 1000000, number);
    s->prefix = prefix;
    json_array_foreach(json_object_get(one, "steps"), i, step)
    {
        do_step(s, step);
        if (!s->failure[0]) continue;
        char *text = json_dumps(step, JSON_COMPACT);
        printf("# step %zu: %s\n#   %s\n", i + 1, s->failure, text);
        free(text);
        break;
    }
    for (i = 0; i < NAMES; i++) hf_wait_free(s->grant[i].wait);
    for (i = 0; i < NAMES; i++) hf_close(s->store[i].h);
    int good = !s->failure[0];
    free(s);
    return good;
}

/* Does it need an option that can be left out? */
static int is_for_packages(const json_t *one)
{
    const json_t *need;
    size_t i;
    json_array_foreach(json_object_get(one, "needs"), i, need)
    {
        if (!strcmp(json_string_value(need), "package")) return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    json_error_t why;
    if (argc < 3) {
        fprintf(stderr, "usage: %s TABLE URL [NAME]\n", argv[0]);
        return 64;
    }
    store_url = scratch(argv[2]);
    if (!store_url) return 71;
    setvbuf(stdout, NULL, _IOLBF, 0);
    json_t *table = json_load_file(argv[1], 0, &why), *cases = json_object_get(table, "cases"),
           *one;
    if (!json_array_size(cases)) {
        printf("Bail out! %s:%d: %s\n", argv[1], why.line, why.text);
        return 1;
    }
    size_t i, failures = 0, n = 0;
    json_array_foreach(cases, i, one)
    {
        const char *name = word(one, "name");
        if (argc > 3 && !strstr(name, argv[3])) continue;
        if (is_for_packages(one)) continue;
        int good = do_case(one, i);
        printf("%s %zu - %s\n", good ? "ok" : "not ok", ++n, name);
        failures += !good;
    }
    printf("1..%zu\n", n);
    json_decref(table);
    return failures || !n;
}
