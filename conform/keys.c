/*
 * keys.c - the conformance suite: checks that no two legal keys share a row, that a scan finds keys
 * by prefix, and that no fence is entered without a grant. See conform.h.
 */
#include "conform.h"

#include <stdio.h>
#include <string.h>

/* Keys that a store may wrongly fold (to one case or form), cut, unescape, take for a pattern, or
   refuse. */
static const char *const nasty[] = {
    "a",
    "A",
    "a ",
    " a",
    "a  b",
    "a b",
    "a+b",
    "a%20b",
    "a%2520b",
    "%41",
    "%",
    "%%",
    "%s",
    "%n",
    "_",
    "__x__",
    "a_b",
    "axb",
    "a%b",
    "a*b",
    "a?b",
    "a[b]",
    "a[b",
    "a]b",
    "a\\b",
    "\\",
    "\\\\",
    "\\0",
    "\\n",
    "'",
    "''",
    "\"",
    "`",
    "$1",
    "${x}",
    "#",
    ";--",
    "{",
    "}",
    "{}",
    "(",
    ")",
    "<&>",
    ".",
    "..",
    "a.b",
    "a..b",
    "/",
    "//",
    "a/b",
    "a//b",
    "a/b/",
    "a/./b",
    "a/../b",
    "~",
    "-",
    "--x",
    ":",
    "a:b",
    "@",
    "=",
    ",",
    "|",
    "^",
    "!",
    "0",
    "00",
    "-1",
    "1e3",
    "null",
    "NULL",
    "true",
    "\xc3\xa9" /* e acute */,
    "e\xcc\x81" /* the same, decomposed */,
    "\xc3\x89",
    "E\xcc\x81",
    "\xc3\x9f",
    "ss",
    "\xc4\xb1",
    "i",
    "\xc4\xb0",
    "I",
    "\xef\xac\x81" /* fi */,
    "fi",
    "\xc2\xa0",
    "\xe2\x80\x8b",
    "\xef\xbb\xbf",
    "\xef\xbf\xbd",
    "\xef\xbf\xbf",
    "\xf0\x9f\x94\x92",
    "\xf4\x8f\xbf\xbf",
    "\xe2\x80\xae",
    "\xd8\xa7",
};
enum { NASTY = sizeof nasty / sizeof *nasty, COLLIDING = 6 };

/* Makes a row whose result is the key's name (the last 255 bytes of it). */
static void name_row(hf_row *row, const char *name)
{
    row->n_holders = row->n_queue = 0;
    row->done_us = 1;
    size_t n = strlen(name);
    if (n > HF_RESULT_CAP - 1) n = HF_RESULT_CAP - 1;
    row->result_len = (uint16_t)n;
    /* The end of the name, because long keys differ there. */
    memcpy(row->result, name + strlen(name) - n, n);
    row->result[n] = 0;
}

static const char *store_named(struct hf__suite *cfm, const char *name)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, name), legal;
    hf_error err = {0, 0, ""};
    hf_row row;
    HF_CHECK(!hf_key_make(text, &legal, &err), "%s", hf__why(cfm, &err));
    hf_row_init(&row);
    name_row(&row, text);
    HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "%s", hf__why(cfm, &err));
    return NULL;
}

static const char *check_named(struct hf__suite *cfm, const char *name)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, name);
    hf_row row, want;
    hf_row_init(&row);
    hf_row_init(&want);
    name_row(&want, text);
    HF_CHECK(!hf__con_get(cfm, &key, &row), "%s", cfm->why);
    want.rev = row.rev;
    HF_CHECK(row.rev && hf_row_equal(&row, &want), "'%s' has the row of another", text);
    HF_CHECK(!hf__con_replace(cfm, &key, row.rev, NULL, NULL), "'%s' isn't deleted", text);
    HF_CHECK(!hf__con_get(cfm, &key, &row) && !row.rev, "'%s' is there after deletion", text);
    return NULL;
}

/* Stores a row at each key, then reads all of them. */
static const char *all_apart(struct hf__suite *cfm, const char *const *name, size_t n)
{
    const char *why = NULL;
    for (size_t i = 0; i < n && !why; i++) why = store_named(cfm, name[i]);
    for (size_t i = 0; i < n && !why; i++) why = check_named(cfm, name[i]);
    return why;
}

static const char *nasty_keys(struct hf__suite *cfm) { return all_apart(cfm, nasty, NASTY); }

static const char *every_byte(struct hf__suite *cfm)
{
    enum { FIRST = 0x20, LAST = 0x7e };
    char text[LAST - FIRST + 1][3];
    const char *name[LAST - FIRST + 1];
    for (int c = FIRST; c <= LAST; c++) {
        char *t = text[c - FIRST];
        t[0] = '=';
        t[1] = (char)c;
        t[2] = 0;
        name[c - FIRST] = t;
    }
    return all_apart(cfm, name, LAST - FIRST + 1);
}

static const char *longest_keys(struct hf__suite *cfm)
{
    char text[4][HF_KEY_CAP];
    const char *name[4] = {text[0], text[1], text[2], text[3]};
    size_t n = HF_KEY_CAP - 1 - strlen(cfm->prefix);
    for (int i = 0; i < 4; i++) {
        memset(text[i], i == 2 ? '%' : 'k', n);
        text[i][n] = 0;
    }
    text[1][n - 1] = 'l';
    text[3][n - 1] = 0;
    return all_apart(cfm, name, 4);
}

/* Tries keys whose hashes have the same low 16 bits, and that begin alike. */
static const char *colliding_keys(struct hf__suite *cfm)
{
    char text[COLLIDING][16];
    const char *why = NULL;
    uint64_t want = 0;
    int found = 0;
    /* Each key is tried as soon as it is found, so that the search ends at the first failure. */
    for (unsigned i = 0; found < COLLIDING && !why; i++) {
        char key[HF_KEY_CAP];
        snprintf(text[found], sizeof text[found], "c%u", i);
        uint64_t hash = hf__con_key(cfm, key, text[found]).hash;
        if (!i) want = hash;
        if ((hash ^ want) & 0xffff) continue;
        why = store_named(cfm, text[found++]);
    }
    for (int i = 0; i < found && !why; i++) why = check_named(cfm, text[i]);
    return why;
}

/* ---- scan ---- */

static const char *const groups[] = {
    "scan/s_x", "scan/s%x", "scan/s*x", "scan/s[x", "scan/s]x", "scan/s\\x",      "scan/s?x",
    "scan/sAx", "scan/S_x", "scan/s^x", "scan/s$x", "scan/s.x", "scan/s\xc3\xa9x"};
enum { GROUPS = sizeof groups / sizeof *groups, EACH = 5 };

struct scan {
    struct hf__suite *cfm;
    const char *prefix;
    int seen, stop_at, erase, strangers, broken;
    unsigned char met[GROUPS][EACH];
};

static int see(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct scan *s = arg;
    size_t skip = strlen(s->cfm->prefix);
    s->seen++;
    if (strncmp(key->text, s->prefix, strlen(s->prefix)) || key->len != strlen(key->text) ||
        key->hash != hf_key_hash(key->text, key->len))
        s->strangers++;
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < EACH; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s/%d", groups[g], i);
            if (key->len >= skip && !strcmp(key->text + skip, name)) s->met[g][i]++;
        }
    if (!row || !row->done_us || strcmp(row->result, key->text)) s->broken++;
    if (row && s->erase && hf__con_replace(s->cfm, key, row->rev, NULL, NULL)) s->broken++;
    return s->stop_at && s->seen == s->stop_at;
}

static const char *scan_prefix(struct hf__suite *cfm, const char *name, int stop_at, int erase,
                               struct scan *s)
{
    char text[HF_KEY_CAP];
    hf_error err = {0, 0, ""};
    memset(s, 0, sizeof *s);
    hf__con_key(cfm, text, name);
    s->cfm = cfm;
    s->prefix = text;
    s->stop_at = stop_at;
    s->erase = erase;
    HF_CHECK(!hf__con_scan(&cfm->con, text, see, s, &err), "%s", hf__why(cfm, &err));
    HF_CHECK(!s->strangers, "the prefix '%s' finds keys that don't have it", name);
    HF_CHECK(!s->broken, "the prefix '%s' finds rows of other keys", name);
    return NULL;
}

static const char *scan_finds(struct hf__suite *cfm)
{
    char name[32];
    struct scan s;
    const char *why = NULL;
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < EACH && !why; i++) {
            snprintf(name, sizeof name, "%s/%d", groups[g], i);
            why = store_named(cfm, name);
        }
    for (int g = 0; g < GROUPS && !why; g++) {
        why = scan_prefix(cfm, groups[g], 0, 0, &s);
        for (int i = 0; i < EACH && !why; i++)
            if (s.met[g][i] != 1)
                why = hf__bad(cfm, "the prefix '%s' finds '%s/%d' %d times", groups[g], groups[g],
                              i, s.met[g][i]);
        if (!why && s.seen != EACH) why = hf__bad(cfm, "'%s' finds %d keys", groups[g], s.seen);
    }
    if (!why) why = scan_prefix(cfm, "scan/s", 0, 0, &s);
    if (!why && s.seen != (GROUPS - 1) * EACH) why = hf__bad(cfm, "'scan/s' finds %d keys", s.seen);
    if (!why) why = scan_prefix(cfm, "scan/none", 0, 0, &s);
    if (!why && s.seen) why = hf__bad(cfm, "a prefix of nothing finds %d keys", s.seen);
    if (!why) why = scan_prefix(cfm, "scan/s", 3, 0, &s);
    if (!why && s.seen != 3) why = hf__bad(cfm, "stopped at 3, it went on to %d", s.seen);
    if (!why) why = scan_prefix(cfm, "scan/", 0, 1, &s);
    if (!why && s.seen != GROUPS * EACH) why = hf__bad(cfm, "%d keys were there to erase", s.seen);
    if (!why) why = scan_prefix(cfm, "scan/", 0, 0, &s);
    if (!why && s.seen) why = hf__bad(cfm, "%d keys are left", s.seen);
    return why;
}

/* ---- entering ---- */

/* Calls `enter` with a key that isn't held, and checks that no fence is raised. If the store has no
   guard, or a guard with a `where`, the call is refused for that reason, and nothing is checked. */
static const char *enters_holders(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "enter");
    hf_error err = {0, 0, ""};
    const hf_driver *drv = cfm->con.drv;
    if (!drv->enter) return NULL;
    int rc = drv->enter(cfm->con.st, &key, 17, 1, NULL, &err);
    if (!rc) return hf__bad(cfm, "the guard there is one for locks in another store (--elsewhere)");
    if (rc == HF_LOST || rc == HF_UNSUPPORTED || rc == HF_INVALID) return NULL;
    return hf__bad(cfm, "enter: %s", hf__why(cfm, &err));
}

void hf__conform_keys(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"keys that look alike are apart", 0, nasty_keys},
        {"every byte of a key counts", 0, every_byte},
        {"the longest keys are kept whole", 0, longest_keys},
        {"keys that collide are apart", 0, colliding_keys},
        {"scan finds what has the prefix, once, and nothing else", 0, scan_finds},
        {"a token that no grant has doesn't enter", 0, enters_holders},
    };
    hf__conform_run(cfm, checks, sizeof checks / sizeof *checks);
}
