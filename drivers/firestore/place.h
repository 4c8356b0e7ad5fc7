/*
 * place.h - firestore: the names of the documents of keys. See doc/stores/firestore.md.
 */
#ifndef HF_FIRESTORE_PLACE_H
#define HF_FIRESTORE_PLACE_H

#include "holdfast_driver.h"

enum { HF_FS_ID_CAP = 1501, HF_FS_NAME_CAP = 4096 };

/* Where the documents are: in one collection; with a root also below a document. Paths are written
   as in Firestore's console, without a slash at either end. */
struct hf__fs_place {
    char documents[400];   /* projects/P/databases/D/documents */
    char collection[1040]; /* the path of the collection: of all keys; with a root, of the keys that
                              are no paths */
    char collection_id[512];
    char parent[1040]; /* the document that the collection is in; "": the database itself */
    int has_root;
    char root[1024]; /* the document below which keys are paths; "": the database itself */
    int root_parts;
};

/* Reads the options ?root= and ?collection= (NULL: not given). Returns NULL, or what is wrong with
   one of them. */
const char *hf__fs_place(struct hf__fs_place *place, const char *root, const char *collection);

/* Writes the full name of a key's document. */
void hf__fs_name(const struct hf__fs_place *place, const char *key, char ret[HF_FS_NAME_CAP]);
/* Returns 1 if the key is a path below the root, where its document is. */
int hf__fs_is_path(const struct hf__fs_place *place, const char *key);
/* Writes the key as a document's ID. Different keys have different IDs. */
void hf__fs_escape(const char *key, char ret[HF_FS_ID_CAP]);
/* Writes the name of the deepest document that is above all keys with the prefix which are paths.
 */
void hf__fs_above(const struct hf__fs_place *place, const char *prefix, char ret[HF_FS_NAME_CAP]);

#endif
