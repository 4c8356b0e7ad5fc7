/*
 * auth.h - firestore: the credentials of a request: a user's ID token, or an access token for the
 * service account of a program.
 */
#ifndef HF_FIRESTORE_AUTH_H
#define HF_FIRESTORE_AUTH_H

#include "rest.h"

enum hf__fs_who {
    HF_FS_NOBODY,
    HF_FS_OWNER,      /* the emulator's administrator */
    HF_FS_USER,       /* an ID token from the environment */
    HF_FS_USER_FILE,  /* an ID token in a file that another program renews */
    HF_FS_SERVICE,    /* a service account's key */
    HF_FS_REFRESHABLE /* a person's credentials, as `gcloud auth application-default` stores them */
};

struct hf__fs_auth {
    enum hf__fs_who who;
    char *token; /* USER */
    char *path;  /* USER_FILE */
    char *file;  /* SERVICE, REFRESHABLE: the file, read again for each token; NULL: it can be read
                    only once */
    char *name;  /* the account */
    char *token_uri, *key, *key_id, *client_id, *client_secret;
    pthread_mutex_t mu;
    char *access;               /* SERVICE, REFRESHABLE: the access token; NULL: none yet */
    int64_t renew_us, until_us; /* local: when to renew it; when it ends */
    uint64_t generation;        /* how many access tokens there were */
};

/* Finds the credentials. Makes no request. `file` is the value of ?credentials=; NULL: none. */
int hf__fs_auth_open(struct hf__fs_auth *auth, const char *file, int emulator, hf_error *err);
void hf__fs_auth_close(struct hf__fs_auth *auth);

/* Makes the header with the credentials, to be freed by hf__rest_forget. Gets or renews the access
   token if need be. *ret_generation is for hf__fs_auth_refused. Returns 0, HF_DENIED,
   HF_UNAVAILABLE, HF_INVALID or HF_NOMEM. */
int hf__fs_auth_header(struct hf__fs_auth *auth, struct hf__rest *net, char **ret,
                       uint64_t *ret_generation, hf_error *err);
/* Notes that the server refused the token of that generation. Returns 1 if there may be another
   one: make the header again. */
int hf__fs_auth_refused(struct hf__fs_auth *auth, uint64_t generation);
/* Describes the credentials, for messages. */
enum { HF_FS_WHO_CAP = 256 };
void hf__fs_auth_who(struct hf__fs_auth *auth, char to[HF_FS_WHO_CAP]);

#endif
