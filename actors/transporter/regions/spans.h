/* actors/transporter/regions/spans.h - joins regions of engines' pools to spans that are registered
 * as one. Pure functions. */
#ifndef SL_TRANSPORTER_REGIONS_SPANS_H
#define SL_TRANSPORTER_REGIONS_SPANS_H

#include "runtime/base/sl_error.h"

/* A range of a buffer: consecutive blocks of stride_bytes. The last one may be short. */
struct tr_span {
    uint32_t buffer; /* index of the mapping */
    uint64_t offset_bytes, length_bytes;
    uint64_t stride_bytes;
    uint64_t block_bytes; /* used bytes of a block, at most the stride */
};

/* Joins adjacent spans with the same stride, and spans whose blocks interleave. Input: one span for
 * each region, in any order. Output: *count spans, sorted by buffer and offset; a block of any
 * region lies within one stride of its span. Errors, with spans in any state: SL_ERR_UNSUPPORTED
 * (regions with different strides overlap). */
sl_err tr_spans_join(struct tr_span *spans, uint32_t *count, struct sl_error *why);

#endif
