/* tests/tidy.h - what clang's analyzer, which sees one source at a time, cannot know: these return the code that they were given.
 * tests/tidy has it included before every source of the product but runtime/sl_error.c. */
#include "runtime/sl_error.h"

#define sl_fail(why, code, ...) (sl_fail(why, code, __VA_ARGS__), (code))
#define sl_fail_os(why, ...)    (sl_fail_os(why, __VA_ARGS__), SL_ERR_OS)
