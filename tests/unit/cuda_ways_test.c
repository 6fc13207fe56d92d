/* tests/unit/cuda_ways_test.c - which way the cuda back end moves by, and what its measurement moves, on the played driver. */
#include "cuda/cuda_internal.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LAYERS      4u
#define PIECE       (UINT64_C(4) * SL_KIB)
#define VALUE       (LAYERS * PIECE)
#define BLOCKS      64u
#define ARENA_BYTES (8 * SL_MIB)

static struct sl_device_options options;

/* An engine's pool of LAYERS layers, a pinned arena, and a device that moves between them. */
struct bed {
    struct sl_driver engine; /* the engine's own use of the driver */
    struct fake_cuda *fake;
    struct sl_device *device;
    sl_cu_ptr pool;
    unsigned char *arena;
    struct sl_move moves[BLOCKS];
};

static void bed_open(struct bed *bed)
{
    struct sl_error why = {0};
    struct sl_layer layers[LAYERS];
    fake_cuda_state_fn state;
    bool more = true;
    uint32_t index = 0;
    *bed = (struct bed){.pool = 0};
    ck_assert_int_eq(sl_driver_open(&bed->engine, FAKE_CUDA, NULL), SL_OK);
    void *symbol = dlsym(bed->engine.library, "fake_cuda_state");
    memcpy(&state, &symbol, sizeof(state));
    bed->fake = state();
    ck_assert_int_eq(bed->engine.context_set(&bed->fake), 0);
    ck_assert_int_eq(bed->engine.memory_get(&bed->pool, VALUE * BLOCKS), 0);
    unsigned char *pool = (unsigned char *)(uintptr_t)bed->pool;
    for (uint64_t i = 0; i < VALUE * BLOCKS; i++) {
        pool[i] = (unsigned char)(i * 131 + i / 4099);
    }
    ck_assert_msg(sl_device_open_with(&options, &bed->device, &why) == SL_OK, "%s", why.text);
    for (uint32_t l = 0; l < LAYERS; l++) {
        layers[l] = (struct sl_layer){.base = pool + l * PIECE * BLOCKS,
                                      .block_stride_bytes = PIECE,
                                      .piece_bytes = PIECE,
                                      .block_count = BLOCKS};
    }
    ck_assert_int_eq(bed->device->ops->layers_add(bed->device, layers, LAYERS, &index, &why),
                     SL_OK);
    bed->arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(bed->arena != MAP_FAILED);
    ck_assert_int_eq(sl_device_host_add(bed->device, bed->arena, ARENA_BYTES, ARENA_BYTES, &why),
                     SL_OK);
    while (more) {
        ck_assert_msg(sl_device_work(bed->device, &more, &why) == SL_OK, "%s", why.text);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        bed->moves[i] = (struct sl_move){.host = bed->arena + i * (VALUE + 4096),
                                         .device_block = i * UINT64_C(37) % BLOCKS,
                                         .layers_index = index};
    }
    bed->device->stats = (struct sl_device_stats){0};
}

static void bed_close(struct bed *bed)
{
    sl_device_host_remove(bed->device, bed->arena);
    sl_device_close(&bed->device);
    (void)munmap(bed->arena, ARENA_BYTES);
    ck_assert_int_eq(bed->engine.memory_free(bed->pool), 0);
    sl_driver_close(&bed->engine);
}

static void setup(void)
{
    options = (struct sl_device_options){
        .name = "cuda", .staging_bytes = 2 * SL_MIB, .driver_path = FAKE_CUDA, .kernels = "image"};
}

static void move(struct bed *bed, uint32_t count, bool to_host)
{
    struct sl_error why = {0};
    ck_assert_msg(bed->device->ops->move(bed->device, bed->moves, count, to_host, to_host, &why) ==
                      SL_OK,
                  "%s", why.text);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(bed->moves[i].done, 1);
    }
}

/* ---- what decides ---- */

START_TEST(small_values_come_in_by_the_mapped_kernel)
    {
        struct bed bed;
        bed_open(&bed);

        move(&bed, BLOCKS, false);

        ck_assert_uint_eq(bed.device->stats.kernels, 1);
        ck_assert_uint_eq(bed.device->stats.batches + bed.device->stats.copies, 0);
        bed_close(&bed);
    }
END_TEST

START_TEST(small_values_that_lie_together_come_in_by_staging)
    {
        struct bed bed;
        bed_open(&bed);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            bed.moves[i].host = bed.arena + i * VALUE;
        }

        move(&bed, BLOCKS, false);

        ck_assert_uint_eq(bed.device->stats.kernels, 1);
        ck_assert_uint_eq(bed.device->stats.copies, 1); /* all of them are one run */
        bed_close(&bed);
    }
END_TEST

START_TEST(one_layer_of_values_comes_in_by_the_mapped_kernel)
    {
        struct bed bed;
        bed_open(&bed);
        for (uint32_t i = 0; i < BLOCKS;
             i++) { /* whole values would be one run, a layer of them is not */
            bed.moves[i].host = bed.arena + i * VALUE;
            bed.moves[i].first_layer = 1;
            bed.moves[i].layer_end = 2;
        }

        move(&bed, BLOCKS, false);

        ck_assert_uint_eq(bed.device->stats.kernels, 1);
        ck_assert_uint_eq(bed.device->stats.batches + bed.device->stats.copies, 0);
        bed_close(&bed);
    }
END_TEST

/* ---- the measurement ---- */

START_TEST(no_piece_that_is_measured_joins_the_next)
    {
        struct bed bed;
        options.measure = true;
        options.probe_bytes = SL_MIB;
        bed_open(&bed);
        ck_assert(cuda_of(bed.device)->crossover.measured);

        ck_assert_uint_eq(bed.fake->neighbours, 0);
        bed_close(&bed);
    }
END_TEST

START_TEST(figures_of_another_number_of_multiprocessors_are_not_taken)
    {
        struct sl_tmpdir directory;
        struct bed bed;
        sl_tmpdir_make(&directory, "/tmp");
        options.cache_directory = directory.path;
        options.measure = true;
        options.probe_bytes = SL_MIB;
        options.multiprocessors = 2;
        bed_open(&bed);
        ck_assert(cuda_of(bed.device)->crossover.measured);
        bed_close(&bed);

        options.measure = false;
        bed_open(&bed);
        ck_assert(cuda_of(bed.device)->crossover.measured);
        bed_close(&bed);
        options.multiprocessors = 3;
        bed_open(&bed);
        ck_assert(!cuda_of(bed.device)->crossover.measured);
        bed_close(&bed);
        sl_tmpdir_remove(&directory);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_ways");
    TCase *ways = tcase_create("ways");
    tcase_add_checked_fixture(ways, setup, NULL);
    tcase_add_test(ways, small_values_come_in_by_the_mapped_kernel);
    tcase_add_test(ways, small_values_that_lie_together_come_in_by_staging);
    tcase_add_test(ways, one_layer_of_values_comes_in_by_the_mapped_kernel);
    tcase_add_test(ways, no_piece_that_is_measured_joins_the_next);
    tcase_add_test(ways, figures_of_another_number_of_multiprocessors_are_not_taken);
    suite_add_tcase(suite, ways);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
