/* runtime/net/fabric/core/plan.c - see plan.h: limit of a region, and cuts. */
#include "runtime/net/fabric/core/plan.h"

#include "runtime/base/sl_parse.h"

#include <inttypes.h>
#include <string.h>

#define VARIABLE "MC_MAX_MR_SIZE"

/* ---- limit ---- */

static bool all_digits(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static sl_err variable_limit(const char *text, struct sl_mr_limit *out, struct sl_error *why)
{
    uint64_t bytes = 0;
    out->clamped = false;
    if (text == NULL || text[0] == '\0') {
        out->bytes = SL_MR_BYTES_STANDARD;
        return SL_OK;
    }
    if (sl_parse_size(text, &bytes, NULL) != SL_OK) {
        if (!all_digits(text)) {
            return sl_fail(why, SL_ERR_CONFIG, VARIABLE ": '%.64s' is no number of bytes", text);
        }
        bytes = UINT64_MAX; /* too large for 64 bits: out of range, as other numbers */
    }
    if (bytes == 0) {
        out->bytes = SL_MR_BYTES_STANDARD;
        return SL_OK;
    }
    out->bytes = SL_MIN(SL_MAX(bytes, SL_MR_BYTES_MIN), SL_MR_BYTES_MAX);
    out->clamped = out->bytes != bytes;
    return SL_OK;
}

sl_err sl_mr_limit_of(const struct sl_mr_sources *sources, struct sl_mr_limit *out,
                      struct sl_error *why)
{
    struct sl_mr_limit limit = {.bytes = sources->setting_bytes};
    if (sources->setting_bytes != 0 && sources->setting_bytes < SL_PAGE_BYTES) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "mr_bytes_max: %" PRIu64 " is less than a page of %u bytes",
                       sources->setting_bytes, SL_PAGE_BYTES);
    }
    if (sources->setting_bytes == 0) {
        sl_err err = variable_limit(sources->variable, &limit, why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (sources->device_bytes_max != 0) {
        limit.bytes = SL_MIN(limit.bytes, sources->device_bytes_max);
    }
    if (limit.bytes < SL_PAGE_BYTES) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "the device's max_mr_size of %" PRIu64 " bytes is less than a page",
                       limit.bytes);
    }
    *out = limit;
    return SL_OK;
}

/* ---- cuts ---- */

static uint64_t whole_pages(uint64_t bytes)
{
    SL_ASSERT(bytes >= SL_PAGE_BYTES);
    return bytes / SL_PAGE_BYTES * SL_PAGE_BYTES;
}

/* Cuts from *at to the next multiple of step_bytes in the current block of unit_bytes. */
static bool next_cut(uint64_t total_bytes, uint64_t unit_bytes, uint64_t step_bytes, uint64_t *at,
                     struct sl_mr_cut *out)
{
    if (*at >= total_bytes) {
        return false;
    }
    uint64_t unit_left_bytes = unit_bytes - *at % unit_bytes;
    uint64_t length_bytes = SL_MIN(SL_MIN(unit_left_bytes, step_bytes), total_bytes - *at);
    *out = (struct sl_mr_cut){.offset_bytes = *at, .length_bytes = length_bytes};
    *at += length_bytes;
    return true;
}

bool sl_mr_next_of_arena(uint64_t total_bytes, uint64_t chunk_bytes, uint64_t limit_bytes,
                         uint64_t *at, struct sl_mr_cut *out)
{
    uint64_t step_bytes = chunk_bytes <= limit_bytes ? chunk_bytes : whole_pages(limit_bytes);
    return next_cut(total_bytes, chunk_bytes, step_bytes, at, out);
}

bool sl_mr_next_of_pool(uint64_t total_bytes, uint64_t stride_bytes, uint64_t limit_bytes,
                        uint64_t *at, struct sl_mr_cut *out)
{
    if (stride_bytes <= limit_bytes) {
        uint64_t step_bytes = limit_bytes / stride_bytes * stride_bytes;
        return next_cut(total_bytes, step_bytes, step_bytes, at, out);
    }
    return next_cut(total_bytes, stride_bytes, whole_pages(limit_bytes), at, out);
}
