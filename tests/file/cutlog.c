/*
 * cutlog.c - what a disk may hold after a power cut; see cutlog.h.
 */
#include "cutlog.h"

#include "file/shared.h"
#include "hurt.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct version { /* a sector, from this moment on */
    uint32_t moment, sector;
    int64_t before; /* index of the sector's last version; -1: it is as at the beginning */
    unsigned char bytes[CUT_SECTOR];
};

struct cutlog {
    int fd;
    unsigned char *map;   /* the file */
    unsigned char *first; /* the file at the beginning */
    unsigned char *last;  /* the file when it was looked at last */
    size_t room, size;    /* the size of the mapping; the size of the file at the beginning */
    size_t used;          /* bytes below this may have changed */
    uint32_t moment;      /* now */
    unsigned every, skipped;
    int lies;
    struct version *versions;
    int64_t n, cap;
    int64_t *newest;  /* of each sector */
    uint32_t *synced; /* for each sector, the result of synced_until */
    struct {
        uint32_t moment, first, end; /* the sectors that a sync has put on disk; end 0: all of
                                        them */
        size_t size;
    } syncs[4096];
    uint32_t n_syncs;
};

static struct cutlog *recording;
static pthread_t recorder;

/* ---- recording ---- */

struct cutlog *cutlog_begin(const char *path)
{
    struct cutlog *l = calloc(1, sizeof *l);
    struct stat s;
    assert_non_null(l);
    l->fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(l->fd >= 0 && !fstat(l->fd, &s));
    l->size = (size_t)s.st_size;
    l->room = l->size + (4 << 20);
    l->map = mmap(NULL, l->room, PROT_READ, MAP_SHARED, l->fd, 0);
    l->first = calloc(1, l->room);
    l->last = calloc(1, l->room);
    l->newest = malloc(l->room / CUT_SECTOR * sizeof *l->newest);
    l->synced = calloc(l->room / CUT_SECTOR, sizeof *l->synced);
    assert_true(l->map != MAP_FAILED && l->first && l->last && l->newest && l->synced);
    memcpy(l->first, l->map, l->size);
    memcpy(l->last, l->map, l->size);
    memset(l->newest, 0xff, l->room / CUT_SECTOR * sizeof *l->newest);
    l->syncs[0].size = l->size;
    l->n_syncs = 1;
    l->every = 1;
    /* The tail must be clear, because recovery clears what it finds there. */
    for (l->used = l->size; l->used && !l->map[l->used - 1];) l->used--;
    recording = l;
    recorder = pthread_self();
    return l;
}

void cutlog_end(struct cutlog *l)
{
    cutlog_look(l);
    recording = NULL;
}

void cutlog_free(struct cutlog *l)
{
    if (!l) return;
    if (recording == l) recording = NULL;
    munmap(l->map, l->room);
    close(l->fd);
    free(l->first);
    free(l->last);
    free(l->newest);
    free(l->synced);
    free(l->versions);
    free(l);
}

static void note(struct cutlog *l, uint32_t sector)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 1024;
        l->versions = realloc(l->versions, (size_t)l->cap * sizeof *l->versions);
        assert_non_null(l->versions);
    }
    struct version *v = &l->versions[l->n];
    v->moment = l->moment;
    v->sector = sector;
    v->before = l->newest[sector];
    memcpy(v->bytes, l->map + (size_t)sector * CUT_SECTOR, CUT_SECTOR);
    memcpy(l->last + (size_t)sector * CUT_SECTOR, v->bytes, CUT_SECTOR);
    l->newest[sector] = l->n++;
}

static size_t file_size(const struct cutlog *l)
{
    struct stat s;
    assert_int_equal(fstat(l->fd, &s), 0);
    assert_true((size_t)s.st_size <= l->room);
    return (size_t)s.st_size;
}

void cutlog_look(struct cutlog *l)
{
    const struct hf__alloc *a = (const void *)(l->map + HF_AT_ALLOC);
    size_t end = (size_t)hf__unseal(atomic_load(&a->bump)) * HF_LINE;
    if (end > l->used) l->used = end;
    end = (l->used + CUT_SECTOR - 1) / CUT_SECTOR * CUT_SECTOR;
    size_t size = end > l->size ? file_size(l) : l->size;
    if (end > size) end = size;
    l->moment++;
    for (size_t at = 0; at < end; at += CUT_PAGE) {
        size_t n = end - at < CUT_PAGE ? end - at : CUT_PAGE;
        if (!memcmp(l->map + at, l->last + at, n)) continue;
        for (size_t s = at; s < at + n; s += CUT_SECTOR)
            if (memcmp(l->map + s, l->last + s, CUT_SECTOR)) note(l, (uint32_t)(s / CUT_SECTOR));
    }
}

void cutlog_pace(struct cutlog *l, unsigned every) { l->every = every; }
void cutlog_lie(struct cutlog *l) { l->lies = 1; }

uint32_t cutlog_now(struct cutlog *l)
{
    cutlog_look(l);
    return l->moment;
}

void hf__seam(const char *where, const volatile void *at, size_t n, int kind)
{
    (void)where, (void)at, (void)n, (void)kind;
    struct cutlog *l = recording;
    if (!l || !pthread_equal(recorder, pthread_self()) || ++l->skipped < l->every) return;
    l->skipped = 0;
    cutlog_look(l);
}

/* ---- the system ---- */

static char calls[256];

static void note_call(char c)
{
    size_t n = strlen(calls);
    if (n + 1 < sizeof calls) calls[n] = c;
}

const char *cutlog_calls(void)
{
    static char taken[sizeof calls];
    memcpy(taken, calls, sizeof taken);
    memset(calls, 0, sizeof calls);
    return taken;
}

int __wrap_fdatasync(int fd);
int __wrap_msync(void *at, size_t n, int flags);
int __wrap_fsync(int fd);
int __wrap_link(const char *from, const char *to);
int __wrap_unlink(const char *path);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t n, off_t at);
int __real_link(const char *from, const char *to);
int __real_unlink(const char *path);
ssize_t __real_pwrite64(int fd, const void *from, size_t n, off_t at);

static void note_sync(struct cutlog *l, size_t size, size_t from, size_t to)
{
    cutlog_look(l);
    assert_true(l->n_syncs < sizeof l->syncs / sizeof *l->syncs);
    l->syncs[l->n_syncs].moment = l->moment;
    l->syncs[l->n_syncs].first = (uint32_t)(from / CUT_SECTOR);
    l->syncs[l->n_syncs].end = (uint32_t)(to / CUT_SECTOR);
    l->syncs[l->n_syncs++].size = size;
    l->moment++;
}

/* A sync puts on disk what was written before it. What is written during it may be on disk, too. */
int __wrap_fdatasync(int fd)
{
    struct cutlog *l = recording;
    struct stat s, own;
    if (fstat(fd, &s)) return -1;
    note_call(S_ISDIR(s.st_mode) ? 'D' : 'S');
    if (!l || l->lies || fstat(l->fd, &own) || s.st_ino != own.st_ino) return 0;
    note_sync(l, (size_t)s.st_size, 0, 0);
    return 0;
}

/* Where the file lies in that the address is of a mapping of: from there on, or -1. */
static long long mapped_at(const struct cutlog *l, const void *at)
{
    char line[4096];
    struct stat own;
    long long found = -1;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_true(maps && !fstat(l->fd, &own));
    while (found < 0 && fgets(line, sizeof line, maps)) {
        unsigned long long from, to, offset, inode;
        if (sscanf(line, "%llx-%llx %*s %llx %*s %llu", &from, &to, &offset, &inode) == 4 &&
            inode == own.st_ino && (uintptr_t)at >= from && (uintptr_t)at < to)
            found = (long long)(offset + ((uintptr_t)at - from));
    }
    fclose(maps);
    return found;
}

/* The same for a part of the file. Nothing more is known about the rest of the disk. */
int __wrap_msync(void *at, size_t n, int flags)
{
    struct cutlog *l = recording;
    note_call('P');
    assert_true(flags == MS_SYNC && (uintptr_t)at % CUT_PAGE == 0 && n);
    long long from = l ? mapped_at(l, at) : -1;
    if (from < 0 || l->lies) return 0;
    size_t size = l->syncs[l->n_syncs - 1].size;
    note_sync(l, size, (size_t)from, ((size_t)from + n + CUT_PAGE - 1) / CUT_PAGE * CUT_PAGE);
    return 0;
}

int __wrap_fsync(int fd) { return __wrap_fdatasync(fd); }

int __wrap_link(const char *from, const char *to)
{
    note_call('L');
    return __real_link(from, to);
}

int __wrap_unlink(const char *path)
{
    note_call('U');
    return __real_unlink(path);
}

ssize_t __wrap_pwrite64(int fd, const void *from, size_t n, off_t at)
{
    note_call('W');
    return __real_pwrite64(fd, from, n, at);
}

/* ---- images ---- */

/* The sector as it was at the moment. */
static const unsigned char *as_of(const struct cutlog *l, uint32_t sector, uint32_t moment)
{
    int64_t i = l->newest[sector];
    while (i >= 0 && l->versions[i].moment > moment) i = l->versions[i].before;
    return i < 0 ? l->first + (size_t)sector * CUT_SECTOR : l->versions[i].bytes;
}

/* Computes in l->synced until when each sector was synced. */
static void synced_until(const struct cutlog *l, uint32_t moment, size_t *ret_size)
{
    uint32_t end = l->n_syncs, all, sectors = (uint32_t)(l->room / CUT_SECTOR);
    while (end > 1 && l->syncs[end - 1].moment >= moment) end--;
    for (all = end - 1; l->syncs[all].end;) all--;
    for (uint32_t s = 0; s < sectors; s++) l->synced[s] = l->syncs[all].moment;
    for (uint32_t i = all + 1; i < end; i++)
        for (uint32_t s = l->syncs[i].first; s < l->syncs[i].end && s < sectors; s++)
            l->synced[s] = l->syncs[i].moment;
    *ret_size = l->syncs[end - 1].size;
}

/* Has it changed after `from`, until `to`? */
static int changed(const struct cutlog *l, uint32_t sector, uint32_t from, uint32_t to)
{
    int64_t i = l->newest[sector];
    while (i >= 0 && l->versions[i].moment > to) i = l->versions[i].before;
    return i >= 0 && l->versions[i].moment > from;
}

int cutlog_news(const struct cutlog *l, uint32_t moment)
{
    for (uint32_t i = 1; i < l->n_syncs; i++)
        if (l->syncs[i].moment + 1 == moment) return 2;
    for (int64_t i = 0; i < l->n; i++)
        if (l->versions[i].moment == moment) return 1;
    return 0;
}

uint32_t cutlog_units(const struct cutlog *l, uint32_t moment)
{
    size_t size;
    uint32_t n = 0;
    synced_until(l, moment, &size);
    for (uint32_t s = 0; s < l->room / CUT_SECTOR; s++)
        n += (uint32_t)changed(l, s, l->synced[s], moment);
    return n;
}

/* Returns a random moment between the two. */
static uint32_t some_time(uint32_t from, uint32_t to)
{
    switch (hurt_below(4)) {
    case 0: return from;
    case 1: return to;
    default: return from + (uint32_t)hurt_below(to - from + 1);
    }
}

void cutlog_image(struct cutlog *l, uint32_t moment, enum cut_how how, uint64_t choice,
                  const char *path)
{
    size_t size;
    uint32_t page_time = moment, unit = 0;
    synced_until(l, moment, &size);
    /* The file may have grown on disk or not, but its header says no more than what was synced. */
    if (file_size(l) > size && hurt_below(2)) size = file_size(l);
    static unsigned char image[8 << 20];
    uint32_t sectors = (uint32_t)((l->used < size ? l->used : size) + CUT_SECTOR - 1) / CUT_SECTOR;
    assert_true(size <= sizeof image);
    for (uint32_t s = 0; s < sectors; s++) {
        unsigned char *to = image + (size_t)s * CUT_SECTOR;
        uint32_t from = l->synced[s], time = from;
        if (s % (CUT_PAGE / CUT_SECTOR) == 0) page_time = some_time(from, moment);
        if (l->newest[s] >= 0 && changed(l, s, from, moment)) {
            if (how == CUT_SUBSET) time = choice >> unit++ % 64 & 1 ? moment : from;
            if (how == CUT_SECTORS) time = some_time(from, moment);
            if (how == CUT_PAGES) time = page_time;
        }
        memcpy(to, as_of(l, s, time), CUT_SECTOR);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    ssize_t n = (ssize_t)sectors * CUT_SECTOR;
    assert_true(__real_pwrite64(fd, image, (size_t)n, 0) == n && !ftruncate(fd, (off_t)size));
    close(fd);
}
