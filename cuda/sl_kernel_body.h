/* cuda/sl_kernel_body.h - the bodies of the gather and scatter kernels: index arithmetic that nvcc
 * and the C compiler share, so that a CPU test runs what a GPU runs.
 *
 * Device blocks are stored layer by layer, [layer][block][piece]; values block by block,
 * [block][layer][piece]. The unit of work is a tile: up to 2 KiB of one piece, counted from its
 * start. 32 neighbouring workers share a tile, so neighbouring GPU threads access neighbouring
 * addresses, and one lookup serves four accesses of each. Any stride, piece size and alignment
 * works: a word is moved in the widest accesses that both addresses allow. */
#ifndef SL_KERNEL_BODY_H
#define SL_KERNEL_BODY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SL_HD     static __host__ __device__ __forceinline__
#define SL_UNROLL _Pragma("unroll")
#else
#define SL_HD static inline
#define SL_UNROLL
#endif
#define SL_WORD_BYTES 16u
#define SL_TILE_WORDS 128u
#define SL_TILE_BYTES 2048u
#define SL_TILE_LANES 32u /* a warp */

/* One access of 16 bytes, of any type. */
#ifdef __CUDACC__
struct __align__(16) sl_word
{
    uint64_t low, high;
};
#else
struct sl_word {
    _Alignas(16) uint64_t low;
    uint64_t high;
} __attribute__((may_alias));
#endif

struct sl_swap_layer {
    unsigned char *base; /* device address of block 0 */
    uint64_t stride_bytes;
    uint64_t piece_bytes;        /* at least 1 */
    uint64_t value_offset_bytes; /* of the piece in the value */
    uint64_t first_tile;         /* number of tiles of the previous layers */
    /* The piece is runs of fragment_bytes, which divides it, one every fragment_stride_bytes. 0:
     * one run. */
    uint64_t fragment_bytes, fragment_stride_bytes;
};

struct sl_swap {
    const struct sl_swap_layer *layers;
    const uint64_t *block_ids;     /* device block of each value */
    unsigned char *values;         /* the first value, or the base of value_offsets */
    const uint64_t *value_offsets; /* of each value, in bytes; NULL: one every value_stride_bytes */
    uint64_t layer_count;
    uint64_t block_count;
    uint64_t value_stride_bytes;
    uint64_t value_bytes; /* sum of the pieces of these layers */
    uint64_t value_tiles; /* sum of their tiles */
    uint64_t piece_tiles; /* if all layers have this number, otherwise 0 */
};

struct sl_swap_tile {
    unsigned char *device; /* of the tile; of the block if the piece has several runs */
    unsigned char *value;
    uint32_t length_bytes;   /* 1..SL_TILE_BYTES */
    uint32_t fragment_bytes; /* 0: the piece is one run */
    uint32_t at_bytes;       /* of the tile in a piece of several runs; 32 bits suffice for 1 GiB */
    uint64_t fragment_stride_bytes;
};

/* The last layer whose first tile is not after `tile`. */
SL_HD uint64_t sl_swap_layer_of(const struct sl_swap *swap, uint64_t tile)
{
    if (swap->piece_tiles != 0) {
        return tile / swap->piece_tiles;
    }
    uint64_t low = 0, high = swap->layer_count, base = swap->layers[0].first_tile;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (swap->layers[middle].first_tile - base <= tile) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

SL_HD unsigned char *sl_swap_value(const struct sl_swap *swap, uint64_t block)
{
    /* As an integer: offsets may be addresses, relative to NULL. */
    return (unsigned char *)((uintptr_t)swap->values + (swap->value_offsets != NULL
                                                            ? swap->value_offsets[block]
                                                            : block * swap->value_stride_bytes));
}

SL_HD struct sl_swap_tile sl_swap_locate(const struct sl_swap *swap, uint64_t i)
{
    uint64_t block = i / swap->value_tiles, tile = i % swap->value_tiles;
    const struct sl_swap_layer *layer = &swap->layers[sl_swap_layer_of(swap, tile)];
    uint64_t at_bytes = (tile - (layer->first_tile - swap->layers[0].first_tile)) * SL_TILE_BYTES;
    uint64_t left_bytes = layer->piece_bytes - at_bytes;
    struct sl_swap_tile found;
    found.fragment_bytes = (uint32_t)layer->fragment_bytes;
    found.fragment_stride_bytes = layer->fragment_stride_bytes;
    found.at_bytes = (uint32_t)at_bytes;
    found.device = layer->base + swap->block_ids[block] * layer->stride_bytes +
                   (found.fragment_bytes == 0 ? at_bytes : 0);
    found.value = sl_swap_value(swap, block) +
                  (layer->value_offset_bytes - swap->layers[0].value_offset_bytes) + at_bytes;
    found.length_bytes = left_bytes < SL_TILE_BYTES ? (uint32_t)left_bytes : SL_TILE_BYTES;
    return found;
}

/* Copies accesses of `width` bytes while they fit, and leaves the rest. */
#define SL_WORD_STEP(width)                                                                    \
    while (aligned % (width) == 0 && length_bytes >= (width)) {                                \
        memcpy(__builtin_assume_aligned(to, (width)), __builtin_assume_aligned(from, (width)), \
               (width));                                                                       \
        to += (width);                                                                         \
        from += (width);                                                                       \
        length_bytes -= (width);                                                               \
    }

SL_HD void sl_word_copy(unsigned char *to, const unsigned char *from, uint32_t length_bytes)
{
    /* The widths decrease, so the alignment of both addresses holds for every later step. */
    uintptr_t aligned = (uintptr_t)to | (uintptr_t)from;
    SL_WORD_STEP(16u)
    SL_WORD_STEP(8u)
    SL_WORD_STEP(4u)
    SL_WORD_STEP(2u)
    SL_WORD_STEP(1u)
}

/* Kernels touch only global memory, including mapped host memory. The compiler cannot know that of
 * an address that was itself loaded, and would use the slower generic accesses. */
SL_HD struct sl_word sl_word_load(const void *at)
{
#ifdef __CUDA_ARCH__
    struct sl_word word;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(word.low), "=l"(word.high)
                 : "l"(__cvta_generic_to_global(at)));
    return word;
#else
    return *(const struct sl_word *)at;
#endif
}

SL_HD void sl_word_store(void *at, struct sl_word word)
{
#ifdef __CUDA_ARCH__
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(at)),
                 "l"(word.low), "l"(word.high)
                 : "memory");
#else
    *(struct sl_word *)at = word;
#endif
}

/* Copies the whole words of a tile, both addresses aligned: a worker's loads are issued
 * together. */
SL_HD void sl_words_copy(unsigned char *to, const unsigned char *from, uint32_t words,
                         uint32_t lane, uint32_t lanes)
{
    for (uint32_t word = lane; word < words; word += 4 * lanes) {
        struct sl_word held[4];
        SL_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            if (word + k * lanes < words) {
                held[k] = sl_word_load(from + (word + k * lanes) * SL_WORD_BYTES);
            }
        }
        SL_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            if (word + k * lanes < words) {
                sl_word_store(to + (word + k * lanes) * SL_WORD_BYTES, held[k]);
            }
        }
    }
}

SL_HD void sl_tile_copy(unsigned char *to, const unsigned char *from, uint32_t length_bytes,
                        uint32_t lane, uint32_t lanes)
{
    uint32_t words = (length_bytes + SL_WORD_BYTES - 1) / SL_WORD_BYTES, first = lane;
    if (((uintptr_t)to | (uintptr_t)from) % SL_WORD_BYTES == 0) {
        uint32_t whole = length_bytes / SL_WORD_BYTES;
        sl_words_copy(to, from, whole, lane, lanes);
        first += whole;
    }
    for (uint32_t word = first; word < words; word += lanes) {
        uint32_t at_bytes = word * SL_WORD_BYTES, left_bytes = length_bytes - at_bytes;
        sl_word_copy(to + at_bytes, from + at_bytes,
                     left_bytes < SL_WORD_BYTES ? left_bytes : SL_WORD_BYTES);
    }
}

/* ---- pieces of several runs ---- */

/* The device address of byte `at` of the tile, and how many bytes of its run follow. One 32-bit
 * division per word: the access costs more. */
SL_HD unsigned char *sl_run_at(const struct sl_swap_tile *tile, uint32_t at_bytes,
                               uint32_t *left_bytes)
{
    uint32_t in_piece = tile->at_bytes + at_bytes;
    uint32_t run = in_piece / tile->fragment_bytes;
    uint32_t in_run = in_piece - run * tile->fragment_bytes;
    *left_bytes = tile->fragment_bytes - in_run;
    return tile->device + run * tile->fragment_stride_bytes + in_run;
}

/* Copies the whole words, as sl_words_copy does, if runs are words and all addresses aligned. */
SL_HD void sl_run_words_copy(const struct sl_swap_tile *tile, uint32_t words, uint32_t lane,
                             uint32_t lanes, bool gather)
{
    uint32_t left_bytes;
    for (uint32_t word = lane; word < words; word += 4 * lanes) {
        struct sl_word held[4];
        SL_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t at_bytes = (word + k * lanes) * SL_WORD_BYTES;
            if (word + k * lanes < words) {
                held[k] = sl_word_load(gather ? sl_run_at(tile, at_bytes, &left_bytes)
                                              : tile->value + at_bytes);
            }
        }
        SL_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t at_bytes = (word + k * lanes) * SL_WORD_BYTES;
            if (word + k * lanes < words) {
                sl_word_store(gather ? tile->value + at_bytes
                                     : sl_run_at(tile, at_bytes, &left_bytes),
                              held[k]);
            }
        }
    }
}

SL_HD void sl_tile_runs_copy(const struct sl_swap_tile *tile, uint32_t lane, uint32_t lanes,
                             bool gather)
{
    uint32_t words = (tile->length_bytes + SL_WORD_BYTES - 1) / SL_WORD_BYTES, first = lane;
    uintptr_t aligned = (uintptr_t)tile->device | (uintptr_t)tile->value |
                        (uintptr_t)tile->fragment_bytes | (uintptr_t)tile->fragment_stride_bytes;
    if (aligned % SL_WORD_BYTES == 0) {
        uint32_t whole = tile->length_bytes / SL_WORD_BYTES;
        sl_run_words_copy(tile, whole, lane, lanes, gather);
        first += whole;
    }
    for (uint32_t word = first; word < words; word += lanes) {
        uint32_t at_bytes = word * SL_WORD_BYTES, end_bytes = at_bytes + SL_WORD_BYTES;
        end_bytes = end_bytes < tile->length_bytes ? end_bytes : tile->length_bytes;
        while (at_bytes < end_bytes) {
            uint32_t run_bytes;
            unsigned char *device = sl_run_at(tile, at_bytes, &run_bytes);
            run_bytes = run_bytes < end_bytes - at_bytes ? run_bytes : end_bytes - at_bytes;
            sl_word_copy(gather ? tile->value + at_bytes : device,
                         gather ? device : tile->value + at_bytes, run_bytes);
            at_bytes += run_bytes;
        }
    }
}

SL_HD void sl_swap_body(const struct sl_swap *swap, uint64_t worker, uint64_t workers, bool gather)
{
    uint64_t count = swap->block_count * swap->value_tiles;
    uint32_t lanes = workers % SL_TILE_LANES == 0 ? SL_TILE_LANES : 1;
    uint32_t lane = (uint32_t)(worker % lanes);
    for (uint64_t i = worker / lanes; i < count; i += workers / lanes) {
        struct sl_swap_tile tile = sl_swap_locate(swap, i);
        if (tile.fragment_bytes != 0) {
            sl_tile_runs_copy(&tile, lane, lanes, gather);
        } else if (gather) {
            sl_tile_copy(tile.value, tile.device, tile.length_bytes, lane, lanes);
        } else {
            sl_tile_copy(tile.device, tile.value, tile.length_bytes, lane, lanes);
        }
    }
}

/* ---- the bodies ---- */

/* Device to values. */
SL_HD void sl_gather_body(const struct sl_swap *swap, uint64_t worker, uint64_t workers)
{
    sl_swap_body(swap, worker, workers, true);
}

/* Values to device. */
SL_HD void sl_scatter_body(const struct sl_swap *swap, uint64_t worker, uint64_t workers)
{
    sl_swap_body(swap, worker, workers, false);
}

#endif
