/* tests/unit/cuda/cuda_ways_test.c - the cuda back end's choice of a way to copy, the copies that
 * its measurement makes, and consecutive slices, on the fake driver. */
#include "cuda/cuda_internal.h"
#include "cuda/sl_gpu_bench.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

static struct fake_cuda *fake_state_of(struct sl_driver *engine)
{
    fake_cuda_state_fn state;
    ck_assert_int_eq(sl_driver_open(engine, FAKE_CUDA, NULL), SL_OK);
    void *symbol = dlsym(engine->library, "fake_cuda_state");
    memcpy(&state, &symbol, sizeof(state));
    return state();
}

static void bed_open(struct bed *bed)
{
    struct sl_error why = {0};
    struct sl_layer layers[LAYERS];
    bool more = true;
    uint32_t index = 0;
    *bed = (struct bed){.pool = 0};
    bed->fake = fake_state_of(&bed->engine);
    ck_assert_int_eq(bed->engine.context_set(&bed->fake), 0);
    ck_assert_int_eq(bed->engine.memory_get(&bed->pool, VALUE * BLOCKS), 0);
    unsigned char *pool = (unsigned char *)(uintptr_t)bed->pool;
    for (uint64_t i = 0; i < VALUE * BLOCKS; i++) {
        pool[i] = (unsigned char)(i * 131 + i / 4099);
    }
    ck_assert_msg(sl_device_open(&options, &bed->device, &why) == SL_OK, "%s", why.text);
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
    ck_assert(sl_device_host_remove(bed->device, bed->arena)); /* one slice */
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

/* ---- beside others ---- */

/* Numbers of kernel launches and batches for values that are moved out and in again. */
struct used {
    uint64_t kernels, batches, launches;
};

static struct used use(struct bed *bed)
{
    struct sl_device_stats before = bed->device->stats;
    uint64_t launches = bed->fake->launches;
    move(bed, BLOCKS, false);
    move(bed, BLOCKS, true);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert(sl_digest_equal(bed->moves[i].digest, sl_digest_of(bed->moves[i].host, VALUE)));
    }
    return (struct used){.kernels = bed->device->stats.kernels - before.kernels,
                         .batches = bed->device->stats.batches - before.batches,
                         .launches = bed->fake->launches - launches};
}

START_TEST(while_others_compute_no_kernel_runs)
    {
        struct bed bed;
        bed_open(&bed);
        struct cuda_watch *watch = &cuda_of(bed.device)->watch;
        struct used idle = use(&bed);
        ck_assert_uint_gt(idle.kernels, 0);
        ck_assert_uint_eq(bed.device->stats.computes, 0);
        bed.fake->kernel_queries = UINT64_MAX; /* now kernels would wait */
        watch->next_ns = 0;

        struct used busy = use(&bed);

        ck_assert_uint_eq(bed.device->stats.computes, 1);
        ck_assert_uint_eq(busy.kernels, 0);
        ck_assert_uint_gt(busy.batches, 0);
        ck_assert_uint_eq(busy.launches, 1);
        watch->next_ns = 0; /* the waiting kernel shows it; no second one is started */
        ck_assert_uint_eq(use(&bed).launches, 0);
        bed.fake->kernel_queries = 0; /* they have ended, and some time passes */
        watch->next_ns = watch->computes_until_ns = 0;
        struct used after = use(&bed);
        ck_assert_uint_eq(after.kernels, idle.kernels);
        ck_assert_uint_eq(bed.device->stats.computes, 0);
        bed_close(&bed);
    }
END_TEST

static sl_err digest(struct bed *bed, uint32_t count)
{
    struct sl_error why = {0};
    sl_err err = sl_device_digest_begin(bed->device, bed->moves, count, &why);
    return err == SL_OK ? sl_device_move_end(bed->device, true, &why) : err;
}

/* While an engine computes, blocks are digested without a kernel, and the device reports the
 * cost. */
START_TEST(while_others_compute_digests_are_not_cheap)
    {
        struct bed bed;
        bed_open(&bed);
        struct cuda_watch *watch = &cuda_of(bed.device)->watch;
        move(&bed, BLOCKS, true);
        ck_assert(sl_device_digest_cheap(bed.device));
        bed.fake->kernel_queries = UINT64_MAX;
        watch->next_ns = 0;

        ck_assert(!sl_device_digest_cheap(bed.device));
        uint64_t kernels = bed.device->stats.kernels;
        ck_assert_int_eq(digest(&bed, BLOCKS), SL_OK);

        ck_assert_uint_eq(bed.device->stats.kernels, kernels);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            ck_assert(sl_digest_equal(bed.moves[i].digest, sl_digest_of(bed.moves[i].host, VALUE)));
        }
        bed.fake->kernel_queries = 0;
        bed_close(&bed);
    }
END_TEST

/* The time of digests is charged against a twentieth of the time of loads. */
START_TEST(digests_have_a_share_of_the_time_of_loads)
    {
        struct bed bed;
        bed_open(&bed);
        struct cuda_check *check = &cuda_of(bed.device)->check;
        ck_assert(sl_device_digest_cheap(bed.device)); /* nothing was charged yet */
        ck_assert_int_eq(digest(&bed, BLOCKS), SL_OK);
        int64_t charged_ns = check->room_ns;
        ck_assert_int_lt(charged_ns, 0);
        ck_assert(!sl_device_digest_cheap(bed.device));

        move(&bed, BLOCKS, true); /* stores do not count as loads */
        ck_assert_int_eq(check->room_ns, charged_ns);
        for (uint32_t n = 0; n < 1000000 && !sl_device_digest_cheap(bed.device); n++) {
            move(&bed, BLOCKS, false);
        }

        ck_assert(sl_device_digest_cheap(bed.device));
        ck_assert_int_gt(check->room_ns, charged_ns);
        bed_close(&bed);
    }
END_TEST

/* A value with more chunks than a slot has hashes for is digested in parts. */
START_TEST(a_value_of_many_chunks_is_digested_in_parts)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed);
        struct cuda_device *cuda = cuda_of(bed.device);
        cuda->hash_count_max = 7; /* as if the staging were smaller */
        uint64_t chunks = 3 * cuda->hash_count_max + 5;
        uint64_t bytes = chunks * SL_DIGEST_CHUNK_BYTES - 77;
        sl_cu_ptr large = 0;
        ck_assert_int_eq(bed.engine.memory_get(&large, 2 * bytes), 0);
        unsigned char *memory = (unsigned char *)(uintptr_t)large;
        for (uint64_t i = 0; i < 2 * bytes; i++) {
            memory[i] = (unsigned char)(i * 31 + i / 16411);
        }
        struct sl_layer layer = {
            .base = memory, .block_stride_bytes = bytes, .piece_bytes = bytes, .block_count = 2};
        struct sl_move moves[3] = {
            {.device_block = 1}, bed.moves[5], {.device_block = 0}}; /* a small one between */
        uint32_t index = 0;
        ck_assert_int_eq(bed.device->ops->layers_add(bed.device, &layer, 1, &index, &why), SL_OK);
        moves[0].layers_index = moves[2].layers_index = index;

        sl_err err = sl_device_digest_begin(bed.device, moves, 3, &why);

        ck_assert_msg(err == SL_OK, "%s", why.text);
        ck_assert_int_eq(sl_device_move_end(bed.device, true, &why), SL_OK);
        ck_assert(sl_digest_equal(moves[0].digest, sl_digest_of(memory + bytes, bytes)));
        ck_assert(sl_digest_equal(moves[2].digest, sl_digest_of(memory, bytes)));
        cuda->hash_count_max = 64;
        move(&bed, BLOCKS, true);
        ck_assert(sl_digest_equal(moves[1].digest, bed.moves[5].digest));
        bed.device->ops->layers_remove(bed.device, index);
        ck_assert_int_eq(bed.engine.memory_free(large), 0);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_pause_of_the_others_is_not_their_end)
    {
        struct bed bed;
        bed_open(&bed);
        bed.fake->kernel_queries = UINT64_MAX;
        cuda_of(bed.device)->watch.next_ns = 0;
        (void)use(&bed);
        bed.fake->kernel_queries = 0;
        cuda_of(bed.device)->watch.next_ns = 0;

        ck_assert_uint_eq(use(&bed).kernels, 0);

        bed_close(&bed);
    }
END_TEST

START_TEST(with_mps_kernels_run_beside_others)
    {
        struct sl_driver driver;
        struct bed bed;
        fake_state_of(&driver)->mps = 1;
        bed_open(&bed);
        bed.fake->kernel_queries = 20;

        struct used used = use(&bed);

        ck_assert_uint_gt(used.kernels, 0);
        ck_assert_uint_eq(used.launches, used.kernels); /* no query is needed */
        ck_assert_ptr_nonnull(strstr(bed.device->text, "with MPS"));
        bed_close(&bed);
        sl_driver_close(&driver);
    }
END_TEST

/* A driver that does not know the attribute: the control daemon's pipe shows MPS. */
START_TEST(mps_is_found_by_its_pipe)
    {
        struct sl_driver driver;
        struct sl_tmpdir directory;
        struct bed bed;
        char path[128];
        sl_tmpdir_make(&directory, "/tmp");
        sl_tmpdir_at(&directory, "control", path, sizeof(path));
        ck_assert_int_eq(setenv("CUDA_MPS_PIPE_DIRECTORY", directory.path, 1), 0);
        fake_state_of(&driver)->mps = -1;
        bed_open(&bed);
        ck_assert_ptr_nonnull(strstr(bed.device->text, "without MPS"));
        bed_close(&bed);
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        bed_open(&bed);
        ck_assert_ptr_nonnull(strstr(bed.device->text, "with MPS"));
        bed_close(&bed);
        sl_tmpdir_remove(&directory);
        sl_driver_close(&driver);
    }
END_TEST

START_TEST(who_sets_it_decides_about_kernels)
    {
        struct bed bed;
        options.beside = _i == 0 ? SL_BESIDE_KERNELS : SL_BESIDE_COPIES;
        bed_open(&bed);
        bed.fake->kernel_queries = 20;

        struct used used = use(&bed);

        ck_assert(_i == 0 ? used.kernels > 0 : used.kernels == 0 && used.batches > 0);
        ck_assert_uint_eq(used.launches, used.kernels);
        bed_close(&bed);
    }
END_TEST

START_TEST(nothing_is_measured_while_others_compute)
    {
        struct bed bed;
        struct sl_error why = {0};
        bool more = true;
        bed_open(&bed);
        struct cuda_device *cuda = cuda_of(bed.device);
        cuda->measuring = true;
        cuda->watch.next_ns = 0;
        bed.fake->kernel_queries = UINT64_MAX;

        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK);

        ck_assert(!more && cuda->measuring && cuda->probe == NULL);
        bed.fake->kernel_queries = 0;
        cuda->watch.next_ns = cuda->watch.computes_until_ns = 0;
        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK);
        ck_assert(more && cuda->probe != NULL);
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

static void row_seen(void *context, const struct sl_gpu_bench_row *row)
{
    ck_assert_int_eq(row->memory, SL_GPU_PINNED);
    (*(uint32_t *)context)++;
}

START_TEST(a_bench_without_room_for_a_file_says_so)
    {
        struct sl_error why = {0};
        struct sl_gpu_bench_result result;
        uint32_t seen = 0;
        struct sl_gpu_bench_options bench = {.device = options,
                                             .bytes_max = SL_MIB,
                                             .rounds = 1,
                                             .tmpfs = "/nowhere",
                                             .size_count = 1,
                                             .sizes = {4096},
                                             .count_count = 1,
                                             .counts = {200},
                                             .ways = {true, true, true, true},
                                             .values = {true},
                                             .memories = {true, true},
                                             .found = row_seen,
                                             .context = &seen};
        bench.device.probe_bytes = SL_MIB;

        ck_assert_msg(sl_gpu_bench_run(&bench, &result, &why) == SL_OK, "%s", why.text);

        ck_assert_uint_eq(seen, 2);
        ck_assert_ptr_nonnull(strstr(result.note, "no rows of tmpfs memory: look at '/nowhere'"));
        bench.counts[0] = 7; /* not as many as a value has */
        ck_assert_int_eq(sl_gpu_bench_run(&bench, &result, &why), SL_ERR_INVALID);
    }
END_TEST

/* Rows for pinned memory are reported after the file was unmapped. */
static void row_seen_after(void *context, const struct sl_gpu_bench_row *row)
{
    const struct fake_cuda *fake = context;
    ck_assert_int_eq(fake->registrations, row->memory == SL_GPU_TMPFS ? 2 : 0);
}

START_TEST(a_bench_unpins_its_file_before_it_unmaps_it)
    {
        struct sl_driver driver;
        struct sl_error why = {0};
        struct sl_gpu_bench_result result;
        struct sl_gpu_bench_options bench = {.device = options,
                                             .bytes_max = 40 * SL_MIB,
                                             .rounds = 1,
                                             .tmpfs = "/dev/shm",
                                             .size_count = 1,
                                             .sizes = {2 * SL_MIB},
                                             .count_count = 1,
                                             .counts = {20},
                                             .ways = {true},
                                             .values = {true},
                                             .memories = {true, true},
                                             .found = row_seen_after,
                                             .context = fake_state_of(&driver)};
        bench.device.probe_bytes = SL_MIB;

        ck_assert_msg(sl_gpu_bench_run(&bench, &result, &why) == SL_OK, "%s", why.text);

        ck_assert_uint_eq(result.rows, 4);
        sl_driver_close(&driver);
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

/* ---- slices ---- */

#define SLICE 16u

static void setup_slices(void)
{
    setup();
    options.beside = SL_BESIDE_KERNELS; /* nothing else records events */
}

static sl_err slice_begin(struct bed *bed, uint32_t number, bool to_host, struct sl_error *why)
{
    return sl_device_move_begin(bed->device, bed->moves + (size_t)number * SLICE, SLICE, to_host,
                                to_host, why);
}

static uint32_t slice_done(const struct bed *bed, uint32_t number)
{
    uint32_t done = 0;
    for (uint32_t i = number * SLICE; i < (number + 1) * SLICE; i++) {
        const struct sl_move *move = &bed->moves[i];
        const unsigned char *pool = (const unsigned char *)(uintptr_t)bed->pool;
        for (uint64_t l = 0; move->done == 1 && l < LAYERS; l++) {
            ck_assert_int_eq(memcmp(move->host + l * PIECE,
                                    pool + (l * BLOCKS + move->device_block) * PIECE, PIECE),
                             0);
        }
        ck_assert(move->done == 0 ||
                  sl_digest_equal(move->digest, sl_digest_of(move->host, VALUE)));
        done += move->done;
    }
    return done;
}

START_TEST(two_slices_are_on_their_way_at_a_time)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed);
        struct sl_device *device = bed.device;
        bed.fake->event_queries = 20;
        bed.fake->dry = 0;
        for (uint32_t n = 0; n < BLOCKS / SLICE; n++) {
            ck_assert_int_eq(slice_begin(&bed, n, true, &why), SL_OK);
            ck_assert_uint_eq(device->slices_begun, n + 1);
            ck_assert_uint_eq(device->slices_done, n < 2 ? 0 : n - 1);
            ck_assert_uint_eq(slice_done(&bed, n), 0);
            ck_assert(n < 2 || slice_done(&bed, n - 2) == SLICE);
        }

        ck_assert_int_eq(sl_device_move_end(device, false, &why), SL_OK);
        ck_assert_uint_eq(device->slices_done, BLOCKS / SLICE - 2);
        ck_assert_int_eq(sl_device_move_end(device, true, &why), SL_OK);

        ck_assert_uint_eq(device->slices_done, BLOCKS / SLICE);
        ck_assert_uint_eq(slice_done(&bed, BLOCKS / SLICE - 1), SLICE);
        ck_assert_uint_eq(bed.fake->dry, 1);
        ck_assert_uint_eq(device->stats.drains, 1);
        ck_assert_uint_eq(device->stats.waits, BLOCKS / SLICE);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_slice_that_cannot_begin_leaves_the_one_before_whole)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed);
        bed.fake->event_queries = 20;
        ck_assert_int_eq(slice_begin(&bed, 0, true, &why), SL_OK);
        bed.fake->fail_symbol = "fake_launch";
        bed.fake->fail_code = SL_CU_INVALID_VALUE;

        ck_assert_int_eq(slice_begin(&bed, 1, true, &why), SL_ERR_IO);

        ck_assert_uint_eq(bed.device->slices_done, 2);
        ck_assert_uint_eq(slice_done(&bed, 0), SLICE);
        ck_assert_uint_eq(slice_done(&bed, 1), 0);
        ck_assert_uint_eq(bed.fake->undone, 0);
        bed.fake->fail_symbol = NULL;
        ck_assert_int_eq(sl_device_move_end(bed.device, true, &why), SL_OK);
        move(&bed, BLOCKS, true);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_slice_that_cannot_be_waited_for_is_not_done)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed);
        bed.fake->event_queries = 20;
        ck_assert_int_eq(slice_begin(&bed, 0, true, &why), SL_OK);
        ck_assert_int_eq(slice_begin(&bed, 1, true, &why), SL_OK);
        bed.fake->fail_symbol = "fake_event_query";
        bed.fake->fail_code = SL_CU_INVALID_VALUE;

        ck_assert_int_eq(sl_device_move_end(bed.device, true, &why), SL_ERR_IO);

        ck_assert_uint_eq(slice_done(&bed, 0) + slice_done(&bed, 1), 0);
        ck_assert_uint_eq(bed.device->slices_done, 2);
        ck_assert_uint_eq(bed.fake->undone, 0);
        bed.fake->fail_symbol = NULL;
        move(&bed, BLOCKS, true);
        bed_close(&bed);
    }
END_TEST

/* Host memory is removed, a table is removed, and a table is uploaded through the staging. */
START_TEST(memory_goes_when_nothing_is_on_its_way_to_it)
    {
        struct bed bed;
        struct sl_error why = {0};
        bool fails = _i >= 3;
        bed_open(&bed);
        bed.fake->event_queries = 20;
        ck_assert_int_eq(slice_begin(&bed, 0, true, &why), SL_OK);
        bed.fake->fail_symbol = fails ? "fake_event_query" : NULL;
        bed.fake->fail_code = SL_CU_INVALID_VALUE;

        struct sl_layer layer = {.base = (unsigned char *)(uintptr_t)bed.pool,
                                 .block_stride_bytes = 1,
                                 .piece_bytes = 1,
                                 .block_count = 1};
        uint32_t index = 0;
        if (_i % 3 == 0) {
            sl_device_host_remove(bed.device, bed.arena);
        } else if (_i % 3 == 1) {
            bed.device->ops->layers_remove(bed.device, bed.moves[0].layers_index);
        } else {
            ck_assert_int_eq(bed.device->ops->layers_add(bed.device, &layer, 1, &index, &why),
                             SL_OK);
        }

        ck_assert_uint_eq(bed.fake->undone, 0);
        ck_assert_uint_eq(bed.device->slices_done, 1);
        ck_assert_uint_eq(slice_done(&bed, 0), fails ? 0 : SLICE);
        bed.fake->fail_symbol = NULL; /* the mover gets an error that another call detected */
        ck_assert_int_eq(sl_device_move_end(bed.device, true, &why), fails ? SL_ERR_IO : SL_OK);
        ck_assert_int_eq(sl_device_move_end(bed.device, true, &why), SL_OK);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_gpu_that_hangs_is_lost)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed);
        cuda_of(bed.device)->wait_ns = 20 * SL_NS_PER_MS;
        bed.fake->hangs = true;
        ck_assert_int_eq(slice_begin(&bed, 0, true, &why), SL_OK);

        ck_assert_int_eq(sl_device_move_end(bed.device, true, &why), SL_ERR_DEVICE);

        ck_assert_ptr_nonnull(strstr(why.text, "copies have not ended after 20 ms"));
        ck_assert(bed.device->moves_pending);
        ck_assert_uint_eq(slice_done(&bed, 0), 0);
        ck_assert_int_eq(slice_begin(&bed, 1, true, &why), SL_ERR_DEVICE);
        bed.fake->hangs = false;
        bed_close(&bed);
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
    tcase_add_test(ways, a_bench_without_room_for_a_file_says_so);
    tcase_add_test(ways, a_bench_unpins_its_file_before_it_unmaps_it);
    tcase_add_test(ways, figures_of_another_number_of_multiprocessors_are_not_taken);
    TCase *beside = tcase_create("beside others"), *slices = tcase_create("slices");
    tcase_add_checked_fixture(beside, setup, NULL);
    tcase_add_test(beside, while_others_compute_no_kernel_runs);
    tcase_add_test(beside, while_others_compute_digests_are_not_cheap);
    tcase_add_test(beside, digests_have_a_share_of_the_time_of_loads);
    tcase_add_test(beside, a_value_of_many_chunks_is_digested_in_parts);
    tcase_add_test(beside, a_pause_of_the_others_is_not_their_end);
    tcase_add_test(beside, with_mps_kernels_run_beside_others);
    tcase_add_test(beside, mps_is_found_by_its_pipe);
    tcase_add_loop_test(beside, who_sets_it_decides_about_kernels, 0, 2);
    tcase_add_test(beside, nothing_is_measured_while_others_compute);
    tcase_add_checked_fixture(slices, setup_slices, NULL);
    tcase_add_test(slices, two_slices_are_on_their_way_at_a_time);
    tcase_add_test(slices, a_slice_that_cannot_begin_leaves_the_one_before_whole);
    tcase_add_test(slices, a_slice_that_cannot_be_waited_for_is_not_done);
    tcase_add_loop_test(slices, memory_goes_when_nothing_is_on_its_way_to_it, 0, 6);
    tcase_add_test(slices, a_gpu_that_hangs_is_lost);
    suite_add_tcase(suite, ways);
    suite_add_tcase(suite, beside);
    suite_add_tcase(suite, slices);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
