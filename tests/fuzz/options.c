/*
 * options.c - fuzz: any words as a command line, any text as a time, or with secrets in it.
 */
#include "cli.h"
#include "fuzz.h"

enum { WORDS = 24 };

static void values(char *text)
{
    int64_t ms = parse_time(text);
    size_t len = strlen(text);
    MUST(ms >= -1);
    wipe_secrets(text);
    MUST(strlen(text) == len);
    MUST(!wipe_secrets(text) || strchr(text, '*'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct command self = {"run", "KEY", "about", "run", NULL};
    static char name[] = "run";
    struct fuzz f = {data, size};
    struct options o;
    unsigned takes = (unsigned)fuzz_byte(&f) << 8;
    takes |= fuzz_byte(&f);
    char *argv[WORDS + 2] = {name}, *made[WORDS + 1] = {NULL};
    int argc = 1;
    if (takes >> 15) {
        char *text = fuzz_line(&f, NULL);
        values(text);
        free(text);
        return 0;
    }
    if (memchr(data, '@', size)) return 0; /* -S @FILE reads that */
    for (; argc <= WORDS && f.left; argc++) argv[argc] = made[argc - 1] = fuzz_line(&f, NULL);
    store_url = NULL;
    int status = parse_options(&self, takes, argc, argv, &o);
    MUST(status == 0 || status == -1 || status == EXIT_USAGE);
    if (!status) {
        MUST(o.n_args >= 0 && o.n_args < argc && (!o.argv || *o.argv));
        MUST(o.wait_ms >= HF_FOREVER && o.busy_status >= 0 && o.busy_status <= 255);
        hf_options as = lock_options(&o);
        MUST(as.size == sizeof as);
        want_args(&o, 1, 3, "key");
    }
    for (int i = 0; i < WORDS + 1; i++) free(made[i]);
    return 0;
}
