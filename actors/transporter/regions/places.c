/* actors/transporter/regions/places.c - see places.h. */
#include "actors/transporter/regions/places.h"

#include <inttypes.h>
#include <string.h>

struct tr_spot tr_spot_of(const struct sl_item_spot *item)
{
    return (struct tr_spot){.engine_id = item->engine_id,
                            .rank = (uint32_t)item->rank,
                            .pool = (uint32_t)item->pool,
                            .part = (uint32_t)item->part,
                            .device_block = (uint32_t)item->device_block};
}

static sl_err runs_begin(struct transporter *self, const struct tr_spot *spot,
                         struct tr_range range, struct tr_spot_walk *out, struct sl_error *why)
{
    sl_err err = tr_pools_view(self, spot->engine_id, &out->view, why);
    return err == SL_OK ? tr_runs_begin(out->view.layout, spot, range, &out->runs, why) : err;
}

sl_err tr_spot_shape(struct transporter *self, const struct tr_spot *spot,
                     struct tr_spot_shape *out, struct sl_error *why)
{
    struct tr_spot_walk walk;
    sl_err err = runs_begin(self, spot, (struct tr_range){.length_bytes = 1}, &walk, why);
    if (err == SL_OK) {
        const struct tr_row *row = tr_layout_row(walk.view.layout, spot);
        *out = (struct tr_spot_shape){.length_bytes = row->length_bytes,
                                      .places_max = row->run_count,
                                      .block_count = row->block_count,
                                      .device = row->device};
    }
    return err;
}

sl_err tr_spot_places(struct transporter *self, const struct tr_spot *spot, struct tr_range range,
                      struct sl_fabric_place *places, uint32_t place_max, uint32_t *place_count,
                      struct sl_error *why)
{
    struct tr_spot_walk walk;
    struct tr_run run;
    uint32_t count = 0;
    SL_ASSERT(place_max <= SL_FABRIC_PLACES_MAX);
    sl_err err = runs_begin(self, spot, range, &walk, why);
    if (err != SL_OK) {
        return err;
    }
    while (tr_runs_next(&walk.runs, &run)) {
        if (count == place_max) {
            return sl_fail(why, SL_ERR_LIMIT, "a part of pool %u lies at more than %u places",
                           spot->pool, place_max);
        }
        places[count++] = (struct sl_fabric_place){.memory = walk.view.memories[run.span],
                                                   .offset_bytes = run.offset_bytes,
                                                   .length_bytes = run.length_bytes};
    }
    *place_count = count;
    return SL_OK;
}

sl_err tr_spot_layers(struct transporter *self, const struct tr_spot *spot, struct tr_range range,
                      uint32_t *first, uint32_t *end, struct sl_error *why)
{
    struct tr_spot_walk walk;
    uint32_t from = 0, behind = 0;
    sl_err err = runs_begin(self, spot, range, &walk, why);
    if (err != SL_OK) {
        return err;
    }
    const struct tr_row *row = tr_layout_row(walk.view.layout, spot);
    err = tr_layout_layers(walk.view.layout, row, range, &from, &behind, why);
    if (err == SL_OK) {
        bool all = from == 0 && behind == row->layer_count;
        *first = from;
        *end = all ? 0 : behind;
    }
    return err;
}

sl_err tr_spot_walk_begin(struct transporter *self, const struct tr_spot *spot,
                          struct tr_range range, struct tr_spot_walk *out, struct sl_error *why)
{
    struct tr_spot seen = *spot;
    seen.unseen = false; /* the CPU reads it */
    return runs_begin(self, &seen, range, out, why);
}

bool tr_spot_walk_next(struct tr_spot_walk *walk, unsigned char **at, uint64_t *length_bytes)
{
    struct tr_run run;
    if (!tr_runs_next(&walk->runs, &run)) {
        return false;
    }
    *at = tr_pools_at(&walk->view, run.span) + run.offset_bytes;
    *length_bytes = run.length_bytes;
    return true;
}

sl_err tr_spot_digest(struct transporter *self, const struct tr_spot *spot, struct tr_range range,
                      struct sl_digest_stream *stream, struct sl_error *why)
{
    struct tr_spot_walk walk;
    unsigned char *at = NULL;
    uint64_t length_bytes = 0;
    sl_err err = tr_spot_walk_begin(self, spot, range, &walk, why);
    while (err == SL_OK && tr_spot_walk_next(&walk, &at, &length_bytes)) {
        sl_digest_feed(stream, at, length_bytes);
    }
    return err;
}

sl_err tr_spot_copy(struct transporter *self, const struct tr_spot *from, const struct tr_spot *to,
                    struct tr_range range, struct sl_error *why)
{
    struct tr_spot_walk source, target;
    unsigned char *source_at = NULL, *target_at = NULL;
    uint64_t source_bytes = 0, target_bytes = 0;
    sl_err err = tr_spot_walk_begin(self, from, range, &source, why);
    if (err == SL_OK) {
        err = tr_spot_walk_begin(self, to, range, &target, why);
    }
    while (err == SL_OK) {
        if ((source_bytes == 0 && !tr_spot_walk_next(&source, &source_at, &source_bytes)) ||
            (target_bytes == 0 && !tr_spot_walk_next(&target, &target_at, &target_bytes))) {
            break; /* both ranges end together */
        }
        uint64_t step_bytes = SL_MIN(source_bytes, target_bytes);
        memmove(target_at, source_at,
                step_bytes); /* an engine may have told the same memory twice */
        source_at += step_bytes;
        target_at += step_bytes;
        source_bytes -= step_bytes;
        target_bytes -= step_bytes;
    }
    return err;
}
