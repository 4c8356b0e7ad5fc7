/*
 * file.c - fuzz: a store's file with any bytes of it replaced, opened and used. Whatever they are:
 * an answer or an error, no crash, no endless loop.
 */
#include "fuzz.h"

#include "holdfast.h"

#include <fcntl.h>
#include <unistd.h>

static char dir[] = "/dev/shm/holdfast-fuzz-XXXXXX", path[64], url[80];
static uint8_t *image, *work;
static size_t image_size;

static void clean(void)
{
    unlink(path);
    rmdir(dir);
}

static void fill(hf *h)
{
    hf_options lease = HF_OPTIONS_INIT, shared = HF_OPTIONS_INIT;
    hf_lock *lock;
    hf_once once;
    char key[16];
    for (int i = 0; i < 12; i++) {
        snprintf(key, sizeof key, "used/%d", i);
        if (hf_acquire(h, key, NULL, &lock, NULL) || hf_release(lock, NULL)) abort();
    }
    lease.lease_ms = 86400000;
    lease.flags = HF_DETACHED;
    shared.mode = HF_SHARED;
    shared.lease_ms = 86400000;
    shared.flags = HF_DETACHED;
    if (hf_acquire(h, "leased", &lease, &lock, NULL)) abort();
    for (int i = 0; i < 3; i++)
        if (hf_acquire(h, "shared", &shared, &lock, NULL)) abort();
    if (hf_once_begin(h, "done", HF_FOREVER, NULL, &once, NULL)) abort();
    if (hf_once_finish(once.lock, "sent", HF_FOREVER, NULL)) abort();
}

static void save(const uint8_t *bytes, size_t n)
{
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n) abort();
    close(fd);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    hf *h;
    hf_error err;
    (void)argc, (void)argv;
    if (!mkdtemp(dir)) abort();
    atexit(clean);
    snprintf(path, sizeof path, "%s/store", dir);
    snprintf(url, sizeof url, "file:%s", path);
    if (hf_open(url, NULL, &h, &err)) abort();
    fill(h);
    hf_close(h);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    image_size = (size_t)lseek(fd, 0, SEEK_END);
    image = malloc(image_size);
    work = malloc(image_size);
    if (!image || !work || pread(fd, image, image_size, 0) != (ssize_t)image_size) abort();
    close(fd);
    return 0;
}

static int see(void *arg, const hf_info *info)
{
    (void)arg;
    for (size_t i = 0; i < info->n_holders + info->n_waiters; i++)
        MUST(strlen(info->parties[i].owner) < HF_OWNER_CAP);
    return 0;
}

static void use(hf *h)
{
    static const char *const keys[] = {"used/3", "leased", "shared", "new"};
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    hf_once once;
    uint64_t n = 0;
    o.wait_ms = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        (void)hf_peek(h, keys[i], see, NULL, NULL);
        if (!hf_acquire(h, keys[i], &o, &lock, NULL)) (void)hf_release(lock, NULL);
    }
    if (!hf_once_begin(h, "done", HF_FOREVER, &o, &once, NULL) && once.lock)
        (void)hf_once_finish(once.lock, "again", HF_FOREVER, NULL);
    (void)hf_list(h, "", see, NULL, NULL);
    (void)hf_prune(h, 60000, &n, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {data, size};
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    hf_error err = {0, 0, ""};
    size_t n = image_size;
    hf *h;
    memcpy(work, image, image_size);
    while (f.left > 3) {
        size_t at = ((size_t)fuzz_byte(&f) << 8 | fuzz_byte(&f)) << 3, len = fuzz_byte(&f);
        if (len == 255) /* cut off here */
            n = at % image_size;
        for (len = len % 33 + 1; len && f.left; len--, at++) work[at % image_size] = fuzz_byte(&f);
    }
    unlink(path);
    save(work, n);
    o.io_timeout_ms = 100;
    if (hf_open(url, &o, &h, &err)) {
        MUST(*err.text && err.code < 0);
        return 0;
    }
    use(h);
    hf_close(h);
    return 0;
}
