/* cuda/sl_gpu_bench.h - measures a GPU as a node uses it: moves in slices and every way of moving
 * pieces, beside one pinned copy of the same bytes and beside a copy a piece, in the same run. */
#ifndef SL_GPU_BENCH_H
#define SL_GPU_BENCH_H

#include "cuda/sl_crossover.h"
#include "cuda/sl_device.h"

#define SL_GPU_BENCH_LAYERS     20u /* of a value: pieces come in multiples */
#define SL_GPU_BENCH_SIZES_MAX  8u
#define SL_GPU_BENCH_COUNTS_MAX 8u
#define SL_GPU_BENCH_PIECES_MAX 1000000u

/* How values lie on the host; blocks on the device are scattered always. */
enum sl_gpu_values {
    SL_GPU_SCATTERED, /* in an order that jumps */
    SL_GPU_ADJACENT,  /* one after the other */
    SL_GPU_LAYERED,   /* scattered, and moved layer by layer */
    SL_GPU_VALUES
};
/* What memory of the host. */
enum sl_gpu_memory {
    SL_GPU_TMPFS,  /* a file in shared memory that is pinned in slices, as the arena */
    SL_GPU_PINNED, /* got from the driver */
    SL_GPU_MEMORIES
};
const char *sl_gpu_values_name(enum sl_gpu_values values); /* "scattered" */
const char *sl_gpu_memory_name(enum sl_gpu_memory memory); /* "tmpfs" */

/* Pieces of one size, one number, one direction. GB/s, medians. */
struct sl_gpu_bench_row {
    enum sl_gpu_memory memory;
    enum sl_gpu_values values;
    bool to_host;
    uint64_t piece_bytes, pieces;
    double whole;    /* one copy of all bytes, pinned: the limit */
    double single;   /* an asynchronous copy a piece */
    double move;     /* in slices, as a swapper: the device's own choice, without digests */
    double digested; /* out: the same with digests; in: the digest pass over the blocks that were
                        loaded, by itself */
    double ways[SL_WAY_COUNT]; /* 0: cannot be used, or was not asked for */
    enum sl_way chosen;        /* for the first slice */
    uint64_t drains;           /* of one move in slices: at most 1 when they follow each other */
};

struct sl_gpu_bench_options {
    struct sl_device_options device; /* its name is not looked at */
    uint64_t bytes_max;              /* of device and of host memory; larger rows are left out */
    uint32_t rounds;                 /* at most; a row stops after about 1.5 s */
    uint64_t limit_ns;               /* no row begins later; 0: no limit */
    const char *tmpfs;               /* directory for the file */
    uint32_t size_count, count_count;
    uint64_t sizes[SL_GPU_BENCH_SIZES_MAX];   /* of a piece: multiples of 8 */
    uint64_t counts[SL_GPU_BENCH_COUNTS_MAX]; /* multiples of the layers, at most PIECES_MAX */
    bool ways[SL_WAY_COUNT];
    bool values[SL_GPU_VALUES];
    bool memories[SL_GPU_MEMORIES];
    void (*found)(void *context, const struct sl_gpu_bench_row *row); /* as they are found */
    void *context;
};
struct sl_gpu_bench_result {
    char text[SL_DEVICE_TEXT_BYTES]; /* what was measured */
    char note[160];                  /* why a kind of memory was left out; or empty */
    struct sl_crossover crossover;
    uint32_t rows, rows_left_out, rows_late; /* for want of memory, of time */
    uint64_t checked_bytes;                  /* went there and back, and were compared */
};
/* Rows of memory from tmpfs with scattered values come first. Errors: SL_ERR_INVALID (a size or a
 * count that cannot be, or not one row fits), those of the device (SL_ERR_UNSUPPORTED: the text
 * says why there is none), SL_ERR_CORRUPT (bytes or a digest differ). */
sl_err sl_gpu_bench_run(const struct sl_gpu_bench_options *options,
                        struct sl_gpu_bench_result *result, struct sl_error *why);

#endif
