/* tests/bench/pieces_bench.c - pieces of 64 KiB by the device `host`, as one run and as many, beside
 * memcpy of the same pieces in the same turn.
 *
 * pieces_bench: blocks and values lie scattered in 64 MiB each. The median of ROUNDS turns, in GB/s
 * of this thread's processor time, and its share of memcpy's. */
#include "cuda/sl_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PIECE  65536u
#define BLOCKS 1024u
#define ROUNDS 15u

static const uint64_t runs[] = {PIECE, 2048, 512, 256, 128, 100, 32};
static const struct {
    const char *name;
    bool to_host, digests;
} ways[] = {{"out", true, false}, {"out, digests", true, true}, {"in", false, false}};

struct bench {
    struct sl_device *device;
    unsigned char *pool, *arena;
    struct sl_move moves[BLOCKS];
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

static void moves_make(struct bench *bench, uint32_t layers_index)
{
    for (uint32_t i = 0; i < BLOCKS; i++) {
        bench->moves[i] =
            (struct sl_move){.host = bench->arena + (uint64_t)(i * 389u % BLOCKS) * PIECE,
                             .device_block = i * 241u % BLOCKS,
                             .layers_index = layers_index};
    }
}

/* A turn of memcpy, whose blocks lie as far apart as those of two parts. */
static double plain_turn(struct bench *bench, bool to_host)
{
    uint64_t start_ns = now_ns();
    for (uint32_t i = 0; i < BLOCKS; i++) {
        unsigned char *block = bench->pool + bench->moves[i].device_block * 2 * PIECE;
        unsigned char *value = bench->moves[i].host;
        memcpy(to_host ? value : block, to_host ? block : value, PIECE);
    }
    return (double)BLOCKS * PIECE / (double)(now_ns() - start_ns);
}

static double device_turn(struct bench *bench, bool to_host, bool digests)
{
    struct sl_error why = {0};
    uint64_t start_ns = now_ns();
    if (bench->device->ops->move(bench->device, bench->moves, BLOCKS, to_host, digests, &why) !=
        SL_OK) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    return (double)BLOCKS * PIECE / (double)(now_ns() - start_ns);
}

static void row(struct bench *bench, uint64_t run_bytes)
{
    /* Two parts in a block: of runs, each second one is ours. */
    struct sl_layer layer = {.base = bench->pool,
                             .block_stride_bytes = 2 * PIECE,
                             .piece_bytes = PIECE,
                             .block_count = BLOCKS};
    if (run_bytes < PIECE) {
        layer.piece_bytes = PIECE / run_bytes * run_bytes;
        layer.fragment_bytes = run_bytes;
        layer.fragment_stride_bytes = 2 * run_bytes;
    }
    uint32_t index = 0;
    struct sl_error why = {0};
    if (bench->device->ops->layers_add(bench->device, &layer, 1, &index, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    moves_make(bench, index);
    for (size_t w = 0; w < SL_COUNT(ways); w++) {
        double plain[ROUNDS], ours[ROUNDS];
        for (unsigned i = 0; i < ROUNDS; i++) {
            plain[i] = plain_turn(bench, ways[w].to_host);
            ours[i] = device_turn(bench, ways[w].to_host, ways[w].digests);
        }
        double memcpy_speed = median(plain), speed = median(ours);
        printf("runs of %5lu  %-13s %6.2f GB/s  memcpy %6.2f  ratio %.2f\n",
               (unsigned long)run_bytes, ways[w].name, speed, memcpy_speed, speed / memcpy_speed);
    }
    bench->device->ops->layers_remove(bench->device, index);
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
    if (sl_device_open("host", 0, 8 * SL_MIB, &bench.device, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    bench.pool = memory(UINT64_C(2) * BLOCKS * PIECE);
    bench.arena = memory(UINT64_C(1) * BLOCKS * PIECE);
    for (size_t i = 0; i < SL_COUNT(runs); i++) {
        row(&bench, runs[i]);
    }
    sl_device_close(&bench.device);
    return 0;
}
