/* cuda/sl_plan.c - tables of layers, and the choice of a path. */
#include "cuda/sl_plan.h"

#include <inttypes.h>
#include <stdlib.h>

/* Adjacent runs without gaps are one run. */
static bool layer_fragmented(const struct sl_layer *layer)
{
    return layer->fragment_bytes != 0 && layer->fragment_bytes != layer->piece_bytes &&
           layer->fragment_bytes != layer->fragment_stride_bytes;
}

static uint64_t layer_fragments(const struct sl_layer *layer)
{
    return layer_fragmented(layer) ? layer->piece_bytes / layer->fragment_bytes : 1;
}

/* Whether each layer's piece follows the previous one on the device, for every block. */
static bool layers_contiguous(const struct sl_layer *layers, uint32_t layer_count)
{
    for (uint32_t i = 0; i < layer_count; i++) {
        if (layer_fragmented(&layers[i])) {
            return false;
        }
    }
    for (uint32_t i = 1; i < layer_count; i++) {
        if (layers[i].base != layers[i - 1].base + layers[i - 1].piece_bytes ||
            layers[i].block_stride_bytes != layers[0].block_stride_bytes) {
            return false;
        }
    }
    return true;
}

/* Gives the bytes from the start of a block's first run to the end of its last. */
static sl_err fragments_check(const struct sl_layer *layer, uint32_t index, uint64_t *span_bytes,
                              struct sl_error *why)
{
    uint64_t run_bytes = layer->fragment_bytes, stride_bytes = layer->fragment_stride_bytes;
    uint64_t last_bytes = 0;
    *span_bytes = layer->piece_bytes;
    if (run_bytes == 0 && stride_bytes == 0) {
        return SL_OK;
    }
    if (run_bytes == 0 || layer->piece_bytes % run_bytes != 0) {
        return sl_fail(why, SL_ERR_INVALID,
                       "layer %u: runs of %" PRIu64 " bytes do not divide a piece of %" PRIu64,
                       index, run_bytes, layer->piece_bytes);
    }
    if (stride_bytes < run_bytes ||
        __builtin_mul_overflow(layer->piece_bytes / run_bytes - 1, stride_bytes, &last_bytes) ||
        __builtin_add_overflow(last_bytes, run_bytes, span_bytes) ||
        *span_bytes > layer->block_stride_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "layer %u: runs every %" PRIu64 " bytes overlap, or pass the block's stride",
                       index, stride_bytes);
    }
    return SL_OK;
}

static sl_err layer_check(const struct sl_layer *layer, uint32_t index, struct sl_error *why)
{
    if (layer->base == NULL || layer->piece_bytes == 0 || layer->piece_bytes > SL_VALUE_BYTES_MAX ||
        layer->block_count == 0) {
        return sl_fail(why, SL_ERR_INVALID,
                       "layer %u: base, piece or block count is 0, or the piece over 1 GiB", index);
    }
    uint64_t last_bytes = 0, span_bytes = 0, end = 0;
    sl_err err = fragments_check(layer, index, &span_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    if (span_bytes > layer->block_stride_bytes ||
        __builtin_mul_overflow(layer->block_count - 1, layer->block_stride_bytes, &last_bytes) ||
        __builtin_add_overflow(last_bytes, span_bytes, &end) ||
        __builtin_add_overflow(end, (uint64_t)(uintptr_t)layer->base, &end)) {
        return sl_fail(why, SL_ERR_INVALID, "layer %u: piece over stride, or size overflows",
                       index);
    }
    return SL_OK;
}

static uint64_t piece_tiles_of(uint64_t piece_bytes)
{
    return (piece_bytes + SL_TILE_BYTES - 1) / SL_TILE_BYTES;
}

static enum sl_plan_path path_of(const struct sl_layer *layers, uint32_t layer_count,
                                 uint64_t piece_copy_bytes_min)
{
    if (layers_contiguous(layers, layer_count)) {
        return SL_PLAN_RUNS;
    }
    for (uint32_t i = 0; i < layer_count; i++) {
        if (layers[i].piece_bytes < piece_copy_bytes_min && !layer_fragmented(&layers[i])) {
            return SL_PLAN_STAGED;
        }
    }
    return SL_PLAN_PIECES;
}

sl_err sl_layer_table_init(struct sl_layer_table *out, const struct sl_layer *layers,
                           uint32_t layer_count, uint64_t piece_copy_bytes_min,
                           struct sl_error *why)
{
    if (layer_count == 0 || layer_count > SL_PLAN_LAYERS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "%u layers: 1..%u are possible", layer_count,
                       SL_PLAN_LAYERS_MAX);
    }
    uint64_t fragments = 0;
    for (uint32_t i = 0; i < layer_count; i++) {
        sl_err err = layer_check(&layers[i], i, why);
        if (err != SL_OK) {
            return err;
        }
        if (layers[i].remote != layers[0].remote) {
            return sl_fail(why, SL_ERR_INVALID, "layer %u lies in another process than layer 0", i);
        }
        fragments += layer_fragmented(&layers[i]) ? layer_fragments(&layers[i]) : 0;
    }
    if (fragments > SL_DEVICE_BLOCK_RUNS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "a block has %" PRIu64 " runs: up to %u are possible",
                       fragments, SL_DEVICE_BLOCK_RUNS_MAX);
    }
    struct sl_layer_table table = {
        .layers = calloc(layer_count, sizeof(*table.layers)),
        .layer_count = layer_count,
        .block_count = UINT64_MAX,
        .piece_tiles = piece_tiles_of(layers[0].piece_bytes),
        .path = path_of(layers, layer_count, piece_copy_bytes_min),
        .remote = layers[0].remote,
    };
    if (table.layers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a table of %u layers", layer_count);
    }
    for (uint32_t i = 0; i < layer_count; i++) {
        uint64_t tiles = piece_tiles_of(layers[i].piece_bytes);
        table.layers[i] = (struct sl_swap_layer){.base = layers[i].base,
                                                 .stride_bytes = layers[i].block_stride_bytes,
                                                 .piece_bytes = layers[i].piece_bytes,
                                                 .value_offset_bytes = table.value_bytes,
                                                 .first_tile = table.value_tiles};
        if (layer_fragmented(&layers[i])) {
            table.layers[i].fragment_bytes = layers[i].fragment_bytes;
            table.layers[i].fragment_stride_bytes = layers[i].fragment_stride_bytes;
            table.fragmented = true;
        }
        table.value_bytes += layers[i].piece_bytes; /* at most 4096 x 1 GiB */
        table.value_tiles += tiles;
        table.block_count = SL_MIN(table.block_count, layers[i].block_count);
        if (tiles != table.piece_tiles) {
            table.piece_tiles = 0;
        }
    }
    *out = table;
    return SL_OK;
}

void sl_layer_table_fini(struct sl_layer_table *table)
{
    free(table->layers);
    *table = (struct sl_layer_table){0};
}

sl_err sl_plan_range_of(const struct sl_layer_table *table, const struct sl_move *move,
                        struct sl_plan_range *out, struct sl_error *why)
{
    bool all = move->first_layer == 0 && move->layer_end == 0;
    struct sl_plan_range range = {.first_layer = move->first_layer,
                                  .layer_end = all ? table->layer_count : move->layer_end};
    if (range.first_layer >= range.layer_end || range.layer_end > table->layer_count) {
        return sl_fail(why, SL_ERR_INVALID, "layers %u to %u of %u", range.first_layer,
                       range.layer_end, table->layer_count);
    }
    const struct sl_swap_layer *last = &table->layers[range.layer_end - 1];
    range.offset_bytes = table->layers[range.first_layer].value_offset_bytes;
    range.length_bytes = last->value_offset_bytes + last->piece_bytes - range.offset_bytes;
    *out = range;
    return SL_OK;
}

uint64_t sl_plan_fragments(const struct sl_layer_table *table, const struct sl_plan_range *range)
{
    uint64_t fragments = 0;
    for (uint32_t l = range->first_layer; l < range->layer_end; l++) {
        const struct sl_swap_layer *layer = &table->layers[l];
        fragments += layer->fragment_bytes == 0 ? 1 : layer->piece_bytes / layer->fragment_bytes;
    }
    return fragments;
}

uint32_t sl_plan_same(const struct sl_move *moves, uint32_t count)
{
    uint32_t same = 1;
    while (same < count && moves[same].layers_index == moves[0].layers_index &&
           moves[same].first_layer == moves[0].first_layer &&
           moves[same].layer_end == moves[0].layer_end) {
        same++;
    }
    return same;
}

uint32_t sl_plan_run(const struct sl_layer_table *table, const struct sl_move *moves,
                     uint32_t count)
{
    uint32_t length = 1;
    if (table->layers[0].stride_bytes != table->value_bytes) {
        return 1;
    }
    while (length < count && moves[length].layers_index == moves[0].layers_index &&
           moves[length].device_block == moves[0].device_block + length &&
           moves[length].host == moves[0].host + length * table->value_bytes) {
        length++;
    }
    return length;
}

uint32_t sl_plan_host_runs(const struct sl_move *moves, uint32_t count, uint64_t length_bytes)
{
    uint32_t runs = 1;
    for (uint32_t i = 1; i < count; i++) {
        bool adjacent = (uintptr_t)moves[i].host == (uintptr_t)moves[i - 1].host + length_bytes;
        runs += !adjacent || length_bytes % SL_WORD_BYTES != 0;
    }
    return runs;
}

uint32_t sl_plan_slice(const struct sl_layer_table *table, uint32_t first_layer, uint32_t layer_end,
                       uint64_t room_bytes)
{
    uint64_t used_bytes = 0;
    uint32_t i = first_layer;
    while (i < layer_end && used_bytes + table->layers[i].piece_bytes <= room_bytes) {
        used_bytes += table->layers[i++].piece_bytes;
    }
    return SL_MAX(i - first_layer, 1u);
}

struct sl_swap sl_plan_swap(const struct sl_layer_table *table, uint32_t first_layer,
                            uint32_t layer_count, const uint64_t *block_ids, uint64_t block_count,
                            unsigned char *values)
{
    const struct sl_swap_layer *first = &table->layers[first_layer];
    const struct sl_swap_layer *last = first + layer_count - 1;
    uint64_t last_tiles = piece_tiles_of(last->piece_bytes);
    uint64_t value_bytes = last->value_offset_bytes + last->piece_bytes - first->value_offset_bytes;
    return (struct sl_swap){
        .layers = first,
        .block_ids = block_ids,
        .values = values,
        .layer_count = layer_count,
        .block_count = block_count,
        .value_stride_bytes = value_bytes,
        .value_bytes = value_bytes,
        .value_tiles = last->first_tile + last_tiles - first->first_tile,
        .piece_tiles = table->piece_tiles,
    };
}
