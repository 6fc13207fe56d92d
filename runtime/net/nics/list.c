/* runtime/net/nics/list.c - chooses from a list of NICs: one for all, by GPU, or by rank. */
#include "runtime/base/sl_parse.h"
#include "runtime/net/nics/nics.h"

#include <string.h>
#include <strings.h>

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

/* Gives entry `index` of a comma list, trimmed; false: the list is shorter. */
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

/* A UUID may be a prefix that matches only one GPU, as in the CUDA driver. */
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

sl_err sl_nic_gpu_index(const struct sl_nic_sources *sources, uint32_t *index, struct sl_error *why)
{
    struct entry entry = {0};
    if (sources->registered_index >= 0) {
        *index = (uint32_t)SL_MIN(sources->registered_index, (int64_t)UINT32_MAX);
        return SL_OK;
    }
    if (sources->visible_devices == NULL) {
        return sl_fail(
            why, SL_ERR_CONFIG,
            "nic: the physical GPU of rank %u is unknown (CUDA_VISIBLE_DEVICES is not set)",
            sources->rank);
    }
    if (!list_entry(sources->visible_devices, sources->rank, &entry) || entry.length == 0) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "nic: CUDA_VISIBLE_DEVICES '%.64s' has no entry for rank %u",
                       sources->visible_devices, sources->rank);
    }
    uint64_t number = 0;
    if (sl_parse_whole(entry.at, entry.length, &number) && number <= UINT32_MAX) {
        *index = (uint32_t)number;
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
    if (sources->by_rank) {
        index = sources->rank % count;
    } else if (count > 1) {
        sl_err err = sl_nic_gpu_index(sources, &index, why);
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

bool sl_nic_list_is_auto(const char *list)
{
    return list != NULL && (strcmp(list, "auto") == 0 || strcmp(list, "auto-discovery") == 0);
}
