/*
 * module_dirs.h - where the modules of drivers are, and which file is the module of a scheme.
 */
#ifndef HF_MODULE_DIRS_H
#define HF_MODULE_DIRS_H

#include <stddef.h>

#define HF_MODULE_HEAD "libholdfast-"
#define HF_MODULE_TAIL ".so"

enum { HF_MODULE_PATH = 1024, HF_MODULE_DIRS = 7 };

struct hf_module_dirs {
    char dir[HF_MODULE_DIRS][HF_MODULE_PATH]; /* "": not there */
};

/* Returns the directories in the order of the search. Directories beside the library come before
   the one given at build time. */
void hf__module_dirs(struct hf_module_dirs *ret);
/* Finds the module of a scheme in one of the first n directories. Returns 0 if there is none. */
int hf__find_module(const struct hf_module_dirs *d, int n, const char *scheme, char *ret,
                    size_t cap);
/* Returns the path of the shared library that this code is in, or NULL: it is in the program. */
const char *hf__own_library(void);

#endif
