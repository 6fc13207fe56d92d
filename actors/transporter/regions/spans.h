/* actors/transporter/regions/spans.h - regions of engines' pools become pieces of memory that are
 * registered as one. Pure. */
#ifndef SL_TRANSPORTER_REGIONS_SPANS_H
#define SL_TRANSPORTER_REGIONS_SPANS_H

#include "runtime/base/sl_error.h"

/* A range of a buffer: blocks of stride_bytes, one after the other. The last one may be short. */
struct tr_span {
    uint32_t buffer; /* number of the mapping */
    uint64_t offset_bytes, length_bytes;
    uint64_t stride_bytes;
    uint64_t block_bytes; /* of a block, from its start on; at most the stride */
};

/* spans: one a region, in any order. Makes one of those that follow each other with the same
 * stride, and of parts whose blocks lie between each other's. Sorted by buffer and offset, *count
 * of them are left. A block of any region then lies within one stride of its span. Errors, with
 * spans in any state: SL_ERR_UNSUPPORTED (blocks of regions overlap that are laid out in different
 * ways). */
sl_err tr_spans_join(struct tr_span *spans, uint32_t *count, struct sl_error *why);

#endif
