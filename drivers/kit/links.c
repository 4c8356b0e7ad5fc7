/*
 * links.c - chooses the connection of a store for a request. See links.h.
 */
#include "links.h"

void hf__links_open(struct hf__links *links, const struct hf__link_kind *kind, hf_store *st,
                    void *array)
{
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
    hf__links_put(links, link, 0);
    return NULL;
}

void *hf__links_get(struct hf__links *links, int64_t until_us, int *ret_code, hf_error *err)
{
    return connected(links, hf__pool_take(&links->single, until_us), until_us, ret_code, err);
}

void *hf__links_get_batch(struct hf__links *links, size_t n, int64_t until_us, int *ret_code,
                          hf_error *err)
{
    int number = n && n <= links->kind->small ? hf__pool_spare(&links->single) : -1;
    if (number < 0 && (number = hf__pool_take(&links->batch, until_us)) >= 0)
        number += HF_POOL_LINKS;
    void *link = connected(links, number, hf__pool_connect_until(until_us), ret_code, err);
    if (!link && *ret_code == HF_UNSUPPORTED) *ret_code = HF_UNAVAILABLE;
    return link;
}

void hf__links_put(struct hf__links *links, void *link, int works)
{
    if (!link) return;
    int number = (int)((size_t)((char *)link - links->array) / links->kind->size);
    if (number < HF_POOL_LINKS)
        hf__pool_give(&links->single, number, works);
    else
        hf__pool_give(&links->batch, number - HF_POOL_LINKS, works);
}
