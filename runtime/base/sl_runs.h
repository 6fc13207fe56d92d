/* runtime/base/sl_runs.h - a piece of memory that is one run, or runs of one length at one
 * distance: some of the heads of a page whose heads lie side by side for each token. */
#ifndef SL_RUNS_H
#define SL_RUNS_H

#include <stdint.h>

/* Bytes from where a piece of piece_bytes begins to where it ends. run_bytes 0: it is one run, else
 * from one to the next are stride_bytes. 0: such runs make no such piece, overlap, or pass 64 bits.
 * Pure. */
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
