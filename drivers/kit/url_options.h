/*
 * url_options.h - the options of a URL, as a table: which there are, and where their values go.
 * Compiled into each module that uses it.
 *
 *     const struct hf__option options[] = {{"table", HF_TEXT_OPTION(table)},
 *                                          {"ssl", .is_on = &ssl}};
 *     rc = hf__options("mariadb", url, options, 2, err);
 *
 * Thread safety: any thread. Nothing is allocated.
 */
#ifndef HF_KIT_URL_OPTIONS_H
#define HF_KIT_URL_OPTIONS_H

#include "secret.h"

#include "holdfast_driver.h"

/* An option is a text, or a switch: `on` or `off`. */
struct hf__option {
    const char *name;
    char *to; /* of a text; "" if the option isn't given */
    size_t cap;
    int *is_on; /* of a switch; stays as it is if the option isn't given */
};
#define HF_TEXT_OPTION(array) (array), sizeof(array), NULL

/* Reads the options of the URL. Returns 0; HF_INVALID: one of them isn't in the table, which the
   error says with the name that may be meant; or is given twice, empty, too long, or no switch. */
int hf__options(const char *store, const hf_url *url, const struct hf__option *option, size_t n,
                hf_error *err);
/* Sets the error of a URL that can't be opened: "STORE: open 'URL': NAME: WHAT". Returns
   HF_INVALID. */
int hf__option_refused(const char *store, const hf_url *url, const char *name, const char *what,
                       hf_error *err);
/* Opens the password file, unless `path` is "". Beside a password in the URL it is refused. */
int hf__option_passfile(const char *store, const hf_url *url, const char *path,
                        struct hf__secret *secret, hf_error *err);

/* The files of TLS: authorities, our certificate and its key. */
enum { HF_TLS_PATH = 512 };
struct hf__tls_files {
    char ca[HF_TLS_PATH], cert[HF_TLS_PATH], key[HF_TLS_PATH];
};
/* Sets *tls, which is negative if the switch `name` isn't given: on, if there is any of the files.
   `off` beside a file is refused. */
int hf__option_tls(const char *store, const hf_url *url, const char *name,
                   const struct hf__tls_files *files, int *tls, hf_error *err);

#endif
