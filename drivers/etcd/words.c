/*
 * words.c - what who waits is told: by a key beside the row, which one watch brings to all of them.
 *
 * A write that leaves somebody in line, or hands the key over, says who holds it then. So whom it
 * names holds at once, without a read, and the others go on sleeping: were each of them to read
 * the row at each handover, n in line would cost n reads. Whatever else happens to a key that is
 * waited for, the end of a session or a write that says nothing, makes them all look.
 *
 * Who may write the word may write the row, so it is believed.
 */
#include "etcd.h"

#include "columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    uint8_t id[16];
    uint64_t token, session;
    int64_t since_us, expires_us;
    uint8_t flags;
};

/* A key that is waited for: a place of a table by hash, in which 0 of `used` ends a search. */
struct heard {
    uint64_t hash;
    uint8_t used, named, who[16]; /* the request that waits for it, if it is named */
    uint8_t told;      /* `word` was heard, and nothing after it that it doesn't explain */
    uint8_t unread;    /* something that no word explains, which somebody may still have to
                          look at: for so many listens */
    uint64_t revision; /* of etcd's, the last that was heard of it */
    uint64_t rang;     /* when it was heard of, by `rings` */
    struct word word;
};

struct hf__et_words {
    pthread_mutex_t mu;
    struct heard *at;
    size_t places;     /* a power of two, or 0 */
    uint64_t rings;    /* how often something was heard */
    uint64_t all_rang; /* the last time that it may have been of any key */
};

/* ---- a word ---- */

size_t hf__et_word(const hf_row *row, char to[HF_ET_WORD_CAP])
{
    const hf_party *p = &row->party[0];
    char id[33];
    int handed = 0;
    for (uint32_t i = 0; i < row->n_holders; i++)
        handed |= row->party[i].flags & HF_PARTY_UNCLAIMED;
    if (!handed && !row->n_queue) return 0;
    if (row->n_holders != 1) return (size_t)snprintf(to, HF_ET_WORD_CAP, "?");
    hf__put_id(id, p->id);
    return (size_t)snprintf(to, HF_ET_WORD_CAP, "%s %llu %llu %lld %lld %u", id,
                            (unsigned long long)p->token, (unsigned long long)p->session,
                            (long long)p->since_us, (long long)p->expires_us,
                            p->flags & ~HF_PARTY_DEAD);
}

/* 0: it says nothing, or nothing that can be read. */
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

int hf__et_words_open(hf_store *st)
{
    st->words = calloc(1, sizeof *st->words);
    if (!st->words) return HF_NOMEM;
    pthread_mutex_init(&st->words->mu, NULL);
    return 0;
}

void hf__et_words_close(hf_store *st)
{
    if (!st->words) return;
    pthread_mutex_destroy(&st->words->mu);
    free(st->words->at);
    free(st->words);
}

/* Its place, or the free one where it belongs. */
static struct heard *place_of(struct heard *at, size_t places, uint64_t hash)
{
    size_t i = hash & (places - 1);
    while (at[i].used && at[i].hash != hash) i = (i + 1) & (places - 1);
    return &at[i];
}

/* Under the mutex. NULL: nobody waits for it. */
static struct heard *find(const struct hf__et_words *w, uint64_t hash)
{
    struct heard *k = w->places ? place_of(w->at, w->places, hash) : NULL;
    return k && k->used ? k : NULL;
}

int hf__et_words_want(struct hf__et_words *w, const hf_rowkey *const *keys, size_t n)
{
    size_t places = 16;
    while (places < 2 * n) places *= 2;
    struct heard *at = calloc(places, sizeof *at);
    if (!at) return HF_NOMEM;
    pthread_mutex_lock(&w->mu);
    for (size_t i = 0; i < n; i++) {
        struct heard *k = place_of(at, places, keys[i]->hash);
        const struct heard *was = find(w, keys[i]->hash);
        const uint8_t *who = keys[i]->who;
        /* What was said to another is none of this one's: it may be whom the word named, or the
           word was said long ago, for while nobody stands in line nothing is said. */
        if (was && was->named == (who != NULL) && (!who || !memcmp(was->who, who, 16))) {
            *k = *was;
            if (k->unread) k->unread--;
            continue;
        }
        *k = (struct heard){.hash = keys[i]->hash, .used = 1, .named = who != NULL};
        if (was) k->rang = was->rang;
        if (was) k->revision = was->revision;
        if (who) memcpy(k->who, who, 16);
    }
    free(w->at);
    w->at = at;
    w->places = places;
    pthread_mutex_unlock(&w->mu);
    return 0;
}

void hf__et_words_forget(struct hf__et_words *w)
{
    pthread_mutex_lock(&w->mu);
    for (size_t i = 0; i < w->places; i++) w->at[i].told = w->at[i].unread = 0;
    for (size_t i = 0; i < w->places; i++) w->at[i].revision = 0; /* they may begin anew */
    w->all_rang = ++w->rings;
    pthread_mutex_unlock(&w->mu);
}

int hf__et_told(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    struct hf__et_words *w = st->words;
    hf_row_clear(row);
    pthread_mutex_lock(&w->mu);
    const struct heard *k = find(w, key->hash);
    int told = k && k->told && !k->unread;
    if (told) {
        hf_party *p = &row->party[0];
        memset(p, 0, sizeof *p);
        memcpy(p->id, k->word.id, 16);
        p->token = row->token = k->word.token;
        p->session = k->word.session;
        p->since_us = k->word.since_us;
        p->expires_us = k->word.expires_us;
        p->flags = k->word.flags;
        row->n_holders = 1;
    }
    pthread_mutex_unlock(&w->mu);
    return told;
}

uint64_t hf__et_rang(hf_store *st, const hf_rowkey *key)
{
    struct hf__et_words *w = st->words;
    pthread_mutex_lock(&w->mu);
    const struct heard *k = find(w, key->hash);
    uint64_t rang = k && k->rang > w->all_rang ? k->rang : w->all_rang;
    pthread_mutex_unlock(&w->mu);
    return rang;
}

/* ---- what happens ---- */

/* What one write, or the end of one lease, did to one key of ours. */
struct change {
    uint64_t hash;
    uint64_t revision; /* of etcd's; 0: none yet */
    int is_told;
    struct word word;
};

/* 1: somebody here is to look at it. What has no word may be the end of a session, of which a word
   that comes behind it needn't know: so that counts for nothing until who waits has looked. Heard
   before one listen it is looked at before the next but one. */
static int is_heard(struct hf__et_words *w, const struct change *c)
{
    int looks = 0;
    pthread_mutex_lock(&w->mu);
    struct heard *k = c->revision ? find(w, c->hash) : NULL;
    if (k && c->revision > k->revision) { /* else another stream has brought it */
        k->revision = c->revision;
        if (!c->is_told) k->unread = 2;
        /* That others have come or left, or that who holds it renewed, changes nothing for them. */
        looks = !(k->told && c->is_told && k->word.token == c->word.token &&
                  !memcmp(k->word.id, c->word.id, 16));
        k->told = (uint8_t)c->is_told;
        if (c->is_told) k->word = c->word;
        if (looks) k->rang = ++w->rings;
    }
    pthread_mutex_unlock(&w->mu);
    return looks;
}

/* The key of ours that an event is of, which *ret_tail is what stands behind it. NULL: of none. */
static char *own_key(const json_t *kv, size_t n_prefix, uint64_t *ret_hash, const char **ret_tail)
{
    size_t len = 0;
    char *key;
    (void)hf__et_read_bytes(json_object_get(kv, "key"), &key, &len);
    if (!key || len < n_prefix) {
        free(key);
        return NULL;
    }
    const char *tab = memchr(key + n_prefix, '\t', len - n_prefix);
    size_t own = tab ? (size_t)(tab - key) : len;
    *ret_hash = hf_key_hash(key + n_prefix, (uint32_t)(own - n_prefix));
    *ret_tail = tab ? tab : "";
    return key;
}

uint64_t hf__et_words_hear(const hf_store *st, const json_t *events)
{
    struct hf__et_words *w = st->words;
    struct change c = {0};
    uint64_t heard = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i), *kv = json_object_get(event, "kv");
        int64_t revision = hf__et_number(kv, "mod_revision");
        const char *tail;
        const char *type = json_string_value(json_object_get(event, "type"));
        uint64_t hash = 0;
        char *key = own_key(kv, st->n_prefix, &hash, &tail);
        if (!key || revision <= 0) {
            /* Whatever it is, of whichever key. */
            heard += (uint64_t)is_heard(w, &c) + 1;
            c.revision = 0;
            hf__et_words_forget(w);
            free(key);
            continue;
        }
        if (c.hash != hash || c.revision != (uint64_t)revision) {
            heard += (uint64_t)is_heard(w, &c);
            c = (struct change){.hash = hash, .revision = (uint64_t)revision};
        }
        if (!strcmp(tail, "\tword") && (!type || !strcmp(type, "PUT"))) {
            size_t len = 0;
            char *said;
            int rc = hf__et_read_bytes(json_object_get(kv, "value"), &said, &len);
            c.is_told = !rc && read_word(said, len, &c.word);
            free(said);
        }
        free(key);
    }
    return heard + (uint64_t)is_heard(w, &c);
}
