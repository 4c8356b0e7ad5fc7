/*
 * module_dirs.c - where the modules of drivers are. See module_dirs.h.
 */
#include "module_dirs.h"

#include "own_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef HF_MODULE_DIR
#define HF_MODULE_DIR "/usr/lib/holdfast"
#endif
/* The directory of libraries, relative to the installation's prefix. */
#ifndef HF_LIBDIR
#define HF_LIBDIR "lib"
#endif

static void put_text(char *to, size_t cap, const char *from)
{
    size_t n = strlen(from);
    if (n >= cap) n = 0; /* a path that was cut is worse than none */
    memcpy(to, from, n);
    to[n] = 0;
}

/* Removes the last component of a path. */
static void up(char *path)
{
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = 0;
}

/* Finds the directory of the shared library, and returns 1. If the library is linked into a
   program, finds the program's directory, and returns 0. `to` is empty in a set-user-id program:
   its caller may have put the program elsewhere by a hard link. */
static int own_dir(char to[HF_MODULE_PATH])
{
    const char *library = hf__own_library();
    if (library) {
        put_text(to, HF_MODULE_PATH, library);
        up(to);
        return 1;
    }
    hf__own_program(to, HF_MODULE_PATH);
    up(to);
    return 0;
}

static void add_dir(struct hf_module_dirs *d, int i, const char *base, const char *more)
{
    snprintf(d->dir[i], HF_MODULE_PATH, "%.*s%s", HF_MODULE_PATH - 128, base, more);
    for (int other = 0; other < i; other++)
        if (!strcmp(d->dir[other], d->dir[i])) d->dir[i][0] = 0;
}

/* Returns 1 if every user may put files into the directory, so that modules in it can't be trusted;
   or if that can't be found out. */
static int open_to_all(const char *dir)
{
    struct stat s;
    return stat(*dir ? dir : "/", &s) || s.st_mode & S_IWOTH;
}

/* Returns 1 if `root` is the root of a Meson build, of the same owner as the program's directory in
   it. */
static int is_build(const char *root, const char *program_dir)
{
    static const char *const parts[] = {"", "/build.ninja", "/meson-info"};
    struct stat of_program, of_part;
    char path[HF_MODULE_PATH + 32];
    if (stat(program_dir, &of_program)) return 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "%s%s", root, parts[i]);
        if (stat(path, &of_part) || of_part.st_uid != of_program.st_uid) return 0;
    }
    return 1;
}

void hf__module_dirs(struct hf_module_dirs *d)
{
    /* NULL in a set-user-id program, because its caller sets the variable. */
    const char *named = secure_getenv("HOLDFAST_DRIVERS");
    char own[HF_MODULE_PATH], prefix[HF_MODULE_PATH];
    memset(d, 0, sizeof *d);
    put_text(d->dir[0], HF_MODULE_PATH, named ? named : "");
    int shared = own_dir(own);
    if (own[0]) {
        put_text(prefix, HF_MODULE_PATH, own);
        up(prefix);
        int found = !shared && !open_to_all(prefix);
        if (shared || !open_to_all(own)) add_dir(d, 1, own, "");
        if (shared) add_dir(d, 2, own, "/holdfast");
        if (found && HF_LIBDIR[0] != '/') add_dir(d, 3, prefix, "/" HF_LIBDIR "/holdfast");
        if (found) add_dir(d, 4, prefix, "/lib/holdfast");
        if (found && is_build(prefix, own)) add_dir(d, 6, prefix, "");
    }
    add_dir(d, 5, HF_MODULE_DIR, "");
}

int hf__find_module(const struct hf_module_dirs *d, int n, const char *scheme, char *ret,
                    size_t cap)
{
    for (int i = 0; i < n; i++) {
        if (!d->dir[i][0]) continue;
        int len = snprintf(ret, cap, "%s/" HF_MODULE_HEAD "%s" HF_MODULE_TAIL, d->dir[i], scheme);
        if (len > 0 && (size_t)len < cap && !access(ret, F_OK)) return 1;
    }
    return 0;
}
