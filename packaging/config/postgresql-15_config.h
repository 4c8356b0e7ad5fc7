/*
 * postgresql-15_config.h - libpq as the driver needs it: TLS by OpenSSL, no GSSAPI, LDAP or
 * translations. It is what PostgreSQL's configure finds on Linux, with glibc from 2.17 on and with
 * musl, on every processor of packaging/toolchain.py. The version is the recipe's.
 */
#include <features.h>

#define ENABLE_THREAD_SAFETY 1
#define USE_OPENSSL          1
#define DEF_PGPORT           5432
#define DEF_PGPORT_STR       "5432"
#define PG_KRB_SRVNAM        "postgres"
#define BLCKSZ               8192
#define XLOG_BLCKSZ          8192
#define MEMSET_LOOP_LIMIT    1024

/* Processors of 64 bits. */
#define ALIGNOF_DOUBLE         8
#define ALIGNOF_INT            4
#define ALIGNOF_LONG           8
#define ALIGNOF_PG_INT128_TYPE 16
#define ALIGNOF_SHORT          2
#define HAVE_LONG_INT_64       1
#define INT64_MODIFIER         "l"
#define MAXIMUM_ALIGNOF        8
#define PG_INT128_TYPE         __int128
#define SIZEOF_BOOL            1
#define SIZEOF_LONG            8
#define SIZEOF_OFF_T           8
#define SIZEOF_SIZE_T          8
#define SIZEOF_VOID_P          8

/* The compiler. */
#define HAVE_FUNCNAME__FUNC              1
#define HAVE__BUILTIN_BSWAP16            1
#define HAVE__BUILTIN_BSWAP32            1
#define HAVE__BUILTIN_BSWAP64            1
#define HAVE__BUILTIN_CLZ                1
#define HAVE__BUILTIN_CTZ                1
#define HAVE__BUILTIN_OP_OVERFLOW        1
#define HAVE__BUILTIN_TYPES_COMPATIBLE_P 1
#define HAVE__BUILTIN_UNREACHABLE        1
#define HAVE__STATIC_ASSERT              1
#define PG_CXX_PRINTF_ATTRIBUTE          gnu_printf
#define PG_C_PRINTF_ATTRIBUTE            gnu_printf
#define PG_USE_STDBOOL                   1
#define STDC_HEADERS                     1
#define pg_restrict                      __restrict__

/* The C library. strlcpy and explicit_bzero are PostgreSQL's own: glibc 2.17 has neither. */
#define HAVE_DECL_FDATASYNC                    1
#define HAVE_DECL_POSIX_FADVISE                1
#define HAVE_DECL_PREADV                       1
#define HAVE_DECL_PWRITEV                      1
#define HAVE_DECL_RTLD_GLOBAL                  1
#define HAVE_DECL_RTLD_NOW                     1
#define HAVE_DECL_STRCHRNUL                    1
#define HAVE_DECL_STRNLEN                      1
#define HAVE_DECL_STRTOLL                      1
#define HAVE_DECL_STRTOULL                     1
#define HAVE_DLOPEN                            1
#define HAVE_GETADDRINFO                       1
#define HAVE_GETPWUID_R                        1
#define HAVE_GETTIMEOFDAY                      1
#define HAVE_INET_ATON                         1
#define HAVE_INET_PTON                         1
#define HAVE_INTTYPES_H                        1
#define HAVE_IPV6                              1
#define HAVE_LANGINFO_H                        1
#define HAVE_LINK                              1
#define HAVE_MKDTEMP                           1
#define HAVE_NETINET_TCP_H                     1
#define HAVE_POLL                              1
#define HAVE_POLL_H                            1
#define HAVE_PREAD                             1
#define HAVE_PTHREAD_BARRIER_WAIT              1
#define HAVE_PWRITE                            1
#define HAVE_SETENV                            1
#define HAVE_SOCKLEN_T                         1
#define HAVE_STDINT_H                          1
#define HAVE_STDLIB_H                          1
#define HAVE_STRERROR_R                        1
#define HAVE_STRINGS_H                         1
#define HAVE_STRING_H                          1
#define HAVE_STRTOF                            1
#define HAVE_STRTOLL                           1
#define HAVE_STRTOULL                          1
#define HAVE_STRUCT_ADDRINFO                   1
#define HAVE_STRUCT_SOCKADDR_STORAGE           1
#define HAVE_STRUCT_SOCKADDR_STORAGE_SS_FAMILY 1
#define HAVE_STRUCT_SOCKADDR_UN                1
#define HAVE_SYS_SELECT_H                      1
#define HAVE_SYS_STAT_H                        1
#define HAVE_SYS_TYPES_H                       1
#define HAVE_SYS_UIO_H                         1
#define HAVE_SYS_UN_H                          1
#define HAVE_TERMIOS_H                         1
#define HAVE_UNISTD_H                          1
#define HAVE_UNSETENV                          1
#ifndef __GLIBC__
#define STRERROR_R_INT 1 /* as POSIX wants it */
#endif

/* OpenSSL 3.0. */
#define HAVE_ASN1_STRING_GET0_DATA   1
#define HAVE_BIO_METH_NEW            1
#define HAVE_HMAC_CTX_FREE           1
#define HAVE_HMAC_CTX_NEW            1
#define HAVE_OPENSSL_INIT_SSL        1
#define HAVE_X509_GET_SIGNATURE_INFO 1
