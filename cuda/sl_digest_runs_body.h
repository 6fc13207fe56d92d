/* cuda/sl_digest_runs_body.h - the body of the kernel that digests device blocks of any layout:
 * chunks may cross layers, and pieces may be runs of any size. Four workers share a chunk, as in
 * sl_digest_body.h, and the hashes equal those of a contiguous value. Only the hashes leave the
 * device. */
#ifndef SL_DIGEST_RUNS_BODY_H
#define SL_DIGEST_RUNS_BODY_H

#include "cuda/sl_digest_body.h"

/* Prevents unrolling of a loop that is inlined often. */
#ifdef __CUDACC__
#define SL_KEEP_LOOP _Pragma("unroll 1")
#else
#define SL_KEEP_LOOP
#endif

/* A worker's loads in flight. More would not fit the registers. */
#define SL_HASH_RUNS_LOADS 8u

/* A worker's position in the value of one block. */
struct sl_hash_runs {
    const struct sl_swap *swap;
    uint64_t device_block;
    const unsigned char *at;
    uint32_t layer;
    uint32_t run_bytes, piece_bytes; /* from `at` to the end of its run, and of its piece */
};

/* Moves to byte at_bytes of a layer's piece. */
SL_HD void sl_hash_runs_enter(struct sl_hash_runs *runs, uint32_t index, uint32_t at_bytes)
{
    const struct sl_swap_layer *layer = &runs->swap->layers[index];
    const unsigned char *block = layer->base + runs->device_block * layer->stride_bytes;
    uint32_t fragment_bytes = (uint32_t)layer->fragment_bytes;
    runs->layer = index;
    runs->piece_bytes = (uint32_t)layer->piece_bytes - at_bytes; /* pieces have at most 1 GiB */
    if (fragment_bytes == 0) {
        runs->run_bytes = runs->piece_bytes;
        runs->at = block + at_bytes;
    } else {
        uint32_t run = at_bytes / fragment_bytes, in_run = at_bytes - run * fragment_bytes;
        runs->run_bytes = fragment_bytes - in_run;
        runs->at = block + run * layer->fragment_stride_bytes + in_run;
    }
}

/* Moves to byte at_bytes of the value. */
SL_HD void sl_hash_runs_seek(struct sl_hash_runs *runs, uint64_t at_bytes)
{
    const struct sl_swap_layer *layers = runs->swap->layers;
    uint32_t low = 0, high = (uint32_t)runs->swap->layer_count;
    uint64_t base = layers[0].value_offset_bytes;
    SL_KEEP_LOOP
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (layers[middle].value_offset_bytes - base <= at_bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    sl_hash_runs_enter(runs, low, (uint32_t)(at_bytes - (layers[low].value_offset_bytes - base)));
}

/* Moves forward by bytes, across the ends of runs and pieces, up to the end of the value. */
SL_HD void sl_hash_runs_step(struct sl_hash_runs *runs, uint32_t bytes)
{
    SL_KEEP_LOOP
    while (bytes >= runs->run_bytes) {
        const struct sl_swap_layer *layer = &runs->swap->layers[runs->layer];
        bytes -= runs->run_bytes;
        runs->piece_bytes -= runs->run_bytes;
        if (runs->piece_bytes != 0) {
            runs->at += runs->run_bytes + (layer->fragment_stride_bytes - layer->fragment_bytes);
            runs->run_bytes = (uint32_t)layer->fragment_bytes;
        } else if (runs->layer + 1 < runs->swap->layer_count) {
            sl_hash_runs_enter(runs, runs->layer + 1, 0);
        } else {
            runs->run_bytes = UINT32_MAX; /* nothing is read after this */
            return;
        }
    }
    runs->at += bytes;
    runs->run_bytes -= bytes;
    runs->piece_bytes -= bytes;
}

/* Loads the worker's 16 bytes, and moves to those of the next stripe. words: words are aligned and
 * do not cross runs. */
SL_HD struct sl_hash_lanes sl_hash_runs_load(struct sl_hash_runs *runs, bool words)
{
    struct sl_hash_lanes data;
    if (words) {
        struct sl_word word = sl_word_load(runs->at);
        data.first = word.low;
        data.second = word.high;
        sl_hash_runs_step(runs, SL_HASH_STRIPE);
        return data;
    }
    data.first = data.second = 0;
    SL_KEEP_LOOP
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t byte = *runs->at;
        data.first |= i < 8 ? byte << (8u * i) : 0;
        data.second |= i < 8 ? 0 : byte << (8u * (i - 8));
        sl_hash_runs_step(runs, 1);
    }
    sl_hash_runs_step(runs, SL_HASH_STRIPE - 16);
    return data;
}

/* Adds stripes from number `first` of 16 on, as far as `left` of them exist. */
SL_HD void sl_hash_runs_stripes(struct sl_hash_runs *runs, struct sl_hash_lanes *sums,
                                const uint64_t *keys, uint32_t first, uint32_t left)
{
    struct sl_hash_lanes data[SL_HASH_RUNS_LOADS];
    SL_UNROLL
    for (uint32_t i = 0; i < SL_HASH_RUNS_LOADS; i++) {
        if (first + i < left) {
            data[i] = sl_hash_runs_load(runs, true);
        }
    }
    SL_UNROLL
    for (uint32_t i = 0; i < SL_HASH_RUNS_LOADS; i++) {
        if (first + i < left) {
            sl_hash_add(sums, data[i], keys[first + i], keys[first + i + 1]);
        }
    }
}

/* Adds all whole stripes except the last 64 bytes of a chunk. */
SL_HD void sl_hash_runs_words_term(struct sl_hash_runs *runs, struct sl_hash_lanes *sums,
                                   uint32_t stripes, uint32_t term)
{
    uint64_t keys[SL_HASH_STRIPES + 1]; /* lane pairs start two words apart, stripes one */
    for (uint32_t i = 0; i <= SL_HASH_STRIPES; i++) {
        keys[i] = sl_hash_secret((i + 2 * term) * 8);
    }
    for (uint32_t done = 0; done < stripes; done += SL_HASH_STRIPES) {
        SL_UNROLL
        for (uint32_t first = 0; first < SL_HASH_STRIPES; first += SL_HASH_RUNS_LOADS) {
            sl_hash_runs_stripes(runs, sums, keys, first, stripes - done);
        }
        if (stripes - done >= SL_HASH_STRIPES) {
            sums->first = sl_hash_scramble(sums->first, sl_hash_secret(128 + 16 * term));
            sums->second = sl_hash_scramble(sums->second, sl_hash_secret(136 + 16 * term));
        }
    }
}

/* The same byte by byte, for unaligned runs: rare and slow. */
SL_HD void sl_hash_runs_bytes_term(struct sl_hash_runs *runs, struct sl_hash_lanes *sums,
                                   uint32_t stripes, uint32_t term)
{
    SL_KEEP_LOOP
    for (uint32_t i = 0; i < stripes; i++) {
        uint32_t key_at = (i % SL_HASH_STRIPES + 2 * term) * 8;
        sl_hash_add(sums, sl_hash_runs_load(runs, false), sl_hash_secret(key_at),
                    sl_hash_secret(key_at + 8));
        if (i % SL_HASH_STRIPES == SL_HASH_STRIPES - 1) {
            sums->first = sl_hash_scramble(sums->first, sl_hash_secret(128 + 16 * term));
            sums->second = sl_hash_scramble(sums->second, sl_hash_secret(136 + 16 * term));
        }
    }
}

/* Term `term` (0..3) of the hash of `length` (241 or more) bytes of the value: sl_hash_term for
 * bytes in runs. */
SL_HD uint64_t sl_hash_runs_term(struct sl_hash_runs *runs, uint64_t at_bytes, uint32_t length,
                                 uint32_t term, bool words)
{
    struct sl_hash_lanes sums = sl_hash_start(term);
    uint32_t stripes = (length - 1) / SL_HASH_STRIPE;
    sl_hash_runs_seek(runs, at_bytes + term * 16);
    if (words) {
        sl_hash_runs_words_term(runs, &sums, stripes, term);
    } else {
        sl_hash_runs_bytes_term(runs, &sums, stripes, term);
    }
    /* The last stripe overlaps the previous one. */
    sl_hash_runs_seek(runs, at_bytes + length - SL_HASH_STRIPE + term * 16);
    sl_hash_add(&sums,
                words && length % SL_WORD_BYTES == 0 ? sl_hash_runs_load(runs, true)
                                                     : sl_hash_runs_load(runs, false),
                sl_hash_secret(121 + 16 * term), sl_hash_secret(129 + 16 * term));
    return sl_hash_fold(sums.first ^ sl_hash_secret(11 + 16 * term),
                        sums.second ^ sl_hash_secret(19 + 16 * term));
}

/* Assembles a chunk of up to 240 bytes in `held`, then hashes it. A local array would not do: for
 * it a driver allocates device memory for all threads that a GPU can run, and an engine may have
 * left none. */
SL_HD uint64_t sl_hash_runs_short(struct sl_hash_runs *runs, uint64_t at_bytes, uint32_t length,
                                  unsigned char *held)
{
    sl_hash_runs_seek(runs, at_bytes);
    SL_KEEP_LOOP
    for (uint32_t i = 0; i < length; i++) {
        held[i] = *runs->at;
        sl_hash_runs_step(runs, 1);
    }
    return sl_hash_short(held, length);
}

/* Whether the words of all layers are aligned and do not cross runs, see sl_hash_runs_load. For a
 * table on the host. */
static inline bool sl_hash_runs_words(const struct sl_swap_layer *layers, uint64_t layer_count)
{
    uint64_t all = 0;
    for (uint64_t i = 0; i < layer_count; i++) {
        all |= (uintptr_t)layers[i].base | layers[i].stride_bytes | layers[i].piece_bytes |
               layers[i].fragment_bytes | layers[i].fragment_stride_bytes;
    }
    return all % SL_WORD_BYTES == 0;
}

/* One term of chunk i of a job without `values`; for a short chunk the first worker returns the
 * whole hash and the others 0. sl_hash_chunk_finish ends it. */
SL_HD uint64_t sl_hash_runs_chunk(const struct sl_hash_job *job, uint64_t i, uint32_t term,
                                  uint32_t *length_bytes)
{
    struct sl_hash_runs runs = {&job->swap, job->swap.block_ids[i / job->value_chunks], 0, 0, 0, 0};
    uint64_t at_bytes = (job->first_chunk + i % job->value_chunks) * SL_HASH_CHUNK_BYTES;
    uint64_t left_bytes = job->swap.value_bytes - at_bytes;
    uint32_t length = left_bytes < SL_HASH_CHUNK_BYTES ? (uint32_t)left_bytes : SL_HASH_CHUNK_BYTES;
    *length_bytes = length;
    if (length < SL_HASH_LONG) {
        unsigned char *held = job->tails + i / job->value_chunks * SL_HASH_TAIL_BYTES;
        return term == 0 ? sl_hash_runs_short(&runs, at_bytes, length, held) : 0;
    }
    return sl_hash_runs_term(&runs, at_bytes, length, term, job->words != 0);
}

#endif
