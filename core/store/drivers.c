/*
 * drivers.c - which drivers there are: the list of those built in, and the loader of modules.
 */
#include "drivers.h"
#include "os.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef HF_MODULE_DIR
#define HF_MODULE_DIR "/usr/lib/holdfast"
#endif
/* Relative to the prefix, as a program in its bin directory finds it. */
#ifndef HF_LIBDIR
#define HF_LIBDIR "lib"
#endif

/* The build's -Dbuiltin_drivers: X(SCHEME) for each driver that is compiled in. */
#ifndef HF_DRIVERS_BUILT_IN
#define HF_DRIVERS_BUILT_IN
#endif
#define X(scheme) extern const hf_driver hf__##scheme##_driver;
HF_DRIVERS_BUILT_IN
#undef X

static const hf_driver *const built_in[] = {&hf__mem_driver, &hf__file_driver,
#define X(scheme) &hf__##scheme##_driver,
                                            HF_DRIVERS_BUILT_IN
#undef X
};

/* Said to be not installed rather than unknown. */
static const char *const known[] = {"sqlite", "postgres", "redis",     "rediss", "etcd",
                                    "etcds",  "mongodb",  "firestore", "mariadb"};

/* Other spellings of a scheme. */
static const char *const spelled[][2] = {{"postgresql", "postgres"}};

enum { BUILT_IN = sizeof built_in / sizeof *built_in, SCHEME_CAP = 32, PATH_CAP = 1024, DIRS = 7 };

#define TEXT_OF(x)  #x
#define SYMBOL(x)   TEXT_OF(x)
#define MODULE_HEAD "libholdfast-"
#define MODULE_TAIL ".so"

struct dirs {
    char dir[DIRS][PATH_CAP]; /* "": not there */
};

/* Modules stay loaded: a handle may point into one, and few of them survive being unloaded. */
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

static void put_text(char *to, size_t cap, const char *from)
{
    size_t n = strlen(from);
    if (n >= cap) n = 0; /* half a path is worse than none */
    memcpy(to, from, n);
    to[n] = 0;
}

/* Cuts the last part off. */
static void up(char *path)
{
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = 0;
}

/* The loaded object that this code is part of. */
struct object {
    const char *path; /* of a shared library, as long as it is loaded; NULL: the program itself */
    int seen;         /* objects so far */
};

static int is_own(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object *own = arg;
    uintptr_t here = (uintptr_t)&loaded;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || here - from >= info->dlpi_phdr[i].p_memsz)
            continue;
        /* The program is the first object, whatever name the C library gives it. */
        own->path = own->seen && *info->dlpi_name ? info->dlpi_name : NULL;
        return 1;
    }
    own->seen++;
    return 0;
}

/* Returns the path of the shared library that this code is in, or NULL: it is in the program. */
static const char *own_library(void)
{
    struct object own = {NULL, 0};
    dl_iterate_phdr(is_own, &own);
    return own.path;
}

/* Where this library is. 0: in a program, whose directory it is then; none if that is a set-user-id
   one, for whoever calls it may have given it another place by a hard link. */
static int own_dir(char to[PATH_CAP])
{
    const char *library = own_library();
    if (library) {
        put_text(to, PATH_CAP, library);
        up(to);
        return 1;
    }
    ssize_t n = getauxval(AT_SECURE) ? 0 : readlink("/proc/self/exe", to, PATH_CAP - 1);
    to[n > 0 ? n : 0] = 0;
    up(to);
    return 0;
}

static void add_dir(struct dirs *d, int i, const char *base, const char *more)
{
    snprintf(d->dir[i], PATH_CAP, "%.*s%s", PATH_CAP - 128, base, more);
    for (int other = 0; other < i; other++)
        if (!strcmp(d->dir[other], d->dir[i])) d->dir[i][0] = 0;
}

/* Where anybody may put files, what is found is anybody's. */
static int open_to_all(const char *dir)
{
    struct stat s;
    return stat(*dir ? dir : "/", &s) || s.st_mode & S_IWOTH;
}

/* Is this the root of a build by Meson that belongs to whom its folder with the program does? */
static int is_build(const char *root, const char *program_dir)
{
    static const char *const parts[] = {"", "/build.ninja", "/meson-info"};
    struct stat of_program, of_part;
    char path[PATH_CAP + 32];
    if (stat(program_dir, &of_program)) return 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "%s%s", root, parts[i]);
        if (stat(path, &of_part) || of_part.st_uid != of_program.st_uid) return 0;
    }
    return 1;
}

/* What moves together finds itself before what was installed where the build was told. */
static void find_dirs(struct dirs *d)
{
    /* Not for a set-user-id program: the variable is its caller's. */
    const char *named = secure_getenv("HOLDFAST_DRIVERS");
    char own[PATH_CAP], prefix[PATH_CAP];
    memset(d, 0, sizeof *d);
    put_text(d->dir[0], PATH_CAP, named ? named : "");
    int shared = own_dir(own);
    if (own[0]) {
        put_text(prefix, PATH_CAP, own);
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

/* The module of a scheme in one of the first n directories; 0: none. */
static int find_module(const struct dirs *d, int n, const char *scheme, char *ret, size_t cap)
{
    for (int i = 0; i < n; i++) {
        if (!d->dir[i][0]) continue;
        int len = snprintf(ret, cap, "%s/" MODULE_HEAD "%s" MODULE_TAIL, d->dir[i], scheme);
        if (len > 0 && (size_t)len < cap && !access(ret, F_OK)) return 1;
    }
    return 0;
}

/* Modules find hf_* among what is global. Where this library came along with something that was
   loaded for itself alone, as Node and Python load their extensions, it isn't. */
static void be_found(void)
{
    const char *library = own_library();
    if (library) dlopen(library, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

/* 0: in a program that is linked statically, dlopen loads nothing. */
static int loads_modules(void) { return dlopen(NULL, RTLD_LAZY) != NULL; }

/* Under the lock. */
static const hf_driver *load(const char *scheme, const char *path, hf_error *err)
{
    for (const struct loaded *l = loaded; l; l = l->next)
        if (!strcmp(l->driver->name, scheme)) return l->driver;
    be_found();
    /* What it opens as it is loaded stays above 2, too. */
    unsigned held = hf__low_hold();
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    hf__low_free(held);
    if (!module) {
        /* dlopen tells why only in words: out of descriptors, or wrong for good? */
        const char *why = dlerror();
        int fd = hf__open(path, O_RDONLY, 0), sys = fd < 0 ? errno : 0;
        if (fd >= 0) close(fd);
        int away = sys == EMFILE || sys == ENFILE || sys == ENOMEM;
        hf_fail(err, away ? HF_UNAVAILABLE : HF_INVALID, sys, "driver '%s': load: %s", scheme, why);
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

/* What other programs call a store, and what to write here. */
static const char *advice(const char *scheme)
{
    static const char *const others[][2] = {
        {"mongodb+srv", "write mongodb: with the hosts and options that its DNS records name"},
        {"valkey", "write redis:"},
        {"valkeys", "write rediss:"},
        {"redis+sentinel", "Sentinel isn't asked: write redis: with the primary's host"},
        {"redis+cluster", "write redis: with one host, and keys that are all in one slot"},
        {"unix", "write redis:?socket=/PATH"},
        {"postgresql+psycopg", "write postgres:"},
        {"postgresql+psycopg2", "write postgres:"},
        {"postgresql+asyncpg", "write postgres:"},
        {"psql", "write postgres:"},
        {"pgsql", "write postgres:"},
        {"mysql", "MySQL isn't supported; write mariadb: for a MariaDB server"},
        {"sqlite3", "write sqlite:"},
        {"memory", "write mem:"},
        {"etcd3", "write etcd:"},
        {"etcd+http", "write etcd:"},
        {"etcd+https", "write etcds:"},
        {"http", "a store has a scheme of its own, such as etcd: or firestore:"},
        {"https", "a store has a scheme of its own, such as etcds: or firestore:"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i][0], scheme)) return others[i][1];
    return NULL;
}

/* Options that other programs have in their URLs, and what is to be done with them here. */
static const struct {
    const char *name, *advice;
} foreign[] = {
    {"pool_size", "there is no pool to be set: leave it out"},
    {"max_connections", "there is no pool to be set: leave it out"},
    {"max_overflow", "there is no pool to be set: leave it out"},
    {"maxPoolSize", "there is no pool to be set: leave it out"},
    {"minPoolSize", "there is no pool to be set: leave it out"},
    {"decode_responses", "it is of a client in Python: leave it out"},
    {"encoding", "it is of a client in Python: leave it out"},
    {"health_check_interval", "it is of a client in Python: leave it out"},
    {"protocol", "it is of another client: leave it out"},
    {"check_same_thread", "it is of a module in Python: leave it out"},
    {"charset", "it is of another program: leave it out"},
    {"application_name", "hf_open's note says who it is: leave it out"},
    {"timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"connect_timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"socket_timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"socket_connect_timeout", "the limit of a request is hf_open's io_timeout_ms"},
    {"connectTimeoutMS", "the limit of a request is hf_open's io_timeout_ms"},
    {"socketTimeoutMS", "the limit of a request is hf_open's io_timeout_ms"},
    {"serverSelectionTimeoutMS", "the limit of a request is hf_open's io_timeout_ms"},
    {"ssl", "TLS is chosen by the scheme or by the options in the store's page"},
    {"tls", "TLS is chosen by the scheme or by the options in the store's page"},
    {"ssl_cert_reqs", "certificates are checked as the store's page says"},
    {"db", "write the database behind the host: /NAME"},
    {"database", "write the database behind the host: /NAME"},
    {"username", "write it before the host: USER:PASSWORD@HOST"},
    {"password", "write it before the host: USER:PASSWORD@HOST"},
};

void hf__explain_option(hf_error *err)
{
    static const char said[] = "unknown option '";
    const char *at = err ? strstr(err->text, said) : NULL;
    for (size_t i = 0; at && i < sizeof foreign / sizeof *foreign; i++) {
        size_t n = strlen(foreign[i].name), used = strlen(err->text);
        const char *name = at + sizeof said - 1;
        if (strncmp(name, foreign[i].name, n) || name[n] != '\'') continue;
        snprintf(err->text + used, sizeof err->text - used, ": %s", foreign[i].advice);
        return;
    }
}

static void not_found(const char *scheme, const struct dirs *d, hf_error *err)
{
    char where[HF_TEXT_CAP] = "";
    size_t n = 0;
    for (int i = 0; i < DIRS && n < sizeof where; i++)
        if (d->dir[i][0])
            n += (size_t)snprintf(where + n, sizeof where - n, "%s%s", n ? ", " : "", d->dir[i]);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], scheme)) {
            if (loads_modules())
                hf_fail(err, HF_INVALID, 0, "driver '%s': not installed: looked in %s", scheme,
                        where);
            else
                hf_fail(err, HF_INVALID, 0,
                        "driver '%s': not in this static program, which loads no drivers: use a "
                        "build of Holdfast that has it",
                        scheme);
            return;
        }
    const char *better = advice(scheme);
    hf_fail(err, HF_INVALID, 0, "driver '%s': unknown scheme%s%s", scheme, better ? ": " : "",
            better ? better : "");
}

static void before_fork(void) { pthread_mutex_lock(&loading); }
static void after_fork(void) { pthread_mutex_unlock(&loading); }

/* A child of fork may load drivers, too. */
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

const hf_driver *hf__driver(const char *scheme, hf_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct dirs dirs;
    char path[PATH_CAP + 64];
    if (!scheme_legal(scheme)) {
        hf_fail(err, HF_INVALID, 0, "driver '%.40s': not a scheme", scheme);
        return NULL;
    }
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++)
        if (!strcmp(scheme, spelled[i][0])) scheme = spelled[i][1];
    const hf_driver *drv = find_built_in(scheme);
    if (drv) return drv;
    find_dirs(&dirs);
    pthread_mutex_lock(&loading);
    if (loads_modules() && find_module(&dirs, DIRS, scheme, path, sizeof path))
        drv = load(scheme, path, err);
    else
        not_found(scheme, &dirs, err);
    pthread_mutex_unlock(&loading);
    return drv;
}

/* What a driver says of itself that can't be. */
static const char *contradiction(const hf_driver *drv, const hf_caps *c)
{
    if (c->local && c->sessions) return "it has both a local clock and none for leases";
    if (c->liveness && c->sessions) return "its sessions end in two ways";
    if (!c->threads && (c->local || c->sessions || c->watches))
        return "its calls are serialized, but it is to be slept in, or kept alive beside others";
    if (c->watches && (c->local || !drv->listen || !drv->watch || !drv->interrupt))
        return "it lacks what a watch needs";
    return NULL;
}

int hf__open_store(const hf_driver *drv, const hf_url *url, int64_t io_timeout_ms, hf_store **ret,
                   hf_caps *ret_caps, hf_error *err)
{
    *ret = NULL;
    *ret_caps = drv->caps;
    if (!drv->open || !drv->close)
        return hf_fail(err, HF_UNSUPPORTED, 0, "driver '%s': it has no '%s'", drv->name,
                       drv->open ? "close" : "open");
    int rc = drv->open(url, io_timeout_ms, ret, ret_caps, err);
    const char *why = rc ? NULL : contradiction(drv, ret_caps);
    return why ? hf_fail(err, HF_INVALID, 0, "driver '%s': %s", drv->name, why) : rc;
}

/* The scheme in a module's file name; 0: it isn't one. */
static int module_scheme(const char *file, char ret[SCHEME_CAP])
{
    size_t head = sizeof MODULE_HEAD - 1, tail = sizeof MODULE_TAIL - 1, n = strlen(file);
    if (n <= head + tail || n - head - tail >= SCHEME_CAP || strncmp(file, MODULE_HEAD, head) ||
        strcmp(file + n - tail, MODULE_TAIL))
        return 0;
    memcpy(ret, file + head, n - head - tail);
    ret[n - head - tail] = 0;
    return scheme_legal(ret) && !find_built_in(ret);
}

typedef void see_fn(void *arg, const char *scheme, const hf_driver *driver, const char *path,
                    const char *why);

static void see_modules(const struct dirs *d, int i, see_fn *see, void *arg)
{
    struct dirent **file;
    unsigned held = hf__low_hold();
    int n = d->dir[i][0] ? scandir(d->dir[i], &file, NULL, alphasort) : 0;
    hf__low_free(held);
    for (int f = 0; f < n; f++) {
        char scheme[SCHEME_CAP], path[PATH_CAP + 64];
        hf_error err = {0, 0, ""};
        /* The first directory that has it counts, as for opening. */
        if (module_scheme(file[f]->d_name, scheme) &&
            !find_module(d, i, scheme, path, sizeof path) &&
            find_module(d, i + 1, scheme, path, sizeof path)) {
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
    struct dirs dirs;
    for (size_t i = 0; i < BUILT_IN; i++) see(arg, built_in[i]->name, built_in[i], NULL, NULL);
    if (!loads_modules()) return;
    find_dirs(&dirs);
    for (int i = 0; i < DIRS; i++) see_modules(&dirs, i, see, arg);
}
