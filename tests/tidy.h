/* tests/tidy.h - for clang's analyzer, which sees one source at a time: these functions note and
 * return the code that they were given. tests/tidy includes it before every source of the
 * product except runtime/base/sl_error.c. */
#include "runtime/base/sl_error.h"

#include <stddef.h>

static inline void sl_fail_note(struct sl_error *why, sl_err code)
{
    if (why != NULL) {
        why->code = code;
    }
}

#define sl_fail(why, code, ...) (sl_fail(why, code, __VA_ARGS__), sl_fail_note(why, code), (code))
#define sl_fail_os(why, ...)    (sl_fail_os(why, __VA_ARGS__), sl_fail_note(why, SL_ERR_OS), SL_ERR_OS)
