/*
 * cases_table.h - the table bindings/cases.json, whose head says how it is read: what a step says,
 * and whether what came of it is that. cases.c does the steps.
 */
#ifndef CASES_TABLE_H
#define CASES_TABLE_H

#include "holdfast.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { NAMES = 16, TEXTS = 8, PATIENCE_MS = 600000 };

extern const char *store_url;

struct store {
    const char *name;
    hf *h;
};

/* What the name in a step's "as" stands for: a lock, an event, or a wait for one. */
struct grant {
    const char *name;
    hf_lock *lock; /* NULL: released, or not acquired yet */
    uint64_t token;
    int64_t keep_ms;
    hf_wait *wait;
    int told, code;
    hf_error err;
};

struct state {
    const char *prefix;
    struct store store[NAMES];
    struct grant grant[NAMES];
    char *text[TEXTS]; /* the texts that options point to, until the end of the step */
    size_t n_texts;
    char failure[1024];
};

struct asked {
    hf_options o;
    int64_t keep_ms;
    uint8_t request[16];
};

struct shown {
    struct state *s;
    const json_t *shows;
    int n;
};

/* Notes what the step should have done and hasn't; only the first call counts. */
__attribute__((format(printf, 2, 3))) void fail(struct state *s, const char *format, ...);
int64_t local_ms(void);

/* ---- what a step says ---- */

const char *word(const json_t *step, const char *name);
/* These last until the end of the step. A string, or ["x", 3] for "xxx". */
const char *text_of(struct state *s, const json_t *from);
const char *with_prefix(struct state *s, const char *name);
const char *key_of(struct state *s, const json_t *step);
/* Sets *ret if there is one; INVALID if it isn't a time as the command takes it. */
int take_time(struct state *s, const json_t *options, const char *name, int64_t *ret,
              hf_error *err);
int read_options(struct state *s, const json_t *step, struct asked *to, hf_error *err);

/* ---- what has names ---- */

hf *store_of(struct state *s, const char *name);
struct grant *find(struct state *s, const char *name);
struct grant *name_grant(struct state *s, const json_t *step);
/* Returns the token of the grant of that name, or the number itself. */
uint64_t token_named(struct state *s, const json_t *name);

/* ---- what came of it ---- */

void check_code(struct state *s, const json_t *step, int code, const hf_error *err);
/* A lock, or why not, of a step that asked for one. */
void note_lock(struct state *s, const json_t *step, struct grant *g, int code, const hf_error *err);
void same_text(struct state *s, const json_t *shows, const char *name, const char *is);
void same_number(struct state *s, const json_t *shows, const char *name, int64_t is);
/* An hf_info_fn with a struct shown: checks the first one. */
int see_one(void *arg, const hf_info *info);

#endif
