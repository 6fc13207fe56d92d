/* client/lib/pool_rules.c - rules of pools and stores as pure functions: who creates a pool, and
 * which buffers a separate store process has to map. */
#include "client/include/sluice.h"

#include <inttypes.h>
#include <stdlib.h>

enum sl_pool_creator sl_pool_owner_decide(const struct sl_pool_situation *situation)
{
    bool shared = situation->host_blocks > 0 || situation->storage || situation->split;
    return !situation->profiling && shared ? SL_POOL_BY_SLUICE : SL_POOL_BY_ENGINE;
}

/* ---- required bytes ---- */

struct span {
    uint64_t start, end;
    uint32_t index; /* number of the buffer */
};

/* By start; of equal starts the longest first. */
static int span_compare(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    if (a->start != b->start) {
        return a->start < b->start ? -1 : 1;
    }
    return (a->end < b->end) - (a->end > b->end);
}

/* Gives the buffers that count, sorted, one for each start. */
static sl_err spans_make(const struct sl_pool_buffer *buffers, uint32_t count, struct span **out,
                         uint32_t *span_count, struct sl_error *why)
{
    if (count > SL_POOL_BUFFERS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "%u buffers, at most %u", count, SL_POOL_BUFFERS_MAX);
    }
    struct span *spans = calloc(count + 1u, sizeof *spans);
    if (spans == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u buffers", count);
    }
    uint32_t used = 0, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct span span = {.start = buffers[i].start_addr, .index = i};
        if (buffers[i].start_addr == 0 || buffers[i].length_bytes == 0) {
            continue;
        }
        if (__builtin_add_overflow(span.start, buffers[i].length_bytes, &span.end)) {
            free(spans);
            return sl_fail(why, SL_ERR_INVALID,
                           "buffer %u: 0x%" PRIx64 " + %" PRIu64
                           " bytes is beyond the address space",
                           i, buffers[i].start_addr, buffers[i].length_bytes);
        }
        spans[used++] = span;
    }
    qsort(spans, used, sizeof *spans, span_compare);
    for (uint32_t i = 0; i < used; i++) {
        if (kept == 0 || spans[kept - 1].start != spans[i].start) {
            spans[kept++] = spans[i];
        }
    }
    *out = spans;
    *span_count = kept;
    return SL_OK;
}

sl_err sl_pool_required_bytes(const struct sl_pool_buffer *buffers, uint32_t count,
                              uint64_t *required_bytes, struct sl_error *why)
{
    struct span *spans = NULL;
    uint32_t span_count = 0;
    uint64_t sum = 0;
    sl_err err = spans_make(buffers, count, &spans, &span_count, why);
    for (uint32_t i = 0; i < span_count && err == SL_OK; i++) {
        if (i > 0 && spans[i].start < spans[i - 1].end) {
            err = sl_fail(why, SL_ERR_INVALID,
                          "buffers %u and %u overlap: [0x%" PRIx64 ", 0x%" PRIx64
                          ") and [0x%" PRIx64 ", 0x%" PRIx64 ")",
                          spans[i - 1].index, spans[i].index, spans[i - 1].start, spans[i - 1].end,
                          spans[i].start, spans[i].end);
        } else if (__builtin_add_overflow(sum, spans[i].end - spans[i].start, &sum)) {
            err = sl_fail(why, SL_ERR_INVALID, "buffer %u: the sum is beyond 64 bits",
                          spans[i].index);
        }
    }
    free(spans);
    if (err == SL_OK) {
        *required_bytes = sum;
    }
    return err;
}

sl_err sl_pool_buffer_check(const struct sl_pool_buffer *mapped, uint32_t count,
                            struct sl_pool_buffer late, struct sl_error *why)
{
    struct span *spans = NULL;
    uint32_t span_count = 0;
    uint64_t end;
    if (late.start_addr == 0 || late.length_bytes == 0 ||
        __builtin_add_overflow(late.start_addr, late.length_bytes, &end)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "buffer 0x%" PRIx64 " of %" PRIu64 " bytes cannot be registered",
                       late.start_addr, late.length_bytes);
    }
    sl_err err = spans_make(mapped, count, &spans, &span_count, why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t covered = late.start_addr; /* everything before it is mapped */
    for (uint32_t i = 0; i < span_count && spans[i].start <= covered; i++) {
        covered = SL_MAX(covered, spans[i].end);
    }
    free(spans);
    if (covered < end) {
        return sl_fail(why, SL_ERR_INVALID,
                       "buffer 0x%" PRIx64 " of %" PRIu64 " bytes: not mapped from 0x%" PRIx64
                       " on",
                       late.start_addr, late.length_bytes, covered);
    }
    return SL_OK;
}
