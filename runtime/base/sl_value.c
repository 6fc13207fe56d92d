/* runtime/base/sl_value.c - see sl_value.h. */
#include "runtime/base/sl_value.h"

#include <inttypes.h>

sl_err sl_value_check(uint64_t length_bytes, uint64_t most_bytes, struct sl_error *why)
{
    if (length_bytes >= 1 && length_bytes <= most_bytes) {
        return SL_OK;
    }
    return sl_fail(
        why, SL_ERR_INVALID, "value: 1 to %" PRIu64 " bytes (%s), not %" PRIu64 "%s", most_bytes,
        most_bytes < SL_VALUE_BYTES_MAX ? "the node's memory_chunk; 1 GiB at most" : "1 GiB",
        length_bytes, length_bytes == 0 ? "" : ": " SL_VALUE_IN_PARTS);
}
