/*
 * module_dirs.h - the directories in which drivers' modules are looked for.
 */
#ifndef HF_MODULE_DIRS_H
#define HF_MODULE_DIRS_H

#include <stddef.h>

#define HF_MODULE_HEAD "libholdfast-"
#define HF_MODULE_TAIL ".so"

enum { HF_MODULE_PATH = 1024, HF_MODULE_DIRS = 7 };

struct hf_module_dirs {
    char dir[HF_MODULE_DIRS][HF_MODULE_PATH]; /* in the order of the search; "": skip it */
};

/* Fills *ret. Directories beside the library come before the one given at build time. */
void hf__module_dirs(struct hf_module_dirs *ret);
/* Writes the path of a scheme's module, from the first of n directories that has it. Returns 0 if
   none has it. */
int hf__find_module(const struct hf_module_dirs *d, int n, const char *scheme, char *ret,
                    size_t cap);

#endif
