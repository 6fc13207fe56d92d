/* actors/transporter/regions/spans.c - see spans.h.
 *
 * The layers of a pool are often in one allocation, and the parts of a block are slices of one
 * tensor. If each were registered separately, the same pages would be pinned several times. */
#include "actors/transporter/regions/spans.h"

#include <inttypes.h>
#include <stdlib.h>

static int span_compare(const void *left, const void *right)
{
    const struct tr_span *a = left, *b = right;
    if (a->buffer != b->buffer) {
        return a->buffer < b->buffer ? -1 : 1;
    }
    if (a->offset_bytes != b->offset_bytes) {
        return a->offset_bytes < b->offset_bytes ? -1 : 1;
    }
    return 0;
}

/* Whether each block of `next` lies within a stride of `span`, or of the stride that follows it. */
static bool span_continues(const struct tr_span *span, const struct tr_span *next)
{
    uint64_t ahead_bytes = next->offset_bytes - span->offset_bytes; /* they are sorted */
    uint64_t slots = (span->length_bytes + span->stride_bytes - 1) / span->stride_bytes;
    return next->stride_bytes == span->stride_bytes &&
           (ahead_bytes + span->stride_bytes - 1) / span->stride_bytes <= slots &&
           ahead_bytes % span->stride_bytes + next->block_bytes <= span->stride_bytes;
}

sl_err tr_spans_join(struct tr_span *spans, uint32_t *count, struct sl_error *why)
{
    uint32_t kept = 0;
    qsort(spans, *count, sizeof(*spans), span_compare);
    for (uint32_t i = 0; i < *count; i++) {
        const struct tr_span next = spans[i];
        struct tr_span *span = kept == 0 ? NULL : &spans[kept - 1];
        if (span == NULL || span->buffer != next.buffer) {
            spans[kept++] = next;
            continue;
        }
        uint64_t end_bytes = span->offset_bytes + span->length_bytes;
        if (span_continues(span, &next)) {
            end_bytes = SL_MAX(end_bytes, next.offset_bytes + next.length_bytes);
            span->length_bytes = end_bytes - span->offset_bytes;
        } else if (next.offset_bytes < end_bytes) {
            return sl_fail(why, SL_ERR_UNSUPPORTED,
                           "blocks of %" PRIu64 " bytes at %" PRIu64
                           " interleave with blocks of %" PRIu64 " bytes from %" PRIu64 " on",
                           next.stride_bytes, next.offset_bytes, span->stride_bytes,
                           span->offset_bytes);
        } else {
            spans[kept++] = next;
        }
    }
    *count = kept;
    return SL_OK;
}
