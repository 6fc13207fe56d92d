/* tests/bench/pieces_bench.c - copies of pieces by the device `host`, compared with memcpy of
 * the same pieces in the same turn: pieces of one run and of many, in shared memory and in plain
 * memory of another process.
 *
 *   pieces_bench
 *
 * Blocks and values are scattered over 64 MiB each. Prints the median of ROUNDS turns, in GB/s
 * of this thread's CPU time, and its share of memcpy's. */
#include "cuda/sl_device.h"
#include "runtime/base/sl_proc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define BYTES      (64 * SL_MIB) /* moved in a turn */
#define BLOCKS_MAX 1024u
#define ROUNDS     15u

static const struct shape {
    bool process; /* plain memory of another process */
    uint64_t piece_bytes;
    uint32_t layers;
    uint64_t run_bytes;
} shapes[] = {
    {false, 65536, 1, 65536}, {false, 65536, 1, 2048},   {false, 65536, 1, 512},
    {false, 65536, 1, 256},   {false, 65536, 1, 128},    {false, 65536, 1, 100},
    {false, 65536, 1, 32},    {true, SL_MIB, 1, SL_MIB}, {true, 65536, 1, 65536},
    {true, 4096, 16, 4096},   {true, 65536, 1, 2048},    {true, 65536, 1, 256},
};
static const struct {
    const char *name;
    bool to_host, digests;
} ways[] = {{"out", true, false}, {"out, digests", true, true}, {"in", false, false}};

struct bench {
    struct sl_device *device;
    unsigned char *pool, *arena;
    uint32_t blocks;
    uint64_t value_bytes;
    struct sl_mapping other;
    struct sl_move moves[BLOCKS_MAX];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *all)
{
    qsort(all, ROUNDS, sizeof(*all), ascending);
    return all[ROUNDS / 2];
}

static void checked(sl_err err, const struct sl_error *why)
{
    if (err != SL_OK) {
        fprintf(stderr, "%s\n", why->text);
        exit(1);
    }
}

static void moves_make(struct bench *bench, uint32_t layers_index)
{
    for (uint32_t i = 0; i < bench->blocks; i++) {
        bench->moves[i] =
            (struct sl_move){.host = bench->arena + i * 389u % bench->blocks * bench->value_bytes,
                             .device_block = i * 241u % bench->blocks,
                             .layers_index = layers_index};
    }
}

/* Distance of a layer's blocks, as if they had two parts, of which one is ours. */
static uint64_t layer_bytes(const struct bench *bench, const struct shape *shape)
{
    return bench->blocks * 2 * shape->piece_bytes;
}

static double plain_turn(struct bench *bench, const struct shape *shape, bool to_host)
{
    uint64_t start_ns = now_ns();
    for (uint32_t i = 0; i < bench->blocks; i++) {
        for (uint32_t l = 0; l < shape->layers; l++) {
            unsigned char *block = bench->pool + l * layer_bytes(bench, shape) +
                                   bench->moves[i].device_block * 2 * shape->piece_bytes;
            unsigned char *value = bench->moves[i].host + l * shape->piece_bytes;
            memcpy(to_host ? value : block, to_host ? block : value, shape->piece_bytes);
        }
    }
    return (double)BYTES / (double)(now_ns() - start_ns);
}

static double device_turn(struct bench *bench, bool to_host, bool digests)
{
    struct sl_error why = {0};
    uint64_t start_ns = now_ns();
    checked(bench->device->ops->move(bench->device, bench->moves, bench->blocks, to_host, digests,
                                     &why),
            &why);
    return (double)BYTES / (double)(now_ns() - start_ns);
}

static void row(struct bench *bench, const struct shape *shape)
{
    struct sl_layer layers[16];
    uint32_t index = 0;
    struct sl_error why = {0};
    bench->value_bytes = shape->piece_bytes * shape->layers;
    bench->blocks = (uint32_t)(BYTES / bench->value_bytes);
    for (uint32_t l = 0; l < shape->layers; l++) {
        layers[l] = (struct sl_layer){.base = bench->pool + l * layer_bytes(bench, shape),
                                      .block_stride_bytes = 2 * shape->piece_bytes,
                                      .piece_bytes =
                                          shape->piece_bytes / shape->run_bytes * shape->run_bytes,
                                      .block_count = bench->blocks,
                                      .remote = shape->process ? bench->other.remote : 0};
        if (shape->run_bytes < shape->piece_bytes) { /* every second run is ours */
            layers[l].fragment_bytes = shape->run_bytes;
            layers[l].fragment_stride_bytes = 2 * shape->run_bytes;
        }
    }
    checked(bench->device->ops->layers_add(bench->device, layers, shape->layers, &index, &why),
            &why);
    moves_make(bench, index);
    for (size_t w = 0; w < SL_COUNT(ways); w++) {
        double plain[ROUNDS], ours[ROUNDS];
        for (unsigned i = 0; i < ROUNDS; i++) {
            plain[i] = plain_turn(bench, shape, ways[w].to_host);
            ours[i] = device_turn(bench, ways[w].to_host, ways[w].digests);
        }
        double memcpy_speed = median(plain), speed = median(ours);
        printf("%-7s pieces of %7lu, runs of %7lu  %-13s %6.2f GB/s  memcpy %6.2f  ratio %.2f\n",
               shape->process ? "process" : "shared", (unsigned long)shape->piece_bytes,
               (unsigned long)shape->run_bytes, ways[w].name, speed, memcpy_speed,
               speed / memcpy_speed);
    }
    bench->device->ops->layers_remove(bench->device, index);
}

/* Starts another process, which has the pool at the same address. */
static void other_open(struct bench *bench)
{
    struct sl_proc_id id;
    struct sl_error why = {0};
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            (void)pause();
        }
    }
    checked(sl_proc_id_of((uint32_t)pid, &id, &why), &why);
    struct sl_memory_handle handle = {.kind = SL_MEMORY_PROCESS,
                                      .pid = id.pid,
                                      .start_time = id.start_time,
                                      .offset_bytes = (uintptr_t)bench->pool};
    checked(bench->device->ops->map(bench->device, &handle, BYTES, &bench->other, &why), &why);
}

static unsigned char *memory(uint64_t length)
{
    unsigned char *at =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    memset(at, 1, length);
    return at;
}

int main(void)
{
    static struct bench bench;
    struct sl_error why = {0};
    if (sl_device_open(&(struct sl_device_options){.name = "host", .staging_bytes = 8 * SL_MIB},
                       &bench.device, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    bench.pool = memory(2 * BYTES);
    bench.arena = memory(BYTES);
    other_open(&bench);
    for (size_t i = 0; i < SL_COUNT(shapes); i++) {
        row(&bench, &shapes[i]);
    }
    sl_device_close(&bench.device);
    return 0;
}
