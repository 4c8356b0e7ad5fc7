/*
 * link.h - postgres: connections to the server. See doc/stores/postgres.md.
 */
#ifndef HF_POSTGRES_LINK_H
#define HF_POSTGRES_LINK_H

#include "holdfast_driver.h"
#include "kit/endpoint.h"

#include <libpq-fe.h>
#include <pthread.h>

enum { HF_PG_PARAMS = 40, HF_PG_VALUES = 64, HF_PG_NAME = 2 * 63 + 3 };

/* How to connect; owns its texts. */
struct hf__pg_how {
    char *name[HF_PG_PARAMS + 1], *value[HF_PG_PARAMS + 1];
    int n;
    int64_t io_timeout_ms;
    char table[2 * HF_PG_NAME + 8]; /* as statements name it */
    int opened;                     /* 1: the store was open once */
};

struct hf__pg_link {
    PGconn *pg; /* NULL: not connected */
    int pooled;
    int64_t until_us; /* local: the deadline of the login; 0: each request has its own */
    char database[64], schema[64]; /* the table's schema when it connected; "": there was no
                                      table */
    /* A bit for each frequent statement: those that were sent on this connection, and those that
       are prepared on it. */
    unsigned asked, prepared;
    int forgets; /* 1: the server didn't know a statement that was prepared on this connection,
                    so a pooler is in between, although it doesn't look like one */
};

/* A frequent statement, which the server parses and plans once for each connection. Its name is
   derived from its text. HF_PG_ONCE: any other statement. */
struct hf__pg_often {
    char *sql;
    char name[32];
    unsigned bit; /* in a link's sets; 0: it isn't a frequent one */
};
#define HF_PG_ONCE(text) (&(struct hf__pg_often){.sql = (char *)(uintptr_t)(text)})
/* Makes a frequent statement, which owns `sql`. Returns 0 if `sql` is NULL. */
int hf__pg_often(struct hf__pg_often *ret, int number, char *sql);

/* Fills in what the URL says. Returns 0; HF_INVALID: err says why. */
int hf__pg_how(const hf_url *url, struct hf__pg_how *ret, hf_error *err);
void hf__pg_how_free(struct hf__pg_how *how);

/* dial.c. Checks the parameters without a server. Returns 0, or HF_INVALID with the reason. */
int hf__pg_check(const struct hf__pg_how *how, hf_error *err);
/* Connects, until the local time until_us at most, to the first server that is PostgreSQL 9.5 or
   later and isn't read-only. */
int hf__pg_connect(const struct hf__pg_how *how, struct hf__pg_link *link, int64_t until_us,
                   hf_error *err);

/* session.c. Checks that the server of a new connection can be a store, finds out where the table
   is, and sets the session's options. Returns 0; or the code, with the reason alone, without
   "postgres: connect". */
int hf__pg_begin(const struct hf__pg_how *how, struct hf__pg_link *link, char why[HF_KIT_WHY]);
/* Finds out again where the table is: link->schema. */
int hf__pg_locate(const struct hf__pg_how *how, struct hf__pg_link *link, hf_error *err);

/* refusal.c. Finds out whether the server has answered libpq's request for TLS; called before libpq
   goes on. Returns: 0: no; HF_PG_ANSWERED: by yes or no; HF_PG_SHAKES: inside the handshake. */
enum { HF_PG_ANSWERED = 1, HF_PG_SHAKES = 2 };
int hf__pg_tls_goes_on(PGconn *pg);
/* Returns the code of a failed login, and the first line of libpq's text. `tls`: as returned above.
   `told`: the text begins with an address that the message names already. busy: as in
   hf__attempt. */
int hf__pg_refusal(const struct hf__pg_how *how, PGconn *pg, int tls, int told, int *ret_busy,
                   char why[HF_KIT_WHY]);

/* link.c */
void hf__pg_disconnect(struct hf__pg_link *link);
/* Returns 1 if the server has closed the connection since its last use. Sends nothing. */
int hf__pg_broken(struct hf__pg_link *link);

/*
 * Sends one statement and waits for its answer. Returns 0 and *ret (to be cleared); else the code
 * of the failure, with the reason. `ambiguous` is the code if no reply came. *ret_state is the
 * SQLSTATE; "": there is none. From its second use on a connection a frequent statement is
 * prepared, unless the connection leads to a pooler.
 */
int hf__pg_ask(const struct hf__pg_how *how, struct hf__pg_link *link,
               const struct hf__pg_often *often, int n, const char *const *values, int ambiguous,
               PGresult **ret, char ret_state[6], const char *what, const char *key, hf_error *err);

/* The parts of hf__pg_ask, for requests in a pipeline. Each sends, and returns 0 if libpq refuses
   that. hf__pg_send sends an execution, if the statement is prepared. */
int hf__pg_send_prepare(struct hf__pg_link *link, const struct hf__pg_often *often, int n);
int hf__pg_send(struct hf__pg_link *link, const struct hf__pg_often *often, int n,
                const char *const *values);
/* Reads all results of a request, in a pipeline up to its Sync, and returns the one that counts.
   NULL: not all of them came until until_us. */
PGresult *hf__pg_reply(struct hf__pg_link *link, int64_t until_us);

/* Returns the code for the SQLSTATE of a statement: `ambiguous` for one that isn't known, or that
   says that the connection or the server went away, because the write may have been done. */
int hf__pg_code(const char *state, int ambiguous);
/* Returns 1 if the server is read-only now. It has become a standby, and another one has taken its
   place, so its connections are closed. */
int hf__pg_is_demoted(const char *state);

#endif
