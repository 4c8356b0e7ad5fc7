/*
 * ls.c - holdfast ls and show: print the holders and waiters of keys.
 */
#include "cli.h"

#include "admin.h"
#include "holdfast_driver.h"
#include "shown.h"

#include <stdlib.h>
#include <string.h>

/* ---- ls ---- */

struct listing {
    const struct options *o;
    struct lines lines;
    uint64_t seen;
    int damaged;
};

/* Writes how long ago since_us was, by the store's clock. */
static void show_age(const hf_info *info, int64_t since_us, char *to, size_t cap)
{
    int64_t ms = (info->now_us - since_us) / 1000;
    show_left(ms > 0 ? ms : 0, to, cap);
}

enum { KEY_COLUMNS = 24 };
#define LS_COLUMNS "%s%*s  %-9s  %7s  %7s"

/* Returns how many blanks fill the key's column. (printf's width would count bytes.) */
static int padding(const char *key)
{
    size_t used = columns_of(key);
    return used < KEY_COLUMNS ? (int)(KEY_COLUMNS - used) : 0;
}

/* Returns a line of the list: KEY MODE AGE LEFT WAITING TOKEN HELD BY. The age is that of the hold,
   or of the marker. */
static char *line_of(const hf_info *info)
{
    char who[400] = "(free)", age[32] = "-", left[32] = "-", key[HF_KEY_CAP], more[40] = "";
    const char *mode = "-";
    char *line;
    hf__show_text(info->key, key, sizeof key);
    uint64_t token = info->token;
    if (info->n_holders) {
        const hf_party_info *p = &info->parties[0];
        describe(p, who, sizeof who);
        show_age(info, p->since_us, age, sizeof age);
        show_left(p->left_ms, left, sizeof left);
        mode = mode_name(p->mode);
        token = p->token;
    } else if (info->done_us) {
        snprintf(who, sizeof who, "(done)");
        show_age(info, info->done_us, age, sizeof age);
    }
    if (info->n_holders > 1) snprintf(more, sizeof more, " and %zu more", info->n_holders - 1);
    int n = asprintf(&line, LS_COLUMNS "  %7zu  %-16llu  %s%s\n", key, padding(key), "", mode, age,
                     left, info->n_waiters, (unsigned long long)token, who, more);
    return n < 0 ? NULL : line;
}

static int list_one(void *arg, const hf_info *info)
{
    struct listing *l = arg;
    progress_count(++l->seen);
    if (!l->o->all && !info->n_holders && !info->n_waiters) return 0;
    char *line = l->o->json ? json_info(info) : line_of(info);
    int rc = line ? collect_line(&l->lines, info->key, line) : HF_NOMEM;
    free(line);
    return rc;
}

/* Reports a damaged row. The listing goes on. */
static void list_damaged(void *arg, const char *key, const char *why)
{
    struct listing *l = arg;
    say("%s", why);
    l->damaged = 1;
    char *line = l->o->json ? json_damaged(key, why) : NULL;
    if (line) (void)collect_line(&l->lines, key, line);
    free(line);
}

int ls_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_error err;
    int status = parse_options(self, TAKES_ALL | TAKES_JSON | TAKES_LOOK, argc, argv, &o);
    if (!status) status = want_args(&o, 0, 1, "prefix");
    if (status) return status < 0 ? finish_output() : status;
    struct listing l = {.o = &o};
    watch_for_damage();
    status = open_to_look(&store);
    if (status) return status;
    progress_begin("reading keys");
    int rc =
        store ? hf__list(store, o.n_args ? o.args[0] : "", list_one, list_damaged, &l, &err) : 0;
    progress_end();
    hf_close(store);
    if (rc && !(rc == HF_CORRUPT && l.damaged)) return failed(&err);
    if (!o.json && l.lines.n)
        printf(LS_COLUMNS "  %7s  %-16s  %s\n", "KEY", padding("KEY"), "", "MODE", "AGE", "LEFT",
               "WAITING", "TOKEN", "HELD BY");
    print_lines(&l.lines);
    status = finish_output();
    return status ? status : l.damaged ? EXIT_DAMAGED : 0;
}

/* ---- show ---- */

static void print_party(const hf_party_info *p)
{
    char who[400], since[40], left[32], owner[HF_OWNER_CAP];
    describe(p, who, sizeof who);
    show_time(p->since_us, since, sizeof since);
    hf__show_text(p->owner, owner, sizeof owner);
    printf("  %s\n    since %s UTC, owner %s", who, since, owner);
    if (p->mode == HF_SHARED) printf(", shared");
    if (p->mode == HF_LIMITED) printf(", one of at most %u", p->limit);
    if (p->token) {
        show_left(p->left_ms, left, sizeof left);
        printf(", token %llu, ", (unsigned long long)p->token);
        if (p->left_ms == HF_FOREVER)
            printf("for as long as its process lives");
        else
            printf("%s left", left);
        if (!p->claimed) printf(", handed over and not taken up yet");
    }
    putchar('\n');
}

static int print_key(void *arg, const hf_info *info)
{
    const struct options *o = arg;
    if (o->json) {
        char *line = json_info(info);
        if (line) fputs(line, stdout);
        free(line);
        return 0;
    }
    char key[HF_KEY_CAP], when[40], result[HF_RESULT_CAP], by[HF_OWNER_CAP];
    hf__show_text(info->key, key, sizeof key);
    printf("%s: %s\n", key, info->n_holders ? "held by" : "free");
    for (size_t i = 0; i < info->n_holders; i++) print_party(&info->parties[i]);
    if (info->n_waiters) printf("waiting:\n");
    for (size_t i = 0; i < info->n_waiters; i++) print_party(&info->parties[info->n_holders + i]);
    if (info->token && !info->n_holders)
        printf("  last token %llu\n", (unsigned long long)info->token);
    if (info->done_us) {
        show_time(info->done_us, when, sizeof when);
        hf__show_text(info->result, result, sizeof result);
        show_owner(info->done_by, by, sizeof by);
        printf("  done %s UTC by %s%s%s", when, by, *result ? ": " : "", result);
        show_time(info->keep_until_us, when, sizeof when);
        printf(", remembered %s%s\n", info->keep_until_us == HF_FOREVER ? "for ever" : "until ",
               info->keep_until_us == HF_FOREVER ? "" : when);
    }
    return 0;
}

/* Shows a key as unused, because the store doesn't exist. */
static int show_unused(const struct options *o, hf_error *err)
{
    hf_info info = {.key = ""};
    hf_rowkey key;
    int rc = hf_key_make(o->args[0], &key, err);
    if (rc) return rc;
    memcpy(info.key, key.text, (size_t)key.len + 1);
    print_key((void *)(uintptr_t)o, &info);
    return 0;
}

int show_command(const struct command *self, int argc, char **argv)
{
    struct options o;
    hf *store;
    hf_error err;
    int status = parse_options(self, TAKES_JSON | TAKES_LOOK, argc, argv, &o);
    if (!status) status = want_args(&o, 1, 1, "key");
    if (status) return status < 0 ? finish_output() : status;
    watch_for_damage();
    status = open_to_look(&store);
    if (status) return status;
    int rc = store ? hf_peek(store, o.args[0], print_key, &o, &err) : show_unused(&o, &err);
    hf_close(store);
    return rc ? failed(&err) : finish_output();
}
