/*
 * error.c - the error codes with their names and texts, and hf_fail, which fills an hf_error.
 */
#include "holdfast_driver.h"

#include "shown.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    int code, status;
    const char *name, *text, *state, *action;
} codes[] = {
#define ROW(name, number, status, text, state, action) {number, status, #name, text, state, action},
    HF_CODES(ROW)
#undef ROW
};

enum { CODES = sizeof codes / sizeof *codes };

static int find(int code)
{
    for (int i = 0; i < CODES; i++)
        if (codes[i].code == code) return i;
    return -1;
}

const char *hf_code_name(int code) { return find(code) < 0 ? "?" : codes[find(code)].name; }
const char *hf_code_text(int code)
{
    return find(code) < 0 ? "unknown code" : codes[find(code)].text;
}
const char *hf_code_state(int code) { return find(code) < 0 ? "" : codes[find(code)].state; }
const char *hf_code_action(int code) { return find(code) < 0 ? "" : codes[find(code)].action; }
int hf_code_exit_status(int code) { return find(code) < 0 ? 70 : codes[find(code)].status; }
const char *hf_version(void) { return HF_VERSION; }

int hf_fail(hf_error *err, int code, int sys, const char *format, ...)
{
    if (!err) return code;
    va_list args;
    err->code = code;
    err->sys = sys;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    /* Makes one line of the text, without anything that a terminal would obey, whatever the
       arguments held. */
    hf__show_text(err->text, err->text, sizeof err->text);
    return code;
}
