/*
 * refusal.c - postgres: finds the HF_ code for a failed login. See link.h.
 *
 * It goes by the SQLSTATE, or, if there is none, by how far TLS had come; never by the words of a
 * message.
 */
#include "link.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { TLS_ALERT = 21 }; /* the first byte of an alert's record: RFC 8446, 5.1 */

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/*
 * Copies the SQLSTATE of a refused login, and removes it from the message. PQERRORS_VERBOSE puts it
 * there: "SEVERITY:  28P01: reason". Severity and reason are in the server's language, but this
 * form is fixed. If libpq has tried twice (with TLS and without), the last SQLSTATE counts.
 */
static void take_state(char *message, char state[6])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    state[0] = 0;
    for (char *at = message; (at = strstr(at, ":  "));) {
        at += 3;
        if (strspn(at, letters) != 5 || !starts(at + 5, ": ")) continue;
        memcpy(state, at, 5);
        state[5] = 0;
        memmove(at, at + 7, strlen(at + 7) + 1);
    }
}

/* Returns the code for an SQLSTATE of a refused login. Waiting doesn't mend the states listed here.
   All others are temporary: starting up or shutting down (57P), too many connections (53), a
   database that takes none at the moment (55), and other trouble of a server or a pooler. */
static int code_of(const char *state)
{
    if (starts(state, "28") || starts(state, "42501")) return HF_DENIED;
    if (starts(state, "3D") || starts(state, "3F")) return HF_INVALID;
    if (starts(state, "22") || starts(state, "42")) return HF_INVALID; /* of `options` */
    return HF_UNAVAILABLE;
}

/* Returns how far TLS has come before libpq's next step:
   HF_PG_ANSWERED: the server has sent only the byte S or N, and is still connected;
   HF_PG_SHAKES: it has sent an alert; or another part of the handshake, and is still connected;
   0: anything else, such as another protocol, or the end of the connection.
   If libpq's next step fails and this isn't 0, the failure is permanent: the server has no TLS, one
   side refuses the other's certificate, or a file is missing. The exception is a server that closes
   the connection after S or N: see answered_and_ended. */
int hf__pg_tls_goes_on(PGconn *pg)
{
    char next[2] = "";
    struct pollfd p = {PQsocket(pg), POLLRDHUP, 0};
    if (PQstatus(pg) != CONNECTION_SSL_STARTUP) return 0;
    ssize_t n = recv(p.fd, next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    int ended = poll(&p, 1, 0) > 0;
    if (PQsslInUse(pg)) return n > 0 && (next[0] == TLS_ALERT || !ended) ? HF_PG_SHAKES : 0;
    return n == 1 && (next[0] == 'S' || next[0] == 'N') && !ended ? HF_PG_ANSWERED : 0;
}

/* Returns 1 if the server has sent only the byte S or N, and then closed the connection. */
static int answered_and_ended(PGconn *pg, int tls)
{
    char next;
    return tls == HF_PG_ANSWERED && !recv(PQsocket(pg), &next, 1, MSG_PEEK | MSG_DONTWAIT);
}

/* Returns the first line of libpq's text. `told`: the caller's message names the address, so
   libpq's own "connection to server ..." is left out. */
static const char *reason(char *message, int told)
{
    char *at = strstr(message, " failed: ");
    if (told && at && starts(message, "connection to server ")) message = at + 9;
    message += strspn(message, "\n ");
    message[strcspn(message, "\n")] = 0;
    return message;
}

/* Returns 1 if the password is in the URL, not in a file. */
static int has_password(const struct hf__pg_how *how)
{
    for (int i = 0; i < how->n; i++)
        if (!strcmp(how->name[i], "password")) return 1;
    return 0;
}

int hf__pg_refusal(const struct hf__pg_how *how, PGconn *pg, int tls, int told, int *ret_busy,
                   char why[HF_KIT_WHY])
{
    char state[6], message[1000];
    snprintf(message, sizeof message, "%s", PQerrorMessage(pg));
    take_state(message, state);
    snprintf(why, HF_KIT_WHY, "%s", reason(message, told));
    /* Too many connections or too little memory; starting up or shutting down. */
    *ret_busy = starts(state, "53") || starts(state, "57P");
    /* The password was probably changed on the server first, and will be in the file soon. */
    if (!strcmp(state, "28P01") && how->opened && !has_password(how)) return HF_UNAVAILABLE;
    if (*state) return code_of(state);
    /* TLS worked before, so the failure is temporary: certificates are being renewed, or the server
       is shutting down. */
    if (answered_and_ended(pg, tls)) tls = 0;
    if ((tls && !how->opened) || PQconnectionNeedsPassword(pg)) return HF_DENIED;
    return HF_UNAVAILABLE;
}
