/* cuda/sl_gpu_bench.h - measures a GPU as a node uses it: moves in slices and every way of moving
 * pieces, compared with one pinned copy of the same bytes and with one copy per piece, in the same
 * run. */
#ifndef SL_GPU_BENCH_H
#define SL_GPU_BENCH_H

#include "cuda/sl_crossover.h"
#include "cuda/sl_device.h"

#define SL_GPU_BENCH_LAYERS     20u /* of a value: numbers of pieces are multiples */
#define SL_GPU_BENCH_SIZES_MAX  8u
#define SL_GPU_BENCH_COUNTS_MAX 8u
#define SL_GPU_BENCH_PIECES_MAX 1000000u

/* Layout of values on the host; blocks on the device are always scattered. */
enum sl_gpu_values {
    SL_GPU_SCATTERED, /* in random order */
    SL_GPU_ADJACENT,  /* one after the other */
    SL_GPU_LAYERED,   /* scattered, and moved layer by layer */
    SL_GPU_VALUES
};
/* Kind of host memory. */
enum sl_gpu_memory {
    SL_GPU_TMPFS,  /* a file in shared memory, pinned in slices like the arena */
    SL_GPU_PINNED, /* allocated by the driver */
    SL_GPU_MEMORIES
};
const char *sl_gpu_values_name(enum sl_gpu_values values); /* "scattered" */
const char *sl_gpu_memory_name(enum sl_gpu_memory memory); /* "tmpfs" */

/* Results for pieces of one size, number and direction: GB/s, medians. */
struct sl_gpu_bench_row {
    enum sl_gpu_memory memory;
    enum sl_gpu_values values;
    bool to_host;
    uint64_t piece_bytes, pieces;
    double whole;    /* one pinned copy of all bytes: the upper limit */
    double single;   /* one asynchronous copy per piece */
    double move;     /* in slices like a swapper: the device chooses the way, without digests */
    double digested; /* out: the same with digests; in: a digest pass over the loaded blocks */
    double ways[SL_WAY_COUNT]; /* 0: not possible, or not requested */
    enum sl_way chosen;        /* for the first slice */
    uint64_t drains;           /* of one move in slices: at most 1 if slices follow each other */
};

struct sl_gpu_bench_options {
    struct sl_device_options device; /* its name is ignored */
    uint64_t bytes_max; /* of device and of host memory each; larger rows are skipped */
    uint32_t rounds;    /* at most; a row stops after about 1.5 s */
    uint64_t limit_ns;  /* no row begins later; 0: no limit */
    const char *tmpfs;  /* directory for the file */
    uint32_t size_count, count_count;
    uint64_t sizes[SL_GPU_BENCH_SIZES_MAX];   /* of a piece: multiples of 8 */
    uint64_t counts[SL_GPU_BENCH_COUNTS_MAX]; /* multiples of the layers, at most PIECES_MAX */
    bool ways[SL_WAY_COUNT];
    bool values[SL_GPU_VALUES];
    bool memories[SL_GPU_MEMORIES];
    void (*found)(void *context, const struct sl_gpu_bench_row *row); /* called for each row */
    void *context;
};
struct sl_gpu_bench_result {
    char text[SL_DEVICE_TEXT_BYTES]; /* description of the device */
    char note[160];                  /* why a kind of memory was skipped; or empty */
    struct sl_crossover crossover;
    uint32_t rows, rows_left_out, rows_late; /* skipped for lack of memory, of time */
    uint64_t checked_bytes;                  /* moved in and out, and compared */
};
/* Rows of tmpfs memory with scattered values come first. Errors: SL_ERR_INVALID (an impossible size
 * or count, or no row fits), those of the device (SL_ERR_UNSUPPORTED: the text gives the reason),
 * SL_ERR_CORRUPT (bytes or a digest differ). */
sl_err sl_gpu_bench_run(const struct sl_gpu_bench_options *options,
                        struct sl_gpu_bench_result *result, struct sl_error *why);

#endif
