/* runtime/net/fabric/core/places.c - tables of places: the memory ranges of pieces and grants. */
#include "runtime/net/fabric/core/tables.h"

#include <inttypes.h>
#include <stdlib.h>

static sl_err count_check(const struct sl_fabric_place *places, uint32_t count,
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

static sl_err range_check(struct sl_fabric *fabric, const struct sl_fabric_place *range,
                          struct sl_error *why)
{
    const struct fabric_memory *memory = fabric_memory_of(fabric, range->memory);
    if (memory == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such memory");
    }
    if (memory->state != MEMORY_READY) {
        return sl_fail(why, SL_ERR_BUSY, "the memory is not registered yet");
    }
    if (range->length_bytes == 0 || range->offset_bytes > memory->what.length_bytes ||
        range->length_bytes > memory->what.length_bytes - range->offset_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "range %" PRIu64 "+%" PRIu64 " is not within %" PRIu64 " bytes",
                       range->offset_bytes, range->length_bytes, memory->what.length_bytes);
    }
    return SL_OK;
}

sl_err fabric_list_check(struct sl_fabric *fabric, const struct fabric_list *list,
                         struct sl_error *why)
{
    sl_err err = count_check(list->places, list->count, list->whole.length_bytes, why);
    for (uint32_t i = 0; i < SL_MAX(list->count, 1u) && err == SL_OK; i++) {
        err = range_check(fabric, fabric_list_at(list, i), why);
    }
    return err;
}

/* ---- the table ---- */

sl_err fabric_places_open(struct fabric_places *table, uint32_t count_max, uint32_t single_max,
                          struct sl_error *why)
{
    table->count_max = count_max;
    table->capacity = count_max + single_max;
    table->all = calloc(SL_MAX(table->capacity, 1u), sizeof(*table->all));
    if (table->all == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u places", table->capacity);
    }
    return SL_OK;
}

void fabric_places_close(struct fabric_places *table)
{
    free(table->all);
    *table = (struct fabric_places){0};
}

uint32_t fabric_places_room(const struct fabric_places *table)
{
    return table->count_max - table->used_count;
}

static struct fabric_place *place_take(struct fabric_places *table)
{
    struct fabric_place *place = fabric_place_of(table->free);
    if (place == NULL) { /* unused entries last: their pages may not exist yet */
        SL_ASSERT(table->begun_count < table->capacity);
        return &table->all[table->begun_count++];
    }
    table->free = place->run.next;
    return place;
}

struct fabric_place *fabric_places_hold(struct sl_fabric *fabric, const struct fabric_list *list)
{
    struct fabric_place *first = NULL, *last = NULL;
    for (uint32_t i = 0; i < SL_MAX(list->count, 1u); i++) {
        const struct sl_fabric_place *from = fabric_list_at(list, i);
        if (last != NULL && last->memory == from->memory &&
            last->offset_bytes + last->run.length_bytes == from->offset_bytes) {
            last->run.length_bytes += from->length_bytes;
            continue;
        }
        struct fabric_memory *memory = &fabric->memories[from->memory & 0xffffu];
        struct fabric_place *place = place_take(&fabric->places);
        *place = (struct fabric_place){
            .run = {.at = (unsigned char *)memory->what.at + from->offset_bytes,
                    .length_bytes = from->length_bytes},
            .offset_bytes = from->offset_bytes,
            .memory = from->memory,
            .single = list->places == NULL};
        fabric->places.used_count += place->single ? 0 : 1;
        memory->users++;
        if (last == NULL) {
            first = place;
        } else {
            last->run.next = &place->run;
        }
        last = place;
    }
    return first;
}

void fabric_places_leave(struct sl_fabric *fabric, struct fabric_place *first)
{
    struct fabric_places *table = &fabric->places;
    while (first != NULL) {
        struct fabric_place *next = fabric_place_of(first->run.next);
        fabric->memories[first->memory & 0xffffu].users--;
        table->used_count -= first->single ? 0 : 1;
        first->run.next = table->free;
        table->free = &first->run;
        first = next;
    }
}

/* ---- regions ---- */

uint64_t fabric_runs_cut(const struct fabric_rail *rail, struct sl_runs runs, uint64_t length_bytes,
                         struct fabric_span *out, uint32_t span_max, uint32_t *span_count)
{
    uint64_t held_bytes = 0;
    uint32_t count = 0;
    while (held_bytes < length_bytes && count < span_max) {
        const struct fabric_place *place = fabric_place_of((struct sl_run *)runs.run);
        const struct fabric_mapping *mapping = &rail->mappings[place->memory & 0xffffu];
        uint64_t offset = place->offset_bytes + (uint64_t)(runs.at - place->run.at);
        const struct fabric_region *region =
            fabric_region_at(mapping->regions, mapping->region_count, offset);
        SL_ASSERT(region != NULL);
        uint64_t here = SL_MIN(length_bytes - held_bytes, runs.left_bytes);
        here = SL_MIN(here, region->length_bytes - (offset - region->offset_bytes));
        out[count++] =
            (struct fabric_span){.at = runs.at, .length_bytes = here, .lkey = region->lkey};
        held_bytes += here;
        sl_runs_skip(&runs, here);
    }
    *span_count = count;
    return held_bytes;
}
