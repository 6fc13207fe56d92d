/* cuda/sl_kernel_body.h - the bodies of the gather and scatter kernels: index arithmetic that nvcc
 * and the C compiler share, so that a CPU test runs what a GPU runs.
 *
 * Device blocks lie layer by layer, [layer][block][piece]; values lie block by block,
 * [block][layer][piece]. The unit of work is a word of 16 bytes of a piece, counted from the start
 * of the piece; its last word may be shorter. Word i belongs to worker i mod workers, so
 * neighbouring GPU threads touch neighbouring addresses. Any stride, piece size and alignment
 * works: a word is moved in the widest accesses that both addresses allow. */
#ifndef SL_KERNEL_BODY_H
#define SL_KERNEL_BODY_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SL_HD static __host__ __device__ __forceinline__
#else
#define SL_HD static inline
#endif

#define SL_WORD_BYTES 16u

struct sl_swap_layer {
    unsigned char *base; /* device address of block 0 */
    uint64_t stride_bytes;
    uint64_t piece_bytes;        /* at least 1 */
    uint64_t value_offset_bytes; /* of the piece in the value */
    uint64_t first_word;         /* words of the layers before */
};

struct sl_swap {
    const struct sl_swap_layer *layers;
    const uint64_t *block_ids; /* device block of each value */
    unsigned char *values;     /* [block_count][value_bytes] */
    uint64_t layer_count;
    uint64_t block_count;
    uint64_t value_bytes; /* sum of the pieces of these layers */
    uint64_t value_words; /* sum of their words */
    uint64_t piece_words; /* when all layers have so many, else 0 */
};

struct sl_swap_word {
    unsigned char *device, *value;
    uint32_t length_bytes; /* 1..SL_WORD_BYTES */
};

/* The last layer whose first word is not after `word`. */
SL_HD uint64_t sl_swap_layer_of(const struct sl_swap *swap, uint64_t word)
{
    if (swap->piece_words != 0) {
        return word / swap->piece_words;
    }
    uint64_t low = 0, high = swap->layer_count, base = swap->layers[0].first_word;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (swap->layers[middle].first_word - base <= word) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

SL_HD struct sl_swap_word sl_swap_locate(const struct sl_swap *swap, uint64_t i)
{
    uint64_t block = i / swap->value_words, word = i % swap->value_words;
    const struct sl_swap_layer *layer = &swap->layers[sl_swap_layer_of(swap, word)];
    uint64_t at_bytes = (word - (layer->first_word - swap->layers[0].first_word)) * SL_WORD_BYTES;
    uint64_t left_bytes = layer->piece_bytes - at_bytes;
    struct sl_swap_word found;
    found.device = layer->base + swap->block_ids[block] * layer->stride_bytes + at_bytes;
    found.value = swap->values + block * swap->value_bytes +
                  (layer->value_offset_bytes - swap->layers[0].value_offset_bytes) + at_bytes;
    found.length_bytes = left_bytes < SL_WORD_BYTES ? (uint32_t)left_bytes : SL_WORD_BYTES;
    return found;
}

/* Copies accesses of `width` bytes while they fit; gives what is left. */
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
    /* Steps go from wide to narrow, so the alignment of both addresses holds for every later step.
     */
    uintptr_t aligned = (uintptr_t)to | (uintptr_t)from;
    SL_WORD_STEP(16u)
    SL_WORD_STEP(8u)
    SL_WORD_STEP(4u)
    SL_WORD_STEP(2u)
    SL_WORD_STEP(1u)
}

/* Device to values. */
SL_HD void sl_gather_body(const struct sl_swap *swap, uint64_t worker, uint64_t workers)
{
    uint64_t count = swap->block_count * swap->value_words;
    for (uint64_t i = worker; i < count; i += workers) {
        struct sl_swap_word word = sl_swap_locate(swap, i);
        sl_word_copy(word.value, word.device, word.length_bytes);
    }
}

/* Values to device. */
SL_HD void sl_scatter_body(const struct sl_swap *swap, uint64_t worker, uint64_t workers)
{
    uint64_t count = swap->block_count * swap->value_words;
    for (uint64_t i = worker; i < count; i += workers) {
        struct sl_swap_word word = sl_swap_locate(swap, i);
        sl_word_copy(word.device, word.value, word.length_bytes);
    }
}

#endif
