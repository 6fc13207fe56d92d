/* runtime/fabric/core/plan.c - limits, cuts and NICs. */
#include "runtime/fabric/core/plan.h"

#include "runtime/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
        bytes = UINT64_MAX; /* a number too large for 64 bits is out of range like any other */
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

/* The region from *at up to the next multiple of step within the unit of unit_bytes that *at lies
 * in. */
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

/* ---- NIC ---- */

struct entry {
    const char *at;
    size_t length;
};

static struct entry entry_trim(const char *at, size_t length)
{
    while (length > 0 && (*at == ' ' || *at == '\t')) {
        at++;
        length--;
    }
    while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t')) {
        length--;
    }
    return (struct entry){.at = at, .length = length};
}

/* Entry `index` of a comma list, trimmed; false when the list is shorter. */
static bool list_entry(const char *list, uint32_t index, struct entry *out)
{
    for (uint32_t i = 0;; i++) {
        size_t length = strcspn(list, ",");
        if (i == index) {
            *out = entry_trim(list, length);
            return true;
        }
        if (list[length] == '\0') {
            return false;
        }
        list += length + 1;
    }
}

static bool entry_number(struct entry entry, uint32_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < entry.length; i++) {
        if (entry.at[i] < '0' || entry.at[i] > '9' || value > UINT32_MAX) {
            return false;
        }
        value = value * 10 + (uint64_t)(entry.at[i] - '0');
    }
    *out = (uint32_t)value;
    return entry.length > 0 && value <= UINT32_MAX;
}

/* A UUID may be shortened as long as it names one GPU, as the CUDA driver has it. */
static sl_err gpu_by_uuid(const struct sl_nic_sources *sources, struct entry entry, uint32_t *index,
                          struct sl_error *why)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < sources->gpu_count; i++) {
        if (strncasecmp(sources->gpus[i].uuid, entry.at, entry.length) == 0) {
            *index = sources->gpus[i].index;
            found++;
        }
    }
    if (found != 1) {
        return sl_fail(
            why, SL_ERR_CONFIG, "CUDA_VISIBLE_DEVICES: '%.*s' names %s GPU of this machine",
            (int)SL_MIN(entry.length, (size_t)64), entry.at, found == 0 ? "no" : "more than one");
    }
    return SL_OK;
}

static sl_err gpu_index(const struct sl_nic_sources *sources, uint32_t *index, struct sl_error *why)
{
    struct entry entry = {0};
    if (sources->registered_index >= 0) {
        *index = (uint32_t)SL_MIN(sources->registered_index, (int64_t)UINT32_MAX);
        return SL_OK;
    }
    if (sources->visible_devices == NULL) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "nic: several entries, but the physical GPU of rank %u is unknown "
                       "(CUDA_VISIBLE_DEVICES is not set)",
                       sources->rank);
    }
    if (!list_entry(sources->visible_devices, sources->rank, &entry) || entry.length == 0) {
        return sl_fail(
            why, SL_ERR_CONFIG,
            "nic: several entries, but CUDA_VISIBLE_DEVICES '%.64s' has no entry for rank %u",
            sources->visible_devices, sources->rank);
    }
    if (entry_number(entry, index)) {
        return SL_OK;
    }
    return gpu_by_uuid(sources, entry, index, why);
}

static sl_err entry_take(struct entry entry, char out[SL_NIC_NAME_BYTES], struct sl_error *why)
{
    if (entry.length >= SL_NIC_NAME_BYTES) {
        return sl_fail(why, SL_ERR_CONFIG, "nic: an entry of %zu bytes, at most %u are possible",
                       entry.length, SL_NIC_NAME_BYTES - 1);
    }
    memcpy(out, entry.at, entry.length);
    out[entry.length] = '\0';
    return SL_OK;
}

sl_err sl_nic_choose(const struct sl_nic_sources *sources, char out[SL_NIC_NAME_BYTES],
                     struct sl_error *why)
{
    struct entry entry = {0};
    uint32_t count = 0, index = 0;
    if (sources->list == NULL || sources->list[0] == '\0') {
        out[0] = '\0';
        return SL_OK;
    }
    while (list_entry(sources->list, count, &entry)) {
        if (entry.length == 0) {
            return sl_fail(why, SL_ERR_CONFIG, "nic: entry %u of '%.128s' is empty", count,
                           sources->list);
        }
        count++;
    }
    if (count > 1) {
        sl_err err = gpu_index(sources, &index, why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (index >= count) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "nic: '%.128s' has %u entries, none for GPU %u of rank %u", sources->list,
                       count, index, sources->rank);
    }
    (void)list_entry(sources->list, index, &entry);
    return entry_take(entry, out, why);
}
