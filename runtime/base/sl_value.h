/* runtime/base/sl_value.h - the size limit of values, with one error text for every kind of put. */
#ifndef SL_VALUE_H
#define SL_VALUE_H

#include "runtime/base/sl_base.h"
#include "runtime/base/sl_error.h"

#define SL_VALUE_IN_PARTS \
    "put a larger one, such as a tensor, in parts, each under a key of its own"

/* most_bytes: SL_VALUE_BYTES_MAX, or less if the chunks of the node's memory are smaller. Errors:
 * SL_ERR_INVALID. */
sl_err sl_value_check(uint64_t length_bytes, uint64_t most_bytes, struct sl_error *why);

#endif
