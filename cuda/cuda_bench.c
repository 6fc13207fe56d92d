/* cuda/cuda_bench.c - see sl_gpu_bench.h. */
#include "cuda/sl_gpu_bench.h"

#include "cuda/cuda_internal.h"
#include "cuda/cuda_wait.h"
#include "runtime/base/sl_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ROUNDS_MAX 15u
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define ROW_NS  (3 * SL_NS_PER_S / 2)
#define WAIT_NS (30 * SL_NS_PER_S)

/* Moves of the same layers: of one layer, or of whole values. */
struct pass {
    struct sl_move *moves;
    struct sl_plan_range range;
};

struct bench {
    const struct sl_gpu_bench_options *options;
    struct cuda_device *cuda;
    uint64_t begun_ns;
    sl_cu_ptr pool;
    unsigned char *host;
    enum sl_gpu_memory memory; /* kind of `host` */
    uint64_t room_bytes;       /* size of pool and of host */
    struct sl_move *moves;     /* pass by pass */
    uint32_t move_count;       /* of a pass */
    struct pass passes[SL_GPU_BENCH_LAYERS];
    uint32_t pass_count;
    uint32_t layers_index;
    struct sl_gpu_bench_row row;
};

const char *sl_gpu_values_name(enum sl_gpu_values values)
{
    static const char *const names[SL_GPU_VALUES] = {"scattered", "adjacent", "layers"};
    return values < SL_GPU_VALUES ? names[values] : "?";
}

const char *sl_gpu_memory_name(enum sl_gpu_memory memory)
{
    static const char *const names[SL_GPU_MEMORIES] = {"tmpfs", "pinned"};
    return memory < SL_GPU_MEMORIES ? names[memory] : "?";
}

static uint64_t random_next(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = *seed;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- memory ---- */

static uint64_t row_bytes(uint64_t piece_bytes, uint64_t pieces)
{
    return piece_bytes * pieces;
}

static uint64_t room_needed(const struct sl_gpu_bench_options *options)
{
    uint64_t room_bytes = 0;
    for (uint32_t i = 0; i < options->size_count * options->count_count; i++) {
        uint64_t bytes = row_bytes(options->sizes[i / options->count_count],
                                   options->counts[i % options->count_count]);
        if (bytes <= options->bytes_max) {
            room_bytes = SL_MAX(room_bytes, bytes);
        }
    }
    return room_bytes;
}

static sl_err options_check(const struct sl_gpu_bench_options *options, struct sl_error *why)
{
    bool right = options->size_count > 0 && options->count_count > 0 &&
                 options->size_count <= SL_GPU_BENCH_SIZES_MAX &&
                 options->count_count <= SL_GPU_BENCH_COUNTS_MAX;
    for (uint32_t i = 0; right && i < options->size_count; i++) {
        right = options->sizes[i] > 0 && options->sizes[i] % sizeof(uint64_t) == 0 &&
                options->sizes[i] <= SL_GIB;
    }
    for (uint32_t i = 0; right && i < options->count_count; i++) {
        right = options->counts[i] > 0 && options->counts[i] % SL_GPU_BENCH_LAYERS == 0 &&
                options->counts[i] <= SL_GPU_BENCH_PIECES_MAX;
    }
    return right ? SL_OK
                 : sl_fail(why, SL_ERR_INVALID,
                           "up to %u sizes, multiples of 8 up to 1 GiB, and up to %u counts, "
                           "multiples of %u up to %u, can be measured",
                           SL_GPU_BENCH_SIZES_MAX, SL_GPU_BENCH_COUNTS_MAX, SL_GPU_BENCH_LAYERS,
                           SL_GPU_BENCH_PIECES_MAX);
}

/* Maps a file like the arena's: populated, and pinned as the device pins. */
static sl_err tmpfs_open(struct bench *bench, struct sl_error *why)
{
    struct sl_device *device = &bench->cuda->base;
    const char *directory = bench->options->tmpfs;
    bool more = true;
    struct statvfs room;
    if (statvfs(directory, &room) != 0) {
        return sl_fail_os(why, errno, "look at '%s'", directory);
    }
    if (bench->room_bytes / room.f_frsize >= room.f_bavail) {
        return sl_fail(why, SL_ERR_NO_SPACE, "'%s' has no room for %" PRIu64 " bytes", directory,
                       bench->room_bytes);
    }
    SL_AUTO(close) int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bench->room_bytes) != 0) {
        return sl_fail_os(why, errno, "make a file of %" PRIu64 " bytes in '%s'", bench->room_bytes,
                          directory);
    }
    void *at = mmap(NULL, bench->room_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return sl_fail_os(why, errno, "map %" PRIu64 " bytes", bench->room_bytes);
    }
    bench->host = at;
    (void)madvise(at, bench->room_bytes, MADV_HUGEPAGE); /* like the arena */
    if (madvise(at, bench->room_bytes, MADV_POPULATE_WRITE) != 0) {
        return sl_fail_os(why, errno, "fill %" PRIu64 " bytes in '%s'", bench->room_bytes,
                          directory);
    }
    sl_err err = sl_device_host_add(device, at, bench->room_bytes, bench->room_bytes, why);
    while (err == SL_OK && more) {
        err = sl_device_work(device, &more, why);
    }
    return err;
}

static sl_err pinned_open(struct bench *bench, struct sl_error *why)
{
    struct cuda_device *cuda = bench->cuda;
    void *host = NULL;
    sl_err err = sl_fail_cuda(
        &cuda->driver, why,
        cuda->driver.host_get(&host, bench->room_bytes, SL_CU_HOST_PORTABLE | SL_CU_HOST_DEVICEMAP),
        "get %" PRIu64 " bytes of pinned memory", bench->room_bytes);
    bench->host = host;
    return err == SL_OK ? cuda_host_adopt(cuda, bench->host, bench->room_bytes, why) : err;
}

static void host_close(struct bench *bench)
{
    if (bench->host == NULL) {
        return;
    }
    if (bench->memory == SL_GPU_TMPFS) {
        while (!sl_device_host_remove(&bench->cuda->base, bench->host)) {
            /* one slice per call */
        }
        (void)munmap(bench->host, bench->room_bytes);
    } else {
        cuda_host_forget(bench->cuda, bench->host);
        (void)bench->cuda->driver.host_free(bench->host);
    }
    bench->host = NULL;
}

/* Opens one kind of host memory; there is one at a time. */
static sl_err host_open(struct bench *bench, enum sl_gpu_memory memory, struct sl_error *why)
{
    host_close(bench);
    bench->memory = memory;
    sl_err err = memory == SL_GPU_TMPFS ? tmpfs_open(bench, why) : pinned_open(bench, why);
    if (err != SL_OK) {
        host_close(bench);
    }
    return err;
}

static sl_err bench_open(struct bench *bench, struct sl_error *why)
{
    struct cuda_device *cuda = bench->cuda;
    uint64_t pieces_max = 0;
    bench->room_bytes = room_needed(bench->options);
    for (uint32_t i = 0; i < bench->options->count_count; i++) {
        pieces_max = SL_MAX(pieces_max, bench->options->counts[i]);
    }
    bench->moves = calloc(SL_MAX(pieces_max, UINT64_C(1)), sizeof(*bench->moves));
    if (bench->room_bytes == 0 || bench->moves == NULL) {
        return sl_fail(why, bench->moves == NULL ? SL_ERR_NO_MEMORY : SL_ERR_INVALID,
                       "%" PRIu64 " bytes are too few to measure with", bench->options->bytes_max);
    }
    return sl_fail_cuda(&cuda->driver, why,
                        cuda->driver.memory_get(&bench->pool, bench->room_bytes),
                        "get %" PRIu64 " bytes of device memory", bench->room_bytes);
}

static void bench_close(struct bench *bench)
{
    host_close(bench);
    if (bench->pool != 0) {
        (void)bench->cuda->driver.memory_free(bench->pool);
    }
    free(bench->moves);
}

/* ---- a row ---- */

/* Fills the moves: block ids in random order, values in another random order or in sequence. */
static void moves_fill(struct bench *bench)
{
    const struct sl_gpu_bench_row *row = &bench->row;
    uint64_t seed = row->piece_bytes + row->pieces;
    uint64_t value_bytes = row->piece_bytes * SL_GPU_BENCH_LAYERS;
    for (uint32_t i = 0; i < bench->move_count; i++) {
        bench->moves[i] = (struct sl_move){.host = bench->host + i * value_bytes,
                                           .device_block = i,
                                           .layers_index = bench->layers_index};
    }
    for (uint32_t i = bench->move_count; i > 1; i--) {
        struct sl_move *last = &bench->moves[i - 1];
        struct sl_move *id = &bench->moves[random_next(&seed) % i];
        uint64_t block = last->device_block;
        last->device_block = id->device_block;
        id->device_block = block;
        struct sl_move *place = &bench->moves[random_next(&seed) % i];
        if (row->values != SL_GPU_ADJACENT) {
            unsigned char *host = last->host;
            last->host = place->host;
            place->host = host;
        }
    }
}

/* Builds the row's layers, each with its pieces in sequence. */
static sl_err row_open(struct bench *bench, struct sl_error *why)
{
    const struct sl_gpu_bench_row *row = &bench->row;
    struct sl_layer layers[SL_GPU_BENCH_LAYERS];
    uint64_t blocks = row->pieces / SL_GPU_BENCH_LAYERS;
    bool layered = row->values == SL_GPU_LAYERED;
    for (uint32_t l = 0; l < SL_GPU_BENCH_LAYERS; l++) {
        uint64_t at = bench->pool + l * blocks * row->piece_bytes;
        layers[l] = (struct sl_layer){.base = (unsigned char *)(uintptr_t)at,
                                      .block_stride_bytes = row->piece_bytes,
                                      .piece_bytes = row->piece_bytes,
                                      .block_count = blocks};
    }
    sl_err err =
        cuda_layers_add(&bench->cuda->base, layers, SL_GPU_BENCH_LAYERS, &bench->layers_index, why);
    if (err != SL_OK) {
        return err;
    }
    bench->move_count = (uint32_t)blocks;
    moves_fill(bench);
    bench->pass_count = layered ? SL_GPU_BENCH_LAYERS : 1;
    for (uint32_t p = 0; err == SL_OK && p < bench->pass_count; p++) {
        struct pass *pass = &bench->passes[p];
        pass->moves = bench->moves + p * blocks;
        if (p > 0) {
            memcpy(pass->moves, bench->moves, blocks * sizeof(*pass->moves));
        }
        for (uint32_t i = 0; layered && i < blocks; i++) {
            pass->moves[i].first_layer = p;
            pass->moves[i].layer_end = p + 1;
        }
        err = sl_plan_range_of(&bench->cuda->tables[bench->layers_index].host, pass->moves,
                               &pass->range, why);
    }
    return err;
}

/* ---- timed operations ---- */

enum what { WHOLE, SINGLE, MOVE, DIGESTED, WAYS };

/* Copies one run asynchronously; no copy crosses from one registration to the next. */
static sl_cu_result copy_run(struct bench *bench, unsigned char *host, sl_cu_ptr device,
                             uint64_t length_bytes)
{
    struct sl_driver *driver = &bench->cuda->driver;
    sl_cu_stream stream = bench->cuda->slots[0].stream;
    sl_cu_result result = 0;
    for (uint64_t at = 0, part = 0; result == 0 && at < length_bytes; at += part) {
        bool starts = false;
        part = SL_MIN(length_bytes - at, cuda_host_run(bench->cuda, host + at, &starts));
        SL_ASSERT(part > 0);
        result = bench->row.to_host ? driver->to_host(host + at, device + at, part, stream)
                                    : driver->to_device(device + at, host + at, part, stream);
    }
    return result;
}

static sl_err copies_wait(struct bench *bench, sl_cu_result result, struct sl_error *why)
{
    struct sl_driver *driver = &bench->cuda->driver;
    sl_err err = sl_fail_cuda(driver, why, result, "copy pieces of %" PRIu64 " bytes",
                              bench->row.piece_bytes);
    sl_cu_result waited = sl_cuda_stream_wait(driver, bench->cuda->slots[0].stream,
                                              sl_deadline_ns(sl_clock_monotonic_ns(), WAIT_NS));
    return err == SL_OK ? sl_fail_cuda(driver, why, waited, "wait for copies") : err;
}

static sl_err whole(struct bench *bench, struct sl_error *why)
{
    uint64_t bytes = row_bytes(bench->row.piece_bytes, bench->row.pieces);
    return copies_wait(bench, copy_run(bench, bench->host, bench->pool, bytes), why);
}

static sl_err single(struct bench *bench, struct sl_error *why)
{
    uint64_t piece_bytes = bench->row.piece_bytes;
    sl_cu_result result = 0;
    for (uint32_t i = 0; result == 0 && i < bench->move_count; i++) {
        const struct sl_move *move = &bench->moves[i];
        for (uint32_t l = 0; result == 0 && l < SL_GPU_BENCH_LAYERS; l++) {
            uint64_t block = l * (uint64_t)bench->move_count + move->device_block;
            result = copy_run(bench, move->host + l * piece_bytes,
                              bench->pool + block * piece_bytes, piece_bytes);
        }
    }
    return copies_wait(bench, result, why);
}

static struct cuda_job way_job(struct bench *bench, uint32_t pass, enum sl_way way)
{
    return (struct cuda_job){.table = &bench->cuda->tables[bench->layers_index],
                             .moves = bench->passes[pass].moves,
                             .range = bench->passes[pass].range,
                             .count = bench->move_count,
                             .way = way,
                             .to_host = bench->row.to_host};
}

static sl_err by_way(struct bench *bench, enum sl_way way, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t pass = 0; err == SL_OK && pass < bench->pass_count; pass++) {
        struct cuda_job job = way_job(bench, pass, way);
        err = cuda_move_by(bench->cuda, &job, why);
    }
    if (err == SL_OK) {
        err = cuda_slots_finish(bench->cuda, true, why);
    }
    if (err != SL_OK) {
        cuda_slots_drop(bench->cuda, &err, why);
    }
    return err;
}

/* Moves like a swapper. check: digests the blocks in place, and moves nothing. */
static sl_err in_slices(struct bench *bench, bool digests, bool check, struct sl_error *why)
{
    struct sl_device *device = &bench->cuda->base;
    sl_err err = SL_OK;
    for (uint32_t pass = 0; err == SL_OK && pass < bench->pass_count; pass++) {
        uint64_t part_bytes = bench->passes[pass].range.length_bytes;
        for (uint32_t at = 0, count = 0; err == SL_OK && at < bench->move_count; at += count) {
            count = 0;
            while (at + count < bench->move_count &&
                   !sl_device_slice_full(device, count, count * part_bytes, part_bytes)) {
                count++;
            }
            struct sl_move *moves = bench->passes[pass].moves + at;
            err = check ? sl_device_digest_begin(device, moves, count, why)
                        : sl_device_move_begin(device, moves, count, bench->row.to_host, digests,
                                               why);
        }
    }
    return err == SL_OK ? sl_device_move_end(device, true, why) : err;
}

static sl_err once(struct bench *bench, uint32_t what, struct sl_error *why)
{
    switch (what) {
    case WHOLE:
        return whole(bench, why);
    case SINGLE:
        return single(bench, why);
    case MOVE:
    case DIGESTED:
        return in_slices(bench, what == DIGESTED, what == DIGESTED && !bench->row.to_host, why);
    default:
        return by_way(bench, (enum sl_way)(what - WAYS), why);
    }
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The ways of the row that are requested and possible. */
static void ways_find(struct bench *bench, bool *wanted)
{
    struct cuda_job job = way_job(bench, 0, SL_WAY_COPIES);
    cuda_ways(bench->cuda, &job, wanted);
    for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
        wanted[way] &= bench->options->ways[way];
    }
}

/* The way that the device chooses for the first slice. */
static enum sl_way way_chosen(struct bench *bench)
{
    const struct sl_device *device = &bench->cuda->base;
    struct cuda_job job = way_job(bench, 0, SL_WAY_COPIES);
    uint32_t count = 1;
    while (count < job.count && !sl_device_slice_full(device, count, count * job.range.length_bytes,
                                                      job.range.length_bytes)) {
        count++;
    }
    job.count = count;
    cuda_job_way(bench->cuda, &job);
    return job.way;
}

/* Measures all operations in turn, so that disturbances of the machine affect all of them. */
static sl_err row_measure(struct bench *bench, struct sl_error *why)
{
    struct sl_gpu_bench_row *row = &bench->row;
    double rates[WAYS + SL_WAY_COUNT][ROUNDS_MAX] = {{0}};
    bool wanted[SL_WAY_COUNT];
    uint32_t rounds = SL_MAX(SL_MIN(bench->options->rounds, ROUNDS_MAX), 1u), done = 0;
    uint64_t row_ns = sl_clock_monotonic_ns();
    ways_find(bench, wanted);
    /* The first round warms up. */
    for (uint32_t round = 0;
         round <= rounds && (done == 0 || sl_clock_monotonic_ns() - row_ns < ROW_NS); round++) {
        for (uint32_t what = 0; what < WAYS + SL_WAY_COUNT; what++) {
            if (what >= WAYS && !wanted[what - WAYS]) {
                continue;
            }
            uint64_t drains = bench->cuda->base.stats.drains;
            uint64_t start_ns = sl_clock_monotonic_ns();
            sl_err err = once(bench, what, why);
            if (err != SL_OK) {
                return err;
            }
            uint64_t took_ns = SL_MAX(sl_clock_monotonic_ns() - start_ns, UINT64_C(1));
            row->drains = what == MOVE ? bench->cuda->base.stats.drains - drains : row->drains;
            if (round > 0) {
                rates[what][round - 1] =
                    (double)row_bytes(row->piece_bytes, row->pieces) / (double)took_ns;
            }
        }
        done = round;
    }
    for (uint32_t what = 0; what < WAYS + SL_WAY_COUNT; what++) {
        qsort(rates[what], done, sizeof(rates[what][0]), by_value);
    }
    row->whole = rates[WHOLE][done / 2];
    row->single = rates[SINGLE][done / 2];
    row->move = rates[MOVE][done / 2];
    row->digested = rates[DIGESTED][done / 2];
    for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
        row->ways[way] = rates[WAYS + way][done / 2];
    }
    row->chosen = way_chosen(bench);
    return SL_OK;
}

/* ---- round trip ---- */

static uint64_t value_words(const struct bench *bench)
{
    return bench->row.piece_bytes * SL_GPU_BENCH_LAYERS / sizeof(uint64_t);
}

/* Fills each value with a pattern of its turn and its block. */
static void values_fill(struct bench *bench, uint32_t turn)
{
    for (uint32_t i = 0; i < bench->move_count; i++) {
        uint64_t *value = (uint64_t *)(void *)bench->moves[i].host;
        uint64_t seed = turn * UINT64_C(1000003) + bench->moves[i].device_block;
        for (uint64_t w = 0; w < value_words(bench); w++) {
            value[w] = random_next(&seed);
        }
    }
}

static sl_err values_check(const struct bench *bench, uint32_t turn, bool digests,
                           const char *doing, struct sl_error *why)
{
    uint64_t words = value_words(bench);
    for (uint32_t i = 0; i < bench->move_count; i++) {
        const uint64_t *value = (const uint64_t *)(const void *)bench->moves[i].host;
        uint64_t seed = turn * UINT64_C(1000003) + bench->moves[i].device_block;
        bool same = true;
        for (uint64_t w = 0; w < words; w++) {
            same &= value[w] == random_next(&seed);
        }
        bool digested = !digests || sl_digest_equal(bench->moves[i].digest,
                                                    sl_digest_of(value, words * sizeof(*value)));
        if (!same || !digested) {
            return sl_fail(why, SL_ERR_CORRUPT,
                           "value %u of pieces of %" PRIu64 " bytes, %s: its %s", i,
                           bench->row.piece_bytes, doing, same ? "digest differs" : "bytes differ");
        }
    }
    return SL_OK;
}

/* Checks that values survive: in by each way, digested in their blocks, out by the next way, and
 * out with digests. */
static sl_err row_check(struct bench *bench, struct sl_gpu_bench_result *result,
                        struct sl_error *why)
{
    uint64_t bytes = row_bytes(bench->row.piece_bytes, bench->row.pieces);
    bool possible[SL_WAY_COUNT];
    sl_err err = SL_OK;
    ways_find(bench, possible);
    for (uint32_t way = 0; err == SL_OK && way < SL_WAY_COUNT; way++) {
        uint32_t back = possible[(way + 1) % SL_WAY_COUNT] ? (way + 1) % SL_WAY_COUNT : way;
        if (!possible[way]) {
            continue;
        }
        values_fill(bench, way);
        bench->row.to_host = false;
        err = by_way(bench, (enum sl_way)way, why);
        if (err == SL_OK) { /* checks where the bytes arrived */
            err = once(bench, DIGESTED, why);
        }
        if (err == SL_OK) {
            err = values_check(bench, way, true, "digested in its block", why);
        }
        memset(bench->host, 0, bytes);
        bench->row.to_host = true;
        if (err == SL_OK) {
            err = by_way(bench, (enum sl_way)back, why);
        }
        if (err == SL_OK) {
            err = values_check(bench, way, false, sl_way_name((enum sl_way)back), why);
        }
        memset(bench->host, 0, bytes);
        if (err == SL_OK) {
            err = once(bench, DIGESTED, why);
        }
        if (err == SL_OK) {
            err = values_check(bench, way, true, "digested", why);
        }
        result->checked_bytes += 2 * bytes;
    }
    return err;
}

static sl_err row_run(struct bench *bench, bool checks, struct sl_gpu_bench_result *result,
                      struct sl_error *why)
{
    const struct sl_gpu_bench_options *options = bench->options;
    bool to_host = bench->row.to_host;
    if (row_bytes(bench->row.piece_bytes, bench->row.pieces) > bench->room_bytes) {
        result->rows_left_out++;
        return SL_OK;
    }
    if (options->limit_ns != 0 && sl_clock_monotonic_ns() - bench->begun_ns > options->limit_ns) {
        result->rows_late++;
        return SL_OK;
    }
    sl_err err = row_open(bench, why);
    if (err != SL_OK) {
        return err;
    }
    if (checks) {
        err = row_check(bench, result, why);
        bench->row.to_host = to_host;
    }
    if (err == SL_OK) {
        err = row_measure(bench, why);
    }
    cuda_layers_remove(&bench->cuda->base, bench->layers_index);
    if (err == SL_OK) {
        result->rows++;
        options->found(options->context, &bench->row);
    }
    return err;
}

/* Runs all sizes, numbers and directions of one kind of values. */
static sl_err rows(struct bench *bench, enum sl_gpu_values values, bool checks,
                   struct sl_gpu_bench_result *result, struct sl_error *why)
{
    const struct sl_gpu_bench_options *options = bench->options;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < options->size_count * options->count_count * 2; i++) {
        uint32_t count = i / 2 % options->count_count;
        bench->row = (struct sl_gpu_bench_row){
            .memory = bench->memory,
            .values = values,
            .to_host = i % 2 == 1,
            .piece_bytes = options->sizes[i / 2 / options->count_count],
            .pieces = options->counts[count],
        };
        /* Checked once per size: computing the bytes takes longest. */
        err = row_run(bench, checks && count == 0 && !bench->row.to_host, result, why);
    }
    return err;
}

static sl_err memories(struct bench *bench, struct sl_gpu_bench_result *result,
                       struct sl_error *why)
{
    const struct sl_gpu_bench_options *options = bench->options;
    bool checks = true;
    sl_err err = SL_OK;
    for (uint32_t m = 0; err == SL_OK && m < SL_GPU_MEMORIES; m++) {
        struct sl_error reason = {0};
        if (!options->memories[m]) {
            continue;
        }
        err = host_open(bench, (enum sl_gpu_memory)m, &reason);
        if (err != SL_OK && sl_err_class(err) != SL_CLASS_RESTART) {
            snprintf(result->note, sizeof(result->note), "no rows of %s memory: %.120s",
                     sl_gpu_memory_name((enum sl_gpu_memory)m), reason.text);
            err = SL_OK;
            continue;
        }
        if (err != SL_OK && why != NULL) {
            *why = reason;
        }
        for (uint32_t v = 0; err == SL_OK && v < SL_GPU_VALUES; v++) {
            if (options->values[v]) {
                /* The digest of a layer is not that of a value. */
                err =
                    rows(bench, (enum sl_gpu_values)v, checks && v != SL_GPU_LAYERED, result, why);
                checks = false;
            }
        }
    }
    return err;
}

sl_err sl_gpu_bench_run(const struct sl_gpu_bench_options *options,
                        struct sl_gpu_bench_result *result, struct sl_error *why)
{
    struct sl_device_options device_options = options->device;
    struct sl_device *device = NULL;
    bool more = true;
    device_options.name = "cuda";
    device_options.measure = true;
    *result = (struct sl_gpu_bench_result){.rows = 0};
    sl_err err = options_check(options, why);
    if (err == SL_OK) {
        err = sl_device_open(&device_options, &device, why);
    }
    if (err != SL_OK) {
        return err;
    }
    struct bench bench = {
        .options = options, .cuda = cuda_of(device), .begun_ns = sl_clock_monotonic_ns()};
    memcpy(result->text, device->text, sizeof(result->text));
    while (err == SL_OK && more) { /* the crossover first: it decides the choices */
        err = sl_device_work(device, &more, why);
    }
    result->crossover = bench.cuda->crossover;
    if (err == SL_OK) {
        err = bench_open(&bench, why);
    }
    if (err == SL_OK) {
        err = memories(&bench, result, why);
    }
    bench_close(&bench);
    sl_device_close(&device);
    return err;
}
