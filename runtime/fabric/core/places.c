/* runtime/fabric/core/places.c - bytes of one piece or grant that lie at many places. */
#include "runtime/fabric/core/tables.h"

#include <inttypes.h>

sl_err fabric_places_count_check(const struct sl_fabric_place *places, uint32_t count,
                                 uint64_t length_bytes, struct sl_error *why)
{
    uint64_t left_bytes = length_bytes;
    if ((places == NULL) != (count == 0) || count > SL_FABRIC_PLACES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "1..%u places, not %u", SL_FABRIC_PLACES_MAX, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (places[i].length_bytes == 0 || places[i].length_bytes > left_bytes) {
            return sl_fail(why, SL_ERR_INVALID,
                           "place %u of %" PRIu64 " bytes does not fit %" PRIu64 " bytes", i,
                           places[i].length_bytes, length_bytes);
        }
        left_bytes -= places[i].length_bytes;
    }
    return count == 0 || left_bytes == 0
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "the places lack %" PRIu64 " of %" PRIu64 " bytes",
                         left_bytes, length_bytes);
}

sl_err fabric_range_check(struct sl_fabric *fabric, const struct sl_fabric_place *range, bool read,
                          struct sl_error *why)
{
    const struct fabric_memory *memory = fabric_memory_of(fabric, range->memory);
    if (memory == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such memory");
    }
    if (memory->state != MEMORY_READY) {
        return sl_fail(why, SL_ERR_BUSY, "the memory is not registered yet");
    }
    if (read && memory->what.unread) {
        return sl_fail(why, SL_ERR_PERMISSION, "the memory is not for peers to read");
    }
    if (range->length_bytes == 0 || range->offset_bytes > memory->what.length_bytes ||
        range->length_bytes > memory->what.length_bytes - range->offset_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "range %" PRIu64 "+%" PRIu64 " is not within %" PRIu64 " bytes",
                       range->offset_bytes, range->length_bytes, memory->what.length_bytes);
    }
    return SL_OK;
}

sl_err fabric_places_check(struct sl_fabric *fabric, const struct sl_fabric_place *places,
                           uint32_t count, uint64_t length_bytes, bool read, struct sl_error *why)
{
    sl_err err = fabric_places_count_check(places, count, length_bytes, why);
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        err = fabric_range_check(fabric, &places[i], read, why);
    }
    return err;
}
