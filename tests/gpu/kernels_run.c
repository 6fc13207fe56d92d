/* tests/gpu/kernels_run.c - the kernels' PTX, translated to C by ptx_to_c.py, compared with the
 * bodies that the C compiler made from the same sources: a driver gets code that computes what
 * the tests without a GPU have checked. One lane runs after the other; the four of a chunk are
 * threads, which exchange values. */
#include "cuda/sl_kernels.h"
#include "cuda/sl_plan.h"
#include "tests/gpu/ptx_lane.h"

#include <check.h>
#include <stdio.h>

#define LAYERS 3u
#define BLOCKS 6u
#define SLACK  64u

static const struct {
    uint64_t piece_bytes, gap_bytes, value_gap_bytes;
    uint64_t fragment_bytes, fragment_gap; /* 0: a piece is one run */
} shapes[] = {
    {16, 0, 0, 0, 0},
    {1, 0, 0, 0, 0},
    {7, 9, 3, 0, 0},
    {1000, 8, 0, 0, 0},
    {2048, 0, 0, 0, 0},
    {2049, 15, 15, 0, 0},
    {4096, 0, 0, 0, 0},
    {5000, 0, 8, 0, 0},
    {5462, 2, 6, 0, 0},
    {16384, 0, 0, 0, 0},
    {16384, 16, 0, 0, 0},
    {16387, 13, 11, 0, 0},
    {40000, 0, 16, 0, 0},
    {49152, 32, 0, 0, 0},
    {16384, 0, 0, 256, 256},
    {16384, 0, 0, 128, 16},
    {4096, 16, 16, 2048, 4096},
    {1001, 3, 5, 77, 1},
    {5000, 0, 8, 8, 8},
    {300, 0, 0, 1, 2},
    {6144, 8, 0, 24, 8},
};

struct bed {
    unsigned char *pool, *values, *pool_copy, *values_copy;
    uint64_t pool_bytes, values_bytes;
    uint64_t ids[BLOCKS], offsets[BLOCKS];
    struct sl_layer_table table;
    struct sl_swap swap;
};

static unsigned char noise(uint64_t at)
{
    at = (at + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char)(at >> 40 ^ at >> 13);
}

static void bed_open(struct bed *bed, size_t shape, bool by_offsets)
{
    uint64_t piece = shapes[shape].piece_bytes, run = shapes[shape].fragment_bytes;
    uint64_t gaps = run == 0 ? 0 : piece / run * shapes[shape].fragment_gap;
    uint64_t stride = piece + gaps + shapes[shape].gap_bytes;
    struct sl_layer layers[LAYERS];
    *bed = (struct bed){.pool_bytes = LAYERS * BLOCKS * stride + SLACK};
    uint64_t value_stride = LAYERS * piece + shapes[shape].value_gap_bytes;
    bed->values_bytes = BLOCKS * value_stride + SLACK;
    bed->pool = aligned_alloc(64, sl_align_up(bed->pool_bytes, 64));
    bed->pool_copy = malloc(bed->pool_bytes);
    bed->values = aligned_alloc(64, sl_align_up(bed->values_bytes, 64));
    bed->values_copy = malloc(bed->values_bytes);
    for (uint64_t i = 0; i < bed->pool_bytes; i++) {
        bed->pool[i] = bed->pool_copy[i] = noise(i);
    }
    for (uint64_t i = 0; i < bed->values_bytes; i++) {
        bed->values[i] = bed->values_copy[i] = noise(~i);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        layers[l] = (struct sl_layer){.base = bed->pool + l * BLOCKS * stride,
                                      .block_stride_bytes = stride,
                                      .piece_bytes = piece,
                                      .block_count = BLOCKS,
                                      .fragment_bytes = run,
                                      .fragment_stride_bytes =
                                          run == 0 ? 0 : run + shapes[shape].fragment_gap};
    }
    ck_assert_int_eq(sl_layer_table_init(&bed->table, layers, LAYERS, 1, NULL), SL_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        bed->ids[i] = (i * 5 + 1) % BLOCKS;
        bed->offsets[i] = (uintptr_t)bed->values + (BLOCKS - 1 - i) * value_stride;
    }
    bed->swap = sl_plan_swap(&bed->table, 0, LAYERS, bed->ids, BLOCKS, bed->values);
    bed->swap.value_stride_bytes = value_stride;
    if (by_offsets) {
        bed->swap.values = NULL;
        bed->swap.value_offsets = bed->offsets;
    }
}

static void bed_close(struct bed *bed)
{
    sl_layer_table_fini(&bed->table);
    free(bed->pool);
    free(bed->pool_copy);
    free(bed->values);
    free(bed->values_copy);
}

/* Runs a grid with this number of blocks, one lane after the other. */
static void run(ptx_kernel_fn kernel, const void *param, uint32_t blocks, uint32_t threads)
{
    struct lane lane = {.ntid = threads, .nctaid = blocks};
    for (lane.ctaid = 0; lane.ctaid < blocks; lane.ctaid++) {
        for (lane.tid = 0; lane.tid < threads; lane.tid++) {
            kernel(param, &lane);
        }
    }
}

struct mate {
    struct lane lane;
    ptx_kernel_fn kernel;
    const void *param;
};

static void *mate_run(void *context)
{
    struct mate *mate = context;
    mate->kernel(mate->param, &mate->lane);
    return NULL;
}

/* Runs four lanes at a time. */
static void run_mates(ptx_kernel_fn kernel, const void *param, uint32_t blocks, uint32_t threads)
{
    struct mates mates;
    ck_assert_int_eq(pthread_barrier_init(&mates.met, NULL, PTX_MATES), 0);
    for (uint32_t i = 0; i < blocks * threads; i += PTX_MATES) {
        pthread_t all[PTX_MATES];
        struct mate each[PTX_MATES];
        for (uint32_t k = 0; k < PTX_MATES; k++) {
            each[k] = (struct mate){.kernel = kernel, .param = param};
            each[k].lane = (struct lane){.tid = (i + k) % threads,
                                         .ntid = threads,
                                         .ctaid = i / threads,
                                         .nctaid = blocks,
                                         .mates = &mates};
            ck_assert_int_eq(pthread_create(&all[k], NULL, mate_run, &each[k]), 0);
        }
        for (uint32_t k = 0; k < PTX_MATES; k++) {
            ck_assert_int_eq(pthread_join(all[k], NULL), 0);
        }
    }
    (void)pthread_barrier_destroy(&mates.met);
}

static const struct {
    uint32_t blocks, threads; /* the last one: not whole warps, which the bodies allow */
} grids[] = {{1, SL_KERNEL_THREADS}, {3, SL_KERNEL_THREADS}, {1, 44}};

START_TEST(gather_and_scatter_move_what_the_bodies_move)
    {
        size_t shape = (size_t)_i % SL_COUNT(shapes), grid = (size_t)_i / SL_COUNT(shapes) % 3;
        bool by_offsets = (size_t)_i / SL_COUNT(shapes) / 3 != 0;
        for (unsigned k = 0; k < ptx_kernel_count; k++) {
            struct bed bed, want;
            bed_open(&bed, shape, by_offsets);
            bed_open(&want, shape, by_offsets);

            run(ptx_kernels[k].gather, &bed.swap, grids[grid].blocks, grids[grid].threads);
            sl_gather_body(&want.swap, 0, 1);
            ck_assert_msg(memcmp(bed.values, want.values, bed.values_bytes) == 0,
                          "%s: gather, shape %zu", ptx_kernels[k].name, shape);
            ck_assert_int_eq(memcmp(bed.pool, bed.pool_copy, bed.pool_bytes), 0);

            memcpy(bed.values, bed.values_copy, bed.values_bytes);
            memcpy(want.values, bed.values_copy, bed.values_bytes);
            run(ptx_kernels[k].scatter, &bed.swap, grids[grid].blocks, grids[grid].threads);
            sl_scatter_body(&want.swap, 0, 1);
            ck_assert_msg(memcmp(bed.pool, want.pool, bed.pool_bytes) == 0,
                          "%s: scatter, shape %zu", ptx_kernels[k].name, shape);
            ck_assert_int_eq(memcmp(bed.values, bed.values_copy, bed.values_bytes), 0);
            bed_close(&bed);
            bed_close(&want);
        }
    }
END_TEST

static uint64_t chunk_hash(const struct sl_hash_chunk *chunk)
{
    uint64_t sum = 0;
    for (uint32_t term = 0; term < SL_HASH_TERMS; term++) {
        sum += sl_hash_chunk_term(chunk, term);
    }
    return sl_hash_chunk_finish(chunk->length_bytes, sum);
}

/* Digests of blocks in place: the reference gathers and hashes the value as one run. */
static void runs_check(const struct ptx_kernels *kernels, struct bed *bed, size_t shape)
{
    uint64_t chunks = (bed->swap.value_bytes + SL_HASH_CHUNK_BYTES - 1) / SL_HASH_CHUNK_BYTES;
    struct sl_hash_job want = {.swap = bed->swap, .value_chunks = chunks};
    unsigned char tails[BLOCKS * SL_HASH_TAIL_BYTES];
    sl_gather_body(&bed->swap, 0, 1);
    memcpy(bed->values_copy, bed->values, bed->values_bytes);
    for (uint64_t first = 0; first < chunks; first++) { /* also from a later chunk on */
        struct sl_hash_job job = {.swap = bed->swap,
                                  .value_chunks = chunks - first,
                                  .first_chunk = first,
                                  .words = sl_hash_runs_words(bed->table.layers, LAYERS),
                                  .tails = tails};
        uint64_t count = BLOCKS * job.value_chunks, *got = calloc(count + 1, sizeof(*got));
        job.swap.values = NULL;
        job.hashes = got;
        got[count] = 77;
        run_mates(kernels->hash_runs, &job, 1, 32);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t whole = i / job.value_chunks * chunks + first + i % job.value_chunks;
            struct sl_hash_chunk chunk = sl_hash_locate(&want, whole);
            ck_assert_msg(got[i] == chunk_hash(&chunk), "%s: chunk %lu of %u bytes, shape %zu",
                          kernels->name, (unsigned long)whole, chunk.length_bytes, shape);
        }
        ck_assert_uint_eq(got[count], 77);
        ck_assert_int_eq(memcmp(bed->pool, bed->pool_copy, bed->pool_bytes), 0);
        free(got);
    }
}

static void hashes_check(const struct ptx_kernels *kernels, struct sl_hash_job *job, size_t shape)
{
    uint64_t count = job->swap.block_count * job->value_chunks;
    uint64_t *got = calloc(count + 1, sizeof(*got));
    job->hashes = got;
    got[count] = 77;
    run_mates(kernels->hash, job, 1, 32);
    for (uint64_t i = 0; i < count; i++) {
        struct sl_hash_chunk chunk = sl_hash_locate(job, i);
        ck_assert_msg(got[i] == chunk_hash(&chunk), "%s: chunk %lu of %u bytes, shape %zu",
                      kernels->name, (unsigned long)i, chunk.length_bytes, shape);
    }
    ck_assert_uint_eq(got[count], 77);
    free(got);
}

START_TEST(hashes_are_those_of_the_bodies)
    {
        size_t shape = (size_t)_i;
        for (unsigned k = 0; k < ptx_kernel_count; k++) {
            struct bed bed;
            bed_open(&bed, shape, false);
            struct sl_hash_job job = {.swap = bed.swap};
            job.value_chunks =
                (bed.swap.value_bytes + SL_HASH_CHUNK_BYTES - 1) / SL_HASH_CHUNK_BYTES;
            hashes_check(&ptx_kernels[k], &job, shape);
            if (shapes[shape].piece_bytes % SL_HASH_CHUNK_BYTES == 0 &&
                shapes[shape].fragment_bytes == 0) { /* in place */
                job.swap.values = NULL;
                hashes_check(&ptx_kernels[k], &job, shape);
            }
            runs_check(&ptx_kernels[k], &bed, shape);
            bed_close(&bed);
        }
    }
END_TEST

/* Every length up to the start of the long form, then around its stripes and blocks. */
START_TEST(hashes_of_every_length_are_those_of_the_bodies)
    {
        unsigned char *memory = aligned_alloc(64, SL_HASH_CHUNK_BYTES + 64);
        for (size_t i = 0; i < SL_HASH_CHUNK_BYTES + 64; i++) {
            memory[i] = noise(i);
        }
        for (uint64_t length = 1; length <= SL_HASH_CHUNK_BYTES;) {
            uint64_t id = 0, hash = 0;
            struct sl_swap_layer layer = {.base = memory + (length % 3 == 0 ? length % 16 : 0),
                                          .stride_bytes = length,
                                          .piece_bytes = length};
            struct sl_hash_job job = {.swap = {.layers = &layer,
                                               .block_ids = &id,
                                               .layer_count = 1,
                                               .block_count = 1,
                                               .value_bytes = length},
                                      .hashes = &hash,
                                      .value_chunks = 1};
            struct sl_hash_chunk chunk = sl_hash_locate(&job, 0);
            for (unsigned k = 0; k < ptx_kernel_count; k++) {
                hash = 0;
                run_mates(ptx_kernels[k].hash, &job, 1, PTX_MATES);
                ck_assert_msg(hash == chunk_hash(&chunk), "%s: %lu bytes", ptx_kernels[k].name,
                              (unsigned long)length);
            }
            length += length < 300 || (length + 2) % 64 < 4 ? 1 : 62 - length % 64;
        }
        free(memory);
    }
END_TEST

int main(void)
{
    if (ptx_kernel_count == 0) {
        printf("no PTX to run\n");
        return 1;
    }
    for (unsigned k = 0; k < ptx_kernel_count; k++) {
        printf("%s\n", ptx_kernels[k].name);
    }
    Suite *suite = suite_create("kernels as a driver gets them");
    TCase *cases = tcase_create("ptx");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, gather_and_scatter_move_what_the_bodies_move, 0,
                        (int)(SL_COUNT(shapes) * SL_COUNT(grids) * 2));
    tcase_add_loop_test(cases, hashes_are_those_of_the_bodies, 0, SL_COUNT(shapes));
    tcase_add_test(cases, hashes_of_every_length_are_those_of_the_bodies);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
