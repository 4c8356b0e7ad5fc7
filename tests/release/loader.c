/*
 * loader.c - loads the library as Node and Python do, for itself alone, and locks a key on each
 * store that is named: loader LIBRARY URL... Drivers that are modules have to find the library.
 */
#include "holdfast.h"

#include <dlfcn.h>
#include <stdio.h>

/* The functions that are needed, by their names. */
#define FUNCTIONS(X) X(hf_open) X(hf_acquire) X(hf_token) X(hf_release) X(hf_close)
#define X(name)      static __typeof__(name) *name##_there;
FUNCTIONS(X)
#undef X

static int locks(const char *url)
{
    hf *store;
    hf_lock *lock;
    hf_error err = {0, 0, ""};
    if (hf_open_there(url, NULL, &store, &err)) {
        printf("%s: %s\n", url, err.text);
        return 0;
    }
    int good = !hf_acquire_there(store, "key", NULL, &lock, &err) && hf_token_there(lock) > 0 &&
               !hf_release_there(lock, &err);
    printf("%s: %s\n", url, good ? "locked and released" : err.text);
    hf_close_there(store);
    return good;
}

int main(int argc, char **argv)
{
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        printf("%s\n", argc > 2 ? dlerror() : "loader LIBRARY URL...");
        return 1;
    }
#define X(name)                                      \
    *(void **)&name##_there = dlsym(library, #name); \
    if (!name##_there) return printf(#name " is missing\n"), 1;
    FUNCTIONS(X)
#undef X
    int good = 1;
    for (int i = 2; i < argc; i++) good &= locks(argv[i]);
    return !good;
}
