/* actors/transporter/regions/layout.c - see layout.h: layers and runs of an engine's blocks. */
#include "actors/transporter/regions/layout.h"

#include <inttypes.h>
#include <stdlib.h>

#define POOLS_MAX 8u /* limit of the message table */

_Static_assert(SL_COUNT(((struct tr_layout *)0)->part_counts) == POOLS_MAX, "one a pool");

/* ---- regions ---- */

uint64_t tr_layer_block_bytes(const struct tr_layer *layer)
{
    return (layer->piece_bytes / layer->run_bytes - 1) * layer->run_stride_bytes + layer->run_bytes;
}

static struct tr_layer layer_of(const struct sl_item_region *region,
                                const struct sl_layout_layer *layer)
{
    bool runs = region->fragment_bytes != 0;
    return (struct tr_layer){
        .region = layer->region,
        .buffer = TR_NO_SPAN,
        .span = TR_NO_SPAN,
        .offset_bytes = region->offset_bytes,
        .length_bytes = region->length_bytes,
        .part_offset_bytes = layer->part_offset_bytes,
        .block_stride_bytes = region->block_stride_bytes,
        .piece_bytes = region->piece_bytes,
        .run_bytes = runs ? region->fragment_bytes : region->piece_bytes,
        .run_stride_bytes = runs ? region->fragment_stride_bytes : region->piece_bytes,
    };
}

/* ---- parts ---- */

sl_err tr_layout_make(const struct sl_body_engine_get_reply *body, struct tr_layout *out,
                      struct sl_error *why)
{
    struct sl_layout layout;
    sl_err err = sl_layout_make(body, SL_LAYOUT_ALL, &layout, why);
    if (err != SL_OK) {
        return err;
    }
    *out = (struct tr_layout){.layers = calloc(layout.layer_count + 1u, sizeof(*out->layers)),
                              .rows = calloc(layout.row_count + 1u, sizeof(*out->rows))};
    if (out->layers == NULL || out->rows == NULL) {
        sl_layout_fini(&layout);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " regions",
                       body->regions.count);
    }
    for (uint64_t i = 0; i < body->pools.count && i < POOLS_MAX; i++) {
        out->part_counts[i] = (uint32_t)body->pools.at[i].part_count;
    }
    for (uint32_t i = 0; i < layout.row_count; i++) {
        struct tr_row *row = &out->rows[out->row_count++];
        row->of = layout.rows[i];
        for (uint32_t l = 0; l < row->of.layer_count; l++) {
            const struct sl_layout_layer *from = &layout.layers[out->layer_count];
            struct tr_layer *layer = &out->layers[out->layer_count++];
            *layer = layer_of(&body->regions.at[from->region], from);
            row->run_count += layer->run_stride_bytes == layer->run_bytes
                                  ? 1
                                  : layer->piece_bytes / layer->run_bytes;
        }
    }
    sl_layout_fini(&layout);
    return SL_OK;
}

static void layer_span(struct tr_layer *layer, const struct tr_span *spans, uint32_t span_count)
{
    uint32_t low = 0, high = span_count; /* first span after the layer's start */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool before = spans[middle].buffer < layer->buffer ||
                      (spans[middle].buffer == layer->buffer &&
                       spans[middle].offset_bytes <= layer->offset_bytes);
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    SL_ASSERT(low > 0 && spans[low - 1].buffer == layer->buffer);
    layer->span = low - 1;
    layer->offset_bytes -= spans[low - 1].offset_bytes;
}

void tr_layout_spans(struct tr_layout *layout, const struct tr_span *spans, uint32_t span_count)
{
    for (uint32_t i = 0; i < layout->row_count; i++) {
        struct tr_row *row = &layout->rows[i];
        row->mapped = true;
        for (uint32_t l = row->of.first_layer; l < row->of.first_layer + row->of.layer_count; l++) {
            struct tr_layer *layer = &layout->layers[l];
            row->mapped = row->mapped && layer->buffer != TR_NO_SPAN;
            row->device = row->device || layer->device;
            if (layer->buffer != TR_NO_SPAN) {
                layer_span(layer, spans, span_count);
            }
        }
    }
}

void tr_layout_leave_out(struct tr_layout *layout, uint32_t buffer)
{
    for (uint32_t i = 0; i < layout->row_count; i++) {
        struct tr_row *row = &layout->rows[i];
        for (uint32_t l = row->of.first_layer; l < row->of.first_layer + row->of.layer_count; l++) {
            row->mapped = row->mapped && layout->layers[l].buffer != buffer;
        }
    }
}

void tr_layout_fini(struct tr_layout *layout)
{
    free(layout->layers);
    free(layout->rows);
    *layout = (struct tr_layout){0};
}

const struct tr_row *tr_layout_row(const struct tr_layout *layout, const struct tr_slot *slot)
{
    if (slot->pool >= POOLS_MAX) {
        return NULL;
    }
    uint32_t part = layout->part_counts[slot->pool] > 0 ? slot->part : 0;
    uint32_t low = 0, high = layout->row_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sl_layout_row *row = &layout->rows[middle].of;
        if (row->rank == slot->rank && row->pool == slot->pool && row->part == part) {
            return &layout->rows[middle];
        }
        bool before = row->rank != slot->rank   ? row->rank < slot->rank
                      : row->pool != slot->pool ? row->pool < slot->pool
                                                : row->part < part;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return NULL;
}

/* ---- runs ---- */

/* The last layer that begins at or before this offset of the part. */
static uint32_t layer_at(const struct tr_layer *layers, uint32_t layer_count,
                         uint64_t part_offset_bytes)
{
    uint32_t low = 0, high = layer_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        bool before = layers[middle].part_offset_bytes <= part_offset_bytes;
        low = before ? middle : low;
        high = before ? high : middle;
    }
    return low;
}

sl_err tr_layout_layers(const struct tr_layout *layout, const struct tr_row *row,
                        struct tr_range range, uint32_t *first, uint32_t *end, struct sl_error *why)
{
    const struct tr_layer *layers = &layout->layers[row->of.first_layer];
    uint64_t range_end = range.offset_bytes + range.length_bytes;
    uint32_t from = layer_at(layers, row->of.layer_count, range.offset_bytes);
    uint32_t last = layer_at(layers, row->of.layer_count, range_end);
    bool all = range_end == row->of.length_bytes;
    if (layers[from].part_offset_bytes != range.offset_bytes ||
        (!all && layers[last].part_offset_bytes != range_end)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "bytes %" PRIu64 " + %" PRIu64 " of a part are not whole layers",
                       range.offset_bytes, range.length_bytes);
    }
    *first = from;
    *end = all ? row->of.layer_count : last;
    return SL_OK;
}

sl_err tr_runs_begin(const struct tr_layout *layout, const struct tr_slot *slot,
                     struct tr_range range, struct tr_runs *out, struct sl_error *why)
{
    const struct tr_row *row = tr_layout_row(layout, slot);
    if (row == NULL) {
        return sl_fail(why, SL_ERR_INVALID,
                       "rank %u of engine %" PRIu64 " has no part %u of pool %u", slot->rank,
                       slot->engine_id, slot->part, slot->pool);
    }
    if (slot->device_block >= row->of.block_count) {
        return sl_fail(why, SL_ERR_INVALID, "block %u of %" PRIu64, slot->device_block,
                       row->of.block_count);
    }
    if (range.length_bytes == 0 || range.length_bytes > row->of.length_bytes ||
        range.offset_bytes > row->of.length_bytes - range.length_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "bytes %" PRIu64 " + %" PRIu64 " of a part of %" PRIu64,
                       range.offset_bytes, range.length_bytes, row->of.length_bytes);
    }
    if (!row->mapped || (row->device && !slot->unseen)) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "rank %u of engine %" PRIu64 ": pool %u is %s",
                       slot->rank, slot->engine_id, slot->pool,
                       row->mapped ? "device memory" : "not shared memory of this host");
    }
    const struct tr_layer *layers = &layout->layers[row->of.first_layer];
    uint32_t low = layer_at(layers, row->of.layer_count, range.offset_bytes);
    *out = (struct tr_runs){.layer = &layers[low],
                            .device_block = slot->device_block,
                            .at_bytes = range.offset_bytes - layers[low].part_offset_bytes,
                            .left_bytes = range.length_bytes};
    return SL_OK;
}

/* Gives one run as it was registered. */
static bool run_step(struct tr_runs *runs, struct tr_run *out)
{
    const struct tr_layer *layer = runs->layer;
    if (runs->left_bytes == 0) {
        return false;
    }
    uint64_t number = runs->at_bytes / layer->run_bytes, within = runs->at_bytes % layer->run_bytes;
    *out = (struct tr_run){.span = layer->span,
                           .offset_bytes = layer->offset_bytes +
                                           runs->device_block * layer->block_stride_bytes +
                                           number * layer->run_stride_bytes + within,
                           .length_bytes = SL_MIN(layer->run_bytes - within, runs->left_bytes)};
    runs->at_bytes += out->length_bytes;
    runs->left_bytes -= out->length_bytes;
    if (runs->at_bytes == layer->piece_bytes && runs->left_bytes > 0) {
        runs->layer++; /* exists, because the range is within the part */
        runs->at_bytes = 0;
    }
    return true;
}

bool tr_runs_next(struct tr_runs *runs, struct tr_run *out)
{
    if (!run_step(runs, out)) {
        return false;
    }
    struct tr_run next;
    for (struct tr_runs ahead = *runs; run_step(&ahead, &next) && next.span == out->span &&
                                       next.offset_bytes == out->offset_bytes + out->length_bytes;
         *runs = ahead) {
        out->length_bytes += next.length_bytes;
    }
    return true;
}
