/* tests/unit/cuda/cuda_test.c - the cuda back end on a fake driver with a GPU in ordinary memory
 * (tests/support/fake_cuda.c): every way of copying, every call that can fail. */
#include "cuda/cuda_internal.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_descriptors.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STAGING_BYTES (256 * SL_KIB)
#define BLOCKS        24u
#define MOVES         16u
#define LAYERS_MAX    6u
#define ARENA_BYTES   (40 * SL_MIB) /* a slice of 32 MiB and one of 8 */
#define SLACK_BYTES   64u
#define PIECE_MAX     150000u

static uint64_t random_next(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = *seed;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

struct shape {
    const char *name;
    uint32_t layer_count;
    uint64_t piece_bytes, piece_growth, gap_bytes;
    bool cross_layer, in_order;
    uint64_t fragment_bytes; /* divides piece and growth; cross_layer: runs take turns */
    uint64_t fragment_gap;
};
static const struct shape shapes[] = {
    {"layers of 4 KiB", 4, 4096, 0, 0, false, false, 0, 0},
    {"odd pieces", 3, 1000, 7, 5, false, false, 0, 0},
    {"16 KiB, digested where they lie", 2, 16384, 0, 16, false, false, 0, 0},
    {"blocks in one run", 4, 3000, 100, 0, true, true, 0, 0},
    {"blocks in one run, out of order", 2, 8192, 0, 32, true, false, 0, 0},
    {"values over the staging", 6, 40000, 0, 0, false, false, 0, 0},
    {"pieces over the staging", 2, 150000, 0, 0, false, false, 0, 0},
    {"heads side by side", 4, 8192, 0, 0, true, false, 256, 0},
    {"odd runs", 3, 1001, 77, 5, false, false, 77, 13},
    {"runs in values over the staging", 6, 40000, 0, 0, false, false, 1000, 24},
    {"runs in pieces over the staging", 2, 150000, 0, 0, false, false, 50, 50},
    {"runs without a gap", 2, 4096, 0, 0, false, true, 512, 0},
};

enum pinning { PINNED, UNPINNED, HALF };

/* An engine's pool, an arena, and a device that moves between them. */
struct bed {
    struct sl_driver engine; /* the engine's own use of the driver */
    struct fake_cuda *fake;
    uint64_t calls; /* of the device, up to its end */
    struct sl_device *device;
    sl_cu_ptr pool;
    struct sl_cu_ipc ipc; /* its handle */
    size_t pool_bytes;
    unsigned char *pool_copy;
    struct sl_mapping mapping;
    bool mapped, added;
    uint32_t layers_index;
    struct sl_layer layers[LAYERS_MAX];
    uint64_t value_bytes;
    unsigned char *arena;
    struct sl_move moves[MOVES];
};

static void layers_make(struct bed *bed, const struct shape *shape)
{
    uint64_t at = 0, all_bytes = 0, run_bytes = shape->fragment_bytes;
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        all_bytes += shape->piece_bytes + l * shape->piece_growth;
    }
    bed->pool_bytes = 0;
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        uint64_t piece_bytes = shape->piece_bytes + l * shape->piece_growth;
        uint64_t runs = run_bytes == 0 ? 0 : piece_bytes / run_bytes;
        uint64_t span_bytes = shape->cross_layer ? all_bytes : piece_bytes;
        uint64_t stride_bytes = span_bytes + runs * shape->fragment_gap + shape->gap_bytes;
        bed->layers[l] = (struct sl_layer){.base = (unsigned char *)(uintptr_t)at,
                                           .block_stride_bytes = stride_bytes,
                                           .piece_bytes = piece_bytes,
                                           .block_count = BLOCKS,
                                           .fragment_bytes = run_bytes};
        if (runs > 0) {
            bed->layers[l].fragment_stride_bytes =
                (shape->cross_layer ? shape->layer_count * run_bytes : run_bytes) +
                shape->fragment_gap;
        }
        at += !shape->cross_layer ? stride_bytes * BLOCKS : runs > 0 ? run_bytes : piece_bytes;
        bed->pool_bytes += stride_bytes * BLOCKS; /* cross_layer: more than needed */
    }
    bed->value_bytes = all_bytes;
}

/* Copies between a block of a layer and its piece in a value. */
static void piece_copy(unsigned char *block, unsigned char *piece, const struct sl_layer *layer,
                       bool to_block)
{
    uint64_t run_bytes = layer->fragment_bytes == 0 ? layer->piece_bytes : layer->fragment_bytes;
    for (uint64_t at = 0; at < layer->piece_bytes; at += run_bytes) {
        memcpy(to_block ? block : piece + at, to_block ? piece + at : block, run_bytes);
        block += layer->fragment_stride_bytes;
    }
}

static sl_err bed_device(struct bed *bed, struct sl_error *why)
{
    struct sl_device_options options = {.name = "cuda",
                                        .staging_bytes = STAGING_BYTES,
                                        .runtime_directory = "/tmp",
                                        .driver_path = FAKE_CUDA,
                                        .kernels = "image"};
    return sl_device_open(&options, &bed->device, why);
}

/* Sets up the engine's side, before anything of ours: never fails. */
static void bed_engine(struct bed *bed, const struct shape *shape, uint64_t *seed)
{
    *bed = (struct bed){.pool = 0};
    ck_assert_int_eq(sl_driver_open(&bed->engine, FAKE_CUDA, NULL), SL_OK);
    void *symbol = dlsym(bed->engine.library, "fake_cuda_state");
    fake_cuda_state_fn state;
    memcpy(&state, &symbol, sizeof(state));
    bed->fake = state();
    layers_make(bed, shape);
    ck_assert_int_eq(bed->engine.context_set(&bed->fake), 0);
    ck_assert_int_eq(bed->engine.memory_get(&bed->pool, bed->pool_bytes), 0);
    ck_assert_int_eq(bed->engine.ipc_get(&bed->ipc, bed->pool), 0);
    bed->pool_copy = malloc(bed->pool_bytes);
    unsigned char *pool = (unsigned char *)(uintptr_t)bed->pool;
    for (size_t i = 0; i < bed->pool_bytes; i++) {
        bed->pool_copy[i] = pool[i] = (unsigned char)random_next(seed);
    }
    bed->arena =
        mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(bed->arena != MAP_FAILED);
    /* Values around the edge between the two slices; the middle one crosses it. */
    uint64_t slot_bytes = bed->value_bytes + (shape->in_order ? 0 : SLACK_BYTES);
    uint64_t first = CUDA_PIN_BYTES - MOVES / 2 * slot_bytes - bed->value_bytes / 2;
    uint32_t order[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) {
        order[i] = i;
    }
    for (uint32_t i = BLOCKS; !shape->in_order && i > 1; i--) {
        uint32_t other = (uint32_t)(random_next(seed) % i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
    for (uint32_t i = 0; i < MOVES; i++) {
        bed->moves[i] =
            (struct sl_move){.host = bed->arena + first + i * slot_bytes, .device_block = order[i]};
    }
    bed->fake->calls = 0;
}

/* Registers pool and arena with the device, as far as that works. */
static sl_err bed_connect(struct bed *bed, const struct shape *shape, enum pinning pinning,
                          struct sl_error *why)
{
    struct sl_memory_handle handle = {.kind = SL_MEMORY_CUDA_IPC, .pid = (uint32_t)getpid()};
    struct sl_layer layers[LAYERS_MAX];
    bool more = pinning != UNPINNED;
    memcpy(handle.ipc, bed->ipc.bytes, sizeof(handle.ipc));
    sl_err err = bed->device->ops->map(bed->device, &handle, bed->pool_bytes, &bed->mapping, why);
    if (err != SL_OK) {
        return err;
    }
    bed->mapped = true;
    memcpy(layers, bed->layers, sizeof(layers));
    for (uint32_t l = 0; l < shape->layer_count; l++) {
        layers[l].base = (unsigned char *)bed->mapping.base + (uintptr_t)layers[l].base;
    }
    err = bed->device->ops->layers_add(bed->device, layers, shape->layer_count, &bed->layers_index,
                                       why);
    if (err == SL_OK) {
        for (uint32_t i = 0; i < MOVES; i++) {
            bed->moves[i].layers_index = bed->layers_index;
        }
        err = sl_device_host_add(bed->device, bed->arena, ARENA_BYTES,
                                 pinning == HALF ? CUDA_PIN_BYTES : ARENA_BYTES, why);
        bed->added = err == SL_OK;
    }
    while (err == SL_OK && more) {
        err = sl_device_work(bed->device, &more, why);
    }
    return err;
}

static void bed_close(struct bed *bed)
{
    if (bed->device != NULL && bed->added) {
        while (!sl_device_host_remove(bed->device, bed->arena)) {
        }
    }
    if (bed->device != NULL && bed->mapped) {
        bed->device->ops->unmap(bed->device, &bed->mapping);
    }
    sl_device_close(&bed->device);
    struct fake_cuda *fake = bed->fake;
    bed->calls = fake->calls;
    ck_assert_int_eq(fake->contexts, 0);
    ck_assert_int_eq(fake->modules, 0);
    ck_assert_int_eq(fake->streams, 0);
    ck_assert_int_eq(fake->events, 0);
    ck_assert_int_eq(fake->host_allocations, 0);
    ck_assert_int_eq(fake->registrations, 0);
    ck_assert_int_eq(fake->ipc_opens, 0);
    ck_assert_int_eq(fake->physicals + fake->reservations + fake->mappings, 0);
    ck_assert_int_eq(fake->allocations, 1); /* the engine's pool */
    fake->fail_at = 0;
    fake->fail_symbol = NULL;
    fake->stuck = 0;
    ck_assert_int_eq(bed->engine.memory_free(bed->pool), 0);
    sl_driver_close(&bed->engine);
    free(bed->pool_copy);
    (void)munmap(bed->arena, ARENA_BYTES);
}

static unsigned char *piece_at(const struct bed *bed, unsigned char *pool,
                               const struct sl_move *move, uint32_t layer)
{
    return pool + (uintptr_t)bed->layers[layer].base +
           move->device_block * bed->layers[layer].block_stride_bytes;
}

/* Checks that the values of finished moves match the pool, and their digests as well. */
static void assert_out(const struct bed *bed, const struct shape *shape)
{
    for (uint32_t i = 0; i < MOVES; i++) {
        const struct sl_move *move = &bed->moves[i];
        uint64_t at = 0;
        if (move->done == 0) {
            continue;
        }
        unsigned char piece[PIECE_MAX];
        for (uint32_t l = 0; l < shape->layer_count; l++) {
            piece_copy(piece_at(bed, bed->pool_copy, move, l), piece, &bed->layers[l], false);
            ck_assert_msg(memcmp(move->host + at, piece, bed->layers[l].piece_bytes) == 0,
                          "%s: value %u, layer %u", shape->name, i, l);
            at += bed->layers[l].piece_bytes;
        }
        ck_assert_msg(sl_digest_equal(move->digest, sl_digest_of(move->host, bed->value_bytes)),
                      "%s: digest of value %u", shape->name, i);
    }
}

/* Whether the GPU digests, or the processor after a copy to the host. */
enum digester { BY_KERNEL, BY_COPIES, DIGESTERS };

/* Checks that the blocks' digests are those of the values, and that nothing else changed: host
 * memory is not even registered. */
static void assert_digests(struct bed *bed, const struct shape *shape)
{
    for (int by = 0; by < DIGESTERS; by++) {
        struct sl_move moves[MOVES];
        struct sl_error why = {0};
        for (uint32_t i = 0; i < MOVES; i++) {
            moves[i] = bed->moves[i];
            moves[i].host = NULL;
            moves[i].digest = (struct sl_digest){0};
        }
        cuda_of(bed->device)->beside = by == BY_COPIES ? SL_BESIDE_COPIES : SL_BESIDE_KERNELS;
        uint64_t kernels = bed->device->stats.kernels;
        uint64_t bounced = bed->device->stats.bounced_bytes;
        ck_assert_msg(sl_device_digest_begin(bed->device, moves, MOVES, &why) == SL_OK, "%s: %s",
                      shape->name, why.text);
        ck_assert_msg(sl_device_move_end(bed->device, true, &why) == SL_OK, "%s", why.text);
        for (uint32_t i = 0; i < MOVES; i++) {
            ck_assert_uint_eq(moves[i].done, 1);
            ck_assert_msg(sl_digest_equal(moves[i].digest, bed->moves[i].digest),
                          "%s: digest of block %u", shape->name, i);
        }
        ck_assert((bed->device->stats.kernels > kernels) == (by == BY_KERNEL));
        ck_assert((bed->device->stats.bounced_bytes > bounced) == (by == BY_COPIES));
    }
    cuda_of(bed->device)->beside = SL_BESIDE_WATCH;
}

/* The order in which halves of values are moved: the same layers in consecutive moves. */
static void halves(struct bed *bed, const struct shape *shape, bool first)
{
    uint32_t middle = shape->layer_count / 2;
    for (uint32_t i = 0; i < MOVES; i++) {
        bed->moves[i].first_layer = first ? 0 : middle;
        bed->moves[i].layer_end = first ? middle : shape->layer_count;
    }
}

static void way_force(struct bed *bed, enum sl_way way)
{
    struct sl_crossover *crossover = &cuda_of(bed->device)->crossover;
    uint32_t *speed = &crossover->speed[0][0][0][0][0];
    crossover->measured = true;
    for (uint32_t i = 0; i < SL_CROSSOVER_FIELDS; i++) {
        speed[i] = i % SL_WAY_COUNT == way ? 2 : 1;
    }
}

/* Moves out, then moves other bytes in, and checks that nothing else was touched. */
static void run_way(const struct shape *shape, enum sl_way way, enum pinning pinning)
{
    uint64_t seed = 11 + (uint64_t)way;
    struct bed bed;
    struct sl_error why = {0};
    bed_engine(&bed, shape, &seed);
    ck_assert_msg(bed_device(&bed, &why) == SL_OK, "%s", why.text);
    ck_assert_msg(bed_connect(&bed, shape, pinning, &why) == SL_OK, "%s", why.text);
    way_force(&bed, way);
    unsigned char *pool = (unsigned char *)(uintptr_t)bed.pool;

    ck_assert_msg(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why) == SL_OK,
                  "%s: %s", shape->name, why.text);
    for (uint32_t i = 0; i < MOVES; i++) {
        ck_assert_uint_eq(bed.moves[i].done, 1);
    }
    assert_out(&bed, shape);
    assert_digests(&bed, shape);
    ck_assert_int_eq(memcmp(pool, bed.pool_copy, bed.pool_bytes), 0);

    for (uint32_t i = 0; i < MOVES; i++) {
        uint64_t at = 0;
        for (uint64_t k = 0; k < bed.value_bytes; k++) {
            bed.moves[i].host[k] = (unsigned char)random_next(&seed);
        }
        for (uint32_t l = 0; l < shape->layer_count; l++) {
            piece_copy(piece_at(&bed, bed.pool_copy, &bed.moves[i], l), bed.moves[i].host + at,
                       &bed.layers[l], true);
            at += bed.layers[l].piece_bytes;
        }
    }
    ck_assert_msg(bed.device->ops->move(bed.device, bed.moves, MOVES, false, false, &why) == SL_OK,
                  "%s: %s", shape->name, why.text);
    ck_assert_msg(memcmp(pool, bed.pool_copy, bed.pool_bytes) == 0, "%s by %s", shape->name,
                  sl_way_name(way));
    bed_close(&bed);
}

/* The processor would digest a value that is cut in two: half as fast (H200). */
START_TEST(values_that_the_gpu_digests_are_not_cut_between_slots)
    {
        static const struct shape shape = {
            "two and more in a slot", 3, 16384, 0, 0, false, false, 0, 0};
        uint64_t seed = 3;
        struct bed bed;
        struct sl_error why = {0};
        bed_engine(&bed, &shape, &seed);
        ck_assert_msg(bed_device(&bed, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(bed_connect(&bed, &shape, PINNED, &why) == SL_OK, "%s", why.text);
        way_force(&bed, (enum sl_way)_i);
        struct cuda_device *cuda = cuda_of(bed.device);
        ck_assert_uint_ne(cuda->half_bytes % bed.value_bytes, 0);

        ck_assert_int_eq(sl_device_move_begin(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);

        for (uint32_t i = 0; i < CUDA_SLOTS; i++) {
            ck_assert_uint_gt(cuda->slots[i].item_count, 0);
            ck_assert_uint_eq(cuda->slots[i].hash_count, cuda->slots[i].item_count);
        }
        ck_assert_int_eq(sl_device_move_end(bed.device, true, &why), SL_OK);
        assert_out(&bed, &shape);
        bed_close(&bed);
    }
END_TEST

START_TEST(every_way_moves_what_the_plain_loop_moves)
    {
        const struct shape *shape = &shapes[(size_t)_i / SL_WAY_COUNT];
        enum sl_way way = (enum sl_way)(_i % (int)SL_WAY_COUNT);
        run_way(shape, way, PINNED);
        run_way(shape, way, UNPINNED);
        run_way(shape, way, HALF);
    }
END_TEST

/* Layer by layer: others are not touched, and the digest covers exactly those asked for. */
START_TEST(ranges_of_layers_go_to_their_place)
    {
        const struct shape *shape = &shapes[(size_t)_i / SL_WAY_COUNT];
        enum sl_way way = (enum sl_way)(_i % (int)SL_WAY_COUNT);
        uint64_t seed = 3;
        struct bed bed;
        struct sl_error why = {0};
        bed_engine(&bed, shape, &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, shape, HALF, &why), SL_OK);
        way_force(&bed, way);
        uint64_t middle_bytes = 0;
        for (uint32_t l = 0; l < shape->layer_count / 2; l++) {
            middle_bytes += bed.layers[l].piece_bytes;
        }

        for (int part = 1; part >= 0; part--) { /* the second half first */
            halves(&bed, shape, part == 0);
            ck_assert_msg(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why) ==
                              SL_OK,
                          "%s: %s", shape->name, why.text);
            for (uint32_t i = 0; i < MOVES; i++) {
                const unsigned char *from = bed.moves[i].host + (part == 0 ? 0 : middle_bytes);
                uint64_t length = part == 0 ? middle_bytes : bed.value_bytes - middle_bytes;
                ck_assert_uint_eq(bed.moves[i].done, 1);
                ck_assert(sl_digest_equal(bed.moves[i].digest, sl_digest_of(from, length)));
                ck_assert(part == 0 || bed.moves[i].host[0] + bed.moves[i].host[1] == 0);
            }
            assert_digests(&bed, shape);
            for (uint32_t i = 0; i < MOVES; i++) {
                bed.moves[i].digest = sl_digest_of(bed.moves[i].host, bed.value_bytes);
            }
        }
        assert_out(&bed, shape);
        bed_close(&bed);
    }
END_TEST

/* ---- failing calls ---- */

static const struct {
    int code;
    bool sticks;
    sl_err want;
} failures[] = {
    {SL_CU_INVALID_VALUE, false, SL_ERR_IO},
    {SL_CU_OUT_OF_MEMORY, false, SL_ERR_NO_MEMORY},
    {SL_CU_ILLEGAL_ADDRESS, true, SL_ERR_DEVICE},
};

/* The whole life of a device, up to the first failure. */
static sl_err life(struct bed *bed, const struct shape *shape, struct sl_error *why)
{
    sl_err err = bed_device(bed, why);
    if (err == SL_OK) {
        err = bed_connect(bed, shape, PINNED, why);
    }
    if (err == SL_OK) {
        err = bed->device->ops->move(bed->device, bed->moves, MOVES, true, true, why);
        assert_out(bed, shape);
    }
    if (err == SL_OK) {
        err = bed->device->ops->move(bed->device, bed->moves, MOVES, false, false, why);
    }
    if (err == SL_OK) {
        err = sl_device_digest_begin(bed->device, bed->moves, MOVES, why);
        err = err == SL_OK ? sl_device_move_end(bed->device, true, why) : err;
        assert_out(bed, shape);
    }
    return err;
}

START_TEST(whatever_call_fails_nothing_is_left_behind)
    {
        const struct shape *shape = &shapes[_i / 3 == 0 ? 0 : 3];
        bool failed = true;
        unsigned failures_seen = 0;
        for (uint64_t n = 1; failed; n++) {
            struct bed bed;
            struct sl_error why = {0};
            uint64_t seed = n;
            bed_engine(&bed, shape, &seed);
            bed.fake->fail_at = n;
            bed.fake->fail_code = failures[_i % 3].code;
            bed.fake->fail_sticks = failures[_i % 3].sticks;

            sl_err err = life(&bed, shape, &why);

            if (err != SL_OK) {
                ck_assert_msg(strncmp(why.text, "device cuda: ", 13) == 0, "call %lu: '%s'",
                              (unsigned long)n, why.text);
                ck_assert_int_eq(why.os_code, failures[_i % 3].code);
                /* Before the device exists the reason does not matter: it cannot be used. */
                ck_assert_msg(err == failures[_i % 3].want || bed.device == NULL ||
                                  err == SL_ERR_DEVICE,
                              "call %lu: %s", (unsigned long)n, why.text);
            }
            failures_seen += err != SL_OK;
            bed_close(&bed);
            failed = bed.calls >= n; /* else it was never reached: all calls are through */
            ck_assert_uint_lt(n, 2000);
        }
        ck_assert_uint_gt(failures_seen, 40);
    }
END_TEST

START_TEST(after_a_sticky_error_nothing_is_tried_any_more)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, &shapes[0], PINNED, &why), SL_OK);
        cuda_of(bed.device)->watch.on = false;
        bed.fake->fail_symbol = "fake_event_query"; /* where a kernel's fault is reported */
        bed.fake->fail_code = SL_CU_ILLEGAL_ADDRESS;
        bed.fake->fail_sticks = true;

        sl_err err = bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why);

        ck_assert_int_eq(err, SL_ERR_DEVICE);
        ck_assert_int_eq(sl_err_class(err), SL_CLASS_RESTART);
        ck_assert_ptr_nonnull(strstr(why.text, "CUDA_ERROR_ILLEGAL_ADDRESS, code 700"));
        ck_assert_ptr_nonnull(strstr(why.text, "wait for"));
        uint64_t calls = bed.fake->calls;
        err = bed.device->ops->move(bed.device, bed.moves, MOVES, false, false, &why);
        ck_assert_int_eq(err, SL_ERR_DEVICE);
        ck_assert_uint_eq(bed.fake->calls, calls);
        bed_close(&bed);
    }
END_TEST

START_TEST(copies_that_cannot_be_waited_for_are_the_end)
    {
        /* A plain error of the wait itself: it does not prove that the GPU has finished with the
         * memory. */
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, &shapes[0], PINNED, &why), SL_OK);
        bed.fake->fail_symbol = "fake_stream_query";
        bed.fake->fail_code = SL_CU_INVALID_VALUE;
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK); /* it waits for events */
        bed.fake->fail_symbol = NULL;
        bed.fake->fail_at = bed.fake->calls + 4;
        sl_err err = bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why);
        ck_assert_int_eq(err, SL_ERR_IO); /* only this call failed: it could be waited for */
        bed.fake->fail_at = 0;
        bed.fake->fail_symbol = "fake_event_query";
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_ERR_IO);
        bed.fake->fail_symbol = NULL;
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);
        assert_out(&bed, &shapes[0]);
        bed_close(&bed);
    }
END_TEST

/* _i: 0 a layer table, 1 memory of other uses. A hang is reported as an error within a second, and
 * ends the device. */
START_TEST(a_gpu_that_hangs_is_given_up_within_a_second)
    {
        struct bed bed;
        struct sl_error why = {0};
        struct sl_device_memory memory = {.fd = -1};
        struct sl_layer layer = {.block_stride_bytes = 64, .piece_bytes = 64, .block_count = 1};
        uint32_t index = 0;
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        layer.base = (unsigned char *)(uintptr_t)bed.pool;
        bed.fake->hangs = true;
        uint64_t begun_ns = sl_clock_monotonic_ns();

        sl_err err = _i == 0 ? bed.device->ops->layers_add(bed.device, &layer, 1, &index, &why)
                             : sl_device_memory_create(bed.device, SL_MIB, &memory, &why);

        ck_assert_int_eq(err, SL_ERR_DEVICE);
        ck_assert_uint_lt(sl_clock_monotonic_ns() - begun_ns, 30 * SL_NS_PER_S); /* slow machines */
        ck_assert_ptr_nonnull(strstr(why.text, "wait for "));
        ck_assert_int_eq(sl_device_memory_create(bed.device, SL_MIB, &memory, &why),
                         SL_ERR_DEVICE); /* it is not tried again */
        bed.fake->hangs = false;         /* not part of this test: lets the close succeed */
        sl_device_close(&bed.device);

        /* Memory that the GPU may still write to is not freed before the process ends. */
        ck_assert_int_eq(bed.fake->allocations, (_i == 0 ? 2 : 1) + 3 * CUDA_SLOTS);
        ck_assert_int_eq(bed.fake->host_allocations, CUDA_SLOTS);
        ck_assert_int_eq(bed.fake->mappings, _i);
        bed.fake->allocations = 1;
        bed.fake->host_allocations = 0;
        bed.fake->physicals = bed.fake->mappings = bed.fake->reservations = 0;
        bed_close(&bed);
    }
END_TEST

START_TEST(a_batch_that_is_refused_is_done_piece_by_piece)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        bool old = _i == 1; /* the call of 12.8, with one parameter more */
        bed_engine(&bed, &shapes[2], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, &shapes[2], PINNED, &why), SL_OK);
        way_force(&bed, SL_WAY_BATCH);
        if (old) {
            cuda_of(bed.device)->driver.copy_batch = NULL;
        }
        struct sl_device_stats *stats = &bed.device->stats;

        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);
        ck_assert_uint_gt(stats->batches, 0);
        ck_assert_uint_eq(stats->copies, 0);
        bed.fake->fail_symbol = old ? "fake_copy_batch_12" : "fake_copy_batch";
        bed.fake->fail_code = SL_CU_INVALID_VALUE;
        uint64_t batches = stats->batches;
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);
        ck_assert_uint_eq(stats->batches, batches);
        ck_assert_uint_gt(stats->batches_refused, 0);
        ck_assert_uint_gt(stats->copies, 0);
        assert_out(&bed, &shapes[2]);
        bed.fake->fail_code = SL_CU_NOT_SUPPORTED; /* then it is not called again */
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);
        uint64_t refused = stats->batches_refused;
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);
        ck_assert_uint_eq(stats->batches_refused, refused);
        bed_close(&bed);
    }
END_TEST

/* ---- memory ---- */

START_TEST(handles_of_one_allocation_are_opened_once)
    {
        struct bed bed;
        struct sl_error why = {0};
        struct sl_mapping second;
        struct sl_memory_handle handle = {
            .kind = SL_MEMORY_CUDA_IPC, .pid = (uint32_t)getpid(), .offset_bytes = 4096};
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, &shapes[0], UNPINNED, &why), SL_OK);
        memcpy(handle.ipc, bed.ipc.bytes, sizeof(handle.ipc));

        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, 100, &second, &why), SL_OK);

        ck_assert_int_eq(bed.fake->ipc_opens, 1);
        ck_assert_ptr_eq(second.base, (unsigned char *)bed.mapping.base + 4096);
        bed.device->ops->unmap(bed.device, &bed.mapping);
        ck_assert_int_eq(bed.fake->ipc_opens, 1);
        bed.device->ops->unmap(bed.device, &second);
        ck_assert_int_eq(bed.fake->ipc_opens, 0);
        bed.mapped = false;
        bed_close(&bed);
    }
END_TEST

START_TEST(memory_behind_a_shareable_descriptor_is_mapped)
    {
        struct bed bed;
        struct sl_error why = {0};
        struct sl_mapping one, two;
        sl_cu_handle physical = 0;
        int fd = -1;
        uint64_t seed = 1;
        struct sl_cu_memory memory = {.type = SL_CU_MEMORY_PINNED,
                                      .handle_types = SL_CU_HANDLE_FD,
                                      .location = {.type = SL_CU_LOCATION_DEVICE}};
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed.engine.physical_get(&physical, 4 * SL_MIB, &memory, 0), 0);
        ck_assert_int_eq(bed.engine.physical_export(&fd, physical, SL_CU_HANDLE_FD, 0), 0);
        struct sl_memory_handle handle = {
            .kind = SL_MEMORY_CUDA_FD, .pid = (uint32_t)getpid(), .fd = fd};

        ck_assert_msg(bed.device->ops->map(bed.device, &handle, 3 * SL_MIB, &one, &why) == SL_OK,
                      "%s", why.text);
        handle.offset_bytes = SL_MIB;
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, SL_MIB, &two, &why), SL_OK);

        ck_assert_int_eq(bed.fake->mappings, 1);
        ck_assert_ptr_eq(two.base, (unsigned char *)one.base + SL_MIB);
        ck_assert_int_eq(pwrite(fd, "pool", 4, SL_MIB), 4);
        ck_assert_int_eq(memcmp(two.base, "pool", 4), 0);
        bed.device->ops->unmap(bed.device, &one);
        ck_assert_int_eq(bed.fake->mappings, 1);
        bed.device->ops->unmap(bed.device, &two);
        ck_assert_int_eq(bed.fake->mappings, 0);
        handle.offset_bytes = 2 * SL_MIB; /* more than there is */
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, 4 * SL_MIB, &one, &why),
                         SL_ERR_IO);
        ck_assert_int_eq(bed.engine.physical_free(physical), 0);
        (void)close(fd);
        bed_close(&bed);
    }
END_TEST

/* The driver reports an invalid context when the process of a handle has the same pid as we, as the
 * first processes of two containers have. */
START_TEST(a_handle_that_cannot_be_opened_is_no_lost_context)
    {
        static const int codes[] = {201, 999};
        struct bed bed;
        struct sl_error why = {0};
        struct sl_mapping mapping;
        struct sl_memory_handle handle = {.kind = SL_MEMORY_CUDA_IPC, .pid = 5};
        unsigned char name[64] = {0};
        void *event = NULL;
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        bed.fake->fail_code = codes[_i];

        bed.fake->fail_symbol = "fake_ipc_open";
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, 100, &mapping, &why), SL_ERR_IO);
        ck_assert_int_eq(why.os_code, codes[_i]);
        bed.fake->fail_symbol = "fake_event_ipc_open";
        ck_assert_int_eq(bed.device->ops->event_open(bed.device, name, &event, &why),
                         SL_ERR_INVALID);
        bed.fake->fail_symbol = "fake_ipc_open";
        bed.fake->fail_sticks = true; /* now it is the context */
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, 100, &mapping, &why),
                         SL_ERR_DEVICE);

        bed.fake->fail_symbol = NULL;
        bed.fake->fail_sticks = false;
        bed.fake->stuck = 0;
        bed_close(&bed);
    }
END_TEST

/* An engine's addresses of several handles, and the server that gives them out. */
#define ROW_HANDLES 3u
struct row {
    struct bed *bed;
    sl_cu_ptr base;
    uint64_t length_bytes;
    sl_cu_handle handles[ROW_HANDLES];
    uint64_t told_bytes; /* reported instead of the first handle's length; 0: the true one */
    sl_err code;         /* an error of the engine; SL_OK: none */
    struct sl_descriptors *server;
};
static const uint64_t row_lengths[ROW_HANDLES] = {2 * SL_MIB, 4 * SL_MIB, 2 * SL_MIB};

static sl_err row_give(void *context, const struct sl_descriptors_request *ask, uint32_t first,
                       struct sl_descriptors_part *out, struct sl_error *why)
{
    struct row *row = context;
    if (row->code != SL_OK) {
        return sl_fail(why, row->code, "the engine's context is lost");
    }
    if (ask->address != row->base || ask->length_bytes != row->length_bytes || ask->life != 5) {
        return sl_fail(why, SL_ERR_STALE, "another life");
    }
    out->lengths[0] = first == 0 && row->told_bytes != 0 ? row->told_bytes : row_lengths[first];
    out->count = 1;
    out->more = first + 1 < ROW_HANDLES;
    ck_assert_int_eq(
        row->bed->engine.physical_export(&out->fds[0], row->handles[first], SL_CU_HANDLE_FD, 0), 0);
    return SL_OK;
}

static struct sl_memory_handle row_open(struct row *row, struct bed *bed)
{
    struct sl_error why = {0};
    struct sl_cu_memory memory = {.type = SL_CU_MEMORY_PINNED,
                                  .handle_types = SL_CU_HANDLE_FD,
                                  .location = {.type = SL_CU_LOCATION_DEVICE}};
    struct sl_cu_access access = {.location = memory.location, .flags = SL_CU_ACCESS_READ_WRITE};
    *row = (struct row){.bed = bed, .length_bytes = 8 * SL_MIB};
    ck_assert_int_eq(bed->engine.address_get(&row->base, row->length_bytes, 0, 0, 0), 0);
    uint64_t at = 0;
    for (uint32_t i = 0; i < ROW_HANDLES; i++) {
        ck_assert_int_eq(bed->engine.physical_get(&row->handles[i], row_lengths[i], &memory, 0), 0);
        ck_assert_int_eq(
            bed->engine.address_map(row->base + at, row_lengths[i], 0, row->handles[i], 0), 0);
        at += row_lengths[i];
    }
    ck_assert_int_eq(bed->engine.address_access(row->base, at, &access, 1), 0);
    ck_assert_msg(sl_descriptors_serve("/tmp", 0, row_give, row, &row->server, &why) == SL_OK, "%s",
                  why.text);
    struct sl_memory_handle handle = {.kind = SL_MEMORY_CUDA_PARTS, .pid = (uint32_t)getpid()};
    const struct sl_memory_name name = {.number = sl_descriptors_number(row->server),
                                        .address = row->base,
                                        .length_bytes = row->length_bytes,
                                        .life = 5};
    memcpy(handle.ipc, &name, sizeof(name));
    return handle;
}

static void row_close(struct row *row)
{
    struct sl_driver *engine = &row->bed->engine;
    sl_descriptors_stop(&row->server);
    uint64_t at = 0;
    for (uint32_t i = 0; i < ROW_HANDLES; i++) {
        ck_assert_int_eq(engine->address_unmap(row->base + at, row_lengths[i]), 0);
        ck_assert_int_eq(engine->physical_free(row->handles[i]), 0);
        at += row_lengths[i];
    }
    ck_assert_int_eq(engine->address_free(row->base, row->length_bytes), 0);
}

START_TEST(memory_of_many_handles_is_mapped_in_one_run)
    {
        struct bed bed;
        struct row row;
        struct sl_error why = {0};
        struct sl_mapping one, two;
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        struct sl_memory_handle handle = row_open(&row, &bed);
        unsigned char *theirs = (unsigned char *)(uintptr_t)row.base;
        for (uint64_t i = 0; i < row.length_bytes; i += 4096) {
            memcpy(theirs + i, &i, sizeof(i));
        }

        handle.offset_bytes = SL_MIB;
        ck_assert_msg(bed.device->ops->map(bed.device, &handle, 7 * SL_MIB, &one, &why) == SL_OK,
                      "%s", why.text);
        handle.offset_bytes = 0;
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, 100, &two, &why), SL_OK);

        ck_assert_ptr_eq(one.base, (unsigned char *)two.base + SL_MIB);
        for (uint64_t i = 0; i < row.length_bytes; i += 4096) {
            uint64_t there = 0;
            memcpy(&there, (unsigned char *)two.base + i, sizeof(there));
            ck_assert_uint_eq(there, i);
        }
        memcpy((unsigned char *)one.base + 5 * SL_MIB - 4, "crossing", 8); /* handles 1 and 2 */
        ck_assert_int_eq(memcmp(theirs + 6 * SL_MIB - 4, "crossing", 8), 0);
        ck_assert_int_eq(bed.fake->mappings, 2 * ROW_HANDLES);
        ck_assert_int_eq(bed.fake->physicals, ROW_HANDLES); /* the engine's own */
        bed.device->ops->unmap(bed.device, &one);
        bed.device->ops->unmap(bed.device, &two);
        ck_assert_int_eq(bed.fake->mappings, ROW_HANDLES);
        ck_assert_int_eq(bed.fake->reservations, 1);
        handle.offset_bytes = 2 * SL_MIB;
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, 7 * SL_MIB, &one, &why),
                         SL_ERR_INVALID); /* more than there is */
        row.told_bytes = 3 * SL_MIB;
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, SL_MIB, &one, &why),
                         SL_ERR_PROTOCOL);
        row.told_bytes = 4 * SL_MIB; /* the first handle has no such length */
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, SL_MIB, &one, &why), SL_ERR_IO);
        handle.ipc[24] ^= 1; /* of another life */
        ck_assert_int_eq(bed.device->ops->map(bed.device, &handle, SL_MIB, &one, &why),
                         SL_ERR_STALE);
        row_close(&row);
        bed_close(&bed);
    }
END_TEST

/* A swapper ends when its own device is lost, but not with an engine's device. */
START_TEST(a_lost_device_of_the_engine_is_not_ours)
    {
        struct bed bed;
        struct row row;
        struct sl_error why = {0};
        struct sl_mapping mapping;
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        struct sl_memory_handle handle = row_open(&row, &bed);
        for (uint32_t i = 0; i < 2; i++) {
            row.code = i == 0 ? SL_ERR_DEVICE : SL_ERR_INTERNAL;

            sl_err err = bed.device->ops->map(bed.device, &handle, SL_MIB, &mapping, &why);

            ck_assert_int_eq(err, SL_ERR_IO);
            ck_assert_int_eq(why.code, SL_ERR_IO);
            ck_assert_ptr_nonnull(strstr(why.text, "the engine's context is lost"));
        }
        row_close(&row);
        bed_close(&bed);
    }
END_TEST

START_TEST(memory_of_many_handles_that_fails_half_way_leaves_nothing)
    {
        struct bed bed;
        struct row row;
        struct sl_error why = {0};
        struct sl_mapping mapping;
        uint64_t seed = 1;
        sl_err err = SL_ERR_IO;
        uint32_t failed = 0;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        struct sl_memory_handle handle = row_open(&row, &bed);
        bed.fake->fail_thread = (uintptr_t)pthread_self();
        bed.fake->fail_code = SL_CU_INVALID_VALUE;

        while (err != SL_OK) {
            bed.fake->fail_at = bed.fake->calls + failed + 1;
            err = bed.device->ops->map(bed.device, &handle, 8 * SL_MIB, &mapping, &why);
            failed += err != SL_OK;
            ck_assert(err == SL_OK || err == SL_ERR_IO);
            ck_assert_int_eq(bed.fake->mappings, err == SL_OK ? 2 * ROW_HANDLES : ROW_HANDLES);
            ck_assert_int_eq(bed.fake->reservations, err == SL_OK ? 2 : 1);
            ck_assert_int_eq(bed.fake->physicals, ROW_HANDLES);
            if (err == SL_OK && bed.fake->calls >= bed.fake->fail_at) {
                bed.device->ops->unmap(bed.device,
                                       &mapping); /* a failed map has released everything */
                failed++;
                err = SL_ERR_IO;
            }
        }

        ck_assert_uint_ge(failed, 2 + 2 * ROW_HANDLES);
        bed.fake->fail_at = 0;
        bed.device->ops->unmap(bed.device, &mapping);
        row_close(&row);
        bed.fake->fail_thread = 0;
        bed_close(&bed);
    }
END_TEST

START_TEST(memory_made_for_others_is_clear_and_mapped_as_theirs)
    {
        struct bed bed;
        struct sl_error why = {0};
        struct sl_device_memory memory = {.fd = -1};
        struct sl_memory_handle handle;
        struct sl_mapping mapping;
        uint64_t seed = 1;
        bool failed = true;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        uint64_t before = bed.fake->calls;

        for (uint64_t n = 1; failed; n++) { /* whatever call fails, nothing is left */
            ck_assert_uint_lt(n, 50);
            bed.fake->fail_at = before + n;
            bed.fake->fail_code = SL_CU_OUT_OF_MEMORY;
            failed = sl_device_memory_create(bed.device, 3 * SL_MIB, &memory, &why) != SL_OK;
            before = bed.fake->calls;
            ck_assert_int_eq(bed.fake->physicals + bed.fake->reservations + bed.fake->mappings,
                             failed ? 0 : 3);
        }

        bed.fake->fail_at = 0;
        ck_assert_int_eq(sl_device_memory_export(bed.device, &memory, &handle, &why), SL_OK);
        ck_assert_msg(bed.device->ops->map(bed.device, &handle, 3 * SL_MIB, &mapping, &why) ==
                          SL_OK,
                      "%s", why.text);
        const unsigned char *bytes = mapping.base;
        ck_assert_uint_eq(bytes[0], 0); /* and each byte is as the one before it */
        ck_assert_int_eq(memcmp(bytes, bytes + 1, 3 * SL_MIB - 1), 0);
        bed.device->ops->unmap(bed.device, &mapping);
        sl_device_memory_free(bed.device, &memory);
        ck_assert_int_eq(bed.fake->physicals + bed.fake->reservations + bed.fake->mappings, 0);
        bed_close(&bed);
    }
END_TEST

static const struct {
    struct sl_memory_handle handle;
    uint64_t length_bytes;
    sl_err want;
} refused[] = {
    {{.kind = SL_MEMORY_SHARED_FD}, 4096, SL_ERR_UNSUPPORTED},
    {{.kind = SL_MEMORY_CUDA_IPC}, 4096, SL_ERR_IO}, /* no handle of the driver's */
    {{.kind = SL_MEMORY_CUDA_IPC}, 0, SL_ERR_INVALID},
    {{.kind = SL_MEMORY_CUDA_IPC, .offset_bytes = UINT64_MAX}, 2, SL_ERR_INVALID},
    {{.kind = SL_MEMORY_CUDA_FD, .fd = -1, .pid = 1}, 4096, SL_ERR_INVALID},
    {{.kind = SL_MEMORY_CUDA_FD, .fd = 1023}, 4096, SL_ERR_NOT_FOUND}, /* of this process */
    {{.kind = SL_MEMORY_CUDA_FD, .fd = 0, .pid = 0x3ffffff}, 4096, SL_ERR_NOT_FOUND},
};

START_TEST(memory_that_cannot_be_mapped_is_refused)
    {
        struct bed bed;
        struct sl_error why = {0};
        struct sl_mapping mapping;
        struct sl_memory_handle handle = refused[_i].handle;
        uint64_t seed = 1;
        handle.pid = handle.pid == 0 ? (uint32_t)getpid() : handle.pid;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);

        sl_err err =
            bed.device->ops->map(bed.device, &handle, refused[_i].length_bytes, &mapping, &why);

        ck_assert_msg(err == refused[_i].want, "%s", why.text);
        ck_assert_uint_gt(strlen(why.text), 0);
        bed_close(&bed);
    }
END_TEST

START_TEST(more_than_the_allocation_is_refused)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        bed.pool_bytes++;

        ck_assert_int_eq(bed_connect(&bed, &shapes[0], UNPINNED, &why), SL_ERR_INVALID);

        ck_assert_ptr_nonnull(strstr(why.text, "are registered"));
        bed_close(&bed);
    }
END_TEST

START_TEST(pinning_that_fails_half_way_is_undone_and_moves_go_on)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        bed.fake->registered_max = bed.fake->registered + 1;
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);

        ck_assert_int_eq(bed_connect(&bed, &shapes[0], PINNED, &why), SL_ERR_NO_MEMORY);

        ck_assert_ptr_nonnull(strstr(why.text, "pin 8388608 bytes after 33554432 of 41943040"));
        bool more = false;
        ck_assert_int_eq(bed.fake->registrations, 1); /* a slice a step */
        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK);
        ck_assert(more);
        ck_assert_int_eq(bed.fake->registrations, 0);
        ck_assert_uint_eq(bed.device->stats.pinned_bytes, 0);
        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK); /* not tried again */
        ck_assert(!more);
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);
        assert_out(&bed, &shapes[0]);
        ck_assert_uint_eq(bed.device->stats.bounced_bytes, MOVES * bed.value_bytes);
        bed_close(&bed);
    }
END_TEST

START_TEST(an_arena_is_pinned_as_it_grows)
    {
        struct bed bed;
        struct sl_error why = {0};
        bool more = false;
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, &shapes[0], HALF, &why), SL_OK);
        ck_assert_uint_eq(bed.device->stats.pinned_bytes, CUDA_PIN_BYTES);

        ck_assert_int_eq(sl_device_host_add(bed.device, bed.arena, ARENA_BYTES, ARENA_BYTES, &why),
                         SL_OK);
        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK);

        ck_assert_uint_eq(bed.device->stats.pinned_bytes, ARENA_BYTES);
        ck_assert_int_eq(bed.fake->registrations, 2);
        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);
        ck_assert_uint_eq(bed.device->stats.bounced_bytes, 0);
        bed_close(&bed);
    }
END_TEST

/* A terabyte takes minutes: each call unpins one slice, within milliseconds. */
START_TEST(an_arena_is_unpinned_in_steps)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(bed_device(&bed, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, &shapes[0], PINNED, &why), SL_OK);
        ck_assert_int_eq(bed.fake->registrations, 2);

        ck_assert(!sl_device_host_remove(bed.device, bed.arena));

        ck_assert_int_eq(bed.fake->registrations, 1);
        ck_assert_uint_eq(bed.device->stats.pinned_bytes, CUDA_PIN_BYTES);
        bool more = true; /* it is not pinned again meanwhile */
        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK);
        ck_assert(!more);
        ck_assert(sl_device_host_remove(bed.device, bed.arena));
        ck_assert_int_eq(bed.fake->registrations, 0);
        ck_assert_uint_eq(bed.device->stats.pinned_bytes, 0);
        ck_assert(sl_device_host_remove(bed.device, bed.arena)); /* no longer known */
        bed.added = false;
        bed_close(&bed);
    }
END_TEST

/* ---- opening ---- */

START_TEST(kernels_take_no_more_multiprocessors_than_allowed)
    {
        struct sl_device_options options = {.name = "cuda",
                                            .staging_bytes = STAGING_BYTES,
                                            .multiprocessors = (uint32_t)_i,
                                            .beside = SL_BESIDE_KERNELS, /* only slots */
                                            .driver_path = FAKE_CUDA,
                                            .kernels = "image"};
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        unsigned allowed = _i == 0 || _i > FAKE_CUDA_SM ? FAKE_CUDA_SM : (unsigned)_i;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(sl_device_open(&options, &bed.device, &why), SL_OK);
        ck_assert_int_eq(bed_connect(&bed, &shapes[0], PINNED, &why), SL_OK);
        way_force(&bed, SL_WAY_STAGED);

        ck_assert_int_eq(bed.device->ops->move(bed.device, bed.moves, MOVES, true, true, &why),
                         SL_OK);

        ck_assert_uint_eq(bed.fake->grid_max, 2 * allowed);
        ck_assert_int_eq(bed.fake->stream_priority, FAKE_CUDA_PRIORITY);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_device_that_cannot_be_says_why)
    {
        struct sl_device *device = NULL;
        struct sl_error why = {0};
        struct sl_device_options options = {.name = "cuda",
                                            .staging_bytes = STAGING_BYTES,
                                            .driver_path = "/nowhere/libcuda.so.1",
                                            .kernels = "image"};
        ck_assert_int_eq(sl_device_open(&options, &device, &why), SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(why.text, "no driver: /nowhere/libcuda.so.1"));
        options.driver_path = FAKE_CUDA;
        options.device_index = 3;
        ck_assert_int_eq(sl_device_open(&options, &device, &why), SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(why.text, "no GPU 3, the driver has 1"));

        options.name = "auto"; /* then the host, and why */
        ck_assert_int_eq(sl_device_open(&options, &device, &why), SL_OK);
        ck_assert_str_eq(device->ops->name, "host");
        ck_assert_str_eq(device->text, "device host: device cuda: no GPU 3, the driver has 1");
        sl_device_close(&device);
        options.device_index = 0;
        ck_assert_int_eq(sl_device_open(&options, &device, &why), SL_OK);
        ck_assert_str_eq(device->ops->name, "cuda");
        ck_assert_str_eq(device->text, "device cuda: GPU 0 Fake (sm_90, 4 multiprocessors, 4 for "
                                       "copies), driver 13.0, without MPS, kernels by given");
        sl_device_close(&device);
        ck_assert_ptr_null(device);
    }
END_TEST

/* ---- measuring ---- */

START_TEST(what_was_measured_once_is_kept)
    {
        struct sl_tmpdir directory;
        sl_tmpdir_make(&directory, "/tmp");
        struct sl_device_options options = {.name = "cuda",
                                            .staging_bytes = 8 * SL_MIB,
                                            .cache_directory = directory.path,
                                            .measure = true,
                                            .probe_bytes = SL_MIB,
                                            .driver_path = FAKE_CUDA,
                                            .kernels = "image"};
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        uint32_t steps = 0;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(sl_device_open(&options, &bed.device, &why), SL_OK);
        uint64_t copies = bed.device->stats.copies;

        for (bool more = true; more; steps++) {
            ck_assert_msg(sl_device_work(bed.device, &more, &why) == SL_OK, "%s", why.text);
        }

        ck_assert_uint_eq(steps, SL_CROSSOVER_FIELDS);
        ck_assert(cuda_of(bed.device)->crossover.measured);
        ck_assert_uint_eq(bed.device->stats.copies, copies);
        ck_assert_int_eq(bed.fake->allocations, 1 + 3 * (int)CUDA_SLOTS); /* its own are gone */
        struct sl_crossover kept = cuda_of(bed.device)->crossover;
        for (uint32_t i = 0; i < SL_CROSSOVER_FIELDS; i++) {
            ck_assert_uint_gt((&kept.speed[0][0][0][0][0])[i], 0);
        }
        sl_device_close(&bed.device);
        ck_assert_int_eq(sl_device_open(&options, &bed.device, &why), SL_OK);
        ck_assert_int_eq(memcmp(&cuda_of(bed.device)->crossover, &kept, sizeof(kept)), 0);
        bool more = true;
        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK);
        ck_assert(!more);
        bed_close(&bed);
        sl_tmpdir_remove(&directory);
    }
END_TEST

START_TEST(a_measurement_that_fails_leaves_nothing)
    {
        struct sl_device_options options = {.name = "cuda",
                                            .staging_bytes = STAGING_BYTES,
                                            .measure = true,
                                            .probe_bytes = SL_MIB,
                                            .driver_path = FAKE_CUDA,
                                            .kernels = "image"};
        static const char *const calls[] = {"fake_memory_get", "fake_host_get", "fake_launch",
                                            "fake_event_record", "fake_to_host"};
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 1;
        bool more = true;
        sl_err err = SL_OK;
        bed_engine(&bed, &shapes[0], &seed);
        ck_assert_int_eq(sl_device_open(&options, &bed.device, &why), SL_OK);
        bed.fake->fail_symbol = calls[_i];
        bed.fake->fail_code = SL_CU_OUT_OF_MEMORY;

        while (err == SL_OK && more) {
            err = sl_device_work(bed.device, &more, &why);
        }

        ck_assert_int_eq(err, SL_ERR_NO_MEMORY);
        bed.fake->fail_symbol = NULL;
        ck_assert(!cuda_of(bed.device)->crossover.measured);
        ck_assert_int_eq(bed.fake->allocations, 1 + 3 * (int)CUDA_SLOTS);
        ck_assert_int_eq(sl_device_work(bed.device, &more, &why), SL_OK); /* not tried again */
        ck_assert(!more);
        bed_close(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda");
    TCase *moving = tcase_create("moving"), *failing = tcase_create("failing"),
          *memory = tcase_create("memory"), *opening = tcase_create("opening");
    tcase_add_loop_test(moving, values_that_the_gpu_digests_are_not_cut_between_slots, 0, 2);
    tcase_add_loop_test(moving, every_way_moves_what_the_plain_loop_moves, 0,
                        (int)(SL_COUNT(shapes) * SL_WAY_COUNT));
    tcase_add_loop_test(moving, ranges_of_layers_go_to_their_place, 0,
                        (int)(SL_COUNT(shapes) * SL_WAY_COUNT));
    tcase_add_loop_test(moving, a_batch_that_is_refused_is_done_piece_by_piece, 0, 2);
    tcase_add_loop_test(failing, whatever_call_fails_nothing_is_left_behind, 0, 6);
    tcase_add_test(failing, after_a_sticky_error_nothing_is_tried_any_more);
    tcase_add_test(failing, copies_that_cannot_be_waited_for_are_the_end);
    tcase_add_loop_test(failing, a_gpu_that_hangs_is_given_up_within_a_second, 0, 2);
    tcase_add_test(memory, handles_of_one_allocation_are_opened_once);
    tcase_add_test(memory, memory_behind_a_shareable_descriptor_is_mapped);
    tcase_add_loop_test(memory, a_handle_that_cannot_be_opened_is_no_lost_context, 0, 2);
    tcase_add_test(memory, memory_of_many_handles_is_mapped_in_one_run);
    tcase_add_test(memory, memory_of_many_handles_that_fails_half_way_leaves_nothing);
    tcase_add_test(memory, a_lost_device_of_the_engine_is_not_ours);
    tcase_add_test(memory, memory_made_for_others_is_clear_and_mapped_as_theirs);
    tcase_add_loop_test(memory, memory_that_cannot_be_mapped_is_refused, 0, SL_COUNT(refused));
    tcase_add_test(memory, more_than_the_allocation_is_refused);
    tcase_add_test(memory, pinning_that_fails_half_way_is_undone_and_moves_go_on);
    tcase_add_test(memory, an_arena_is_pinned_as_it_grows);
    tcase_add_test(memory, an_arena_is_unpinned_in_steps);
    tcase_add_loop_test(opening, kernels_take_no_more_multiprocessors_than_allowed, 0, 6);
    tcase_add_test(opening, a_device_that_cannot_be_says_why);
    tcase_add_test(opening, what_was_measured_once_is_kept);
    tcase_add_loop_test(opening, a_measurement_that_fails_leaves_nothing, 0, 5);
    suite_add_tcase(suite, moving);
    suite_add_tcase(suite, failing);
    suite_add_tcase(suite, memory);
    suite_add_tcase(suite, opening);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures_count = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures_count == 0 ? 0 : 1;
}
