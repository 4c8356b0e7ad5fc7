/*
 * dial.h - a connection to one of the endpoints: TCP, and for etcds: TLS that has agreed on HTTP/2.
 */
#ifndef HF_ETCD_DIAL_H
#define HF_ETCD_DIAL_H

#include "transport.h"

struct hf__et_conn;

/* Takes over a socket that is connected to that endpoint, and sets up the connection. Returns 0, or
   an HF_ error with its reason in `why`. */
typedef int hf__et_login_fn(void *arg, int fd, const char *endpoint, int64_t until_us,
                            char why[HF_ET_WHY]);

/*
 * Connects to an endpoint that works and calls `login`, until the local time until_us. The endpoint
 * in use (http->at) is tried first, then the others, with all addresses of each (kit/dial.h). The
 * one that works is the endpoint in use from then on.
 * Returns: 0, or an HF_ error, and in `why` what was tried.
 */
int hf__et_dial(struct hf__et_http *http, int64_t until_us, hf__et_login_fn *login, void *arg,
                char why[HF_ET_WHY]);
/* Checks that the files of TLS can be read. Returns 0, or the code (kit/secret.h) and the
   reason. */
int hf__et_check_files(const struct hf__et_http *http, char why[HF_ET_WHY]);
/* Makes a connection of the socket fd, to be ended by hf__et_hang_up. Owns fd, also after an error.
   Returns 0 or an HF_ error. */
int hf__et_conn_begin(const struct hf__et_http *http, int fd, const char *endpoint,
                      int64_t until_us, struct hf__et_conn **ret, char why[HF_ET_WHY]);
void hf__et_hang_up(struct hf__et_conn *c);

enum { HF_ET_AGAIN = -1, HF_ET_BROKEN = -2 };

/* Reads or writes as many bytes as possible without waiting. Returns their number, HF_ET_AGAIN or
   HF_ET_BROKEN. 0 bytes read: the server has closed the connection. */
long hf__et_conn_read(struct hf__et_conn *c, void *to, size_t cap);
long hf__et_conn_write(struct hf__et_conn *c, const void *from, size_t len);
/* Returns how many bytes this connection has sent so far. */
uint64_t hf__et_conn_left(const struct hf__et_conn *c);
int hf__et_conn_fd(const struct hf__et_conn *c);
/* Waits until the connection can be read (with to_write: written). Returns 1; 0: until_us has
   passed; HF_ET_BROKEN: poll failed. */
int hf__et_conn_wait(const struct hf__et_conn *c, int to_write, int64_t until_us);
/* Returns TLS's reason for a broken connection; NULL: none. Call it right after the call that
   failed. */
const char *hf__et_conn_reason(const struct hf__et_conn *c);

#endif
