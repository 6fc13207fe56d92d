/* actors/transporter/regions/places.c - see places.h: memory of pool slots; digests and copies. */
#include "actors/transporter/regions/places.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tr_slot tr_slot_of(const struct sl_item_slot *item)
{
    return (struct tr_slot){.engine_id = item->engine_id,
                            .rank = (uint32_t)item->rank,
                            .pool = (uint32_t)item->pool,
                            .part = (uint32_t)item->part,
                            .device_block = (uint32_t)item->device_block};
}

static sl_err runs_begin(struct transporter *self, const struct tr_slot *slot,
                         struct tr_range range, struct tr_slot_walk *out, struct sl_error *why)
{
    sl_err err = tr_pools_view(self, slot->engine_id, &out->view, why);
    return err == SL_OK ? tr_runs_begin(out->view.layout, slot, range, &out->runs, why) : err;
}

sl_err tr_slot_shape(struct transporter *self, const struct tr_slot *slot,
                     struct tr_slot_shape *out, struct sl_error *why)
{
    struct tr_slot_walk walk;
    sl_err err = runs_begin(self, slot, (struct tr_range){.length_bytes = 1}, &walk, why);
    if (err == SL_OK) {
        const struct tr_row *row = tr_layout_row(walk.view.layout, slot);
        *out = (struct tr_slot_shape){.length_bytes = row->of.length_bytes,
                                      .places_max = row->run_count,
                                      .block_count = row->of.block_count,
                                      .device = row->device};
    }
    return err;
}

sl_err tr_slot_places(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                      struct sl_fabric_place *places, uint32_t place_max, uint32_t *place_count,
                      struct sl_error *why)
{
    struct tr_slot_walk walk;
    struct tr_run run;
    uint32_t count = 0;
    SL_ASSERT(place_max <= SL_FABRIC_PLACES_MAX);
    sl_err err = runs_begin(self, slot, range, &walk, why);
    if (err != SL_OK) {
        return err;
    }
    while (tr_runs_next(&walk.runs, &run)) {
        if (count == place_max) {
            return sl_fail(why, SL_ERR_LIMIT, "a part of pool %u lies at more than %u places",
                           slot->pool, place_max);
        }
        places[count++] = (struct sl_fabric_place){.memory = walk.view.memories[run.span],
                                                   .offset_bytes = run.offset_bytes,
                                                   .length_bytes = run.length_bytes};
    }
    *place_count = count;
    return SL_OK;
}

sl_err tr_slot_piece(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                     struct sl_fabric_place *places, uint32_t place_max, uint32_t *used,
                     struct sl_fabric_piece *piece, struct sl_error *why)
{
    struct tr_slot_shape shape;
    uint32_t room = SL_MIN(place_max - *used, SL_FABRIC_PLACES_MAX);
    sl_err err = tr_slot_places(self, slot, range, &places[*used], room, &piece->place_count, why);
    err = err == SL_OK ? tr_slot_shape(self, slot, &shape, why) : err;
    if (err == SL_OK) {
        piece->digest = shape.device ? NULL : piece->digest;
        piece->places = &places[*used];
        piece->rail = self->rail_of_rank[slot->rank];
        *used += piece->place_count;
    }
    return err;
}

sl_err tr_slot_layers(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                      uint32_t *first, uint32_t *end, struct sl_error *why)
{
    struct tr_slot_walk walk;
    uint32_t from = 0, behind = 0;
    sl_err err = runs_begin(self, slot, range, &walk, why);
    if (err != SL_OK) {
        return err;
    }
    const struct tr_row *row = tr_layout_row(walk.view.layout, slot);
    err = tr_layout_layers(walk.view.layout, row, range, &from, &behind, why);
    if (err == SL_OK) {
        bool all = from == 0 && behind == row->of.layer_count;
        *first = from;
        *end = all ? 0 : behind;
    }
    return err;
}

void tr_items_free(struct tr_items *items)
{
    free(items->at);
    free(items->slots);
    *items = (struct tr_items){0};
}

/* Checks that all slots of an item have one length, and each read has few enough places. If a slot
 * is device memory, the CPU cannot copy: then each slot is read separately. */
static sl_err item_check(struct transporter *self, const struct tr_items *items, uint32_t number,
                         struct sl_error *why)
{
    struct tr_item *item = &items->at[number];
    uint64_t first_places = 0, most_places = 0;
    if (item->count == 0) {
        return sl_fail(why, SL_ERR_INVALID, "BRING.slots: none for item %u", number);
    }
    for (uint32_t i = 0; i < item->count; i++) {
        const struct tr_slot *slot = &items->slots[item->first + i];
        struct tr_slot_shape shape;
        sl_err err = tr_slot_shape(self, slot, &shape, why);
        if (err != SL_OK) {
            return err;
        }
        if (i > 0 && shape.length_bytes != item->length_bytes) {
            return sl_fail(why, SL_ERR_INVALID,
                           "rank %u of engine %" PRIu64 " has %" PRIu64
                           " bytes of it, not %" PRIu64,
                           slot->rank, slot->engine_id, shape.length_bytes, item->length_bytes);
        }
        item->length_bytes = shape.length_bytes;
        item->device = item->device || shape.device;
        item->places_max += shape.places_max;
        first_places = i == 0 ? shape.places_max : first_places;
        most_places = SL_MAX(most_places, shape.places_max);
    }
    item->read_count = item->device ? item->count : 1;
    item->places_max = item->device ? item->places_max : first_places;
    most_places = item->device ? most_places : first_places;
    return most_places <= SL_FABRIC_PLACES_MAX
               ? SL_OK
               : sl_fail(why, SL_ERR_LIMIT, "a part uses %" PRIu64 " memory ranges, %u at most",
                         most_places, SL_FABRIC_PLACES_MAX);
}

sl_err tr_items_take(struct transporter *self, const struct sl_body_bring *body, uint32_t count,
                     struct tr_items *out, struct sl_error *why)
{
    uint32_t at = 0;
    *out = (struct tr_items){.count = count, .slot_count = (uint32_t)body->slots.count};
    out->at = calloc(count + 1u, sizeof(*out->at));
    out->slots = calloc(out->slot_count + 1u, sizeof(*out->slots));
    if (out->at == NULL || out->slots == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u parts", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        out->at[i].first = at;
        for (; at < out->slot_count && body->slots.at[at].item == i; at++) {
            out->slots[at] = tr_slot_of(&body->slots.at[at]);
            out->slots[at].unseen = true; /* these bytes are checked (digests.h) */
        }
        out->at[i].count = at - out->at[i].first;
        sl_err err = item_check(self, out, i, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return at == out->slot_count
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "BRING.slots[%u] is of no item, or not in order", at);
}

sl_err tr_slot_walk_begin(struct transporter *self, const struct tr_slot *slot,
                          struct tr_range range, struct tr_slot_walk *out, struct sl_error *why)
{
    struct tr_slot seen = *slot;
    seen.unseen = false; /* the CPU cannot read device memory */
    return runs_begin(self, &seen, range, out, why);
}

bool tr_slot_walk_next(struct tr_slot_walk *walk, unsigned char **at, uint64_t *length_bytes)
{
    struct tr_run run;
    if (!tr_runs_next(&walk->runs, &run)) {
        return false;
    }
    *at = tr_pools_at(&walk->view, run.span) + run.offset_bytes;
    *length_bytes = run.length_bytes;
    return true;
}

sl_err tr_slot_digest(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                      struct sl_digest_stream *stream, struct sl_error *why)
{
    struct tr_slot_walk walk;
    unsigned char *at = NULL;
    uint64_t length_bytes = 0;
    sl_err err = tr_slot_walk_begin(self, slot, range, &walk, why);
    while (err == SL_OK && tr_slot_walk_next(&walk, &at, &length_bytes)) {
        sl_digest_feed(stream, at, length_bytes);
    }
    return err;
}

sl_err tr_slot_copy(struct transporter *self, const struct tr_slot *from, const struct tr_slot *to,
                    struct tr_range range, struct sl_error *why)
{
    struct tr_slot_walk source, target;
    unsigned char *source_at = NULL, *target_at = NULL;
    uint64_t source_bytes = 0, target_bytes = 0;
    sl_err err = tr_slot_walk_begin(self, from, range, &source, why);
    if (err == SL_OK) {
        err = tr_slot_walk_begin(self, to, range, &target, why);
    }
    while (err == SL_OK) {
        if ((source_bytes == 0 && !tr_slot_walk_next(&source, &source_at, &source_bytes)) ||
            (target_bytes == 0 && !tr_slot_walk_next(&target, &target_at, &target_bytes))) {
            break; /* both ranges have the same length */
        }
        uint64_t step_bytes = SL_MIN(source_bytes, target_bytes);
        memmove(target_at, source_at, step_bytes); /* registered memory may overlap */
        source_at += step_bytes;
        target_at += step_bytes;
        source_bytes -= step_bytes;
        target_bytes -= step_bytes;
    }
    return err;
}
