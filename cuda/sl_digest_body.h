/* cuda/sl_digest_body.h - the body of the digest kernel: XXH3-64 (seed 0, the standard secret) of
 * the 16 KiB chunks of values in device memory, as inline code that nvcc and the C compiler share.
 * A CPU test compares it with libxxhash; sl_digest_of_chunks makes digests of its results.
 *
 * XXH3 of long input keeps eight 64-bit lanes that interact only in pairs, so four workers share a
 * chunk: each reads 16 of every 64 bytes and computes one of the four terms of the hash. Four
 * neighbouring GPU threads thus read 64 neighbouring bytes, in one 16-byte access each. */
#ifndef SL_DIGEST_BODY_H
#define SL_DIGEST_BODY_H

#include "cuda/sl_kernel_body.h"

#define SL_HASH_CHUNK_BYTES 16384u /* SL_DIGEST_CHUNK_BYTES, which C++ cannot include */
#define SL_HASH_TERMS       4u
#define SL_HASH_STRIPE      64u
#define SL_HASH_STRIPES     16u  /* between two scrambles, with the standard secret */
#define SL_HASH_LONG        241u /* shortest long input */
#define SL_HASH_TAIL_BYTES  256u

#define SL_HASH_PRIME32_1 UINT64_C(0x9E3779B1)
#define SL_HASH_PRIME32_2 UINT64_C(0x85EBCA77)
#define SL_HASH_PRIME32_3 UINT64_C(0xC2B2AE3D)
#define SL_HASH_PRIME64_1 UINT64_C(0x9E3779B185EBCA87)
#define SL_HASH_PRIME64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define SL_HASH_PRIME64_3 UINT64_C(0x165667B19E3779F9)
#define SL_HASH_PRIME64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define SL_HASH_PRIME64_5 UINT64_C(0x27D4EB2F165667C5)

/* The standard secret. */
#define SL_HASH_WORDS                                                                             \
    {                                                                                             \
        UINT64_C(0xbe4ba423396cfeb8), UINT64_C(0x1cad21f72c81017c), UINT64_C(0xdb979083e96dd4de), \
            UINT64_C(0x1f67b3b7a4a44072), UINT64_C(0x78e5c0cc4ee679cb),                           \
            UINT64_C(0x2172ffcc7dd05a82), UINT64_C(0x8e2443f7744608b8),                           \
            UINT64_C(0x4c263a81e69035e0), UINT64_C(0xcb00c391bb52283c),                           \
            UINT64_C(0xa32e531b8b65d088), UINT64_C(0x4ef90da297486471),                           \
            UINT64_C(0xd8acdea946ef1938), UINT64_C(0x3f349ce33f76faa8),                           \
            UINT64_C(0x1d4f0bc7c7bbdcf9), UINT64_C(0x3159b4cd4be0518a),                           \
            UINT64_C(0x647378d9c97e9fc8), UINT64_C(0xc3ebd33483acc5ea),                           \
            UINT64_C(0xeb6313faffa081c5), UINT64_C(0x49daf0b751dd0d17),                           \
            UINT64_C(0x9e68d429265516d3), UINT64_C(0xfca1477d58be162b),                           \
            UINT64_C(0xce31d07ad1b8f88f), UINT64_C(0x280416958f3acb45),                           \
            UINT64_C(0x7e404bbbcafbd7af)                                                          \
    }
#ifdef __CUDACC__
static __constant__ uint64_t sl_hash_words_gpu[24] = SL_HASH_WORDS;
#endif
static const uint64_t sl_hash_words[24] = SL_HASH_WORDS;

/* Eight bytes of the secret, from any byte on. */
SL_HD uint64_t sl_hash_secret(uint32_t at)
{
#ifdef __CUDA_ARCH__
    const uint64_t *words = sl_hash_words_gpu;
#else
    const uint64_t *words = sl_hash_words;
#endif
    uint32_t shift = (at & 7u) * 8u;
    uint64_t word = words[at >> 3] >> shift;
    return shift == 0 ? word : word | words[(at >> 3) + 1] << (64u - shift);
}

SL_HD uint64_t sl_hash_fold(uint64_t a, uint64_t b)
{
#ifdef __CUDA_ARCH__
    return (a * b) ^ __umul64hi(a, b);
#else
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#endif
}

SL_HD uint64_t sl_hash_avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= UINT64_C(0x165667919E3779F9);
    return hash ^ hash >> 32;
}

/* Unaligned, little-endian. */
SL_HD uint64_t sl_hash_read(const unsigned char *at, uint32_t bytes)
{
    uint64_t word = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        word |= (uint64_t)at[i] << (8u * i);
    }
    return word;
}

SL_HD uint64_t sl_hash_rotate(uint64_t word, uint32_t by)
{
    return word << by | word >> (64u - by);
}

SL_HD uint64_t sl_hash_mix(const unsigned char *at, uint32_t secret_at)
{
    return sl_hash_fold(sl_hash_read(at, 8) ^ sl_hash_secret(secret_at),
                        sl_hash_read(at + 8, 8) ^ sl_hash_secret(secret_at + 8));
}

SL_HD uint64_t sl_hash_upto_16(const unsigned char *at, uint32_t length)
{
    uint64_t hash;
    if (length > 8) {
        uint64_t low = sl_hash_read(at, 8) ^ (sl_hash_secret(24) ^ sl_hash_secret(32));
        uint64_t high =
            sl_hash_read(at + length - 8, 8) ^ (sl_hash_secret(40) ^ sl_hash_secret(48));
        uint64_t swapped = 0;
        for (uint32_t i = 0; i < 8; i++) {
            swapped = swapped << 8 | (low >> (8u * i) & 0xff);
        }
        return sl_hash_avalanche(length + swapped + high + sl_hash_fold(low, high));
    }
    if (length >= 4) {
        hash = sl_hash_read(at + length - 4, 4) + (sl_hash_read(at, 4) << 32);
        hash ^= sl_hash_secret(8) ^ sl_hash_secret(16);
        hash ^= sl_hash_rotate(hash, 49) ^ sl_hash_rotate(hash, 24);
        hash *= UINT64_C(0x9FB21C651E98DF25);
        hash ^= (hash >> 35) + length;
        hash *= UINT64_C(0x9FB21C651E98DF25);
        return hash ^ hash >> 28;
    }
    hash = (uint64_t)at[0] << 16 | (uint64_t)at[length >> 1] << 24 | at[length - 1] |
           (uint64_t)length << 8;
    hash ^= (sl_hash_secret(0) ^ sl_hash_secret(4)) & UINT64_C(0xffffffff);
    hash = (hash ^ hash >> 33) * SL_HASH_PRIME64_2;
    hash = (hash ^ hash >> 29) * SL_HASH_PRIME64_3;
    return hash ^ hash >> 32;
}

/* Hash of 1..240 bytes. */
SL_HD uint64_t sl_hash_short(const unsigned char *at, uint32_t length)
{
    if (length <= 16) {
        return sl_hash_upto_16(at, length);
    }
    uint64_t sum = length * SL_HASH_PRIME64_1;
    if (length <= 128) {
        for (uint32_t pair = (length - 1) / 32 + 1; pair-- > 0;) {
            sum += sl_hash_mix(at + pair * 16, pair * 32);
            sum += sl_hash_mix(at + length - (pair + 1) * 16, pair * 32 + 16);
        }
        return sl_hash_avalanche(sum);
    }
    for (uint32_t i = 0; i < 8; i++) {
        sum += sl_hash_mix(at + i * 16, i * 16);
    }
    sum = sl_hash_avalanche(sum);
    for (uint32_t i = 8; i < length / 16; i++) {
        sum += sl_hash_mix(at + i * 16, (i - 8) * 16 + 3);
    }
    return sl_hash_avalanche(sum + sl_hash_mix(at + length - 16, 136 - 17));
}

/* A worker's 16 bytes of a stripe. */
struct sl_hash_lanes {
    uint64_t first, second;
};

SL_HD void sl_hash_add(struct sl_hash_lanes *sums, struct sl_hash_lanes data, uint64_t key_first,
                       uint64_t key_second)
{
    uint64_t first = data.first ^ key_first, second = data.second ^ key_second;
    sums->first += data.second + (first & UINT64_C(0xffffffff)) * (first >> 32);
    sums->second += data.first + (second & UINT64_C(0xffffffff)) * (second >> 32);
}

SL_HD uint64_t sl_hash_scramble(uint64_t sum, uint64_t key)
{
    return (sum ^ sum >> 47 ^ key) * SL_HASH_PRIME32_1;
}

SL_HD struct sl_hash_lanes sl_hash_load(const unsigned char *at, bool aligned)
{
    struct sl_hash_lanes data;
    if (aligned) {
        struct sl_word word = sl_word_load(at);
        data.first = word.low;
        data.second = word.high;
    } else {
        data.first = sl_hash_read(at, 8);
        data.second = sl_hash_read(at + 8, 8);
    }
    return data;
}

SL_HD struct sl_hash_lanes sl_hash_start(uint32_t term)
{
    struct sl_hash_lanes sums;
    sums.first = term == 0   ? SL_HASH_PRIME32_3
                 : term == 1 ? SL_HASH_PRIME64_2
                 : term == 2 ? SL_HASH_PRIME64_4
                             : SL_HASH_PRIME64_5;
    sums.second = term == 0   ? SL_HASH_PRIME64_1
                  : term == 1 ? SL_HASH_PRIME64_3
                  : term == 2 ? SL_HASH_PRIME32_2
                              : SL_HASH_PRIME32_1;
    return sums;
}

/* Term `term` (0..3) of the hash of at least 241 bytes. aligned: `at` is a multiple of 16. */
SL_HD uint64_t sl_hash_term(const unsigned char *at, uint32_t length, uint32_t term, bool aligned)
{
    struct sl_hash_lanes sums = sl_hash_start(term);
    const unsigned char *mine = at + term * 16;
    uint64_t keys[SL_HASH_STRIPES + 1]; /* lane pairs start two words apart, stripes one */
    for (uint32_t i = 0; i <= SL_HASH_STRIPES; i++) {
        keys[i] = sl_hash_secret((i + 2 * term) * 8);
    }
    uint64_t end_first = sl_hash_secret(128 + 16 * term),
             end_second = sl_hash_secret(136 + 16 * term);
    uint32_t stripes =
        (length - 1) / SL_HASH_STRIPE; /* all whole stripes except the last 64 bytes */
    for (; stripes >= SL_HASH_STRIPES; stripes -= SL_HASH_STRIPES) {
        struct sl_hash_lanes data[SL_HASH_STRIPES];
        SL_UNROLL
        for (uint32_t i = 0; i < SL_HASH_STRIPES; i++) {
            data[i] = sl_hash_load(mine + i * SL_HASH_STRIPE, aligned);
        }
        SL_UNROLL
        for (uint32_t i = 0; i < SL_HASH_STRIPES; i++) {
            sl_hash_add(&sums, data[i], keys[i], keys[i + 1]);
        }
        sums.first = sl_hash_scramble(sums.first, end_first);
        sums.second = sl_hash_scramble(sums.second, end_second);
        mine += SL_HASH_STRIPES * SL_HASH_STRIPE;
    }
    SL_UNROLL
    for (uint32_t i = 0; i < SL_HASH_STRIPES - 1; i++) {
        if (i < stripes) {
            sl_hash_add(&sums, sl_hash_load(mine + i * SL_HASH_STRIPE, aligned), keys[i],
                        keys[i + 1]);
        }
    }
    /* The last stripe overlaps the previous one, so it may be unaligned. */
    sl_hash_add(&sums,
                sl_hash_load(at + length - SL_HASH_STRIPE + term * 16,
                             aligned && length % SL_WORD_BYTES == 0),
                sl_hash_secret(121 + 16 * term), sl_hash_secret(129 + 16 * term));
    return sl_hash_fold(sums.first ^ sl_hash_secret(11 + 16 * term),
                        sums.second ^ sl_hash_secret(19 + 16 * term));
}

/* Finishes the hash from the sum of the four terms. */
SL_HD uint64_t sl_hash_of_terms(uint64_t sum, uint32_t length)
{
    return sl_hash_avalanche(length * SL_HASH_PRIME64_1 + sum);
}

/* ---- chunks of values ---- */

/* The input: whole values at `values` or, if values is NULL, the device blocks themselves. In
 * blocks no chunk may cross from one layer's piece to the next. */
struct sl_hash_job {
    struct sl_swap swap;
    uint64_t *hashes;      /* [block_count][value_chunks] */
    uint64_t value_chunks; /* number of hashed chunks of a value, from first_chunk on */
    uint64_t first_chunk;
    uint64_t words;       /* sl_hash_runs_words, for the kernel that reads runs */
    unsigned char *tails; /* for that kernel, SL_HASH_TAIL_BYTES per block: a short last chunk */
};

struct sl_hash_chunk {
    const unsigned char *at;
    uint32_t length_bytes; /* 1..SL_HASH_CHUNK_BYTES */
};

SL_HD struct sl_hash_chunk sl_hash_locate(const struct sl_hash_job *job, uint64_t i)
{
    const struct sl_swap *swap = &job->swap;
    uint64_t block = i / job->value_chunks;
    uint64_t at_bytes = (job->first_chunk + i % job->value_chunks) * SL_HASH_CHUNK_BYTES;
    uint64_t left_bytes = swap->value_bytes - at_bytes;
    struct sl_hash_chunk found;
    if (swap->values != NULL) {
        found.at = sl_swap_value(swap, block) + at_bytes;
    } else {
        uint64_t low = 0, high = swap->layer_count, base = swap->layers[0].value_offset_bytes;
        while (high - low > 1) {
            uint64_t middle = low + (high - low) / 2;
            if (swap->layers[middle].value_offset_bytes - base <= at_bytes) {
                low = middle;
            } else {
                high = middle;
            }
        }
        const struct sl_swap_layer *layer = &swap->layers[low];
        found.at = layer->base + swap->block_ids[block] * layer->stride_bytes +
                   (at_bytes - (layer->value_offset_bytes - base));
    }
    found.length_bytes =
        left_bytes < SL_HASH_CHUNK_BYTES ? (uint32_t)left_bytes : SL_HASH_CHUNK_BYTES;
    return found;
}

/* One term; for a short chunk the first worker returns the whole hash and the others 0. */
SL_HD uint64_t sl_hash_chunk_term(const struct sl_hash_chunk *chunk, uint32_t term)
{
    if (chunk->length_bytes < SL_HASH_LONG) {
        return term == 0 ? sl_hash_short(chunk->at, chunk->length_bytes) : 0;
    }
    return (uintptr_t)chunk->at % SL_WORD_BYTES == 0
               ? sl_hash_term(chunk->at, chunk->length_bytes, term, true)
               : sl_hash_term(chunk->at, chunk->length_bytes, term, false);
}

SL_HD uint64_t sl_hash_chunk_finish(uint32_t length_bytes, uint64_t sum)
{
    return length_bytes < SL_HASH_LONG ? sum : sl_hash_of_terms(sum, length_bytes);
}

#endif
