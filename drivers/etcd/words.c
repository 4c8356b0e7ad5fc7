/*
 * words.c - notifications: one watch brings what is put into all inboxes (txn.c) of a handle; each
 * notification is kept for the key that it concerns.
 *
 * A notification names the holder of the key. If the row is short, it has the row, too, as it was
 * written. A waiter that the notification names holds the lock at once, without a read; a holder
 * that has the row hands the key over without a read. Other events of a key make the waiters for
 * that key look: the end of a session; and any write, if no waiter of this handle is in the key's
 * queue.
 *
 * Notifications are trusted, because a client that can write an inbox can write the row, too.
 */
#include "etcd.h"

#include "kit/subscriber.h"
#include "kit/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long an event counts as unread, in flushes: UNREAD_LISTENS, and one more for each
   LOOKS_AT_ONCE waits of the handle, because so many waits look between two flushes. */
enum { UNREAD_LISTENS = 2, LOOKS_AT_ONCE = 64 };

struct word {
    uint8_t id[16];
    uint64_t token, session;
    int64_t since_us, expires_us;
    uint8_t flags;
};

/* A key that a wait has subscribed to, now or before. */
struct subscription {
    struct hf__sub_key key;
    uint8_t told;    /* 1: a notification came, and no event since that needs a look at the row */
    uint64_t unread; /* the flush until which a wait may still have to look, because of an event
                        that no notification explains; 0: none */
    uint64_t revision, inbox_revision; /* etcd's revision of the last event; and of the last
                                          notification, which another watch brings */
    struct word word;
    ProtobufCBinaryData whole; /* the row in that notification; NULL: it has none */
};

struct hf__et_words {
    struct hf__sub sub;
    uint64_t listens;
};

/* ---- the text of a notification ---- */

size_t hf__et_word(const hf_row *row, char to[HF_ET_WORD_CAP])
{
    const hf_party *p = &row->party[0];
    char id[33];
    if (row->n_holders != 1) return (size_t)snprintf(to, HF_ET_WORD_CAP, "?");
    hf__put_id(id, p->id);
    return (size_t)snprintf(to, HF_ET_WORD_CAP, "%s %llu %llu %lld %lld %u", id,
                            (unsigned long long)p->token, (unsigned long long)p->session,
                            (long long)p->since_us, (long long)p->expires_us,
                            p->flags & ~HF_PARTY_DEAD);
}

/* Reads a notification. Returns 0 if the text isn't one. */
static int read_word(const char *said, size_t len, struct word *to)
{
    unsigned long long n[5];
    char more;
    if (len < 34 || said[32] != ' ' || !hf__read_id(said, 32, to->id) ||
        sscanf(said + 33, "%llu %llu %llu %llu %llu%c", &n[0], &n[1], &n[2], &n[3], &n[4], &more) !=
            5)
        return 0;
    if (!n[0] || n[0] > INT64_MAX || n[2] > INT64_MAX || n[3] > INT64_MAX || n[4] > UINT8_MAX)
        return 0;
    to->token = n[0];
    to->session = n[1];
    to->since_us = (int64_t)n[2];
    to->expires_us = (int64_t)n[3];
    to->flags = (uint8_t)n[4];
    return 1;
}

/* ---- the keys that are waited for ---- */

static void free_whole(struct hf__sub_key *k) { free(((struct subscription *)k)->whole.data); }

int hf__et_words_open(hf_store *st)
{
    st->words = calloc(1, sizeof *st->words);
    if (!st->words) return HF_NOMEM;
    hf__sub_open(&st->words->sub, sizeof(struct subscription), free_whole);
    return 0;
}

void hf__et_words_close(hf_store *st)
{
    if (!st->words) return;
    hf__sub_free(&st->words->sub);
    free(st->words);
}

/* Returns the subscription to the key; NULL: none. The caller holds w->sub.mu. */
static struct subscription *find(const struct hf__et_words *w, uint64_t hash)
{
    return (struct subscription *)hf__sub_of_hash(&w->sub, hash, NULL);
}

static int is_unread(const struct hf__et_words *w, const struct subscription *k)
{
    return k->unread > w->listens;
}

int hf__et_words_subscribe(struct hf__et_words *w, const hf_rowkey *key)
{
    int same;
    pthread_mutex_lock(&w->sub.mu);
    struct subscription *k = (struct subscription *)hf__sub_want(&w->sub, key, NULL, 0, &same);
    /* A notification that came for another request isn't used for this one. It may be out of date:
       while the queue is empty no notification is written. */
    if (k && !same) {
        k->told = 0;
        k->unread = 0;
    }
    pthread_mutex_unlock(&w->sub.mu);
    return k ? 0 : HF_NOMEM;
}

void hf__et_words_unsubscribe(struct hf__et_words *w, const hf_rowkey *key)
{
    hf__sub_unsubscribe(&w->sub, key);
}

size_t hf__et_words_n_wanted(struct hf__et_words *w)
{
    pthread_mutex_lock(&w->sub.mu);
    size_t n = hf__sub_wanted(&w->sub);
    pthread_mutex_unlock(&w->sub.mu);
    return n;
}

void hf__et_words_listen(struct hf__et_words *w)
{
    pthread_mutex_lock(&w->sub.mu);
    w->listens++;
    pthread_mutex_unlock(&w->sub.mu);
}

struct visit {
    void (*see)(void *arg, const char *key, int in_line);
    void *arg;
};

static void show_wanted(struct hf__sub_key *k, void *arg)
{
    const struct visit *v = arg;
    if (hf__sub_is_wanted(k)) v->see(v->arg, k->text, k->in_line);
}

void hf__et_words_each_wanted(struct hf__et_words *w,
                              void (*see)(void *arg, const char *key, int in_line), void *arg)
{
    struct visit v = {see, arg};
    pthread_mutex_lock(&w->sub.mu);
    hf__sub_each(&w->sub, show_wanted, &v);
    pthread_mutex_unlock(&w->sub.mu);
}

int hf__et_words_next_event(struct hf__et_words *w, hf_key_event *ret)
{
    return hf__sub_next_event(&w->sub, ret);
}

static void forget(struct hf__sub_key *key, void *arg)
{
    (void)arg;
    struct subscription *k = (struct subscription *)key;
    k->told = 0;
    k->unread = 0;
    k->revision = k->inbox_revision = 0; /* a cluster that was made anew counts from 1 again */
}

void hf__et_words_forget(struct hf__et_words *w)
{
    pthread_mutex_lock(&w->sub.mu);
    hf__sub_each(&w->sub, forget, NULL);
    hf__sub_put_any(&w->sub);
    pthread_mutex_unlock(&w->sub.mu);
}

/* Makes *row what the last notification of the key says: the whole row, or its only holder. Returns
   1; 0: it says neither. The caller holds the mutex. */
static int tell(const struct subscription *k, hf_row *row)
{
    const char *why;
    if (k->whole.data && !hf__et_read_row(&k->whole, row, &why)) return 1;
    hf_row_clear(row);
    if (!k->word.token) return 0;
    hf_party *p = &row->party[0];
    memset(p, 0, sizeof *p);
    memcpy(p->id, k->word.id, 16);
    p->token = row->token = k->word.token;
    p->session = k->word.session;
    p->since_us = k->word.since_us;
    p->expires_us = k->word.expires_us;
    p->flags = k->word.flags;
    row->n_holders = 1;
    return 1;
}

int hf__et_words_wanted(struct hf__et_words *w, const hf_rowkey *key)
{
    pthread_mutex_lock(&w->sub.mu);
    int is = find(w, key->hash) != NULL;
    pthread_mutex_unlock(&w->sub.mu);
    return is;
}

int hf__et_words_told(struct hf__et_words *w, const hf_rowkey *key, hf_row *row)
{
    hf_row_clear(row);
    pthread_mutex_lock(&w->sub.mu);
    const struct subscription *k = find(w, key->hash);
    int told = k && k->told && !is_unread(w, k) && tell(k, row);
    pthread_mutex_unlock(&w->sub.mu);
    return told;
}

/* ---- what happens ---- */

/* Returns 1 if a stream has brought that revision already; else notes it and returns 0. The caller
   holds the mutex. */
static int is_old(uint64_t *last, uint64_t revision)
{
    int is = revision <= *last;
    if (!is) *last = revision;
    return is;
}

/* Takes in a notification. Returns 1 if a wait of this handle has to look. */
static int take_notification(struct hf__et_words *w, uint64_t hash, uint64_t revision,
                             const ProtobufCBinaryData *said)
{
    struct word word = {.token = 0};
    char text[HF_ET_WORD_CAP];
    int looks = 0;
    if (!said->len) return 0; /* the inbox as the waiter put it, still empty */
    const uint8_t *whole = memchr(said->data, '\n', said->len);
    size_t n = whole ? (size_t)(whole - said->data) : said->len;
    if (n < sizeof text) {
        memcpy(text, said->data, n);
        text[n] = 0;
        if (!read_word(text, n, &word)) word.token = 0;
    }
    pthread_mutex_lock(&w->sub.mu);
    struct subscription *k = find(w, hash);
    if (k && !is_old(&k->inbox_revision, revision)) {
        /* The same holder as before (a renewal, or a change further back in the queue) needs no
           look. */
        looks = !(k->told && word.token && k->word.token == word.token &&
                  !memcmp(k->word.id, word.id, 16));
        k->told = 1;
        k->word = word;
        free(k->whole.data);
        k->whole.len = whole ? said->len - n - 1 : 0;
        k->whole.data = whole ? malloc(k->whole.len + 1) : NULL;
        if (k->whole.data) memcpy(k->whole.data, whole + 1, k->whole.len);
        looks = looks && hf__sub_is_wanted(&k->key);
        if (looks) hf__sub_put_event(&w->sub, &k->key);
    }
    pthread_mutex_unlock(&w->sub.mu);
    return looks;
}

/* Takes in an event that isn't a notification, perhaps the end of a session. Returns 1 if a wait
   has to look. A notification that comes after it may have been written before that end, so it
   isn't used until a wait has looked at the row: until the flush `unread`. */
static int take_change(struct hf__et_words *w, uint64_t hash, uint64_t revision, int ends)
{
    pthread_mutex_lock(&w->sub.mu);
    struct subscription *k = find(w, hash);
    int is_new = k && (ends || !k->key.in_line) && !is_old(&k->revision, revision);
    int looks = is_new && hf__sub_is_wanted(&k->key);
    if (is_new) {
        k->unread = w->listens + UNREAD_LISTENS + hf__sub_wanted(&w->sub) / LOOKS_AT_ONCE;
        k->told = 0;
    }
    if (looks) hf__sub_put_event(&w->sub, &k->key);
    pthread_mutex_unlock(&w->sub.mu);
    return looks;
}

/* Finds the key that an event, or an inbox, belongs to. Returns 0 if it belongs to none. */
static int own_key(const ProtobufCBinaryData *key, size_t n_prefix, uint64_t *ret_hash,
                   int *ret_is_inbox)
{
    if (key->len <= n_prefix) return 0;
    const char *end = (const char *)key->data + key->len,
               *from = (const char *)key->data + n_prefix;
    const char *tab = memchr(from, '\t', (size_t)(end - from));
    *ret_is_inbox = tab == from;
    if (tab == from) {
        from = memchr(tab + 1, '\t', (size_t)(end - tab - 1));
        from = from ? from + 1 : end;
        tab = NULL;
    }
    *ret_hash = hf_key_hash(from, (uint32_t)((tab ? tab : end) - from));
    return 1;
}

/* Returns 1 if the event is only the deletion of a key that a session left without a lease when it
   left the row (txn.c). That write of the row was an event before. (The row and its rev have no
   lease either, but their names don't end in a tabulator and hexadecimal digits.) */
static int is_tidied(const HfEt__Event *event, size_t n_prefix)
{
    const ProtobufCBinaryData *key = &event->kv->key;
    if (!event->prev_kv || event->prev_kv->lease) return 0;
    const uint8_t *tab = memchr(key->data + n_prefix, '\t', key->len - n_prefix);
    const uint8_t *end = key->data + key->len;
    if (!tab || tab + 1 == end) return 0;
    for (const uint8_t *s = tab + 1; s < end; s++)
        if (!*s || !strchr("0123456789abcdef", *s)) return 0;
    return 1;
}

uint64_t hf__et_words_receive(const hf_store *st, const HfEt__WatchResponse *said, int ends)
{
    struct hf__et_words *w = st->words;
    uint64_t events = 0;
    for (size_t i = 0; i < said->n_events; i++) {
        const HfEt__Event *event = said->events[i];
        const HfEt__KeyValue *kv = event->kv;
        uint64_t hash = 0;
        int is_inbox = 0;
        if (!kv || kv->mod_revision <= 0 || !own_key(&kv->key, st->n_prefix, &hash, &is_inbox)) {
            /* An event that can't be understood may concern any key. */
            events++;
            hf__et_words_forget(w);
        } else if (is_inbox) {
            events += (uint64_t)take_notification(w, hash, (uint64_t)kv->mod_revision, &kv->value);
        } else if (!ends || !is_tidied(event, st->n_prefix)) {
            events += (uint64_t)take_change(w, hash, (uint64_t)kv->mod_revision, ends);
        }
    }
    return events;
}
