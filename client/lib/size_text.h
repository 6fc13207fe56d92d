/* client/lib/size_text.h - sizes as engines' connectors write them: digits, blanks, a unit of any
 * case; powers of 1024 whichever it is. */
#ifndef SL_CLIENT_LIB_SIZE_TEXT_H
#define SL_CLIENT_LIB_SIZE_TEXT_H

#include "runtime/sl_base.h"

#include <strings.h>

/* NULL: *bytes is given. Else what is wrong with the text, for people. */
static inline const char *sl_size_read(const char *text, uint64_t *bytes)
{
    static const char *const units[][2] = {
        {"", "b"}, {"k", "kb"}, {"m", "mb"}, {"g", "gb"}, {"t", "tb"}};
    const char *at = text;
    uint64_t value = 0;
    if (*at < '0' || *at > '9') { /* no sign, no blank */
        return "is no size";
    }
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            return "is too large";
        }
    }
    while (*at == ' ') {
        at++;
    }
    for (unsigned i = 0; i < SL_COUNT(units); i++) {
        if (strcasecmp(at, units[i][0]) == 0 || strcasecmp(at, units[i][1]) == 0) {
            if (value > UINT64_MAX >> (10 * i)) {
                return "is too large";
            }
            *bytes = value << (10 * i);
            return NULL;
        }
    }
    return "has an unknown unit: b, kb, mb, gb or tb";
}

#endif
