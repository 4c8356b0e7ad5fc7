/*
 * counted.c - what a child has done counts, although it ends by _exit: linked in where gcov counts
 * (tools/coverage), with --wrap=_exit.
 */
#include <unistd.h>

void __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);
_Noreturn void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}
