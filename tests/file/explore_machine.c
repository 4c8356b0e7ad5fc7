/*
 * explore_machine.c - what the virtual world stands on: coroutines, memory that is taken back as a
 * whole, the mapping and a hash of it. See explore.h.
 */
#include "explore.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { STACK = 128 << 10, HEAP = 1 << 20 };

static unsigned char *base, *image, *heap, *first_heap;
static char *stacks;
static size_t heap_used, first_heap_used;
static uint32_t *dirty_list, n_dirty;
static unsigned char *dirty;
static uint64_t hash;              /* the hash of how the mapping differs from the image */
static uint64_t write_at, write_n; /* a write that is about to happen, or just happened */
int v_heap_on;
void *v_root;

/* ---- switching ---- */

#if defined(__x86_64__) && !defined(V_PORTABLE)
__asm__(".text\n.globl v_switch\n.type v_switch,@function\nv_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size v_switch,.-v_switch\n");
void *v_fresh_stack(int i, void (*entry)(void))
{
    void **sp = (void **)(void *)(stacks + (size_t)(i + 1) * STACK);
    *--sp = NULL; /* entry never returns; and the stack is aligned as after a call */
    *--sp = (void *)(uintptr_t)entry;
    for (int n = 0; n < 6; n++) *--sp = NULL; /* registers */
    return sp;
}
#elif defined(__aarch64__) && !defined(V_PORTABLE)
__asm__(".text\n.globl v_switch\n.type v_switch,%function\nv_switch:\n"
        "sub sp,sp,#160\n"
        "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
        "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
        "stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
        "mov x2,sp\nstr x2,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
        "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
        "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
        "add sp,sp,#160\nret\n"
        ".size v_switch,.-v_switch\n");
void *v_fresh_stack(int i, void (*entry)(void))
{
    void **sp = (void **)(void *)(stacks + (size_t)(i + 1) * STACK - 160);
    memset(sp, 0, 160);
    sp[11] = (void *)(uintptr_t)entry;
    return sp;
}
#else
#include <ucontext.h>
/* Slower (two system calls each), but everywhere. */
static ucontext_t contexts[V_COROS + 1];
void v_switch(void **from, void *to)
{
    if (from == &v_root) *from = &contexts[V_COROS];
    swapcontext(*from, to);
}
_Noreturn void v_leave(void *to)
{
    setcontext(to);
    abort();
}
void *v_fresh_stack(int i, void (*entry)(void))
{
    ucontext_t *c = &contexts[i];
    getcontext(c);
    c->uc_stack.ss_sp = stacks + (size_t)i * STACK;
    c->uc_stack.ss_size = STACK;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
    return c;
}
#endif

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(V_PORTABLE)
_Noreturn void v_leave(void *to)
{
    void *never_again;
    v_switch(&never_again, to);
    abort();
}
#endif

/* ---- memory ---- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

/* Inside the world memory comes from one piece, which is reset as a whole: an execution that is
   broken off in the middle leaves nothing behind. */
static int in_heap(const void *p)
{
    return heap && (const unsigned char *)p >= heap && (const unsigned char *)p < heap + HEAP;
}

void *__wrap_malloc(size_t n)
{
    if (!v_heap_on) return __real_malloc(n);
    size_t room = (n + 31) / 16 * 16;
    if (room > HEAP - heap_used) abort();
    memcpy(heap + heap_used, &n, sizeof n);
    void *p = heap + heap_used + 16;
    heap_used += room;
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    if (!v_heap_on) return __real_calloc(n, size);
    void *p = __wrap_malloc(n * size);
    return memset(p, 0, n * size);
}

void *__wrap_realloc(void *p, size_t n)
{
    size_t had = 0;
    if (!v_heap_on && !in_heap(p)) return __real_realloc(p, n);
    if (p) memcpy(&had, (unsigned char *)p - 16, sizeof had);
    void *to = __wrap_malloc(n);
    if (p) memcpy(to, p, had < n ? had : n);
    return to;
}

void __wrap_free(void *p)
{
    if (!in_heap(p)) __real_free(p);
}

void v_stacks_check(void)
{
    for (int i = 0; i < V_COROS; i++)
        if (stacks[(size_t)i * STACK]) abort(); /* a stack has overflowed */
}

/* ---- the mapping ---- */

/* The sum over the words of a stretch, each with its place. */
static uint64_t stretch(uint64_t at, uint64_t n)
{
    uint64_t sum = 0, v;
    for (uint64_t i = at & ~UINT64_C(7); i < at + n; i += 8) {
        memcpy(&v, base + i, 8);
        v = v_mix(i * UINT64_C(0xd6e8feb86659fd93), v);
        sum += v * UINT64_C(0xbf58476d1ce4e5b9) ^ v >> 32;
    }
    return sum;
}

uint64_t v_memory_hash(void)
{
    if (write_n) hash += stretch(write_at, write_n);
    write_n = 0;
    return hash;
}

void v_memory_write(const volatile void *at, size_t n)
{
    v_memory_hash();
    write_at = (uint64_t)((const volatile unsigned char *)at - base);
    write_n = n;
    if (write_at + n > V_SPACE) abort(); /* a write outside of the mapping */
    hash -= stretch(write_at, n);
    for (uint64_t line = write_at / HF_LINE; line * HF_LINE < write_at + n; line++) {
        if (dirty[line]) continue;
        dirty[line] = 1;
        dirty_list[n_dirty++] = (uint32_t)line;
    }
}

void v_memory_restore(void)
{
    for (uint32_t i = 0; i < n_dirty; i++) {
        size_t at = (size_t)dirty_list[i] * HF_LINE;
        memcpy(base + at, image + at, HF_LINE);
        dirty[dirty_list[i]] = 0;
    }
    n_dirty = 0;
    hash = write_n = 0;
    memcpy(heap, first_heap, first_heap_used);
    heap_used = first_heap_used;
}

void v_memory_remember(void)
{
    memcpy(image, base, V_SPACE);
    memset(dirty, 0, V_SPACE / HF_LINE);
    n_dirty = 0;
    hash = write_n = 0;
    memcpy(first_heap, heap, heap_used);
    first_heap_used = heap_used;
}

static void *map(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
}

unsigned char *v_memory_new(void)
{
    if (!base) {
        base = map(V_SPACE);
        image = map(V_SPACE);
        heap = map(HEAP);
        first_heap = map(HEAP);
        stacks = map((size_t)V_COROS * STACK);
        dirty = map(V_SPACE / HF_LINE);
        dirty_list = map(V_SPACE / HF_LINE * sizeof *dirty_list);
    }
    memset(base, 0, V_SPACE);
    heap_used = 0;
    write_n = 0;
    return base;
}

unsigned char *v_base(void) { return base; }
