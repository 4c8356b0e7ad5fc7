/*
 * drivers.c - the list of the drivers that are built in, and the loader of modules. See drivers.h.
 */
#include "drivers.h"

#include "module_dirs.h"
#include "os.h"
#include "own_library.h"
#include "url_advice.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The build's -Dbuiltin_drivers: X(SCHEME) for each driver that is compiled in. */
#ifndef HF_DRIVERS_BUILT_IN
#define HF_DRIVERS_BUILT_IN
#endif
#define X(scheme) extern const hf_driver hf__##scheme##_driver;
HF_DRIVERS_BUILT_IN
#undef X

static const hf_driver *const built_in[] = {&hf__mem_driver,
#ifndef __APPLE__
                                            &hf__file_driver,
#endif
#define X(scheme) &hf__##scheme##_driver,
                                            HF_DRIVERS_BUILT_IN
#undef X
};

/* For these schemes the message says "not installed" instead of "unknown scheme", and which of
   Debian's packages to install: holdfast-PART. */
static const struct {
    const char *scheme, *part;
} known[] = {{"sqlite", "sqlite"},
             {"postgres", "postgres"},
             {"redis", "redis"},
             {"rediss", "redis"},
             {"etcd", "etcd"},
             {"etcds", "etcd"},
             {"mongodb", "mongodb"},
             {"mariadb", "mariadb"},
             {"nats", "nats"},
             {"firestore", "firestore"},
             {"s3", "s3"}};

/* Other spellings of a scheme. */
static const char *const spelled[][2] = {{"postgresql", "postgres"}};

enum { BUILT_IN = sizeof built_in / sizeof *built_in, SCHEME_CAP = 32 };

#define TEXT_OF(x) #x
#define SYMBOL(x)  TEXT_OF(x)

/* Modules stay loaded: a handle may point into one, and most client libraries don't survive being
   unloaded. */
struct loaded {
    struct loaded *next;
    const hf_driver *driver;
};
static struct loaded *loaded;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static int scheme_legal(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789+-");
    return n && n < SCHEME_CAP && !s[n];
}

static const hf_driver *find_built_in(const char *scheme)
{
    for (size_t i = 0; i < BUILT_IN; i++)
        if (!strcmp(built_in[i]->name, scheme)) return built_in[i];
    return NULL;
}

/* Makes the hf_* functions of this library global symbols, because modules look them up there. They
   aren't global if the library was loaded privately, as Node and Python load extensions. */
static void be_found(void)
{
    const char *library = hf__own_library();
    if (library) dlopen(library, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

/* Returns 0 in a program that is linked statically, where dlopen loads nothing. */
static int loads_modules(void) { return dlopen(NULL, RTLD_LAZY) != NULL; }

/* Finds out why dlopen has failed, because dlopen gives only a text: is this process short of
   descriptors, or of memory for the module and its libraries, of which the largest needs 45 MiB?
   Returns: 0: neither; EMFILE or ENFILE; ENOMEM. */
static int shortage(const char *path)
{
    enum { ROOM = 64 << 20 };
    int fd = hf__open(path, O_RDONLY, 0), sys = fd < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    void *room = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return ENOMEM;
    munmap(room, ROOM);
    return sys == EMFILE || sys == ENFILE || sys == ENOMEM ? sys : 0;
}

/* Loads the driver of a scheme from the file `path`. Returns NULL if it can't; *err says why.
   Called with `loading` locked. */
static const hf_driver *load(const char *scheme, const char *path, hf_error *err)
{
    for (const struct loaded *l = loaded; l; l = l->next)
        if (!strcmp(l->driver->name, scheme)) return l->driver;
    be_found();
    /* While 0, 1 and 2 are occupied, descriptors that the module opens on loading are above 2. */
    hf_low_hold();
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    hf_low_free();
    if (!module) {
        int sys = shortage(path);
        int code = sys == ENOMEM ? HF_NOMEM : sys ? HF_UNAVAILABLE : HF_INVALID;
        hf_fail(err, code, sys, "driver '%s': load: %s", scheme, dlerror());
        return NULL;
    }
    const hf_driver *drv = dlsym(module, SYMBOL(HF_DRIVER_SYMBOL));
    struct loaded *l = NULL;
    if (!drv)
        hf_fail(err, HF_INVALID, 0, "driver '%s': '%s' has no symbol " SYMBOL(HF_DRIVER_SYMBOL),
                scheme, path);
    else if (drv->abi != HF_DRIVER_ABI)
        hf_fail(err, HF_INVALID, 0, "driver '%s': '%s' is for interface %d, not %d", scheme, path,
                drv->abi, HF_DRIVER_ABI);
    else if (!drv->name || strcmp(drv->name, scheme))
        hf_fail(err, HF_INVALID, 0, "driver '%s': '%s' is the driver of another scheme", scheme,
                path);
    else if (!(l = malloc(sizeof *l)))
        hf_fail(err, HF_NOMEM, 0, "driver '%s': load: out of memory", scheme);
    if (!l) {
        dlclose(module);
        return NULL;
    }
    l->driver = drv;
    l->next = loaded;
    loaded = l;
    return drv;
}

/* Says that the driver of a known scheme is missing, and how to get it. The packages for Node and
   Python bring a library of their own, which doesn't load the drivers of Debian's packages. */
static void missing(const char *scheme, const char *part, const char *looked, hf_error *err)
{
    int loads = loads_modules();
    hf_fail(err, HF_INVALID, 0,
            "driver '%s': %s: install Debian's packages holdfast and holdfast-%s, or build "
            "Holdfast, or its package for Node or Python, from a clone after `tools/setup "
            "build`%s%s",
            scheme, loads ? "not installed" : "not in this static program, which loads no drivers",
            part, loads ? "; looked in " : "", loads ? looked : "");
}

static void not_found(const char *scheme, const struct hf_module_dirs *d, hf_error *err)
{
    char where[HF_TEXT_CAP] = "";
    size_t n = 0;
    for (int i = 0; i < HF_MODULE_DIRS && n < sizeof where; i++)
        if (d->dir[i][0])
            n += (size_t)snprintf(where + n, sizeof where - n, "%s%s", n ? ", " : "", d->dir[i]);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].scheme, scheme)) {
            missing(scheme, known[i].part, where, err);
            return;
        }
    const char *better = hf__scheme_advice(scheme);
    hf_fail(err, HF_INVALID, 0, "driver '%s': unknown scheme%s%s", scheme, better ? ": " : "",
            better ? better : "");
}

static void before_fork(void) { pthread_mutex_lock(&loading); }
static void after_fork(void) { pthread_mutex_unlock(&loading); }

/* Holds `loading` across each fork, so that the child can load drivers, too. */
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

const hf_driver *hf__driver(const char *scheme, hf_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct hf_module_dirs dirs;
    char path[HF_MODULE_PATH + 64];
    if (!scheme_legal(scheme)) {
        hf_fail(err, HF_INVALID, 0, "driver '%.40s': not a scheme", scheme);
        return NULL;
    }
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++)
        if (!strcmp(scheme, spelled[i][0])) scheme = spelled[i][1];
    const hf_driver *drv = find_built_in(scheme);
    if (drv) return drv;
    hf__module_dirs(&dirs);
    pthread_mutex_lock(&loading);
    if (loads_modules() && hf__find_module(&dirs, HF_MODULE_DIRS, scheme, path, sizeof path))
        drv = load(scheme, path, err);
    else
        not_found(scheme, &dirs, err);
    pthread_mutex_unlock(&loading);
    return drv;
}

/* Returns what is contradictory in the driver's caps, or NULL. */
static const char *contradiction(const hf_caps *c)
{
    if (c->local && c->sessions) return "it has both a local clock and none for leases";
    if (c->liveness && c->sessions) return "its sessions end both with a process and with a lease";
    if (!c->threads && (c->local || c->sessions || c->notify))
        return "it allows one call at a time, but has calls that have to run beside others: "
               "sleeps, or sessions";
    if (c->local && c->notify) return "it has both wakeups and notifications";
    const hf_notify_ops *n = c->notify;
    if (n && (!n->subscribe || !n->unsubscribe || !n->flush || !n->sleep || !n->next_event ||
              !n->interrupt))
        return "it lacks one of the operations that notifications need";
    return NULL;
}

/* Takes the query out of the URL that messages show. Only the driver knows its options, so the
   value of one that is misspelt may be a secret. */
static void hide_query(hf_url *url) { url->safe[strcspn(url->safe, "?")] = 0; }

int hf__resolve_url(const hf_driver *drv, hf_url *url, hf_error *err)
{
    char query[sizeof url->safe];
    if (!drv->resolve) return 0;
    size_t n = strlen(url->safe + strcspn(url->safe, "?"));
    memcpy(query, url->safe + strcspn(url->safe, "?"), n + 1);
    hide_query(url);
    int rc = drv->resolve(url, err);
    size_t used = strlen(url->safe);
    if (used + n >= sizeof url->safe)
        return rc ? rc
                  : hf_fail(err, HF_INVALID, 0, "url '%s:...': the path is too long", url->scheme);
    memcpy(url->safe + used, query, n + 1);
    return rc;
}

int hf__open_store(const hf_driver *drv, const hf_url *url, int64_t io_timeout_ms, hf_store **ret,
                   hf_caps *ret_caps, hf_error *err)
{
    *ret = NULL;
    *ret_caps = drv->caps;
    if (!drv->open || !drv->close)
        return hf_fail(err, HF_UNSUPPORTED, 0, "driver '%s': it has no '%s'", drv->name,
                       drv->open ? "close" : "open");
    hf_url shown = *url;
    hide_query(&shown);
    int rc = drv->open(&shown, io_timeout_ms, ret, ret_caps, err);
    explicit_bzero(&shown, sizeof shown);
    const char *why = rc ? NULL : contradiction(ret_caps);
    return why ? hf_fail(err, HF_INVALID, 0, "driver '%s': %s", drv->name, why) : rc;
}

/* Reads the scheme from a module's file name. Returns 0 if the file isn't a module, or is one of a
   driver that is built in. */
static int module_scheme(const char *file, char ret[SCHEME_CAP])
{
    size_t head = sizeof HF_MODULE_HEAD - 1, tail = sizeof HF_MODULE_TAIL - 1, n = strlen(file);
    if (n <= head + tail || n - head - tail >= SCHEME_CAP || strncmp(file, HF_MODULE_HEAD, head) ||
        strcmp(file + n - tail, HF_MODULE_TAIL))
        return 0;
    memcpy(ret, file + head, n - head - tail);
    ret[n - head - tail] = 0;
    return scheme_legal(ret) && !find_built_in(ret);
}

typedef void see_fn(void *arg, const char *scheme, const hf_driver *driver, const char *path,
                    const char *why);

static void see_modules(const struct hf_module_dirs *d, int i, see_fn *see, void *arg)
{
    struct dirent **file;
    hf_low_hold();
    int n = d->dir[i][0] ? scandir(d->dir[i], &file, NULL, alphasort) : 0;
    hf_low_free();
    for (int f = 0; f < n; f++) {
        char scheme[SCHEME_CAP], path[HF_MODULE_PATH + 64];
        hf_error err = {0, 0, ""};
        /* If several directories have the module, the first counts, as in hf__driver. */
        if (module_scheme(file[f]->d_name, scheme) &&
            !hf__find_module(d, i, scheme, path, sizeof path) &&
            hf__find_module(d, i + 1, scheme, path, sizeof path)) {
            pthread_mutex_lock(&loading);
            const hf_driver *drv = load(scheme, path, &err);
            pthread_mutex_unlock(&loading);
            see(arg, scheme, drv, path, drv ? NULL : err.text);
        }
        free(file[f]);
    }
    if (n > 0) free(file);
}

void hf__drivers(see_fn *see, void *arg)
{
    struct hf_module_dirs dirs;
    for (size_t i = 0; i < BUILT_IN; i++) see(arg, built_in[i]->name, built_in[i], NULL, NULL);
    if (!loads_modules()) return;
    hf__module_dirs(&dirs);
    for (int i = 0; i < HF_MODULE_DIRS; i++) see_modules(&dirs, i, see, arg);
}
