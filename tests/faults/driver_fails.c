/*
 * driver_fails.c - each call that a driver makes, of its library's and of the system's functions,
 * fails in turn: what the driver makes of it, on the real store.
 *
 *     driver_fails URL
 *
 * As below.c, but only the driver's own calls fail, not those inside of its library, so that there
 * are few enough to try all of them, in each way that they may. This program defines the functions
 * itself and tells the caller by the return address. Whatever fails: the answer says what that
 * means, nothing was written unless it says that it may have been, and the same works then.
 */
#undef _FORTIFY_SOURCE /* it makes some of these functions inline */
#include "driver_ops.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what fails ---- */

/* Six words are passed on, whatever the parameters of the function. The calling conventions of the
   machines on which this runs allow that, as long as there are no more than six, and none on the
   stack. */
typedef long word;
typedef word (*six)(word, word, word, word, word, word);

enum how {
    INSTEAD, /* it isn't called */
    AFTER,   /* the function is called, and returns a failure */
    EMPTY,   /* the function is called without its first argument, so it fails by itself */
};

static const struct way {
    const char *name;
    int value, sys;
    enum how how;
    int garbles; /* 1: the store's answer looks wrong because of it; 2: damaged, and only that */
    int ever;    /* may go on failing */
} ways[] = {
    {"malloc", 0, ENOMEM, INSTEAD, 0, 1},
    {"calloc", 0, ENOMEM, INSTEAD, 0, 1},
    {"realloc", 0, ENOMEM, INSTEAD, 0, 1},
    {"strdup", 0, ENOMEM, INSTEAD, 0, 1},
    {"strndup", 0, ENOMEM, INSTEAD, 0, 1},
    {"asprintf", -1, ENOMEM, INSTEAD, 0, 1},
    {"open_memstream", 0, ENOMEM, INSTEAD, 0, 1},
    {"fclose", -1, ENOMEM, AFTER, 0, 1},
    {"eventfd", -1, EMFILE, INSTEAD, 0, 1},
    {"pthread_create", EAGAIN, 0, INSTEAD, 0, 1},
    {"poll", -1, ENOMEM, INSTEAD, 0, 1},
    {"poll", -1, EINTR, INSTEAD, 0, 0},
    {"poll", 0, 0, INSTEAD, 0, 0},
    {"read", -1, EIO, INSTEAD, 0, 1},
    {"read", -1, EAGAIN, INSTEAD, 0, 1},
    {"write", -1, EAGAIN, INSTEAD, 0, 1},
    {"socket", -1, EMFILE, INSTEAD, 0, 1},
    {"connect", -1, ECONNREFUSED, INSTEAD, 0, 1},
    {"connect", -1, EINPROGRESS, AFTER, 0, 0},
    {"getsockopt", -1, ENOMEM, INSTEAD, 0, 1},
    {"setsockopt", -1, ENOMEM, INSTEAD, 0, 1},
    {"getaddrinfo", -4, 0, INSTEAD, 0, 1},
    {"send", -1, EPIPE, INSTEAD, 0, 1},
    {"send", -1, EAGAIN, INSTEAD, 0, 0},
    {"send", -1, EINTR, INSTEAD, 0, 0},
    {"recv", -1, ECONNRESET, INSTEAD, 0, 1},
    {"recv", -1, EAGAIN, INSTEAD, 0, 0},
    {"recv", -1, EINTR, INSTEAD, 0, 0},
    {"recv", 0, 0, INSTEAD, 0, 0},
    {"json_array", 0, 0, INSTEAD, 0, 1},
    {"json_object", 0, 0, INSTEAD, 0, 1},
    {"json_string", 0, 0, INSTEAD, 0, 1},
    {"json_stringn", 0, 0, INSTEAD, 0, 1},
    {"json_stringn_nocheck", 0, 0, INSTEAD, 0, 1},
    {"json_deep_copy", 0, 0, INSTEAD, 0, 1},
    {"json_array_set_new", -1, 0, EMPTY, 0, 1},
    {"json_integer", 0, 0, INSTEAD, 0, 1},
    {"json_pack", 0, 0, INSTEAD, 0, 1},
    {"json_array_append_new", -1, 0, EMPTY, 0, 1},
    {"json_object_set_new", -1, 0, EMPTY, 0, 1},
    {"json_dump_callback", -1, 0, INSTEAD, 0, 1},
    {"curl_global_init", 27, 0, INSTEAD, 0, 1},
    {"curl_easy_init", 0, 0, INSTEAD, 0, 1},
    {"curl_easy_setopt", 27, 0, INSTEAD, 0, 1},
    {"curl_easy_escape", 0, 0, INSTEAD, 0, 1},
    {"curl_slist_append", 0, 0, INSTEAD, 0, 1},
    {"curl_multi_init", 0, 0, INSTEAD, 0, 1},
    {"curl_multi_add_handle", 3, 0, INSTEAD, 0, 1},
    {"curl_multi_perform", 3, 0, INSTEAD, 0, 1},
    {"curl_multi_poll", 3, 0, INSTEAD, 0, 1},
    {"EVP_DecodeBlock", -1, 0, INSTEAD, 1, 1},
    {"BIO_new_mem_buf", 0, 0, INSTEAD, 0, 1},
    {"PEM_read_bio_PrivateKey", 0, 0, INSTEAD, 0, 1},
    {"EVP_MD_CTX_new", 0, 0, INSTEAD, 0, 1},
    {"EVP_DigestSignInit", 0, 0, INSTEAD, 0, 1},
    {"EVP_DigestSign", 0, 0, INSTEAD, 0, 1},
    {"SSL_CTX_new", 0, 0, INSTEAD, 0, 1},
    {"SSL_new", 0, 0, INSTEAD, 0, 1},
    {"BIO_new", 0, 0, INSTEAD, 0, 1},
    {"BIO_write", -1, 0, INSTEAD, 0, 1},
    {"SSL_write", -1, 0, INSTEAD, 0, 1},
    {"SSL_set1_host", 0, 0, INSTEAD, 0, 1},
    {"X509_VERIFY_PARAM_set1_ip_asc", 0, 0, INSTEAD, 0, 1},
    {"SSL_ctrl", 0, 0, INSTEAD, 0, 1},
    {"SSL_CTX_set_default_verify_paths", 0, 0, INSTEAD, 1, 1},
    {"BIO_meth_new", 0, 0, INSTEAD, 0, 1},
    {"BIO_meth_set_read", 0, 0, INSTEAD, 0, 1},
    {"SSL_connect", -1, 0, INSTEAD, 0, 1},
    {"SSL_read", -1, 0, INSTEAD, 0, 1},
    {"nghttp2_session_callbacks_new", -901, 0, INSTEAD, 0, 1},
    {"nghttp2_session_client_new", -901, 0, INSTEAD, 0, 1},
    {"nghttp2_session_mem_recv", -901, 0, INSTEAD, 0, 1},
    {"nghttp2_session_mem_send", -901, 0, INSTEAD, 0, 1},
    {"nghttp2_session_set_local_window_size", -901, 0, INSTEAD, 0, 1},
    {"nghttp2_submit_request", -901, 0, INSTEAD, 0, 1},
    {"nghttp2_submit_settings", -901, 0, INSTEAD, 0, 1},
    {"protobuf_c_message_unpack", 0, 0, INSTEAD, 2, 1},
    {"natsOptions_Create", 24, 0, INSTEAD, 0, 1},
    {"natsOptions_SetURL", 24, 0, INSTEAD, 0, 1},
    {"natsOptions_SetEventLoop", 24, 0, INSTEAD, 0, 1},
    {"natsOptions_SetTimeout", 24, 0, INSTEAD, 0, 1},
    {"natsConnection_Connect", 24, 0, INSTEAD, 0, 1},
    {"natsConnection_Connect", 2, 0, INSTEAD, 0, 1},
    {"natsConnection_SubscribeSync", 24, 0, INSTEAD, 0, 1},
    {"natsConnection_PublishMsg", 24, 0, INSTEAD, 0, 1},
    {"natsConnection_PublishMsg", 3, 0, AFTER, 0, 1},
    {"natsSubscription_NextMsg", 26, 0, INSTEAD, 0, 0},
    {"natsMsg_Create", 24, 0, INSTEAD, 0, 1},
    {"natsMsgHeader_Set", 24, 0, INSTEAD, 0, 1},
    {"redisReaderCreate", 0, 0, INSTEAD, 0, 1},
    {"redisReaderFeed", -1, 0, INSTEAD, 0, 1},
    {"PQconnectStartParams", 0, 0, INSTEAD, 0, 1},
    {"PQsendPrepare", 0, 0, INSTEAD, 0, 1},
    {"PQsendQueryParams", 0, 0, INSTEAD, 0, 1},
    {"PQflush", -1, 0, INSTEAD, 0, 1},
    {"PQflush", 1, 0, INSTEAD, 0, 0},
    {"PQconsumeInput", 0, 0, INSTEAD, 0, 1},
    {"PQgetResult", 0, 0, INSTEAD, 0, 0},
    {"PQsetnonblocking", -1, 0, INSTEAD, 0, 1},
    {"PQstatus", 1, 0, INSTEAD, 0, 0},
    {"PQisthreadsafe", 0, 0, INSTEAD, 1, 1},
    {"mongoc_client_new_from_uri_with_error", 0, 0, INSTEAD, 1, 1},
    {"mongoc_uri_new_with_error", 0, 0, INSTEAD, 1, 1},
    {"bson_init_from_json", 0, 0, INSTEAD, 1, 1},
    {"bson_iter_type", 10, 0, INSTEAD, 1, 0}, /* null */
    {"bson_iter_init", 0, 0, INSTEAD, 1, 0},
    {"bson_iter_init_find", 0, 0, INSTEAD, 1, 0},
    {"bson_iter_find", 0, 0, INSTEAD, 1, 0},
    {"bson_iter_find_descendant", 0, 0, INSTEAD, 1, 0},
    {"bson_iter_recurse", 0, 0, INSTEAD, 1, 0},
    {"bson_iter_next", 0, 0, INSTEAD, 1, 0},
};

enum { CALLS = 20000, EACH = 8 };
static struct call {
    const char *name;
    const void *site;
} calls[CALLS];
static int n_calls;
static int armed, fail_at, on, failed;
static const struct way *failing;
static const char *first_byte, *last_byte; /* of the driver's code */
static void *module;
static _Thread_local int exempt;

/* Is this call, of the driver's, to fail? */
static int fails(const char *name, const void *site)
{
    const char *at = site;
    if (at < first_byte || at >= last_byte) return 0;
    if (exempt || !__atomic_load_n(&armed, __ATOMIC_ACQUIRE)) return 0;
    int n = __atomic_fetch_add(&n_calls, 1, __ATOMIC_RELAXED);
    if (n < CALLS) calls[n] = (struct call){name, site};
    if (!failing || strcmp(name, failing->name) != 0) return 0;
    if (n != fail_at && !(on && n > fail_at)) return 0;
    failed = 1;
    return 1;
}

/* Finds the real function, in a library that only the driver has loaded. While the driver is being
   loaded, only the call site shows which library that is. */
static six find(const char *name, const void *site)
{
    six ret;
    Dl_info where;
    void *at = dlsym(RTLD_NEXT, name);
    if (!at) {
        void *from = module;
        if (!from && dladdr(site, &where)) from = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        at = from ? dlsym(from, name) : NULL;
    }
    if (!at) abort();
    memcpy(&ret, &at, sizeof ret);
    return ret;
}

#define DEFINE(name, known)                                                        \
    word own_##name(word a, word b, word c, word d, word e, word f) __asm__(#name) \
        __attribute__((visibility("default"), used));                              \
    word own_##name(word a, word b, word c, word d, word e, word f)                \
    {                                                                              \
        static six real = known;                                                   \
        int yes = fails(#name, __builtin_return_address(0));                       \
        const struct way *way = failing;                                           \
        if (yes && way->how == INSTEAD) {                                          \
            if (way->sys) errno = way->sys;                                        \
            return way->value;                                                     \
        }                                                                          \
        if (!real) real = find(#name, __builtin_return_address(0));                \
        word is_ = real(yes && way->how == EMPTY ? 0 : a, b, c, d, e, f);          \
        if (!yes) return is_;                                                      \
        errno = way->sys;                                                          \
        return way->value;                                                         \
    }

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
DEFINE(malloc, (six)(void (*)(void))__libc_malloc)
DEFINE(calloc, (six)(void (*)(void))__libc_calloc)
DEFINE(realloc, (six)(void (*)(void))__libc_realloc)

#define DEFINE_ONE(name)        DEFINE(name, NULL)
#define DEFINE_TWO(a, b)        DEFINE_ONE(a) DEFINE_ONE(b)
#define DEFINE_FOUR(a, b, c, d) DEFINE_TWO(a, b) DEFINE_TWO(c, d)
DEFINE_FOUR(strdup, strndup, open_memstream, fclose)
DEFINE_FOUR(eventfd, pthread_create, poll, read)
DEFINE_FOUR(write, socket, connect, getsockopt)
DEFINE_FOUR(setsockopt, getaddrinfo, send, recv)
DEFINE_ONE(json_stringn_nocheck)
DEFINE_ONE(json_deep_copy)
DEFINE_ONE(json_array_set_new)
DEFINE_FOUR(json_array, json_object, json_string, json_stringn)
DEFINE_FOUR(json_integer, json_array_append_new, json_object_set_new, json_dump_callback)
DEFINE_FOUR(curl_global_init, curl_easy_init, curl_easy_setopt, curl_easy_escape)
DEFINE_FOUR(curl_slist_append, curl_multi_init, curl_multi_add_handle, curl_multi_perform)
DEFINE_FOUR(curl_multi_poll, EVP_DecodeBlock, BIO_new_mem_buf, SSL_CTX_new)
DEFINE_FOUR(PEM_read_bio_PrivateKey, EVP_MD_CTX_new, EVP_DigestSignInit, EVP_DigestSign)
DEFINE_FOUR(SSL_new, BIO_new, BIO_write, SSL_write)
DEFINE_FOUR(BIO_meth_new, BIO_meth_set_read, SSL_connect, SSL_read)
DEFINE_FOUR(protobuf_c_message_unpack, nghttp2_session_callbacks_new, nghttp2_session_client_new,
            nghttp2_session_mem_recv)
DEFINE_FOUR(nghttp2_session_mem_send, nghttp2_session_set_local_window_size, nghttp2_submit_request,
            nghttp2_submit_settings)
DEFINE_FOUR(SSL_set1_host, X509_VERIFY_PARAM_set1_ip_asc, SSL_ctrl,
            SSL_CTX_set_default_verify_paths)
DEFINE_FOUR(natsOptions_Create, natsOptions_SetURL, natsOptions_SetEventLoop,
            natsOptions_SetTimeout)
DEFINE_FOUR(natsConnection_Connect, natsConnection_SubscribeSync, natsConnection_PublishMsg,
            natsSubscription_NextMsg)
DEFINE_TWO(natsMsg_Create, natsMsgHeader_Set)
DEFINE_FOUR(redisReaderCreate, redisReaderFeed, PQconnectStartParams, PQsendPrepare)
DEFINE_FOUR(PQflush, PQconsumeInput, PQgetResult, PQsetnonblocking)
DEFINE_FOUR(PQstatus, PQisthreadsafe, mongoc_client_new_from_uri_with_error,
            mongoc_uri_new_with_error)
DEFINE_FOUR(bson_init_from_json, bson_iter_type, bson_iter_init, bson_iter_init_find)
DEFINE_FOUR(bson_iter_find, bson_iter_find_descendant, bson_iter_recurse, bson_iter_next)

/* Functions with a variable number of arguments are passed on by their form that takes a list. */
void *own_json_pack(const char *form, ...) __asm__("json_pack")
    __attribute__((visibility("default"), used));
void *own_json_pack(const char *form, ...)
{
    static void *(*real)(void *, size_t, const char *, va_list);
    if (fails("json_pack", __builtin_return_address(0))) return NULL;
    if (!real)
        real = (void *(*)(void *, size_t, const char *, va_list))(void (*)(void))find(
            "json_vpack_ex", __builtin_return_address(0));
    va_list args;
    va_start(args, form);
    void *is_ = real(NULL, 0, form, args);
    va_end(args);
    return is_;
}

int own_asprintf(char **ret, const char *form, ...) __asm__("asprintf")
    __attribute__((visibility("default"), used, format(printf, 2, 3)));
int own_asprintf(char **ret, const char *form, ...)
{
    if (fails("asprintf", __builtin_return_address(0))) return -1;
    va_list args;
    va_start(args, form);
    int is_ = vasprintf(ret, form, args);
    va_end(args);
    return is_;
}

/* ---- what is tried ---- */

static int find_code(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *base = (const char *)info->dlpi_addr, *of = arg;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *from = base + p->p_vaddr, *to = from + p->p_memsz;
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || of < from || of >= to) continue;
        first_byte = from;
        last_byte = to;
        return 1;
    }
    return 0;
}

static int run(const struct op *op, const struct way *way, int n, int all)
{
    ops_prepare(op);
    memset(&err, 0, sizeof err);
    failing = way;
    fail_at = n;
    on = all;
    failed = n_calls = 0;
    __atomic_store_n(&armed, 1, __ATOMIC_RELEASE);
    int rc = op->run();
    __atomic_store_n(&armed, 0, __ATOMIC_RELEASE);
    failing = NULL;
    return rc;
}

void ops_exempt(int yes) { exempt = yes; }

static int may_say(const struct op *op, const struct way *way, int rc)
{
    if (rc == op->good || rc == HF_NOMEM || rc == HF_UNAVAILABLE || rc == HF_UNKNOWN) return 1;
    if (way->garbles == 2) return rc == HF_CORRUPT;
    if (way->garbles)
        return rc == HF_CORRUPT || rc == HF_INVALID || rc == HF_UNSUPPORTED || rc == HF_CONFLICT ||
               rc == HF_LOST || rc == HF_DENIED || !rc;
    return 0;
}

/* How many writes got no answer. A slow server may make them between the preparation and the call
   that is tried, which must not be taken for an effect of this failure. Each lands once. */
static int unheard;

static int landed(const struct op *op, int rc)
{
    int is = unheard > 0 && rc == HF_CONFLICT && op->good != rc;
    unheard -= is;
    return is;
}

static void one(const struct op *op, const struct way *way, int n, const struct call *call, int all)
{
    char what[200];
    int rc;
    do rc = run(op, way, n, all);
    while (landed(op, rc));
    unheard += rc == HF_UNKNOWN;
    if (!failed) return; /* there were fewer calls this time */
    snprintf(what, sizeof what, "%s, %s at %#lx fails with %d, %s%s", op->name, way->name,
             (unsigned long)((const char *)call->site - first_byte), way->value,
             way->sys ? strerror(way->sys) : "", all ? ", and so on" : "");
    if (!may_say(op, way, rc) || (rc < 0 && strlen(err.text) < 10))
        fail_msg("%s: %d, %s", what, rc, err.text);
    if (rc && rc != HF_UNKNOWN && rc != op->good && op->writes && way->garbles != 1 &&
        ops_changed()) {
        if (unheard-- > 0) {
            one(op, way, n, call, all); /* it may have been one of these */
            return;
        }
        fail_msg("%s: %d, %s: and yet it was done", what, rc, err.text);
    }
    hf_error was = err;
    for (int i = 0; i < 20 && ops_again(op) != op->good; i++)
        if (i == 19) fail_msg("%s: %d, %s: then: %s", what, rc, was.text, err.text);
}

/* Each place of a call twice: the first call from there, and the second. */
static int each(const struct op *op)
{
    static struct call was[CALLS];
    int sum = 0;
    int rc = run(op, NULL, -1, 0);
    if (rc != op->good) fail_msg("%s: %d, %s", op->name, rc, err.text);
    int n = n_calls < CALLS ? n_calls : CALLS;
    memcpy(was, calls, (size_t)n * sizeof *was);
    for (int i = 0; i < n; i++) {
        int before = 0;
        for (int k = 0; k < i; k++) before += was[k].site == was[i].site;
        if (before >= EACH) continue;
        for (size_t w = 0; w < COUNT(ways); w++) {
            if (strcmp(ways[w].name, was[i].name) != 0) continue;
            one(op, &ways[w], i, &was[i], 0);
            if (ways[w].ever && !before) one(op, &ways[w], i, &was[i], 1);
            sum++;
        }
    }
    return sum;
}

static void calls_fail(void **state)
{
    (void)state;
    int sum = 0;
    for (size_t i = 0; i < ops_n; i++) {
        if (!ops_has(&ops[i])) continue;
        int n = each(&ops[i]);
        print_message("# %s: %d\n", ops[i].name, n);
        sum += n;
    }
    if (sum < 50) fail_msg("only %d calls", sum);
}

int main(int argc, char **argv)
{
    Dl_info where;
    static const struct CMUnitTest tests[] = {cmocka_unit_test(calls_fail)};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2) return 64;
    if (ops_find(argv[1])) return 1;
    void *entry = (void *)(uintptr_t)driver->open;
    if (!dl_iterate_phdr(find_code, entry) || !dladdr(entry, &where)) return 1;
    module = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!module || ops_begin()) return 1;
    int bad = TEST_MAIN(tests);
    ops_end();
    return bad;
}
