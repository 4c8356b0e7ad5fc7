/*
 * buyer.c - one buyer of the cinema, with the C library: takes its seats' locks (all or none),
 * looks whether the seats are free, thinks, books, gives the locks back. Without -S it takes no
 * lock, as the shop had it.
 *
 *     cinema-buyer [-S STORE] [-1] DATABASE BUYER SECONDS SEAT...
 *
 * -1 takes one lock for the whole hall instead. Says "thinking" while it thinks. Status: 0 booked,
 * 3 a seat was taken, 64 usage, otherwise that of the error.
 */
#include <holdfast.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SEATS_CAP = 8, BUSY_MS = 20000, TAKEN = 3, USAGE = 64, SHOP_FAILED = 70 };

struct buyer {
    const char *name;
    double seconds;
    const char *const *seats;
    size_t n;
    sqlite3 *shop;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What people take their time for. */
static void think(double seconds)
{
    time_t whole = (time_t)seconds;
    struct timespec t = {whole, (long)((seconds - (double)whole) * 1e9)};
    puts("thinking");
    fflush(stdout);
    nanosleep(&t, NULL);
}

static int shop_failed(const struct buyer *b, const char *what)
{
    fprintf(stderr, "cinema-buyer: %s: %s\n", what, sqlite3_errmsg(b->shop));
    return SHOP_FAILED;
}

/* Looks at the seats. Returns 0: all are free; TAKEN; or an error. */
static int look(const struct buyer *b)
{
    sqlite3_stmt *ask;
    int status = 0;
    if (sqlite3_prepare_v2(b->shop, "SELECT 1 FROM bookings WHERE seat = ?", -1, &ask, NULL))
        return shop_failed(b, "look");
    for (size_t i = 0; i < b->n && !status; i++) {
        sqlite3_reset(ask);
        sqlite3_bind_text(ask, 1, b->seats[i], -1, SQLITE_STATIC);
        int rc = sqlite3_step(ask);
        if (rc != SQLITE_DONE) status = rc == SQLITE_ROW ? TAKEN : shop_failed(b, "look");
    }
    sqlite3_finalize(ask);
    return status;
}

static int book(const struct buyer *b, double looked)
{
    sqlite3_stmt *put;
    const char *text = "INSERT INTO bookings (seat, buyer, looked, booked) VALUES (?, ?, ?, ?)";
    if (sqlite3_exec(b->shop, "BEGIN IMMEDIATE", NULL, NULL, NULL) ||
        sqlite3_prepare_v2(b->shop, text, -1, &put, NULL))
        return shop_failed(b, "book");
    double booked = now();
    int bad = 0;
    for (size_t i = 0; i < b->n && !bad; i++) {
        sqlite3_reset(put);
        sqlite3_bind_text(put, 1, b->seats[i], -1, SQLITE_STATIC);
        sqlite3_bind_text(put, 2, b->name, -1, SQLITE_STATIC);
        sqlite3_bind_double(put, 3, looked);
        sqlite3_bind_double(put, 4, booked);
        bad = sqlite3_step(put) != SQLITE_DONE;
    }
    sqlite3_finalize(put);
    /* An open transaction ends with the connection. */
    if (bad || sqlite3_exec(b->shop, "COMMIT", NULL, NULL, NULL)) return shop_failed(b, "book");
    return 0;
}

/* What must not happen to one seat in two processes at a time. */
static int buy(const struct buyer *b)
{
    double looked = now();
    int status = look(b);
    if (!status) {
        think(b->seconds);
        status = book(b, looked);
    }
    puts(!status ? "booked" : status == TAKEN ? "taken" : "failed");
    return status;
}

static int buy_locked(const struct buyer *b, const char *url, int whole_hall)
{
    hf *store;
    hf_lock *locks[SEATS_CAP];
    hf_error err;
    char names[SEATS_CAP][32];
    const char *keys[SEATS_CAP];
    size_t n = whole_hall ? 1 : b->n;
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "seats/%s", whole_hall ? "all" : b->seats[i]);
        keys[i] = names[i];
    }
    int rc = hf_open(url, NULL, &store, &err);
    if (!rc) {
        rc = hf_acquire_all(store, keys, n, NULL, locks, &err);
        if (!rc) {
            int status = buy(b);
            for (size_t i = 0; i < n; i++)
                if (hf_release(locks[i], &err)) fprintf(stderr, "cinema-buyer: %s\n", err.text);
            hf_close(store);
            return status;
        }
        hf_close(store);
    }
    fprintf(stderr, "cinema-buyer: %s\n", err.text);
    return hf_code_exit_status(rc);
}

int main(int argc, char **argv)
{
    struct buyer b = {0};
    const char *url = NULL;
    int whole_hall = 0, bad = 0;
    for (int c; (c = getopt(argc, argv, "+S:1")) != -1;) {
        if (c == 'S') url = optarg;
        if (c == '1') whole_hall = 1;
        if (c == '?') bad = 1;
    }
    argv += optind;
    argc -= optind;
    char *end = NULL;
    if (argc >= 4) b.seconds = strtod(argv[2], &end);
    if (bad || !end || *end || argc - 3 > SEATS_CAP || !(b.seconds >= 0 && b.seconds <= 3600)) {
        fputs("usage: cinema-buyer [-S STORE] [-1] DATABASE BUYER SECONDS SEAT...\n", stderr);
        return USAGE;
    }
    b.name = argv[1];
    b.seats = (const char *const *)(argv + 3);
    b.n = (size_t)(argc - 3);
    int status;
    if (sqlite3_open_v2(argv[0], &b.shop, SQLITE_OPEN_READWRITE, NULL))
        status = shop_failed(&b, argv[0]);
    else {
        sqlite3_busy_timeout(b.shop, BUSY_MS);
        sqlite3_exec(b.shop, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
        status = url ? buy_locked(&b, url, whole_hall) : buy(&b);
    }
    sqlite3_close(b.shop);
    return status;
}
