/* tests/fuzz/without_check/check.h - Check's assertions for programs that Check does not run.
 * Check's own assertions report to a runner and end the program where none exists. This file
 * precedes <check.h> on the include path of fuzz targets. */
#ifndef SL_WITHOUT_CHECK_H
#define SL_WITHOUT_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define ck_assert_msg(condition, ...)                                                 \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                             \
            fprintf(stderr, "\n");                                                    \
            abort();                                                                  \
        }                                                                             \
    } while (0)
#define ck_assert(condition) ck_assert_msg(condition, "-")
#define ck_assert_int_eq(a, b) \
    ck_assert_msg((a) == (b), "%lld, %lld", (long long)(a), (long long)(b))
#define ck_assert_uint_lt(a, b)  ck_assert_msg((a) < (b), "-")
#define ck_assert_ptr_nonnull(a) ck_assert_msg((a) != NULL, "-")
#define ck_assert_ptr_null(a)    ck_assert_msg((a) == NULL, "-")

#endif
