/*
 * module.c - a driver to be loaded by drivers_test: as it should be, or wrong in one way.
 *   GOOD  as it should be    ABI  of another interface    ALIEN  of another scheme
 *   BARE  without the symbol NAMELESS  of no scheme
 */
#include "holdfast_driver.h"

#if defined(BARE)
HF_API int hf_driver_entrance(void);
HF_API int hf_driver_entrance(void) { return 0; }
#else

#if defined(ABI)
#define VERSION HF_DRIVER_ABI + 1
#define SCHEME  "abi"
#elif defined(ALIEN)
#define VERSION HF_DRIVER_ABI
#define SCHEME  "martian"
#elif defined(NAMELESS)
#define VERSION HF_DRIVER_ABI
#define SCHEME  "nameless"
#define NAME    NULL
#else
#define VERSION HF_DRIVER_ABI
#define SCHEME  "good"
#endif

#if !defined(NAME)
#define NAME SCHEME
#endif

/* Says something through a function of the program that loaded it. */
static int mo_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    (void)io_timeout_ms, (void)ret, (void)caps;
    return hf_fail(err, HF_DENIED, 0, SCHEME ": open '%s': always refused", url->safe);
}

extern HF_API const hf_driver HF_DRIVER_SYMBOL;
const hf_driver HF_DRIVER_SYMBOL = {
    .abi = VERSION, .name = NAME, .about = "for tests", .open = mo_open};
#endif
