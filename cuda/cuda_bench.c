/* cuda/cuda_bench.c - see sl_gpu_bench.h. */
#include "cuda/sl_gpu_bench.h"

#include "cuda/cuda_internal.h"
#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 15u

static const uint64_t piece_sizes[] = {4096, 16384, 65536};
static const uint64_t piece_counts[] = {1000, 10000, 100000};

struct bench {
    const struct sl_gpu_bench_options *options;
    struct cuda_device *cuda;
    sl_cu_ptr pool;
    unsigned char *host;
    uint64_t room_bytes; /* of each */
    struct sl_move *moves;
    uint32_t move_count;
    uint32_t layers_index;
    struct sl_gpu_bench_row row;
};

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
    for (size_t i = 0; i < SL_COUNT(piece_sizes) * SL_COUNT(piece_counts); i++) {
        uint64_t bytes = row_bytes(piece_sizes[i / SL_COUNT(piece_counts)],
                                   piece_counts[i % SL_COUNT(piece_counts)]);
        if (bytes <= options->bytes_max) {
            room_bytes = SL_MAX(room_bytes, bytes);
        }
    }
    return room_bytes;
}

static sl_err bench_open(struct bench *bench, struct sl_error *why)
{
    struct cuda_device *cuda = bench->cuda;
    void *host = NULL;
    uint64_t blocks_max = piece_counts[SL_COUNT(piece_counts) - 1] / SL_GPU_BENCH_LAYERS;
    bench->room_bytes = room_needed(bench->options);
    bench->moves = calloc(blocks_max, sizeof(*bench->moves));
    if (bench->room_bytes == 0 || bench->moves == NULL) {
        return sl_fail(why, bench->moves == NULL ? SL_ERR_NO_MEMORY : SL_ERR_INVALID,
                       "%" PRIu64 " bytes are too few to measure with", bench->options->bytes_max);
    }
    sl_err err =
        sl_fail_cuda(&cuda->driver, why, cuda->driver.memory_get(&bench->pool, bench->room_bytes),
                     "get %" PRIu64 " bytes of device memory", bench->room_bytes);
    if (err == SL_OK) {
        err = sl_fail_cuda(&cuda->driver, why,
                           cuda->driver.host_get(&host, bench->room_bytes,
                                                 SL_CU_HOST_PORTABLE | SL_CU_HOST_DEVICEMAP),
                           "get %" PRIu64 " bytes of pinned memory", bench->room_bytes);
        bench->host = host;
    }
    return err == SL_OK ? cuda_host_adopt(cuda, bench->host, bench->room_bytes, why) : err;
}

static void bench_close(struct bench *bench)
{
    if (bench->host != NULL) {
        cuda_host_forget(bench->cuda, bench->host);
        (void)bench->cuda->driver.host_free(bench->host);
    }
    if (bench->pool != 0) {
        (void)bench->cuda->driver.memory_free(bench->pool);
    }
    free(bench->moves);
}

/* Both ids and values in an order that jumps; pieces of a layer lie one after the other. */
static sl_err row_open(struct bench *bench, struct sl_error *why)
{
    const struct sl_gpu_bench_row *row = &bench->row;
    struct sl_layer layers[SL_GPU_BENCH_LAYERS];
    uint64_t blocks = row->pieces / SL_GPU_BENCH_LAYERS, seed = row->piece_bytes + row->pieces;
    uint64_t value_bytes = row->piece_bytes * SL_GPU_BENCH_LAYERS;
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
        unsigned char *host = last->host;
        last->host = place->host;
        place->host = host;
    }
    return SL_OK;
}

/* ---- what is timed ---- */

enum what { WHOLE, SINGLE, MOVE, DIGESTED, WAYS };

static sl_err whole(struct bench *bench, struct sl_error *why)
{
    struct sl_driver *driver = &bench->cuda->driver;
    const struct sl_gpu_bench_row *row = &bench->row;
    sl_cu_stream stream = bench->cuda->slots[0].stream;
    size_t bytes = row_bytes(row->piece_bytes, row->pieces);
    sl_err err =
        sl_fail_cuda(driver, why,
                     row->to_host ? driver->to_host(bench->host, bench->pool, bytes, stream)
                                  : driver->to_device(bench->pool, bench->host, bytes, stream),
                     "copy %zu bytes", bytes);
    return err == SL_OK ? sl_fail_cuda(driver, why, driver->stream_wait(stream), "wait for a copy")
                        : err;
}

static sl_err single(struct bench *bench, struct sl_error *why)
{
    struct sl_driver *driver = &bench->cuda->driver;
    const struct sl_gpu_bench_row *row = &bench->row;
    sl_cu_stream stream = bench->cuda->slots[0].stream;
    sl_cu_result result = 0;
    for (uint32_t i = 0; result == 0 && i < bench->move_count; i++) {
        for (uint32_t l = 0; result == 0 && l < SL_GPU_BENCH_LAYERS; l++) {
            const struct sl_move *move = &bench->moves[i];
            unsigned char *host = move->host + l * row->piece_bytes;
            sl_cu_ptr at = bench->pool + (l * (uint64_t)bench->move_count + move->device_block) *
                                             row->piece_bytes;
            result = row->to_host ? driver->to_host(host, at, row->piece_bytes, stream)
                                  : driver->to_device(at, host, row->piece_bytes, stream);
        }
    }
    sl_err err =
        sl_fail_cuda(driver, why, result, "copy a piece of %" PRIu64 " bytes", row->piece_bytes);
    sl_cu_result waited = driver->stream_wait(stream);
    return err == SL_OK ? sl_fail_cuda(driver, why, waited, "wait for single copies") : err;
}

static struct cuda_job way_job(struct bench *bench, enum sl_way way)
{
    struct cuda_job job = {.table = &bench->cuda->tables[bench->layers_index],
                           .moves = bench->moves,
                           .count = bench->move_count,
                           .way = way,
                           .to_host = bench->row.to_host};
    job.range = (struct sl_plan_range){.layer_end = SL_GPU_BENCH_LAYERS,
                                       .length_bytes = job.table->host.value_bytes};
    return job;
}

static sl_err by_way(struct bench *bench, enum sl_way way, struct sl_error *why)
{
    struct cuda_job job = way_job(bench, way);
    sl_err err = cuda_move_by(bench->cuda, &job, why);
    if (err == SL_OK) {
        err = cuda_slots_finish(bench->cuda, true, why);
    }
    if (err != SL_OK) {
        cuda_slots_drop(bench->cuda, &err, why);
    }
    return err;
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
        return cuda_move(&bench->cuda->base, bench->moves, bench->move_count, bench->row.to_host,
                         what == DIGESTED, why);
    default:
        return by_way(bench, (enum sl_way)(what - WAYS), why);
    }
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* All sides take turns, so that what disturbs the machine disturbs all of them. */
static sl_err row_measure(struct bench *bench, struct sl_error *why)
{
    struct sl_gpu_bench_row *row = &bench->row;
    double rates[WAYS + SL_WAY_COUNT][ROUNDS_MAX] = {{0}};
    bool possible[SL_WAY_COUNT];
    uint32_t rounds = SL_MAX(SL_MIN(bench->options->rounds, ROUNDS_MAX), 1u);
    struct cuda_job job = way_job(bench, SL_WAY_COPIES);
    cuda_ways(bench->cuda, &job, possible);
    for (uint32_t round = 0; round <= rounds; round++) { /* the first one warms up */
        for (uint32_t what = 0; what < WAYS + SL_WAY_COUNT; what++) {
            if ((what == DIGESTED && !row->to_host) || (what >= WAYS && !possible[what - WAYS])) {
                continue;
            }
            uint64_t start_ns = sl_clock_monotonic_ns();
            sl_err err = once(bench, what, why);
            if (err != SL_OK) {
                return err;
            }
            uint64_t took_ns = SL_MAX(sl_clock_monotonic_ns() - start_ns, UINT64_C(1));
            if (round > 0) {
                rates[what][round - 1] =
                    (double)row_bytes(row->piece_bytes, row->pieces) / (double)took_ns;
            }
        }
    }
    for (uint32_t what = 0; what < WAYS + SL_WAY_COUNT; what++) {
        qsort(rates[what], rounds, sizeof(rates[what][0]), by_value);
    }
    row->whole = rates[WHOLE][rounds / 2];
    row->single = rates[SINGLE][rounds / 2];
    row->move = rates[MOVE][rounds / 2];
    row->digested = rates[DIGESTED][rounds / 2];
    for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
        row->ways[way] = rates[WAYS + way][rounds / 2];
    }
    cuda_job_way(bench->cuda, &job);
    row->chosen = job.way;
    return SL_OK;
}

/* ---- there and back ---- */

static uint64_t value_words(const struct bench *bench)
{
    return bench->row.piece_bytes * SL_GPU_BENCH_LAYERS / sizeof(uint64_t);
}

/* Each value says by which turn and for which block it was made. */
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

/* What came back must be what went: in by each way, out by the next one, and out with digests. */
static sl_err row_check(struct bench *bench, struct sl_gpu_bench_result *result,
                        struct sl_error *why)
{
    uint64_t bytes = row_bytes(bench->row.piece_bytes, bench->row.pieces);
    bool possible[SL_WAY_COUNT];
    struct cuda_job job = way_job(bench, SL_WAY_COPIES);
    sl_err err = SL_OK;
    cuda_ways(bench->cuda, &job, possible);
    for (uint32_t way = 0; err == SL_OK && way < SL_WAY_COUNT; way++) {
        uint32_t back = possible[(way + 1) % SL_WAY_COUNT] ? (way + 1) % SL_WAY_COUNT : way;
        if (!possible[way]) {
            continue;
        }
        values_fill(bench, way);
        bench->row.to_host = false;
        err = by_way(bench, (enum sl_way)way, why);
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

static sl_err rows(struct bench *bench, struct sl_gpu_bench_result *result, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < SL_COUNT(piece_sizes) * SL_COUNT(piece_counts) * 2;
         i++) {
        size_t count = i / 2 % SL_COUNT(piece_counts);
        bench->row = (struct sl_gpu_bench_row){
            .to_host = i % 2 == 1,
            .piece_bytes = piece_sizes[i / 2 / SL_COUNT(piece_counts)],
            .pieces = piece_counts[count],
        };
        if (row_bytes(bench->row.piece_bytes, bench->row.pieces) > bench->room_bytes) {
            result->rows_left_out++;
            continue;
        }
        bool to_host = bench->row.to_host;
        err = row_open(bench, why);
        if (err != SL_OK) {
            break;
        }
        if (count == 0 && !to_host) { /* once a size: the bytes, on the processor, take longest */
            err = row_check(bench, result, why);
            bench->row.to_host = to_host;
        }
        if (err == SL_OK) {
            err = row_measure(bench, why);
        }
        cuda_layers_remove(&bench->cuda->base, bench->layers_index);
        if (err == SL_OK) {
            result->rows++;
            bench->options->found(bench->options->context, &bench->row);
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
    sl_err err = sl_device_open_with(&device_options, &device, why);
    if (err != SL_OK) {
        return err;
    }
    struct bench bench = {.options = options, .cuda = cuda_of(device)};
    memcpy(result->text, device->text, sizeof(result->text));
    while (err == SL_OK && more) { /* the crossover first: it decides what is chosen */
        err = sl_device_work(device, &more, why);
    }
    result->crossover = bench.cuda->crossover;
    if (err == SL_OK) {
        err = bench_open(&bench, why);
    }
    if (err == SL_OK) {
        err = rows(&bench, result, why);
    }
    bench_close(&bench);
    sl_device_close(&device);
    return err;
}
