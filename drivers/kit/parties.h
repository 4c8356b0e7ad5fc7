/*
 * parties.h - holders and waiters as JSON objects, as they stand in the fields `more` and `queue`
 * of a row. See doc/row.md. Compiled into each module that uses it.
 *
 * Thread safety: any thread, each with rows and JSON of its own. New JSON and new texts are the
 * caller's: json_decref, free.
 */
#ifndef HF_KIT_PARTIES_H
#define HF_KIT_PARTIES_H

#include "holdfast_driver.h"

#include <jansson.h>

/* The numbers of a party in JSON, each with its range. A number that is 0 is left out. */
enum hf__party_field {
    HF_PARTY_TOKEN,
    HF_PARTY_SINCE,
    HF_PARTY_EXPIRES,
    HF_PARTY_SESSION,
    HF_PARTY_LEASE,
    HF_PARTY_CLAIM,
    HF_PARTY_MODE,
    HF_PARTY_LIMIT,
    HF_PARTY_FLAGS,
    HF_PARTY_WAKEUP,
    HF_PARTY_FIELDS
};
struct hf__party_range {
    const char *name;
    int64_t least, most;
    int in_more; /* 1: the first holder's number is in `more`, because there is no field for it */
};
extern const struct hf__party_range hf__party_range[HF_PARTY_FIELDS];

/* hf__party_to_numbers reads a party's numbers, hf__party_from_numbers sets them. The party's id
   and texts stay as they are. */
void hf__party_to_numbers(const hf_party *p, int64_t ret[HF_PARTY_FIELDS]);
void hf__party_from_numbers(hf_party *p, const int64_t n[HF_PARTY_FIELDS]);
/* Reads the member `which` of an object; a missing one is 0. Returns 1; 0: it isn't a whole number
   within the range. */
int hf__party_get_number(const json_t *object, enum hf__party_field which, int64_t *ret);
/* Reads the text `name` of an object into `to`, with a NUL. Returns 1; 0: it is missing, isn't a
   text or is too long. */
int hf__get_text(const json_t *object, const char *name, char *to, size_t cap, size_t *ret_len);

/* Returns the n parties as a new JSON array; NULL: there is no memory, or a text isn't UTF-8. */
json_t *hf__parties_to_json(const hf_party *p, uint32_t n);
/* Writes the parties of a JSON array (NULL: none) into row->party[], from index `at` on. *ret_n is
   their number, which the caller adds to n_holders or n_queue. Returns 0; HF_NOMEM; HF_CORRUPT: the
   JSON is no list of parties. */
int hf__parties_from_json(const json_t *array, hf_row *row, uint32_t at, uint32_t *ret_n);

#endif
