/*
 * held_many.c - one handle holds many keys, far from its store: none is lost.
 *
 *   [tests/servers/NAME] held_many @ [--holds N] [--lease MS] [--leases N] [--delay MS] [--hang N]
 *                                  [--seed N]
 *
 * --holds keys (1,000) are acquired, each with --lease (5,000), and held for --leases lease lengths
 * (3) from then on. A server is --delay ms (10) away, there and back: see slow_net.h. With --hang
 * that many of 1,000 requests hang for as long again; --seed (1) chooses which. What counts is that
 * no hold is lost.
 */
#include "holdfast.h"
#include "network/front.h"
#include "network/slow_net.h"
#include "os.h"
#include "scratch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { THREADS = 16 };

static struct {
    const char *url;
    int holds, lease, leases, delay, hang, seed;
} options = {NULL, 1000, 5000, 3, 10, 0, 1};

static hf *h;
static hf_lock **lock;
static atomic_int next, failed, told;
static int checks, wrong;

_Noreturn static void bail(const char *why, const char *more)
{
    printf("Bail out! %s: %s\n", why, more);
    exit(1);
}

static void parse(int argc, char **argv)
{
    struct {
        const char *name;
        int *value;
    } known[] = {{"--holds", &options.holds},   {"--lease", &options.lease},
                 {"--leases", &options.leases}, {"--delay", &options.delay},
                 {"--hang", &options.hang},     {"--seed", &options.seed}};
    for (int i = 1; i < argc; i++) {
        size_t k = 0, n = sizeof known / sizeof *known;
        while (k < n && strcmp(argv[i], known[k].name) != 0) k++;
        if (k < n && i + 1 < argc)
            *known[k].value = (int)strtol(argv[++i], NULL, 10);
        else if (k == n && !options.url)
            options.url = argv[i];
        else
            bail("an option", argv[i]);
    }
    if (!options.url || options.holds < 1) bail("usage", "held_many URL [--holds N] ...");
}

static void is_lost(void *arg, hf_lock *l)
{
    hf_error why;
    (void)arg;
    if (atomic_fetch_add(&told, 1) < 5 && hf_lost_reason(l, &why)) printf("# lost: %s\n", why.text);
}

static void *acquire(void *arg)
{
    char key[40];
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 60000;
    o.lease_ms = options.lease;
    for (int i; (i = atomic_fetch_add(&next, 1)) < options.holds;) {
        snprintf(key, sizeof key, "held-many/%d", i);
        if (hf_acquire(h, key, &o, &lock[i], &err)) {
            printf("# acquire '%s': %s\n", key, err.text);
            atomic_fetch_add(&failed, 1);
            break;
        }
        hf_on_lost(lock[i], is_lost, NULL);
    }
    return arg;
}

static hf_stats stats(void)
{
    hf_stats s = {.size = sizeof s};
    if (hf_get_stats(h, &s)) bail("stats", "");
    return s;
}

static int threads(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[200];
    int n = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "Threads:", 8)) n = (int)strtol(line + 8, NULL, 10);
    if (f) fclose(f);
    return n;
}

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void check(int good, const char *what)
{
    wrong += !good;
    printf("%sok %d - %s\n", good ? "" : "not ", ++checks, what);
    fflush(stdout);
}

/* Holds for this many lease lengths, as long as nothing is lost. */
static void hold(const char *what)
{
    hf_stats before = stats(), now = before;
    int64_t begun = hf__local_us(), us = (int64_t)options.lease * options.leases * 1000;
    double used = cpu();
    char text[200];
    while (now.lost == before.lost && hf__local_us() - begun < us) {
        usleep(50000);
        now = stats();
    }
    double s = (double)(hf__local_us() - begun) / 1e6;
    printf("# %s: %.1f s, %.0f renewals a second, %d threads, %.2f processors\n", what, s,
           (double)(now.renewals - before.renewals) / s, threads(), (cpu() - used) / s);
    snprintf(text, sizeof text, "%s: %d holds with a lease of %d ms, at %d ms: %d lost", what,
             options.holds, options.lease, options.delay, (int)(now.lost - before.lost));
    check(now.lost == before.lost, text);
}

/* Checks on a direct connection that the store still has the grants as ours. */
static void look(const char *url)
{
    hf *beside;
    hf_error err;
    int good = 0, looks = 0;
    if (hf_open(url, NULL, &beside, &err)) bail("open", err.text);
    for (int i = 0; i < options.holds; i += options.holds / 100 + 1, looks++) {
        hf_lock *other;
        hf_options o = HF_OPTIONS_INIT;
        o.wait_ms = 0;
        o.lease_ms = options.lease;
        o.flags = HF_NO_RENEW;
        int rc = hf_acquire(beside, hf_key(lock[i]), &o, &other, &err);
        good += rc == HF_BUSY && hf_left_ms(lock[i]) > 0;
        if (!rc) hf_release(other, NULL);
    }
    hf_close(beside);
    check(good == looks, "nobody else gets any of them");
}

int main(int argc, char **argv)
{
    static char server[600], front[900];
    pthread_t thread[THREADS];
    struct slow_net net = {0};
    hf_error err;
    parse(argc, argv);
    net.seed = (unsigned)options.seed;
    const char *url = options.url = scratch(options.url);
    int far = !front_url(url, server, sizeof server, front, sizeof front, 0);
    if (far) {
        if (slow_net_start(&net, server, options.delay)) bail("no proxy for", server);
        front_url(url, server, sizeof server, front, sizeof front, net.port);
        if (!strncmp(url, "firestore:", 10)) {
            char host[40];
            snprintf(host, sizeof host, "127.0.0.1:%d", net.port);
            setenv("FIRESTORE_EMULATOR_HOST", host, 1);
        }
        url = front;
    }
    if (hf_open(url, NULL, &h, &err)) bail("open", err.text);
    if (far && !strncmp(url, "firestore:", 10)) setenv("FIRESTORE_EMULATOR_HOST", server, 1);
    lock = calloc((size_t)options.holds, sizeof(hf_lock *));
    int64_t begun = hf__local_us();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, acquire, NULL)) bail("a thread", "");
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    if (failed) bail("acquire", "failed");
    printf("# acquired in %.1f s\n", (double)(hf__local_us() - begun) / 1e6);
    check(!stats().lost, "none is lost while the others are acquired");
    hold("held");
    if (far && options.hang) {
        slow_net_hang(&net, options.hang);
        hold("while requests hang");
        printf("# seed %d: %d of %d requests hung\n", options.seed, slow_net_hung(&net),
               slow_net_asked(&net));
        check(slow_net_hung(&net) > 0, "some did hang");
        slow_net_hang(&net, 0);
    }
    look(options.url);
    check(!atomic_load(&told), "no holder was told of a loss");
    printf("1..%d\n", checks);
    fflush(stdout);
    scratch_remove();
    /* Releasing so many would take longer than their leases last. The proxy ends with this
       process. */
    _exit(wrong != 0);
}
