/*
 * relr.c - applies the relocations of DT_RELR, which musl before 1.2.4 leaves alone: preloaded
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __aarch64__
#define COPY R_AARCH64_COPY
#else
#define COPY R_X86_64_COPY
#endif

enum { RELR = 36, RELR_SIZE = 35, PAGE = 4096 };

/* Sets the protection of what an object has read-only after its relocation. */
static void relro(const struct dl_phdr_info *object, int protection)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *one = &object->dlpi_phdr[i];
        if (one->p_type != PT_GNU_RELRO) continue;
        uintptr_t from = (object->dlpi_addr + one->p_vaddr) & ~(uintptr_t)(PAGE - 1);
        uintptr_t to = (object->dlpi_addr + one->p_vaddr + one->p_memsz) & ~(uintptr_t)(PAGE - 1);
        if (to > from) mprotect((void *)from, to - from, protection);
    }
}

static int apply(struct dl_phdr_info *object, size_t size, void *unused)
{
    const ElfW(Dyn) *dynamic = NULL;
    const uintptr_t *entry = NULL;
    size_t left = 0;
    (void)size, (void)unused;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == RELR) entry = (const void *)(object->dlpi_addr + dynamic->d_un.d_ptr);
        if (dynamic->d_tag == RELR_SIZE) left = dynamic->d_un.d_val;
    }
    if (!entry) return 0;
    relro(object, PROT_READ | PROT_WRITE);
    uintptr_t *at = NULL;
    for (; left; entry++, left -= sizeof *entry) {
        if (!(*entry & 1)) {
            at = (uintptr_t *)(object->dlpi_addr + *entry);
            *at++ += object->dlpi_addr;
            continue;
        }
        uintptr_t bits = *entry >> 1;
        for (int i = 0; bits; i++, bits >>= 1)
            if (bits & 1) at[i] += object->dlpi_addr;
        at += 8 * sizeof *at - 1;
    }
    relro(object, PROT_READ);
    return 0;
}

/* The program's copies of C++ tables that libraries have were made before: makes them anew. */
static int copy(struct dl_phdr_info *program, size_t size, void *unused)
{
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Rela) *entry = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t left = 0;
    (void)size, (void)unused;
    for (int i = 0; i < program->dlpi_phnum; i++)
        if (program->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(program->dlpi_addr + program->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *there = (const void *)(program->dlpi_addr + dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_RELA) entry = there;
        if (dynamic->d_tag == DT_SYMTAB) symbols = there;
        if (dynamic->d_tag == DT_STRTAB) names = there;
        if (dynamic->d_tag == DT_RELASZ) left = dynamic->d_un.d_val / sizeof *entry;
    }
    relro(program, PROT_READ | PROT_WRITE);
    for (; left; left--, entry++) {
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(entry->r_info)];
        const char *name = names + symbol->st_name;
        if (ELF64_R_TYPE(entry->r_info) != COPY || strncmp(name, "_ZT", 3)) continue;
        const void *from = dlsym(RTLD_NEXT, name);
        if (from) memcpy((void *)(program->dlpi_addr + entry->r_offset), from, symbol->st_size);
    }
    relro(program, PROT_READ);
    return 1; /* the program is the first of all */
}

__attribute__((constructor)) static void apply_all(void)
{
    dl_iterate_phdr(apply, NULL);
    dl_iterate_phdr(copy, NULL);
}
