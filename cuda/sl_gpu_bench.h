/* cuda/sl_gpu_bench.h - measures a GPU: every way of moving scattered pieces beside one pinned copy
 * of the same bytes and beside a copy a piece, in the same run. */
#ifndef SL_GPU_BENCH_H
#define SL_GPU_BENCH_H

#include "cuda/sl_crossover.h"
#include "cuda/sl_device.h"

#define SL_GPU_BENCH_LAYERS 20u /* of a value: pieces come in multiples */

/* Pieces of one size, one number, one direction; block ids and values scattered. GB/s, medians. */
struct sl_gpu_bench_row {
    bool to_host;
    uint64_t piece_bytes, pieces;
    double whole;              /* one copy of all bytes, pinned: the limit */
    double single;             /* an asynchronous copy a piece */
    double move;               /* the device's own choice, without digests */
    double digested;           /* with digests; 0: to the device */
    double ways[SL_WAY_COUNT]; /* 0: cannot be used */
    enum sl_way chosen;
};

struct sl_gpu_bench_options {
    struct sl_device_options device; /* its name is not looked at */
    uint64_t bytes_max;              /* of device and of pinned memory; larger rows are left out */
    uint32_t rounds;
    void (*found)(void *context, const struct sl_gpu_bench_row *row); /* as they are found */
    void *context;
};
struct sl_gpu_bench_result {
    char text[SL_DEVICE_TEXT_BYTES]; /* what was measured */
    struct sl_crossover crossover;
    uint32_t rows, rows_left_out;
    uint64_t checked_bytes; /* went there and back, and were compared */
};
/* Errors: those of the device (SL_ERR_UNSUPPORTED: the text says why there is none), SL_ERR_CORRUPT
 * (bytes or a digest differ). */
sl_err sl_gpu_bench_run(const struct sl_gpu_bench_options *options,
                        struct sl_gpu_bench_result *result, struct sl_error *why);

#endif
