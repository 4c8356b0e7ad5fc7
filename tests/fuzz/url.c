/*
 * url.c - fuzz: any text as the URL of a store.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"mode", "password", "sslmode", "a", "", "%61"};
    struct fuzz f = {data, size};
    hf_url url, again;
    hf_error err = {0, 0, ""};
    char value[64];
    char *text = fuzz_line(&f, NULL), *path = fuzz_line(&f, NULL);
    if (hf_url_parse(text, &url, &err)) {
        MUST(err.code == HF_INVALID && *err.text && strlen(err.text) < sizeof err.text);
    } else {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (!hf_url_get(&url, names[i], value, sizeof value))
                MUST(strlen(value) < sizeof value);
        /* What is shown is a URL too: of the same store, and without a secret. */
        MUST(!hf_url_parse(url.safe, &again, &err));
        MUST(!again.password[0] && !strcmp(again.safe, url.safe));
        MUST(!strcmp(again.host, url.host) && again.port == url.port);
        MUST(!strcmp(again.path, url.path) && !strcmp(again.scheme, url.scheme));
        if (*path == '/' && !hf_url_set_path(&url, path, &err) &&
            !hf_url_parse(url.safe, &again, &err))
            MUST(!strcmp(again.path, url.path) && !again.password[0]);
    }
    free(text);
    free(path);
    return 0;
}
