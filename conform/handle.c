/*
 * handle.c - the conformance suite: checks of the store's clock, of sessions and options, and that
 * rows outlive the handle that wrote them. See conform.h.
 */
#include "conform.h"

#include "os.h"

#include <stdio.h>
#include <string.h>

/* Checks the store's clock. Its true time may be later than a reply says, by the resolution, but
   never earlier. So each reply gives bounds for the difference between the store's clock and the
   local one, and the bounds of all replies must overlap. Watches for longer than two ticks. */
static const char *clock_runs(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "clock");
    hf_error err = {0, 0, ""};
    hf_row row;
    hf_row_init(&row);
    const hf_caps *caps = &cfm->con.caps;
    int64_t grain = caps->clock_resolution_us ? caps->clock_resolution_us : 1000;
    int64_t least = INT64_MIN, most = INT64_MAX, last = 0;
    int64_t from = hf__local_us(), now = from, until = from + 300000 + 2 * grain;
    while (now < until) {
        int64_t asked = hf__local_us(), c = hf__con_clock(&cfm->con, &key, &row, &err);
        now = hf__local_us();
        HF_CHECK(c >= 0, "cannot be read: %s", hf__why(cfm, &err));
        if (caps->sessions || (!c && caps->liveness)) return NULL; /* holds don't end by it */
        HF_CHECK(c > 0, "get tells no clock");
        HF_CHECK(c >= last, "went back by %lld us", (long long)(last - c));
        last = c;
        if (c - now > least) least = c - now;
        if (c + grain - asked < most) most = c + grain - asked;
        HF_CHECK(least <= most + (now - from) / 100 + 1000,
                 "runs at another rate, or ticks by more than the %lld us that the driver says",
                 (long long)grain);
    }
    return NULL;
}

/* Opens one more handle, and checks that its session lives and isn't `than`, and that session
   `than` is alive (`lives` 1) or dead. */
static const char *session_of_another(struct hf__suite *cfm, uint64_t than, int lives,
                                      uint64_t *ret)
{
    const struct hf__con *con = &cfm->con;
    struct hf__con other = {.st = NULL};
    hf_error err = {0, 0, ""};
    const char *why = NULL;
    HF_CHECK(!hf__con_open(cfm, &other, &err), "%s", hf__why(cfm, &err));
    if (other.caps.liveness->session(other.st, ret, &err))
        why = hf__bad(cfm, "%s", hf__why(cfm, &err));
    else if (*ret == than)
        why = hf__bad(cfm, lives ? "two handles have the same session"
                                 : "a new handle got the session of a dead one");
    else if (con->caps.liveness->alive(con->st, *ret, &err) != 1)
        why = hf__bad(cfm, "the session of another handle counts as dead");
    else if (con->caps.liveness->alive(con->st, than, &err) != lives)
        why = hf__bad(cfm, lives ? "a handle's own session counts as dead"
                                 : "a dead session counts as alive again");
    hf__con_close(&other);
    return why;
}

static const char *sessions_live(struct hf__suite *cfm)
{
    const struct hf__con *con = &cfm->con;
    hf_error err = {0, 0, "the session is 0"};
    uint64_t a = 0, again = 0, b = 0, c = 0;
    HF_CHECK(!con->caps.liveness->session(con->st, &a, &err) && a, "%s", hf__why(cfm, &err));
    HF_CHECK(!con->caps.liveness->session(con->st, &again, &err) && again == a,
             "the session changes");
    const char *why = session_of_another(cfm, a, 1, &b);
    if (why) return why;
    HF_CHECK(con->caps.liveness->alive(con->st, b, &err) == 0, "the session outlives its handle");
    why = session_of_another(cfm, b, 0, &c);
    if (why) return why;
    HF_CHECK(con->caps.liveness->alive(con->st, a, &err) == 1,
             "a handle's session died with another's");
    return NULL;
}

static const char *bad_options(struct hf__suite *cfm)
{
    struct hf__suite copy = *cfm;
    struct hf__con con = {.st = NULL};
    hf_url url = *cfm->url;
    hf_error err = {0, 0, ""};
    snprintf(url.query, sizeof url.query, "no-such-option=misspelt-secret");
    size_t used = strcspn(url.safe, "?");
    snprintf(url.safe + used, sizeof url.safe - used, "?%s", url.query);
    copy.url = &url;
    int rc = hf__note(cfm, hf__con_open(&copy, &con, &err));
    if (!rc) hf__con_close(&con);
    HF_CHECK(rc == HF_INVALID, "an option that it doesn't have was taken (%s)", hf_code_name(rc));
    HF_CHECK(err.text[0] && !strchr(err.text, '\n'), "the refusal has no text, or several lines");
    HF_CHECK(!strstr(err.text, "misspelt-secret"), "the value was shown: it may be a secret");
    return NULL;
}

static const char *sync_returns(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "sync");
    hf_error err = {0, 0, ""};
    hf_row row;
    hf_row_init(&row);
    row.done_us = 1;
    if (!cfm->con.drv->sync) return NULL;
    HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "%s", hf__why(cfm, &err));
    HF_CHECK(!cfm->con.drv->sync(cfm->con.st, &key, &err), "%s", hf__why(cfm, &err));
    HF_CHECK(!hf__con_replace(cfm, &key, row.rev, NULL, NULL), "%s", cfm->why);
    return NULL;
}

static const char *stays(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "stays");
    hf_error err = {0, 0, ""};
    hf_row row, cur;
    hf_row_init(&row);
    hf_row_init(&cur);
    row.done_us = 1;
    if (cfm->in_memory) return NULL;
    /* An outage may have cut this check short while the handle was closed. */
    if (!cfm->con.st) HF_CHECK(!hf__con_open(cfm, &cfm->con, &err), "%s", hf__why(cfm, &err));
    HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "%s", hf__why(cfm, &err));
    hf__con_close(&cfm->con);
    HF_CHECK(!hf__con_open(cfm, &cfm->con, &err), "%s", hf__why(cfm, &err));
    HF_CHECK(!hf__con_get(cfm, &key, &cur), "%s", cfm->why);
    HF_CHECK(hf_row_equal(&row, &cur), "the row changed while no handle had the store open");
    HF_CHECK(!hf__con_replace(cfm, &key, row.rev, NULL, NULL), "%s", cfm->why);
    return NULL;
}

void hf__conform_handle(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"the store's clock runs, and never back", 0, clock_runs},
        {"a session lives as long as its handle", HF_NEEDS_LIVENESS, sessions_live},
        {"unknown options are refused", 0, bad_options},
        {"what is synced is said to be", 0, sync_returns},
        {"a marker outlives the handle that wrote it", 0, stays},
    };
    hf__conform_run(cfm, checks, sizeof checks / sizeof *checks);
}
