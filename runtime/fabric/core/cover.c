/* runtime/fabric/core/cover.c - see cover.h. */
#include "runtime/fabric/core/cover.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4u

static sl_err cover_grow(struct sl_cover *cover)
{
    if (cover->count < cover->capacity) {
        return SL_OK;
    }
    if (cover->count == SL_COVER_RANGES_MAX) {
        return SL_ERR_LIMIT;
    }
    uint32_t capacity = SL_MAX(FIRST_CAPACITY, cover->capacity * 2);
    struct sl_cover_range *more = realloc(cover->ranges, capacity * sizeof(*more));
    if (more == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    cover->ranges = more;
    cover->capacity = capacity;
    return SL_OK;
}

sl_err sl_cover_add(struct sl_cover *cover, uint64_t from, uint64_t length_bytes)
{
    struct sl_cover_range fresh = {.from = from, .end = from + length_bytes};
    uint32_t first = 0; /* of those that it touches */
    while (first < cover->count && cover->ranges[first].end < fresh.from) {
        first++;
    }
    uint32_t last = first; /* behind them */
    while (last < cover->count && cover->ranges[last].from <= fresh.end) {
        fresh.from = SL_MIN(fresh.from, cover->ranges[last].from);
        fresh.end = SL_MAX(fresh.end, cover->ranges[last].end);
        last++;
    }
    if (last == first) {
        sl_err err = cover_grow(cover);
        if (err != SL_OK) {
            return err;
        }
    }
    memmove(&cover->ranges[first + 1], &cover->ranges[last],
            (cover->count - last) * sizeof(*cover->ranges));
    cover->ranges[first] = fresh;
    cover->count = cover->count - (last - first) + 1;
    return SL_OK;
}

bool sl_cover_whole(const struct sl_cover *cover, uint64_t length_bytes)
{
    return cover->count == 1 && cover->ranges[0].from == 0 && cover->ranges[0].end >= length_bytes;
}

uint64_t sl_cover_within(const struct sl_cover *cover, uint64_t from, uint64_t length_bytes)
{
    uint64_t end = from + length_bytes, bytes = 0;
    for (uint32_t i = 0; i < cover->count; i++) {
        uint64_t low = SL_MAX(cover->ranges[i].from, from);
        uint64_t high = SL_MIN(cover->ranges[i].end, end);
        bytes += high > low ? high - low : 0;
    }
    return bytes;
}

uint64_t sl_cover_bytes(const struct sl_cover *cover)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < cover->count; i++) {
        bytes += cover->ranges[i].end - cover->ranges[i].from;
    }
    return bytes;
}

void sl_cover_fini(struct sl_cover *cover)
{
    free(cover->ranges);
    *cover = (struct sl_cover){0};
}
