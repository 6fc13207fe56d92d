/* tests/unit/kernel_test.c - the body of the digest kernel against libxxhash and sl_digest_of. */
#include "cuda/sl_digest_body.h"
#include "cuda/sl_plan.h"
#include "runtime/sl_digest.h"

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

/* As the four threads of a chunk do it. */
static uint64_t chunk_hash(const unsigned char *at, uint32_t length)
{
    struct sl_hash_chunk chunk = {.at = at, .length_bytes = length};
    uint64_t sum = 0;
    for (uint32_t term = 0; term < SL_HASH_TERMS; term++) {
        sum += sl_hash_chunk_term(&chunk, term);
    }
    return sl_hash_chunk_finish(&chunk, sum);
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

int main(void)
{
    Suite *suite = suite_create("kernel");
    TCase *cases = tcase_create("digest");
    tcase_add_test(cases, hash_of_every_length_is_that_of_the_library);
    tcase_add_loop_test(cases, hash_does_not_depend_on_alignment, 0, 9);
    tcase_add_loop_test(cases, digests_of_values_follow_from_their_chunks, 0, SL_COUNT(pieces));
    tcase_add_loop_test(cases, blocks_are_digested_where_they_lie, 0, 3);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
