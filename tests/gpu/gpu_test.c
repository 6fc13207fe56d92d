/* tests/gpu/gpu_test.c - the cuda back end on a GPU; skipped with the reason where there is
 * none. The same tests run on a driver that plays a GPU: SLUICE_TEST_DRIVER names its library. */
#include "cuda/cuda_internal.h"
#include "cuda/sl_gpu_bench.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAYERS      4u
#define BLOCKS      32u
#define STAGING     SL_MIB
#define ARENA_BYTES (64 * SL_MIB)

static const char *program; /* path of this program */

static struct sl_device_options options_make(void)
{
    const char *driver = getenv("SLUICE_TEST_DRIVER");
    return (struct sl_device_options){.name = "cuda",
                                      .staging_bytes = STAGING,
                                      .multiprocessors = 8,
                                      .probe_bytes = driver == NULL ? 0 : SL_MIB,
                                      .driver_path = driver,
                                      .kernels = driver == NULL ? NULL : "image"};
}

static struct sl_device *device_open(void)
{
    struct sl_device_options options = options_make();
    struct sl_device *device = NULL;
    struct sl_error why = {0};
    ck_assert_msg(sl_device_open(&options, &device, &why) == SL_OK, "%s", why.text);
    return device;
}

static unsigned char pattern(uint64_t at)
{
    return (unsigned char)(at * 131 + at / 4099 + (at >> 20));
}

/* Copies bytes to and from device memory of any kind, through pinned memory. */
static bool device_bytes(struct cuda_device *cuda, sl_cu_ptr at, unsigned char *bytes,
                         size_t length, bool to_host)
{
    struct cuda_slot *slot = &cuda->slots[0];
    sl_cu_result result = 0;
    for (size_t done = 0; result == 0 && done < length; done += cuda->half_bytes) {
        size_t part = SL_MIN(length - done, (size_t)cuda->half_bytes);
        if (!to_host) {
            memcpy(slot->bounce, bytes + done, part);
        }
        result = to_host ? cuda->driver.to_host(slot->bounce, at + done, part, slot->stream)
                         : cuda->driver.to_device(at + done, slot->bounce, part, slot->stream);
        result = result != 0 ? result : cuda->driver.stream_wait(slot->stream);
        if (to_host) {
            memcpy(bytes + done, slot->bounce, part);
        }
    }
    return result == 0;
}

static const struct {
    uint64_t piece_bytes, gap_bytes;
    bool cross_layer;
    uint64_t fragment_bytes; /* cross_layer: the runs of the layers alternate; 0: a piece is one
                              * run */
} shapes[] = {
    {4096, 0, false, 0},     {16384, 0, false, 0},  {65536, 0, false, 0},   {1000, 9, false, 0},
    {16387, 3, false, 0},    {8192, 0, true, 0},    {777, 16, true, 0},     {150000, 0, false, 0},
    {600000, 0, false, 0},   {65536, 0, true, 256}, {16384, 48, true, 128}, {1001, 3, true, 77},
    {600000, 0, true, 2000},
};

struct bed {
    struct sl_device *device;
    struct cuda_device *cuda;
    sl_cu_ptr pool;
    size_t pool_bytes;
    unsigned char *pool_copy, *arena, *arena_copy;
    uint64_t piece_bytes, stride_bytes, layer_step_bytes, value_bytes, fragment_bytes;
    uint32_t layers_index, move_count;
    struct sl_move moves[BLOCKS];
};

static void bed_open(struct bed *bed, size_t shape, bool pinned)
{
    struct sl_error why = {0};
    struct sl_layer layers[LAYERS];
    *bed = (struct bed){.device = device_open(),
                        .piece_bytes = shapes[shape].piece_bytes,
                        .fragment_bytes = shapes[shape].fragment_bytes};
    bed->cuda = cuda_of(bed->device);
    bool cross = shapes[shape].cross_layer;
    bed->value_bytes = LAYERS * bed->piece_bytes;
    bed->stride_bytes = (cross ? bed->value_bytes : bed->piece_bytes) + shapes[shape].gap_bytes;
    bed->layer_step_bytes = !cross                    ? bed->stride_bytes * BLOCKS
                            : bed->fragment_bytes > 0 ? bed->fragment_bytes
                                                      : bed->piece_bytes;
    bed->pool_bytes = bed->stride_bytes * BLOCKS * (cross ? 1 : LAYERS);
    ck_assert_int_eq(bed->cuda->driver.memory_get(&bed->pool, bed->pool_bytes), 0);
    bed->pool_copy = malloc(bed->pool_bytes);
    bed->arena_copy = malloc(ARENA_BYTES);
    for (size_t i = 0; i < bed->pool_bytes; i++) {
        bed->pool_copy[i] = pattern(i + shape);
    }
    ck_assert(device_bytes(bed->cuda, bed->pool, bed->pool_copy, bed->pool_bytes, false));
    bed->arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(bed->arena != MAP_FAILED);
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint64_t at = bed->pool + l * bed->layer_step_bytes;
        layers[l] = (struct sl_layer){.base = (unsigned char *)(uintptr_t)at,
                                      .block_stride_bytes = bed->stride_bytes,
                                      .piece_bytes = bed->piece_bytes,
                                      .block_count = BLOCKS,
                                      .fragment_bytes = bed->fragment_bytes,
                                      .fragment_stride_bytes = LAYERS * bed->fragment_bytes};
    }
    ck_assert_msg(bed->device->ops->layers_add(bed->device, layers, LAYERS, &bed->layers_index,
                                               &why) == SL_OK,
                  "%s", why.text);
    ck_assert_int_eq(
        sl_device_host_add(bed->device, bed->arena, ARENA_BYTES, pinned ? ARENA_BYTES : 0, &why),
        SL_OK);
    for (bool more = true; more;) {
        ck_assert_msg(sl_device_work(bed->device, &more, &why) == SL_OK, "%s", why.text);
    }
    ck_assert_uint_eq(bed->device->stats.pinned_bytes, pinned ? ARENA_BYTES : 0);
    /* Extents around the boundary of two slices, ids not in order. */
    uint64_t slot_bytes = sl_align_up(bed->value_bytes, 4096);
    bed->move_count = (uint32_t)SL_MIN((uint64_t)BLOCKS, ARENA_BYTES / slot_bytes - 1);
    for (uint32_t i = 0; i < bed->move_count; i++) {
        uint64_t at = (CUDA_PIN_BYTES + ARENA_BYTES - bed->move_count / 2 * slot_bytes -
                       slot_bytes / 4096 / 2 * 4096 + i * slot_bytes) %
                      (ARENA_BYTES - slot_bytes);
        bed->moves[i] = (struct sl_move){.host = bed->arena + at / 4096 * 4096,
                                         .device_block = (i * UINT64_C(37)) % BLOCKS,
                                         .layers_index = bed->layers_index};
    }
}

static void bed_close(struct bed *bed)
{
    while (!sl_device_host_remove(bed->device, bed->arena)) {
    }
    bed->device->ops->layers_remove(bed->device, bed->layers_index);
    ck_assert_int_eq(bed->cuda->driver.memory_free(bed->pool), 0);
    sl_device_close(&bed->device);
    (void)munmap(bed->arena, ARENA_BYTES);
    free(bed->pool_copy);
    free(bed->arena_copy);
}

static void way_force(struct cuda_device *cuda, enum sl_way way)
{
    uint32_t *speed = &cuda->crossover.speed[0][0][0][0][0];
    cuda->crossover.measured = true;
    for (uint32_t i = 0; i < SL_CROSSOVER_FIELDS; i++) {
        speed[i] = i % SL_WAY_COUNT == way ? 2 : 1;
    }
}

static uint64_t piece_offset(const struct bed *bed, const struct sl_move *move, uint32_t layer)
{
    return layer * bed->layer_step_bytes + move->device_block * bed->stride_bytes;
}

/* Between the copy of the pool and a piece of a value. */
static void piece_copy(const struct bed *bed, const struct sl_move *move, uint32_t layer,
                       unsigned char *piece, bool to_pool)
{
    uint64_t run_bytes = bed->fragment_bytes == 0 ? bed->piece_bytes : bed->fragment_bytes;
    unsigned char *block = bed->pool_copy + piece_offset(bed, move, layer);
    for (uint64_t at = 0; at < bed->piece_bytes; at += run_bytes) {
        memcpy(to_pool ? block : piece + at, to_pool ? piece + at : block, run_bytes);
        block += LAYERS * run_bytes;
    }
}

/* Digests of blocks equal those of values, by the kernel and the CPU; of all layers, of the last
 * ones. */
static void blocks_digest(struct bed *bed, size_t shape)
{
    enum sl_beside beside = bed->cuda->beside;
    for (uint32_t way = 0; way < 3; way++) {
        struct sl_move moves[BLOCKS];
        struct sl_error why = {0};
        uint32_t first = way == 1 ? 1 : 0;
        uint64_t from_bytes = first * bed->piece_bytes, kernels = bed->device->stats.kernels;
        for (uint32_t i = 0; i < bed->move_count; i++) {
            moves[i] = (struct sl_move){.device_block = bed->moves[i].device_block,
                                        .layers_index = bed->layers_index,
                                        .first_layer = first,
                                        .layer_end = LAYERS};
        }
        bed->cuda->beside = way == 2 ? SL_BESIDE_COPIES : SL_BESIDE_KERNELS;
        ck_assert_msg(sl_device_digest_begin(bed->device, moves, bed->move_count, &why) == SL_OK &&
                          sl_device_move_end(bed->device, true, &why) == SL_OK,
                      "%s", why.text);
        ck_assert((bed->device->stats.kernels > kernels) == (way < 2));
        for (uint32_t i = 0; i < bed->move_count; i++) {
            struct sl_digest want =
                sl_digest_of(bed->moves[i].host + from_bytes, bed->value_bytes - from_bytes);
            ck_assert_uint_eq(moves[i].done, 1);
            ck_assert_msg(sl_digest_equal(moves[i].digest, want), "shape %zu, block %u, way %u",
                          shape, i, way);
        }
    }
    bed->cuda->beside = beside;
}

static void out_and_in(struct bed *bed, size_t shape)
{
    struct sl_error why = {0};
    unsigned char *pool_now = malloc(bed->pool_bytes), *piece = malloc(bed->piece_bytes);
    ck_assert_msg(
        bed->device->ops->move(bed->device, bed->moves, bed->move_count, true, true, &why) == SL_OK,
        "%s", why.text);
    for (uint32_t i = 0; i < bed->move_count; i++) {
        const struct sl_move *move = &bed->moves[i];
        ck_assert_uint_eq(move->done, 1);
        for (uint32_t l = 0; l < LAYERS; l++) {
            piece_copy(bed, move, l, piece, false);
            ck_assert_msg(memcmp(move->host + l * bed->piece_bytes, piece, bed->piece_bytes) == 0,
                          "shape %zu, value %u, layer %u", shape, i, l);
        }
        ck_assert(sl_digest_equal(move->digest, sl_digest_of(move->host, bed->value_bytes)));
    }
    blocks_digest(bed, shape);
    for (uint32_t i = 0; i < bed->move_count; i++) {
        struct sl_move *move = &bed->moves[i];
        for (uint64_t k = 0; k < bed->value_bytes; k++) {
            move->host[k] = (unsigned char)(pattern(k + i) ^ 0x5a);
        }
        for (uint32_t l = 0; l < LAYERS; l++) {
            piece_copy(bed, move, l, move->host + l * bed->piece_bytes, true);
        }
    }
    ck_assert_msg(bed->device->ops->move(bed->device, bed->moves, bed->move_count, false, false,
                                         &why) == SL_OK,
                  "%s", why.text);
    ck_assert(device_bytes(bed->cuda, bed->pool, pool_now, bed->pool_bytes, true));
    ck_assert_msg(memcmp(pool_now, bed->pool_copy, bed->pool_bytes) == 0, "shape %zu", shape);
    blocks_digest(bed, shape); /* the result of a load */
    free(pool_now);
    free(piece);
}

START_TEST(every_way_moves_every_byte_there_and_back)
    {
        size_t shape = (size_t)_i / SL_WAY_COUNT / 2;
        struct bed bed;
        bed_open(&bed, shape, _i % 2 == 0);
        way_force(bed.cuda, (enum sl_way)(_i / 2 % (int)SL_WAY_COUNT));
        out_and_in(&bed, shape);
        bed_close(&bed);
    }
END_TEST

/* ---- memory of another process ---- */

/* As torch allocates: tensors are somewhere in a large allocation, at multiples of 512, and the
 * handle names the allocation. Here there are two: K, and V with runs of heads. */
#define SEGMENT_BYTES (UINT64_C(20) * SL_MIB)
#define TENSOR_BYTES  UINT64_C(262144)
#define TENSOR_BLOCKS 4u
#define RUN_BYTES     256u
static const uint64_t tensors[2] = {512 * 2049, 512 * 12345};

static unsigned char *segment_make(void)
{
    unsigned char *bytes = malloc(SEGMENT_BYTES);
    for (size_t i = 0; bytes != NULL && i < SEGMENT_BYTES; i++) {
        bytes[i] = pattern(i);
    }
    return bytes;
}

/* Where byte `at` of a block's value is in the segment: K's block, then every other run of V's. */
static uint64_t segment_place(uint64_t block, uint64_t at)
{
    uint64_t piece = TENSOR_BYTES / TENSOR_BLOCKS, in_v = at - piece;
    return at < piece
               ? tensors[0] + block * piece + at
               : tensors[1] + block * piece + in_v / RUN_BYTES * 2 * RUN_BYTES + in_v % RUN_BYTES;
}
#define TENSOR_VALUE (TENSOR_BYTES / TENSOR_BLOCKS * 3 / 2)

static int engine(int said, int heard)
{
    struct sl_device_options options = options_make();
    struct sl_device *device = NULL;
    struct sl_error why = {0};
    struct sl_cu_ipc ipc;
    sl_cu_ptr segment = 0;
    unsigned char word;
    if (sl_device_open(&options, &device, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    struct cuda_device *cuda = cuda_of(device);
    unsigned char *bytes = segment_make(), *back = malloc(SEGMENT_BYTES);
    if (bytes == NULL || back == NULL || cuda->driver.memory_get(&segment, SEGMENT_BYTES) != 0 ||
        cuda->driver.ipc_get(&ipc, segment) != 0) {
        free(bytes);
        free(back);
        return 1;
    }
    if (!device_bytes(cuda, segment, bytes, SEGMENT_BYTES, false) ||
        write(said, &ipc, sizeof(ipc)) != (ssize_t)sizeof(ipc) || read(heard, &word, 1) != 1) {
        return 1;
    }
    /* Exactly what the other process has written. */
    for (uint64_t block = 0; block < TENSOR_BLOCKS; block++) {
        for (uint64_t at = 0; at < TENSOR_VALUE; at++) {
            bytes[segment_place(block, at)] ^= 0xff;
        }
    }
    bool right = device_bytes(cuda, segment, back, SEGMENT_BYTES, true) &&
                 memcmp(back, bytes, SEGMENT_BYTES) == 0;
    free(bytes);
    free(back);
    (void)cuda->driver.memory_free(segment);
    sl_device_close(&device);
    return right ? 0 : 2;
}

/* The GPU's digests of the blocks are those of the values. */
static void engine_blocks_check(struct sl_device *device, const struct sl_move *moves)
{
    struct sl_error why = {0};
    struct sl_move blocks[TENSOR_BLOCKS];
    memcpy(blocks, moves, sizeof(blocks));
    ck_assert_msg(sl_device_digest_begin(device, blocks, TENSOR_BLOCKS, &why) == SL_OK &&
                      sl_device_move_end(device, true, &why) == SL_OK,
                  "%s", why.text);
    for (uint32_t b = 0; b < TENSOR_BLOCKS; b++) {
        ck_assert(sl_digest_equal(blocks[b].digest, sl_digest_of(moves[b].host, TENSOR_VALUE)));
    }
}

START_TEST(memory_of_another_process_is_read_and_written)
    {
        int out[2], in[2], status = -1;
        struct sl_error why = {0};
        struct sl_mapping mappings[2];
        char said[16], heard[16];
        ck_assert_int_eq(pipe(out) + pipe(in), 0);
        snprintf(said, sizeof(said), "%d", out[1]);
        snprintf(heard, sizeof(heard), "%d", in[0]);
        pid_t child = fork(); /* before this process has a context */
        if (child == 0) {
            execl(program, program, "engine", said, heard, (char *)NULL);
            _exit(127);
        }
        (void)close(out[1]);
        struct sl_memory_handle handle = {.kind = SL_MEMORY_CUDA_IPC, .pid = (uint32_t)child};
        ck_assert_int_eq(read(out[0], handle.ipc, sizeof(handle.ipc)), sizeof(handle.ipc));
        struct sl_device *device = device_open();

        struct sl_layer layers[2];
        for (uint32_t t = 0; t < 2; t++) {
            handle.offset_bytes = tensors[t];
            ck_assert_msg(device->ops->map(device, &handle, TENSOR_BYTES, &mappings[t], &why) ==
                              SL_OK,
                          "%s", why.text);
            layers[t] = (struct sl_layer){.base = mappings[t].base,
                                          .block_stride_bytes = TENSOR_BYTES / TENSOR_BLOCKS,
                                          .piece_bytes = TENSOR_BYTES / TENSOR_BLOCKS / (t + 1),
                                          .block_count = TENSOR_BLOCKS,
                                          .fragment_bytes = t == 0 ? 0 : RUN_BYTES,
                                          .fragment_stride_bytes = t == 0 ? 0 : 2 * RUN_BYTES};
        }
        unsigned char *host = malloc(TENSOR_BLOCKS * TENSOR_VALUE);
        struct sl_move moves[TENSOR_BLOCKS];
        uint32_t index = 0;
        ck_assert_msg(device->ops->layers_add(device, layers, 2, &index, &why) == SL_OK, "%s",
                      why.text);
        for (uint32_t b = 0; b < TENSOR_BLOCKS; b++) {
            moves[b] = (struct sl_move){
                .host = host + b * TENSOR_VALUE, .device_block = b, .layers_index = index};
        }
        ck_assert_int_eq(device->ops->move(device, moves, TENSOR_BLOCKS, true, true, &why), SL_OK);
        engine_blocks_check(device, moves);
        bool right = true;
        for (size_t i = 0; i < TENSOR_BLOCKS * TENSOR_VALUE; i++) {
            right &= host[i] == pattern(segment_place(i / TENSOR_VALUE, i % TENSOR_VALUE));
            host[i] = (unsigned char)(host[i] ^ 0xff);
        }
        ck_assert(right);
        ck_assert_int_eq(device->ops->move(device, moves, TENSOR_BLOCKS, false, false, &why),
                         SL_OK);
        engine_blocks_check(device, moves);
        ck_assert_int_eq(write(in[1], "x", 1), 1);
        ck_assert_int_eq(waitpid(child, &status, 0), child);

        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
        device->ops->layers_remove(device, index);
        device->ops->unmap(device, &mappings[0]);
        device->ops->unmap(device, &mappings[1]);
        sl_device_close(&device);
        free(host);
    }
END_TEST

START_TEST(memory_behind_a_descriptor_is_read)
    {
        struct sl_device *device = device_open();
        struct cuda_device *cuda = cuda_of(device);
        struct sl_error why = {0};
        struct sl_cu_memory memory = {.type = SL_CU_MEMORY_PINNED,
                                      .handle_types = SL_CU_HANDLE_FD,
                                      .location = {.type = SL_CU_LOCATION_DEVICE, .id = cuda->gpu}};
        size_t unit = 0;
        sl_cu_handle physical = 0;
        struct sl_mapping mapping;
        unsigned char bytes[4096], back[4096] = {0};
        int fd = -1;
        ck_assert_int_eq(cuda->driver.granularity(&unit, &memory, SL_CU_GRANULARITY_MINIMUM), 0);
        ck_assert_int_eq(cuda->driver.physical_get(&physical, 2 * unit, &memory, 0), 0);
        ck_assert_int_eq(cuda->driver.physical_export(&fd, physical, SL_CU_HANDLE_FD, 0), 0);
        struct sl_memory_handle handle = {
            .kind = SL_MEMORY_CUDA_FD, .pid = (uint32_t)getpid(), .fd = fd, .offset_bytes = unit};

        ck_assert_msg(device->ops->map(device, &handle, unit, &mapping, &why) == SL_OK, "%s",
                      why.text);

        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = pattern(i);
        }
        sl_cu_ptr at = (uintptr_t)mapping.base;
        ck_assert(device_bytes(cuda, at, bytes, sizeof(bytes), false));
        ck_assert(device_bytes(cuda, at, back, sizeof(back), true));
        ck_assert_int_eq(memcmp(bytes, back, sizeof(bytes)), 0);
        device->ops->unmap(device, &mapping);
        ck_assert_int_eq(cuda->driver.physical_free(physical), 0);
        (void)close(fd);
        sl_device_close(&device);
    }
END_TEST

/* ---- the benchmark ---- */

static void row_seen(void *context, const struct sl_gpu_bench_row *row)
{
    uint32_t *seen = context;
    ck_assert(row->whole > 0 && row->single > 0 && row->move > 0);
    ck_assert(row->digested > 0);
    ck_assert_uint_le(row->drains, 1); /* its slices follow each other */
    ck_assert(row->ways[SL_WAY_COPIES] == 0 && row->ways[SL_WAY_BATCH] > 0);
    (*seen)++;
}

START_TEST(the_benchmark_compares_what_it_moves)
    {
        uint32_t seen = 0;
        struct sl_error why = {0};
        struct sl_gpu_bench_result result;
        struct sl_gpu_bench_options options = {.device = options_make(),
                                               .bytes_max = 5 * SL_MIB,
                                               .rounds = 1,
                                               .tmpfs = "/dev/shm",
                                               .size_count = 2,
                                               .sizes = {4096, 16384},
                                               .count_count = 1,
                                               .counts = {1000},
                                               .ways = {false, true, true, true},
                                               .values = {true, true, true},
                                               .memories = {true, true},
                                               .found = row_seen,
                                               .context = &seen};
        options.device.staging_bytes = 8 * SL_MIB;

        ck_assert_msg(sl_gpu_bench_run(&options, &result, &why) == SL_OK, "%s", why.text);

        ck_assert_uint_eq(seen, 12); /* 1,000 pieces of 4 KiB, in and out, of each kind */
        ck_assert_uint_eq(result.rows, 12);
        ck_assert_uint_eq(result.rows_left_out, 12);
        ck_assert_uint_eq(result.rows_late, 0);
        ck_assert_str_eq(result.note, "");
        ck_assert_uint_ge(result.checked_bytes, 2 * 2 * 4096000);
        ck_assert(result.crossover.measured);
    }
END_TEST

int main(int argc, char **argv)
{
    struct sl_device_options options = options_make();
    struct sl_device *device = NULL;
    struct sl_error why = {0};
    program = "/proc/self/exe";
    if (argc == 4 && strcmp(argv[1], "engine") == 0) {
        return engine(atoi(argv[2]), atoi(argv[3]));
    }
    /* In a process of its own: a context does not survive a fork. */
    pid_t child = fork();
    if (child == 0) {
        sl_err err = sl_device_open(&options, &device, &why);
        printf(err == SL_OK ? "%s\n" : "skipped: %s\n", err == SL_OK ? device->text : why.text);
        fflush(stdout);
        sl_device_close(&device);
        _exit(err == SL_OK ? 0 : err == SL_ERR_UNSUPPORTED ? 77 : 1);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    Suite *suite = suite_create("gpu");
    /* The check-up runs only the moves (CK_RUN_CASE), of this many first shapes. */
    const char *few = getenv("SLUICE_TEST_SHAPES");
    int count = few == NULL ? (int)SL_COUNT(shapes) : SL_MIN(atoi(few), (int)SL_COUNT(shapes));
    TCase *ways = tcase_create("ways");
    tcase_set_timeout(ways, 120);
    tcase_add_loop_test(ways, every_way_moves_every_byte_there_and_back, 0,
                        count * (int)SL_WAY_COUNT * 2);
    suite_add_tcase(suite, ways);
    TCase *cases = tcase_create("gpu");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, memory_of_another_process_is_read_and_written);
    tcase_add_test(cases, memory_behind_a_descriptor_is_read);
    tcase_add_test(cases, the_benchmark_compares_what_it_moves);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    /* In one process the context is created once: under a tool each one costs a second. */
    if (srunner_fork_status(runner) == CK_NOFORK &&
        sl_device_open(&options, &device, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    sl_device_close(&device);
    return failures == 0 ? 0 : 1;
}
