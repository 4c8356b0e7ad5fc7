/*
 * wrap_fault.c - a driver around a driver that fails calls by a plan.
 *
 *     plan   rule,rule,...          an empty plan changes nothing
 *     rule   OP:WHICH:WHAT          the first rule that matches a call decides what happens to it
 *            random:seed=N:p=P      each call of "any" fails with probability P, half of them
 *                                   before and half after it took effect
 *            instant                see below
 *     OP     get replace acquire update scan sync enter session alive lease keep left end listen
 *            watch interrupt inspect close,
 *            or any: one of get, replace, acquire, update, scan, sync;
 *            OP@KEY: only those for this key
 *     WHICH  N: the N-th such call of this handle, from 1;  N+: that and all later;  *: every one
 *     WHAT   before        it doesn't take effect, and the reply is lost
 *            after         it takes effect, and the reply is lost
 *            delay=MS      it is made so much later
 *            late=MS       it takes effect at once, and the reply comes so much later
 *            unavailable denied corrupt full nomem invalid unsupported unknown
 *                          it isn't made, and answers this
 *
 *     replace:3:before  acquire:*:delay=50  any:7+:unavailable  random:seed=7:p=0.1
 *
 * A lost reply is UNKNOWN where something is written (replace, acquire, update, enter), else
 * UNAVAILABLE.
 *
 * "Fail the n-th store call, before and after it took effect, for all n": any:N:before and
 * any:N:after with N = 1, 2, ... until hf__fault_counts says that nothing was injected.
 *
 * A store whose replies can be lost isn't local: with any rule hf_local_ops go, and the store's
 * clock comes with the replies, as from a server. The rule `instant` keeps them, to see
 * what an instant store's own errors (full, corrupt) do.
 */
#include "faults.h"
#include "os.h"
#include "wrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RULES = 16, ANY = HF__OPS, RANDOM = HF__OPS + 1 };
enum what { BEFORE, AFTER, DELAY, LATE, CODE };

struct rule {
    int op;       /* enum hf__op, ANY, RANDOM */
    char key[64]; /* "": of any key, and of none */
    enum what what;
    uint64_t first, last; /* which calls, from 1 */
    int code, ms;
    uint64_t seed;
    double p;
};

struct fault {
    struct hf__wrap wrap;
    struct rule rule[RULES];
    int rules;
    uint64_t calls[HF__OPS + 1]; /* the last: any (atomic) */
};

/* ---- counting ---- */

static struct hf__fault_counts counts; /* of the process (atomic) */

void hf__fault_counts(struct hf__fault_counts *ret)
{
    ret->calls = __atomic_load_n(&counts.calls, __ATOMIC_SEQ_CST);
    ret->injected = __atomic_load_n(&counts.injected, __ATOMIC_SEQ_CST);
}

static uint64_t count(uint64_t *n) { return __atomic_add_fetch(n, 1, __ATOMIC_SEQ_CST); }

/* ---- the plan ---- */

static int match(const char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n)) return 0;
    *at += n;
    return 1;
}

static int parse_number(const char **at, uint64_t *ret)
{
    char *end;
    if (**at < '0' || **at > '9') return 0;
    *ret = strtoull(*at, &end, 10);
    *at = end;
    return 1;
}

static int parse_op(const char **at, int *ret)
{
    for (int i = 0; i < HF__OPS; i++) {
        const char *from = *at;
        if (match(&from, hf__op_name((enum hf__op)i)) && (*from == ':' || *from == '@')) {
            *at = from;
            *ret = i;
            return 1;
        }
    }
    *ret = ANY;
    return match(at, "any");
}

static int parse_key(const char **at, struct rule *r)
{
    if (!match(at, "@")) return 1;
    size_t n = strcspn(*at, ":");
    if (!n || n >= sizeof r->key) return 0;
    memcpy(r->key, *at, n);
    *at += n;
    return 1;
}

static int parse_which(const char **at, struct rule *r)
{
    r->first = 1;
    r->last = UINT64_MAX;
    if (match(at, "*")) return 1;
    if (!parse_number(at, &r->first) || !r->first) return 0;
    if (!match(at, "+")) r->last = r->first;
    return 1;
}

static int parse_ms(const char **at, struct rule *r, enum what what)
{
    uint64_t ms;
    if (!parse_number(at, &ms) || ms > 3600000) return 0;
    r->what = what;
    r->ms = (int)ms;
    return 1;
}

static int parse_what(const char **at, struct rule *r)
{
    static const struct {
        const char *word;
        enum what what;
        int code;
    } words[] = {
        {"before", BEFORE, 0},
        {"after", AFTER, 0},
        {"unavailable", CODE, HF_UNAVAILABLE},
        {"denied", CODE, HF_DENIED},
        {"corrupt", CODE, HF_CORRUPT},
        {"full", CODE, HF_FULL},
        {"nomem", CODE, HF_NOMEM},
        {"invalid", CODE, HF_INVALID},
        {"unsupported", CODE, HF_UNSUPPORTED},
        {"unknown", CODE, HF_UNKNOWN},
    };
    if (match(at, "delay=")) return parse_ms(at, r, DELAY);
    if (match(at, "late=")) return parse_ms(at, r, LATE);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (match(at, words[i].word)) {
            r->what = words[i].what;
            r->code = words[i].code;
            return 1;
        }
    return 0;
}

static int parse_random(const char **at, struct rule *r)
{
    char *end;
    r->op = RANDOM;
    if (!match(at, ":seed=") || !parse_number(at, &r->seed) || !match(at, ":p=")) return 0;
    r->p = strtod(*at, &end);
    if (end == *at || !(r->p >= 0 && r->p <= 1)) return 0;
    *at = end;
    return 1;
}

static int parse_rule(const char **at, struct rule *r)
{
    if (match(at, "random")) return parse_random(at, r);
    return parse_op(at, &r->op) && parse_key(at, r) && match(at, ":") && parse_which(at, r) &&
           match(at, ":") && parse_what(at, r);
}

static int parse(struct fault *f, const char *plan, hf_error *err)
{
    int instant = 0;
    for (const char *at = plan; *at;) {
        const char *rule = at;
        int good = match(&at, "instant") ? (instant = 1) : 0;
        if (!good) {
            if (f->rules == RULES)
                return hf_fail(err, HF_INVALID, 0, "fault: plan: more than %d rules", RULES);
            good = parse_rule(&at, &f->rule[f->rules++]);
        }
        if (*at && (*at++ != ',' || !*at)) good = 0;
        if (!good) return hf_fail(err, HF_INVALID, 0, "fault: plan: not a rule: '%.60s'", rule);
    }
    f->wrap.give_clock = f->rules && !instant;
    return 0;
}

/* ---- what becomes of a call ---- */

/* The number of the call decides, so that a seed means the same faults again. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void wait_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* The call is the n-th of its operation, the m-th of any (0: isn't counted as one). NULL: leave it
   alone. */
static const struct rule *decide(const struct fault *f, const struct hf__call *c, uint64_t n,
                                 uint64_t m, struct rule *scratch)
{
    for (int i = 0; i < f->rules; i++) {
        const struct rule *r = &f->rule[i];
        if (r->op == RANDOM) {
            uint64_t x = mix(r->seed + m);
            if (!m || (double)(x >> 11) * 0x1p-53 >= r->p) continue;
            *scratch = *r;
            scratch->what = x & 1 ? BEFORE : AFTER;
            return scratch;
        }
        uint64_t at = r->op == ANY ? m : r->op == (int)c->op ? n : 0;
        if (*r->key && (!c->key || strcmp(c->key->text, r->key))) continue;
        if (at && at >= r->first && at <= r->last) return r;
    }
    return NULL;
}

static int lost(const struct hf__call *c, hf_error *err)
{
    int writes = c->op == HF__OP_SWAP || c->op == HF__OP_ACQUIRE || c->op == HF__OP_UPDATE ||
                 c->op == HF__OP_ENTER;
    return hf_fail(err, writes ? HF_UNKNOWN : HF_UNAVAILABLE, 0, "fault: %s '%s': reply lost",
                   hf__op_name(c->op), c->key ? c->key->text : "");
}

static int before(struct hf__wrap *w, struct hf__call *c, hf_error *err)
{
    struct fault *f = (struct fault *)w;
    struct rule scratch;
    uint64_t n = count(&f->calls[c->op]);
    uint64_t m = c->op <= HF__OP_SYNC ? count(&f->calls[ANY]) : 0;
    count(&counts.calls);
    const struct rule *r = decide(f, c, n, m, &scratch);
    if (!r) return 0;
    count(&counts.injected);
    switch (r->what) {
    case BEFORE: return lost(c, err);
    case CODE:
        return hf_fail(err, r->code, 0, "fault: %s '%s': %s", hf__op_name(c->op),
                       c->key ? c->key->text : "", hf_code_text(r->code));
    case DELAY: wait_ms(r->ms); return 0;
    case LATE: c->late_ms = r->ms; return 0;
    case AFTER: c->lose = 1; return 0;
    }
    return 0;
}

static int after(struct hf__wrap *w, struct hf__call *c, int rc, hf_error *err)
{
    (void)w;
    if (c->late_ms) wait_ms(c->late_ms);
    return c->lose ? lost(c, err) : rc;
}

static void end(struct hf__wrap *w) { (void)w; }

int hf__wrap_fault(const hf_driver **drv, hf_store **st, hf_caps *caps, const char *plan,
                   hf_error *err)
{
    struct fault *f = calloc(1, sizeof *f);
    if (!f) return hf_fail(err, HF_NOMEM, 0, "fault: open: out of memory");
    int rc = parse(f, plan, err);
    if (rc) {
        free(f);
        return rc;
    }
    if (!caps->local) f->wrap.give_clock = 0;
    f->wrap.before = before;
    f->wrap.after = after;
    f->wrap.end = end;
    hf__wrap(&f->wrap, drv, st, caps);
    return 0;
}
