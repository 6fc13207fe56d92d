/* ipc/msg/sl_layout.c - see sl_layout.h. */
#include "ipc/msg/sl_layout.h"
#include "runtime/base/sl_runs.h"

#include <inttypes.h>
#include <stdlib.h>

#define PARTS_MAX 64u /* of the message table */

static sl_err refuse(struct sl_error *why, uint64_t number, const char *text)
{
    return sl_fail(why, SL_ERR_INVALID, "regions[%" PRIu64 "].%s", number, text);
}

static sl_err region_check(const struct sl_body_engine_get_reply *body, uint64_t number,
                           struct sl_error *why)
{
    const struct sl_item_region *region = &body->regions.at[number];
    bool pooled = region->pool < body->pools.count;
    uint64_t part_count = pooled ? body->pools.at[region->pool].part_count : 0;
    uint64_t reach_bytes = 0, end_bytes = 0;
    uint64_t span_bytes =
        sl_runs_span(region->piece_bytes, region->fragment_bytes, region->fragment_stride_bytes);
    if (!pooled || region->rank >= body->world) {
        return refuse(why, number, pooled ? "rank: not below world" : "pool: no such pool");
    }
    if (part_count > PARTS_MAX || region->part >= SL_MAX(part_count, UINT64_C(1))) {
        return sl_fail(why, SL_ERR_INVALID,
                       "regions[%" PRIu64 "].part: %" PRIu64 " of pool %" PRIu64 " with %" PRIu64,
                       number, region->part, region->pool, part_count);
    }
    if (region->block_stride_bytes < region->piece_bytes ||
        region->block_stride_bytes > (uint64_t)INT64_MAX) {
        return refuse(why, number,
                      "block_stride_bytes: less than piece_bytes, or beyond any memory");
    }
    if (span_bytes == 0 || span_bytes > region->block_stride_bytes ||
        (region->fragment_bytes == 0 && region->fragment_stride_bytes != 0)) {
        return refuse(why, number,
                      "fragment_bytes: does not divide piece_bytes, or runs overlap by "
                      "fragment_stride_bytes or exceed the block's stride");
    }
    if (region->block_count == 0 ||
        __builtin_mul_overflow(region->block_count - 1, region->block_stride_bytes, &reach_bytes) ||
        __builtin_add_overflow(reach_bytes, span_bytes, &reach_bytes) ||
        reach_bytes > region->length_bytes) {
        return refuse(why, number, "length_bytes: less than (block_count - 1) * stride + piece");
    }
    if (__builtin_add_overflow(region->offset_bytes, region->length_bytes, &end_bytes) ||
        end_bytes > (uint64_t)INT64_MAX) {
        return refuse(why, number, "offset_bytes: plus length_bytes is beyond any memory");
    }
    return SL_OK;
}

static uint64_t order_of(const struct sl_item_region *region, uint64_t number)
{
    return region->rank << 44 | region->pool << 36 | region->part << 28 | region->layer << 16 |
           number;
}

static int order_compare(const void *left, const void *right)
{
    uint64_t a = ((const struct sl_layout_layer *)left)->order;
    uint64_t b = ((const struct sl_layout_layer *)right)->order;
    return a < b ? -1 : a > b ? 1 : 0;
}

/* The i-th layer continues the row of the one before it, or starts the next. */
static sl_err layer_place(const struct sl_body_engine_get_reply *body, struct sl_layout *layout,
                          uint32_t i, struct sl_error *why)
{
    struct sl_layout_layer *layer = &layout->layers[i];
    const struct sl_item_region *region = &body->regions.at[layer->region];
    if (i == 0 || layer->order >> 28 != layer[-1].order >> 28) {
        layout->rows[layout->row_count++] = (struct sl_layout_row){.rank = (uint32_t)region->rank,
                                                                   .pool = (uint32_t)region->pool,
                                                                   .part = (uint32_t)region->part,
                                                                   .first_layer = i,
                                                                   .block_count = UINT64_MAX};
    }
    struct sl_layout_row *row = &layout->rows[layout->row_count - 1];
    if (region->layer < row->layer_count) {
        return refuse(why, layer->region, "layer: twice for this rank, pool and part");
    }
    if (region->layer > row->layer_count) {
        return sl_fail(why, SL_ERR_INVALID, "regions: rank %u, pool %u, part %u lacks layer %u",
                       row->rank, row->pool, row->part, row->layer_count);
    }
    layer->part_offset_bytes = row->length_bytes;
    row->layer_count++;
    row->length_bytes += region->piece_bytes;
    row->block_count = SL_MIN(row->block_count, region->block_count);
    return row->length_bytes <= SL_VALUE_BYTES_MAX
               ? SL_OK
               : refuse(why, layer->region, "piece_bytes: a part of this rank exceeds 1 GiB");
}

sl_err sl_layout_make(const struct sl_body_engine_get_reply *body, uint64_t ranks,
                      struct sl_layout *out, struct sl_error *why)
{
    uint64_t count = body->regions.count;
    struct sl_layout layout = {.layers = calloc(count + 1, sizeof(*layout.layers)),
                               .rows = calloc(count + 1, sizeof(*layout.rows))};
    sl_err err = SL_OK;
    if (layout.layers == NULL || layout.rows == NULL || count > UINT16_MAX + 1) {
        sl_layout_fini(&layout);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " regions", count);
    }
    for (uint64_t i = 0; err == SL_OK && i < count; i++) {
        const struct sl_item_region *region = &body->regions.at[i];
        if (region->rank >= body->world || (ranks >> region->rank & 1) != 0) {
            err = region_check(body, i, why);
            layout.layers[layout.layer_count++] =
                (struct sl_layout_layer){.order = order_of(region, i), .region = (uint32_t)i};
        }
    }
    if (err == SL_OK) {
        qsort(layout.layers, layout.layer_count, sizeof(*layout.layers), order_compare);
    }
    for (uint32_t i = 0; err == SL_OK && i < layout.layer_count; i++) {
        err = layer_place(body, &layout, i, why);
    }
    if (err != SL_OK) {
        sl_layout_fini(&layout);
        return err;
    }
    *out = layout;
    return SL_OK;
}

void sl_layout_fini(struct sl_layout *layout)
{
    free(layout->layers);
    free(layout->rows);
    *layout = (struct sl_layout){0};
}
