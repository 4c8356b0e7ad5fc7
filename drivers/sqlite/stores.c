/*
 * stores.c - sqlite: the list of this process's open stores. A fork, and a change of a database's
 * files, concern all of them.
 */
#include "store.h"
#include "witness.h"

#include <string.h>
#include <unistd.h>

/*
 * A child of fork inherits SQLite's note of which locks the process has, but not the locks
 * themselves. A connection that the child opens to the same file would rely on that note. So before
 * a child opens a database, it closes the inherited connections; that changes neither the file nor
 * the parent's locks. The fork handlers take every mutex, so that no thread forks within a
 * transaction of this driver.
 */
static pthread_mutex_t stores_mu = PTHREAD_MUTEX_INITIALIZER;
static hf_store *stores;
static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;

static void lock_stores(void)
{
    pthread_mutex_lock(&stores_mu);
    for (hf_store *st = stores; st; st = st->next) {
        pthread_mutex_lock(&st->mu);
        pthread_mutex_lock(&st->version_mu);
    }
}

static void unlock_stores(void)
{
    for (hf_store *st = stores; st; st = st->next) {
        pthread_mutex_unlock(&st->version_mu);
        pthread_mutex_unlock(&st->mu);
    }
    pthread_mutex_unlock(&stores_mu);
}

static void lock_all(void)
{
    lock_stores();
    hf__sq_witness_before_fork();
}

static void unlock_in_parent(void)
{
    hf__sq_witness_after_fork(0);
    unlock_stores();
}

static void unlock_in_child(void)
{
    hf__sq_witness_after_fork(1);
    unlock_stores();
}

static void watch_forks(void) { pthread_atfork(lock_all, unlock_in_parent, unlock_in_child); }

void hf__sq_disconnect(hf_store *st, int quietly)
{
    hf__sq_drop_statements(st);
    sqlite3_finalize(st->version);
    if (quietly && st->db) sqlite3_db_config(st->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (quietly && st->version_db)
        sqlite3_db_config(st->version_db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_close(st->version_db);
    sqlite3_close(st->db);
    hf__sq_files_drop(&st->files);
    st->version = NULL;
    st->version_db = st->db = NULL;
    st->openings++;
}

void hf__sq_enlist(hf_store *st)
{
    pthread_once(&forks_watched, watch_forks);
    st->pid = getpid();
    pthread_mutex_lock(&stores_mu);
    for (hf_store *old = stores; old; old = old->next)
        if (old->pid != st->pid) hf__sq_disconnect(old, 1);
    st->next = stores;
    stores = st;
    pthread_mutex_unlock(&stores_mu);
}

void hf__sq_delist(hf_store *st)
{
    pthread_mutex_lock(&stores_mu);
    for (hf_store **at = &stores; *at; at = &(*at)->next)
        if (*at == st) {
            *at = st->next;
            break;
        }
    pthread_mutex_unlock(&stores_mu);
}

void hf__sq_close_all(hf_store *st)
{
    lock_stores();
    for (hf_store *s = stores; s; s = s->next)
        if (s == st || (s->pid == st->pid && !strcmp(s->path, st->path))) hf__sq_disconnect(s, 1);
    unlock_stores();
}
