/*
 * link.c - see link.h.
 *
 * Contents: errors; one command. options.c reads the URL, connect.c finds the server.
 *
 * Every link has a libmongoc client without threads. It finds out about the servers when it is
 * made. After a failure the client is thrown away, because it remembers for seconds that a server
 * was unreachable. Commands are sent as given (not as libmongoc's retryable writes), so that
 * libmongoc never sends one twice.
 */
#include "link.h"

#include "os.h"
#include "stream.h"

#include <stdio.h>
#include <string.h>

/* ---- errors ---- */

/* The error doesn't say whether the command was carried out. */
enum { AMBIGUOUS = 1 };

/* Returns 1 if the server can't serve now (it is shutting down, it ran out of time), or isn't the
   primary any more: then a new connection looks for the primary. */
static int has_moved(int code)
{
    static const int codes[] = {6 /* HostUnreachable */,
                                7 /* HostNotFound */,
                                24 /* LockTimeout */,
                                46 /* LockBusy */,
                                50 /* MaxTimeMSExpired */,
                                64 /* WriteConcernFailed */,
                                79 /* UnknownReplWriteConcern */,
                                89 /* NetworkTimeout */,
                                91 /* ShutdownInProgress */,
                                100 /* UnsatisfiableWriteConcern */,
                                112 /* WriteConflict */,
                                134 /* ReadConcernMajorityNotAvailableYet */,
                                189 /* PrimarySteppedDown */,
                                202 /* NetworkInterfaceExceededTimeLimit */,
                                262 /* ExceededTimeLimit */,
                                317 /* ConnectionPoolExpired */,
                                9001 /* SocketException */,
                                10058 /* LegacyNotPrimary */,
                                10107 /* NotWritablePrimary */,
                                11600 /* InterruptedAtShutdown */,
                                11601 /* Interrupted */,
                                11602 /* InterruptedDueToReplStateChange */,
                                13388 /* StaleConfig */,
                                13435 /* NotPrimaryNoSecondaryOk */,
                                13436 /* NotPrimaryOrSecondary */,
                                14064 /* of an old mongos: the set has no primary */};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code) return 1;
    return 0;
}

/*
 * Returns the HF_ code for an error code of the server. Only codes that say that nothing was done
 * are listed: the server gives them when it checks rights and arguments, or has undone the update.
 * All other codes are AMBIGUOUS, also those of future versions.
 */
static int code_of_server(int code)
{
    switch (code) {
    case 13: /* Unauthorized */
    case 18: /* AuthenticationFailed */
    case 8000: /* AtlasError: its proxy refuses */ return HF_DENIED;
    case 14031: return HF_FULL;        /* OutOfDiskSpace */
    case 2:                            /* BadValue */
    case 9:                            /* FailedToParse */
    case 59:                           /* CommandNotFound */
    case 72:                           /* InvalidOptions */
    case 115:                          /* CommandNotSupported */
    case 123:                          /* NotAReplicaSet */
    case 148:                          /* ReadConcernMajorityNotEnabled */
    case 166:                          /* CommandNotSupportedOnView */
    case 238:                          /* NotImplemented */
    case 17276:                        /* an unknown variable */
    case 40324: return HF_UNSUPPORTED; /* an unknown stage */
    case 121:                          /* DocumentValidationFailure */
    case 10334:                        /* BSONObjectTooLarge */
    case 17419: /* the document would become too large */ return HF_INVALID;
    case HF_MG_DUPLICATE_KEY: return HF_UNAVAILABLE; /* the caller of hf__mg_ask sees *ret_code */
    case 26:                                         /* NamespaceNotFound */
    case 48: return HF_UNAVAILABLE;                  /* NamespaceExists */
    default: return AMBIGUOUS;
    }
}

/* Returns the HF_ code for one of libmongoc's own errors, if it says that nothing was sent; else
   AMBIGUOUS. */
static int code_of_client(const bson_error_t *e)
{
    switch (e->domain) {
    case MONGOC_ERROR_SERVER_SELECTION: return HF_UNAVAILABLE;
    case MONGOC_ERROR_STREAM:
        return e->code == MONGOC_ERROR_STREAM_NAME_RESOLUTION ||
                       e->code == MONGOC_ERROR_STREAM_CONNECT ||
                       e->code == MONGOC_ERROR_STREAM_NOT_ESTABLISHED
                   ? HF_UNAVAILABLE
                   : AMBIGUOUS;
    case MONGOC_ERROR_CLIENT:
        return e->code == MONGOC_ERROR_CLIENT_AUTHENTICATE ? HF_DENIED
               : e->code == MONGOC_ERROR_CLIENT_NOT_READY ||
                       e->code == MONGOC_ERROR_CLIENT_NO_ACCEPTABLE_PEER ||
                       e->code == MONGOC_ERROR_CLIENT_TOO_BIG
                   ? HF_UNAVAILABLE
                   : AMBIGUOUS;
    case MONGOC_ERROR_PROTOCOL:
        return e->code == MONGOC_ERROR_PROTOCOL_BAD_WIRE_VERSION ? HF_UNSUPPORTED : AMBIGUOUS;
    case MONGOC_ERROR_SASL:
    case MONGOC_ERROR_SCRAM: return HF_DENIED;
    default: return AMBIGUOUS;
    }
}

int hf__mg_code(const bson_error_t *e, int ambiguous)
{
    int code = e->domain == MONGOC_ERROR_SERVER ? code_of_server((int)e->code) : code_of_client(e);
    return code == AMBIGUOUS ? ambiguous : code;
}

/* ---- one command ---- */

void hf__mg_disconnect(struct hf__mg_link *link)
{
    /* While the program ends, libmongoc must not be called, so the client is not freed. */
    if (link->client && hf__mg_begin()) {
        mongoc_client_destroy(link->client);
        hf__mg_end();
    }
    link->client = NULL;
}

/* Returns 0; or about->ambiguous, with the reason, if the reply says that the majority hasn't
   confirmed the write, so that a fail-over may still undo it. A server that can't confirm it,
   because it isn't the primary any more, is left. */
static int not_yet_sure(struct hf__mg_link *link, const bson_t *reply,
                        const struct hf__mg_about *about, hf_error *err)
{
    bson_iter_t it, found;
    const char *text = "the majority has not confirmed it";
    if (!bson_iter_init_find(&it, reply, "writeConcernError")) return 0;
    if (bson_iter_init(&it, reply) &&
        bson_iter_find_descendant(&it, "writeConcernError.errmsg", &found) &&
        BSON_ITER_HOLDS_UTF8(&found))
        text = bson_iter_utf8(&found, NULL);
    if (bson_iter_init(&it, reply) &&
        bson_iter_find_descendant(&it, "writeConcernError.code", &found) &&
        has_moved((int)bson_iter_as_int64(&found)))
        hf__mg_disconnect(link);
    return hf_fail(err, about->ambiguous, 0, "mongodb: %s '%s': %.*s", about->what, about->key,
                   (int)strcspn(text, "\n"), text);
}

/* libmongoc also reports "authentication failed" if the connection broke during the login, or the
   server is shutting down. That isn't DENIED but UNAVAILABLE; nothing but the login was sent. */
int hf__mg_link_code(const struct hf__mg_link *link, const bson_error_t *e, int ambiguous)
{
    int login = e->domain == MONGOC_ERROR_SASL || e->domain == MONGOC_ERROR_SCRAM ||
                (e->domain == MONGOC_ERROR_CLIENT && e->code == MONGOC_ERROR_CLIENT_AUTHENTICATE);
    if (login && (link->broken || has_moved(hf__mg_reply_code(link)))) return HF_UNAVAILABLE;
    return hf__mg_code(e, ambiguous);
}

int hf__mg_ask(const struct hf__mg_how *how, struct hf__mg_link *link, const bson_t *command,
               const struct hf__mg_about *about, bson_t *ret, int *ret_code, hf_error *err)
{
    bson_error_t e = {0, 0, ""};
    *ret_code = 0;
    if (!hf__mg_begin())
        return hf_fail(err, HF_UNAVAILABLE, 0, "mongodb: %s '%s': the program is ending",
                       about->what, about->key);
    link->until_us = link->first_until_us;
    if (!link->until_us) link->until_us = hf__local_us() + how->io_timeout_ms * 1000;
    link->first_until_us = link->broken = 0;
    int done = mongoc_client_command_simple(link->client, how->db, command, NULL, ret, &e);
    hf__mg_end();
    if (done) {
        int rc = not_yet_sure(link, ret, about, err);
        if (rc) bson_destroy(ret);
        return rc;
    }
    bson_destroy(ret);
    if (e.domain == MONGOC_ERROR_SERVER) *ret_code = (int)e.code;
    int code = hf__mg_link_code(link, &e, about->ambiguous);
    /* This member isn't the primary any more, or the connection failed: the next request makes a
       new client, which finds the primary. */
    if (e.domain != MONGOC_ERROR_SERVER || has_moved(*ret_code)) hf__mg_disconnect(link);
    return hf_fail(err, code, 0, "mongodb: %s '%s': %.*s", about->what, about->key,
                   (int)strcspn(e.message, "\n"), e.message);
}
