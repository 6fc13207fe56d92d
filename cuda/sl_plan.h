/* cuda/sl_plan.h - plans how a job is moved: pure functions over a layer table, for all back
 * ends. */
#ifndef SL_PLAN_H
#define SL_PLAN_H

#include "cuda/sl_device.h"
#include "cuda/sl_kernel_body.h"

#define SL_PLAN_LAYERS_MAX 4096u
enum sl_plan_path {
    SL_PLAN_RUNS,   /* a block is one run on the device: plain copies, adjacent blocks merged */
    SL_PLAN_PIECES, /* one copy per piece */
    SL_PLAN_STAGED, /* gather or scatter through staging */
};

struct sl_layer_table {
    struct sl_swap_layer *layers; /* owned */
    uint32_t layer_count;
    uint64_t block_count; /* the least of all layers */
    uint64_t value_bytes;
    uint64_t value_tiles;
    uint64_t piece_tiles; /* of every layer, 0 if they differ */
    enum sl_plan_path path;
    bool fragmented; /* a layer's piece has several runs */
    uint32_t remote; /* of the mapping; 0: mapped here */
};

/* Gives *out. Pieces below piece_copy_bytes_min go through staging and a kernel; larger ones are
 * worth a copy each. The back end knows the limit. Pieces of several runs are no reason to stage.
 * Errors: SL_ERR_INVALID (no layer, a piece of 0 or over its stride, runs that overlap or pass the
 * stride, an address or size that overflows), SL_ERR_NO_MEMORY. */
sl_err sl_layer_table_init(struct sl_layer_table *out, const struct sl_layer *layers,
                           uint32_t layer_count, uint64_t piece_copy_bytes_min,
                           struct sl_error *why);
void sl_layer_table_fini(struct sl_layer_table *table);

/* The range of a value that a move covers. */
struct sl_plan_range {
    uint32_t first_layer, layer_end;
    uint64_t offset_bytes, length_bytes; /* in the value */
};
/* Errors: SL_ERR_INVALID (the table has no such layers). */
sl_err sl_plan_range_of(const struct sl_layer_table *table, const struct sl_move *move,
                        struct sl_plan_range *out, struct sl_error *why);
/* Number of runs on the device in the range's layers, for one block. */
uint64_t sl_plan_fragments(const struct sl_layer_table *table, const struct sl_plan_range *range);
/* Number of moves from moves[0] on with the same layers of the same table: 1..count. */
uint32_t sl_plan_same(const struct sl_move *moves, uint32_t count);

/* Number of moves of whole values from moves[0] on that are contiguous both on the device and on
 * the host, so that one copy suffices: 1..count. Only for SL_PLAN_RUNS. */
uint32_t sl_plan_run(const struct sl_layer_table *table, const struct sl_move *moves,
                     uint32_t count);

/* Number of runs that the ranges, of length_bytes each, form on the host: adjacent ranges form one
 * if staging keeps them adjacent (it aligns each to a word). 1..count. */
uint32_t sl_plan_host_runs(const struct sl_move *moves, uint32_t count, uint64_t length_bytes);

/* Number of layers of [first_layer, layer_end) whose pieces fit into room_bytes together: at least
 * 1, even if that one is larger. */
uint32_t sl_plan_slice(const struct sl_layer_table *table, uint32_t first_layer, uint32_t layer_end,
                       uint64_t room_bytes);
/* The kernel's view of layers [first, +count) for these blocks; values have only these layers. */
struct sl_swap sl_plan_swap(const struct sl_layer_table *table, uint32_t first_layer,
                            uint32_t layer_count, const uint64_t *block_ids, uint64_t block_count,
                            unsigned char *values);

/* Offset of a byte of a piece within its block, and how many bytes of its run follow. */
struct sl_swap_cursor {
    uint64_t offset_bytes, left_bytes;
};
static inline struct sl_swap_cursor sl_swap_cursor_of(const struct sl_swap_layer *layer,
                                                      uint64_t at_bytes)
{
    if (layer->fragment_bytes == 0) {
        return (struct sl_swap_cursor){.offset_bytes = at_bytes,
                                       .left_bytes = layer->piece_bytes - at_bytes};
    }
    uint64_t run = at_bytes / layer->fragment_bytes, in_run = at_bytes % layer->fragment_bytes;
    return (struct sl_swap_cursor){.offset_bytes = run * layer->fragment_stride_bytes + in_run,
                                   .left_bytes = layer->fragment_bytes - in_run};
}
/* Moves forward by bytes of the run: at its end, to the next run. */
static inline void sl_swap_cursor_next(const struct sl_swap_layer *layer, struct sl_swap_cursor *at,
                                       uint64_t bytes)
{
    at->offset_bytes += bytes;
    at->left_bytes -= bytes;
    if (at->left_bytes == 0 && layer->fragment_bytes != 0) {
        at->offset_bytes += layer->fragment_stride_bytes - layer->fragment_bytes;
        at->left_bytes = layer->fragment_bytes;
    }
}

#endif
