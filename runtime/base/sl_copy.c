/* runtime/base/sl_copy.c - copies that bypass the caches, plain or with a digest chunk's hash. */
#include "runtime/base/sl_copy.h"

#include "runtime/base/sl_digest.h"

#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

/* Prefetch distance of the loads. Measured: 1 to 8 KiB are alike; no prefetch costs a tenth. A
 * prefetch past the end of the source does nothing. */
#define AHEAD_BYTES  4096u
#define LINE_BYTES   64u
#define UNROLL_BYTES 256u

/* ---- XXH3-64 of exactly 16,384 bytes, seed 0, from its specification, with the library's
 * constants ----
 *
 * The input is 16 blocks of 16 stripes of 64 bytes, each followed by a scramble. The very last
 * stripe is outside the 16th block; its key starts 7 bytes before the end of the secret. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#define HASH_BLOCKS       16u
#define HASH_STRIPES      16u
#define HASH_SCRAMBLE_KEY 128u
#define HASH_LAST_KEY     121u

_Static_assert(HASH_BLOCKS *HASH_STRIPES *LINE_BYTES == SL_DIGEST_CHUNK_BYTES,
               "a chunk of the digest");

_Alignas(64) static const uint64_t hash_start[8] = XXH3_INIT_ACC;

static uint64_t hash_merge(const uint64_t lanes[8])
{
    return XXH3_mergeAccs(lanes, XXH3_kSecret + XXH_SECRET_MERGEACCS_START,
                          SL_DIGEST_CHUNK_BYTES * XXH_PRIME64_1);
}

static void stream_finish(void)
{
    _mm_sfence();
}

/* ---- AVX-512: a stripe is a register ---- */

#define TARGET_512 __attribute__((target("avx512f")))

static bool usable_512(void)
{
    return __builtin_cpu_supports("avx512f") != 0;
}

TARGET_512 static void stream_512(unsigned char *to, const unsigned char *from,
                                  uint64_t length_bytes)
{
    uint64_t at = 0;
    for (; at + UNROLL_BYTES <= length_bytes; at += UNROLL_BYTES) {
        __m512i line[UNROLL_BYTES / LINE_BYTES];
        for (uint32_t i = 0; i < UNROLL_BYTES / LINE_BYTES; i++) {
            _mm_prefetch((const char *)from + at + i * LINE_BYTES + AHEAD_BYTES, _MM_HINT_T0);
            line[i] = _mm512_loadu_si512(from + at + i * LINE_BYTES);
        }
        for (uint32_t i = 0; i < UNROLL_BYTES / LINE_BYTES; i++) {
            _mm512_stream_si512((void *)(to + at + i * LINE_BYTES), line[i]);
        }
    }
    for (; at < length_bytes; at += LINE_BYTES) {
        _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
    }
}

TARGET_512 static inline __m512i hash_stripe_512(__m512i lanes, __m512i stripe, uint32_t key_at)
{
    __m512i keyed = _mm512_xor_si512(stripe, _mm512_loadu_si512(XXH3_kSecret + key_at));
    __m512i product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
    __m512i swapped = _mm512_shuffle_epi32(stripe, (_MM_PERM_ENUM)_MM_SHUFFLE(1, 0, 3, 2));
    return _mm512_add_epi64(_mm512_add_epi64(lanes, swapped), product);
}

TARGET_512 static inline __m512i hash_scramble_512(__m512i lanes)
{
    const __m512i prime = _mm512_set1_epi64((long long)XXH_PRIME32_1);
    __m512i mixed = _mm512_xor_si512(lanes, _mm512_srli_epi64(lanes, 47));
    mixed = _mm512_xor_si512(mixed, _mm512_loadu_si512(XXH3_kSecret + HASH_SCRAMBLE_KEY));
    __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(mixed, 32), prime);
    return _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64(high, 32));
}

TARGET_512 static uint64_t stream_hash_512(unsigned char *to, const unsigned char *from)
{
    _Alignas(64) uint64_t merged[8];
    __m512i lanes = _mm512_load_si512(hash_start);
    for (uint32_t block = 0; block < HASH_BLOCKS; block++) {
        bool last = block + 1 == HASH_BLOCKS;
        for (uint32_t i = 0; i < HASH_STRIPES; i++, from += LINE_BYTES, to += LINE_BYTES) {
            _mm_prefetch((const char *)from + AHEAD_BYTES, _MM_HINT_T0);
            __m512i stripe = _mm512_loadu_si512(from);
            _mm512_stream_si512((void *)to, stripe);
            uint32_t key_at = last && i + 1 == HASH_STRIPES ? HASH_LAST_KEY : 8 * i;
            lanes = hash_stripe_512(lanes, stripe, key_at);
        }
        lanes = last ? lanes : hash_scramble_512(lanes);
    }
    _mm512_store_si512(merged, lanes);
    return hash_merge(merged);
}

/* ---- AVX2: two registers a stripe ---- */

#define TARGET_256 __attribute__((target("avx2")))

static bool usable_256(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}

TARGET_256 static inline __m256i load_256(const unsigned char *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

TARGET_256 static inline void store_256(unsigned char *to, __m256i half)
{
    _mm256_stream_si256((__m256i *)(void *)to, half);
}

TARGET_256 static void stream_256(unsigned char *to, const unsigned char *from,
                                  uint64_t length_bytes)
{
    for (uint64_t at = 0; at < length_bytes; at += LINE_BYTES) {
        _mm_prefetch((const char *)from + at + AHEAD_BYTES, _MM_HINT_T0);
        __m256i low = load_256(from + at);
        __m256i high = load_256(from + at + 32);
        store_256(to + at, low);
        store_256(to + at + 32, high);
    }
}

TARGET_256 static inline __m256i hash_half_256(__m256i lanes, __m256i half, uint32_t key_at)
{
    __m256i keyed = _mm256_xor_si256(half, load_256(XXH3_kSecret + key_at));
    __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    __m256i swapped = _mm256_shuffle_epi32(half, _MM_SHUFFLE(1, 0, 3, 2));
    return _mm256_add_epi64(_mm256_add_epi64(lanes, swapped), product);
}

TARGET_256 static inline __m256i hash_scramble_256(__m256i lanes, uint32_t key_at)
{
    const __m256i prime = _mm256_set1_epi64x((long long)XXH_PRIME32_1);
    __m256i mixed = _mm256_xor_si256(lanes, _mm256_srli_epi64(lanes, 47));
    mixed = _mm256_xor_si256(mixed, load_256(XXH3_kSecret + key_at));
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

TARGET_256 static uint64_t stream_hash_256(unsigned char *to, const unsigned char *from)
{
    _Alignas(64) uint64_t merged[8];
    __m256i low = _mm256_load_si256((const __m256i *)(const void *)hash_start);
    __m256i high = _mm256_load_si256((const __m256i *)(const void *)(hash_start + 4));
    for (uint32_t block = 0; block < HASH_BLOCKS; block++) {
        bool last = block + 1 == HASH_BLOCKS;
        for (uint32_t i = 0; i < HASH_STRIPES; i++, from += LINE_BYTES, to += LINE_BYTES) {
            _mm_prefetch((const char *)from + AHEAD_BYTES, _MM_HINT_T0);
            __m256i first = load_256(from);
            __m256i second = load_256(from + 32);
            store_256(to, first);
            store_256(to + 32, second);
            uint32_t key_at = last && i + 1 == HASH_STRIPES ? HASH_LAST_KEY : 8 * i;
            low = hash_half_256(low, first, key_at);
            high = hash_half_256(high, second, key_at + 32);
        }
        low = last ? low : hash_scramble_256(low, HASH_SCRAMBLE_KEY);
        high = last ? high : hash_scramble_256(high, HASH_SCRAMBLE_KEY + 32);
    }
    _mm256_store_si256((__m256i *)(void *)merged, low);
    _mm256_store_si256((__m256i *)(void *)(merged + 4), high);
    return hash_merge(merged);
}

/* Fastest first. */
static const struct sl_copy_routine routines[] = {
    {"avx512 streaming", usable_512, stream_512, stream_hash_512, stream_finish},
    {"avx2 streaming", usable_256, stream_256, stream_hash_256, stream_finish},
};
#define ROUTINE_COUNT SL_COUNT(routines)

const struct sl_copy_routine *sl_copy_routine_at(uint32_t index)
{
    return index < ROUTINE_COUNT ? &routines[index] : NULL;
}

#else

const struct sl_copy_routine *sl_copy_routine_at(uint32_t index)
{
    (void)index;
    return NULL;
}

#endif

const struct sl_copy_routine *sl_copy_streaming(void)
{
    const struct sl_copy_routine *routine = NULL;
    for (uint32_t i = 0; (routine = sl_copy_routine_at(i)) != NULL && !routine->usable(); i++) {
    }
    return routine;
}

void sl_copy(void *to, const void *from, uint64_t length_bytes)
{
    if (length_bytes < SL_COPY_STREAM_BYTES) {
        memcpy(to, from, length_bytes);
    } else {
        sl_copy_uncached(to, from, length_bytes);
    }
}

void sl_copy_uncached(void *to, const void *from, uint64_t length_bytes)
{
    const struct sl_copy_routine *routine =
        length_bytes < 2 * SL_COPY_ALIGN_BYTES
            ? NULL
            : sl_copy_streaming(); /* a shorter one may have no whole line */
    if (routine == NULL) {
        memcpy(to, from, length_bytes);
        return;
    }
    unsigned char *out = to;
    const unsigned char *in = from;
    uint64_t head = (uint64_t)(-(uintptr_t)out & (SL_COPY_ALIGN_BYTES - 1));
    uint64_t middle = (length_bytes - head) & ~(uint64_t)(SL_COPY_ALIGN_BYTES - 1);
    memcpy(out, in, head);
    routine->stream(out + head, in + head, middle);
    memcpy(out + head + middle, in + head + middle, length_bytes - head - middle);
    routine->finish();
}
