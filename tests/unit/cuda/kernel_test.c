/* tests/unit/cuda/kernel_test.c - the body of the digest kernel against libxxhash and sl_digest_of.
 */
#include "cuda/sl_digest_runs_body.h"
#include "cuda/sl_plan.h"
#include "runtime/base/sl_digest.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(SL_HASH_CHUNK_BYTES == SL_DIGEST_CHUNK_BYTES, "one size of chunk");

static void fill(unsigned char *at, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        at[i] = (unsigned char)(seed >> 56);
    }
}

/* Computes it as the four threads of a chunk do. */
static uint64_t chunk_hash(const unsigned char *at, uint32_t length)
{
    struct sl_hash_chunk chunk = {.at = at, .length_bytes = length};
    uint64_t sum = 0;
    for (uint32_t term = 0; term < SL_HASH_TERMS; term++) {
        sum += sl_hash_chunk_term(&chunk, term);
    }
    return sl_hash_chunk_finish(length, sum);
}

START_TEST(hash_of_every_length_is_that_of_the_library)
    {
        unsigned char *memory = aligned_alloc(64, SL_HASH_CHUNK_BYTES + 64);
        fill(memory, SL_HASH_CHUNK_BYTES + 64, 5);
        for (uint32_t length = 1; length <= SL_HASH_CHUNK_BYTES;) {
            uint32_t skew = length % 3 == 0 ? length % 16 : 0;
            const unsigned char *at = memory + skew;
            ck_assert_msg(chunk_hash(at, length) == XXH3_64bits(at, length), "%u bytes at +%u",
                          length, skew);
            /* All up to 1100, then those around stripes of 64 and blocks of 1024. */
            length += length < 1100 || (length + 2) % 64 < 4 ? 1 : 62 - length % 64;
        }
        free(memory);
    }
END_TEST

START_TEST(hash_does_not_depend_on_alignment)
    {
        static const uint32_t lengths[] = {3, 16, 100, 240, 241, 1024, 1025, 5000, 16384};
        unsigned char *memory = aligned_alloc(64, SL_HASH_CHUNK_BYTES + 64);
        uint32_t length = lengths[_i];
        for (uint32_t skew = 0; skew < 17; skew++) {
            fill(memory + skew, length, length);
            ck_assert_uint_eq(chunk_hash(memory + skew, length),
                              XXH3_64bits(memory + skew, length));
        }
        free(memory);
    }
END_TEST

#define LAYERS 3u
#define BLOCKS 5u

/* Digests by chunks, of values or of the blocks on the device. */
static void run_job(uint64_t piece_bytes, bool in_place)
{
    uint64_t stride_bytes = piece_bytes + (in_place ? 32 : 7);
    unsigned char *device = malloc(LAYERS * BLOCKS * stride_bytes);
    unsigned char *values = malloc(BLOCKS * LAYERS * piece_bytes);
    uint64_t ids[BLOCKS] = {4, 0, 2, 2, 1}, hashes[BLOCKS * 16];
    struct sl_layer layers[LAYERS];
    struct sl_layer_table table;
    fill(device, LAYERS * BLOCKS * stride_bytes, piece_bytes);
    for (uint32_t l = 0; l < LAYERS; l++) {
        layers[l] = (struct sl_layer){.base = device + l * BLOCKS * stride_bytes,
                                      .block_stride_bytes = stride_bytes,
                                      .piece_bytes = piece_bytes,
                                      .block_count = BLOCKS};
    }
    ck_assert_int_eq(sl_layer_table_init(&table, layers, LAYERS, 512, NULL), SL_OK);
    struct sl_hash_job job = {
        .swap = sl_plan_swap(&table, 0, LAYERS, ids, BLOCKS, values),
        .hashes = hashes,
        .value_chunks = (table.value_bytes + SL_HASH_CHUNK_BYTES - 1) / SL_HASH_CHUNK_BYTES,
    };
    ck_assert_uint_le(job.value_chunks, 16);
    sl_gather_body(&job.swap, 0, 1);
    job.swap.values = in_place ? NULL : values;

    for (uint64_t i = 0; i < BLOCKS * job.value_chunks; i++) {
        struct sl_hash_chunk chunk = sl_hash_locate(&job, i);
        hashes[i] = chunk_hash(chunk.at, chunk.length_bytes);
    }

    for (uint32_t b = 0; b < BLOCKS; b++) {
        struct sl_digest want = sl_digest_of(values + b * table.value_bytes, table.value_bytes);
        ck_assert(sl_digest_equal(
            want, sl_digest_of_chunks(hashes + b * job.value_chunks, job.value_chunks)));
    }
    sl_layer_table_fini(&table);
    free(device);
    free(values);
}

static const uint64_t pieces[] = {1, 80, 5461, 5462, 16384, 16385, 40000};

START_TEST(digests_of_values_follow_from_their_chunks)
    {
        run_job(pieces[_i], false);
    }
END_TEST

START_TEST(blocks_are_digested_where_they_lie)
    {
        run_job(SL_HASH_CHUNK_BYTES * (1 + (uint64_t)_i), true);
    }
END_TEST

static const struct {
    uint64_t piece_bytes[LAYERS]; /* layers need not be alike */
    uint64_t fragment_bytes, fragment_gap, skew;
} scattered[] = {
    {{1, 1, 1}, 0, 0, 0},
    {{80, 80, 80}, 0, 0, 0},
    {{5000, 5000, 5000}, 0, 0, 0},
    {{8192, 8192, 8192}, 0, 0, 0},
    {{16, 16384, 48}, 0, 0, 0},
    {{16384, 16384, 16384}, 256, 256, 0},
    {{40960, 512, 16384}, 256, 16, 0},
    {{1001, 1001, 2002}, 77, 3, 5},
    {{300, 7, 1}, 1, 2, 0},
    {{65536, 65536, 65536}, 4096, 4096, 16},
    {{1024, 1024, 1024}, 16, 16, 0},
    {{24000, 24000, 24}, 24, 8, 8},
    {{49152, 16, 16384}, 0, 0, 4},
    {{100000, 33333, 16387}, 0, 0, 1},
};

/* Chunks cross layers, pieces are runs; the digest is that of the contiguous value. */
START_TEST(blocks_are_digested_wherever_their_bytes_lie)
    {
        uint64_t run = scattered[_i].fragment_bytes, step = run + scattered[_i].fragment_gap;
        uint64_t at_bytes = scattered[_i].skew, pool_bytes = 1 << 21;
        unsigned char *pool = aligned_alloc(64, pool_bytes), *pool_copy = malloc(pool_bytes);
        unsigned char tails[BLOCKS * SL_HASH_TAIL_BYTES];
        uint64_t ids[BLOCKS] = {4, 0, 2, 2, 1};
        struct sl_layer layers[LAYERS];
        struct sl_layer_table table;
        fill(pool, pool_bytes, (uint64_t)_i);
        memcpy(pool_copy, pool, pool_bytes);
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint64_t piece = scattered[_i].piece_bytes[l];
            uint64_t span = run == 0 ? piece : piece / run * step;
            layers[l] = (struct sl_layer){.base = pool + at_bytes,
                                          .block_stride_bytes = span,
                                          .piece_bytes = piece,
                                          .block_count = BLOCKS,
                                          .fragment_bytes = run,
                                          .fragment_stride_bytes = run == 0 ? 0 : step};
            at_bytes += BLOCKS * span;
        }
        ck_assert_uint_le(at_bytes, pool_bytes);
        ck_assert_int_eq(sl_layer_table_init(&table, layers, LAYERS, 512, NULL), SL_OK);
        for (uint32_t first = 0; first < LAYERS; first++) { /* also of some of the layers */
            struct sl_swap swap = sl_plan_swap(&table, first, LAYERS - first, ids, BLOCKS, NULL);
            uint64_t chunks = sl_digest_chunks(swap.value_bytes);
            unsigned char *values = malloc(BLOCKS * swap.value_bytes);
            uint64_t *hashes = calloc(chunks, sizeof(*hashes));
            struct sl_hash_job job = {
                .swap = swap,
                .value_chunks = chunks,
                .words = sl_hash_runs_words(table.layers + first, LAYERS - first),
                .tails = tails,
            };
            swap.values = values;
            sl_gather_body(&swap, 0, 1);

            for (uint64_t i = 0; i < BLOCKS * chunks; i++) {
                uint32_t length = 0;
                uint64_t sum = 0;
                for (uint32_t term = 0; term < SL_HASH_TERMS; term++) {
                    sum += sl_hash_runs_chunk(&job, i, term, &length);
                }
                hashes[i % chunks] = sl_hash_chunk_finish(length, sum);
                if (i % chunks == chunks - 1) {
                    ck_assert(sl_digest_equal(
                        sl_digest_of_chunks(hashes, chunks),
                        sl_digest_of(values + i / chunks * swap.value_bytes, swap.value_bytes)));
                }
            }

            free(hashes);
            free(values);
        }
        ck_assert_int_eq(memcmp(pool, pool_copy, pool_bytes), 0);
        sl_layer_table_fini(&table);
        free(pool);
        free(pool_copy);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel");
    TCase *cases = tcase_create("digest");
    tcase_add_test(cases, hash_of_every_length_is_that_of_the_library);
    tcase_add_loop_test(cases, hash_does_not_depend_on_alignment, 0, 9);
    tcase_add_loop_test(cases, digests_of_values_follow_from_their_chunks, 0, SL_COUNT(pieces));
    tcase_add_loop_test(cases, blocks_are_digested_where_they_lie, 0, 3);
    tcase_add_loop_test(cases, blocks_are_digested_wherever_their_bytes_lie, 0,
                        SL_COUNT(scattered));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
