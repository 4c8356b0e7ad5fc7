/*
 * own_library.c - see own_library.h.
 */
#include "own_library.h"

/* An address in the loaded object that this code is part of. */
static const char of_here;

#ifdef __APPLE__
#include <dlfcn.h>
#include <mach-o/dyld.h>
#include <stdint.h>
#include <unistd.h>

const char *hf__own_library(void)
{
    Dl_info own;
    /* The program is the first image. */
    if (!dladdr(&of_here, &own) || own.dli_fbase == (const void *)_dyld_get_image_header(0))
        return NULL;
    return own.dli_fname;
}

void hf__own_program(char *to, size_t cap)
{
    uint32_t size = (uint32_t)cap;
    if (issetugid() || _NSGetExecutablePath(to, &size)) *to = 0;
}
#else
#include <link.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The loaded object that this code is part of. */
struct object {
    const char *path; /* of a shared library, as long as it is loaded; NULL: the program itself */
    int seen;         /* how many objects were passed so far */
};

static int is_own(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object *own = arg;
    uintptr_t here = (uintptr_t)&of_here;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || here - from >= info->dlpi_phdr[i].p_memsz)
            continue;
        /* The program is the first object, whatever name the C library gives it. */
        own->path = own->seen && *info->dlpi_name ? info->dlpi_name : NULL;
        return 1;
    }
    own->seen++;
    return 0;
}

const char *hf__own_library(void)
{
    struct object own = {NULL, 0};
    dl_iterate_phdr(is_own, &own);
    return own.path;
}

void hf__own_program(char *to, size_t cap)
{
    ssize_t n = getauxval(AT_SECURE) ? 0 : readlink("/proc/self/exe", to, cap - 1);
    to[n > 0 ? n : 0] = 0;
}
#endif
