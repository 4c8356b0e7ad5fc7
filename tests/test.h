/*
 * test.h - what every unit test program includes: cmocka with what it needs, and its TAP output.
 */
#ifndef HF_TEST_H
#define HF_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

/* The body of main: runs the array `tests`; the number of failures is the exit status. */
#define TEST_MAIN(tests) TEST_MAIN_WITH(tests, NULL, NULL)
#define TEST_MAIN_WITH(tests, setup, teardown) \
    (cmocka_set_message_output(CM_OUTPUT_TAP), cmocka_run_group_tests(tests, setup, teardown))

#endif
