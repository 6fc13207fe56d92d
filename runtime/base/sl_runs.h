/* runtime/base/sl_runs.h - a piece of memory that is one run, or several runs of equal length at a
 * fixed distance, such as some heads of a page that stores all heads of each token together. */
#ifndef SL_RUNS_H
#define SL_RUNS_H

#include <stdint.h>

/* Bytes from the start to the end of a piece of piece_bytes. run_bytes 0: the piece is one run;
 * otherwise runs begin every stride_bytes. 0: such runs do not make up the piece, overlap, or
 * exceed 64 bits. Pure. */
static inline uint64_t sl_runs_span(uint64_t piece_bytes, uint64_t run_bytes, uint64_t stride_bytes)
{
    uint64_t span_bytes = 0;
    if (run_bytes == 0) {
        return piece_bytes;
    }
    if (piece_bytes == 0 || piece_bytes % run_bytes != 0 || stride_bytes < run_bytes ||
        __builtin_mul_overflow(piece_bytes / run_bytes - 1, stride_bytes, &span_bytes) ||
        __builtin_add_overflow(span_bytes, run_bytes, &span_bytes)) {
        return 0;
    }
    return span_bytes;
}

#endif
