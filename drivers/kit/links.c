/*
 * links.c - chooses the connection of a store for a request. See links.h.
 */
#include "links.h"

void hf__links_open(struct hf__links *links, const struct hf__link_kind *kind, hf_store *st,
                    void *array, int64_t io_timeout_ms)
{
    links->io_timeout_ms = io_timeout_ms;
    links->kind = kind;
    links->st = st;
    links->array = array;
    hf__pool_open(&links->single);
    hf__pool_open(&links->batch);
}

void hf__links_close(struct hf__links *links)
{
    hf__pool_close(&links->single);
    hf__pool_close(&links->batch);
}

/* Connects the link with this number, which the caller has taken from a pool (negative: none was
   free in time). Returns the link; NULL, with the error. */
static void *connected(struct hf__links *links, int number, int64_t until_us, int *ret_code,
                       hf_error *err)
{
    if (number < 0) {
        *ret_code = hf_fail(err, HF_UNAVAILABLE, 0, "%s: " HF_POOL_BUSY, links->kind->store);
        return NULL;
    }
    void *link = links->array + (size_t)number * links->kind->size;
    *ret_code =
        links->kind->usable(link) ? 0 : links->kind->connect(links->st, link, until_us, err);
    if (!*ret_code) return link;
    hf__links_put(links, link);
    return NULL;
}

void *hf__links_get(struct hf__links *links, int *ret_code, hf_error *err)
{
    int64_t until_us = hf__local_us() + links->io_timeout_ms * 1000;
    return connected(links, hf__pool_take(&links->single, until_us), until_us, ret_code, err);
}

void hf__links_put(struct hf__links *links, void *link)
{
    if (!link) return;
    int number = (int)((size_t)((char *)link - links->array) / links->kind->size);
    int works = links->kind->works(link);
    if (number < HF_POOL_LINKS)
        hf__pool_give(&links->single, number, works);
    else
        hf__pool_give(&links->batch, number - HF_POOL_LINKS, works);
}

static void *get_for_batch(struct hf__links *links, size_t n, int64_t until_us, int *ret_code,
                           hf_error *err)
{
    int number = n && n <= links->kind->small ? hf__pool_spare(&links->single) : -1;
    if (number < 0 && (number = hf__pool_take(&links->batch, until_us)) >= 0)
        number += HF_POOL_LINKS;
    void *link = connected(links, number, hf__pool_connect_until(until_us), ret_code, err);
    if (!link && *ret_code == HF_UNSUPPORTED) *ret_code = HF_UNAVAILABLE;
    return link;
}

int hf__links_replace_many(struct hf__links *links, hf_replace *item, size_t n, int64_t until_us)
{
    const struct hf__link_kind *kind = links->kind;
    int64_t patience_us = until_us - hf__local_us();
    hf_error err = {0, 0, ""};
    int rc = 0;
    void *link = get_for_batch(links, n, until_us, &rc, &err);
    until_us = hf__local_us() + patience_us;
    for (hf_replace *end = item + n; item < end;) {
        size_t some = (size_t)(end - item);
        if (some > HF_BATCH) some = HF_BATCH;
        if (link && kind->works(link)) {
            item += kind->replace(links->st, link, item, some, until_us);
            continue;
        }
        item->result = link ? HF_UNAVAILABLE : rc;
        hf_fail(item->err, item->result, 0, "%s: replace '%s': %s", kind->store, item->key->text,
                link ? "the connection is gone" : err.text);
        item++;
    }
    hf__links_put(links, link);
    return rc;
}
