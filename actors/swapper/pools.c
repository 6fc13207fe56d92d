/* actors/swapper/pools.c - pool memory made for others, one row for each epoch. A repeated request
 * gets the same memory, since an answer may be lost when the registrar dies. */
#include "actors/swapper/pools.h"

#include <inttypes.h>
#include <stdlib.h>

static struct sw_made *made_find(const struct sw_pools *pools, uint64_t epoch)
{
    for (uint32_t i = 0; i < pools->made_high; i++) {
        if (pools->made[i].epoch == epoch) {
            return &pools->made[i];
        }
    }
    return NULL;
}

/* A free row; NULL: none, see why. */
static struct sw_made *made_row(struct sw_pools *pools, struct sl_error *why)
{
    struct sw_made *row = made_find(pools, 0);
    if (pools->made == NULL) {
        pools->made = calloc(SW_MADE_MAX, sizeof(*pools->made));
        if (pools->made == NULL) {
            (void)sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the table of pools");
            return NULL;
        }
    }
    if (row == NULL && pools->made_high == SW_MADE_MAX) {
        (void)sl_fail(why, SL_ERR_LIMIT, "%u pools exist here already", SW_MADE_MAX);
        return NULL;
    }
    return row != NULL ? row : &pools->made[pools->made_high++];
}

sl_err sw_pool_make(struct sw_pools *pools, struct sl_device *device, uint64_t epoch,
                    uint64_t length_bytes, struct sl_memory_handle *out, struct sl_error *why)
{
    struct sw_made *row = made_find(pools, epoch);
    if (row != NULL) {
        return sl_device_memory_export(device, &row->memory, out, why);
    }
    if (sw_pool_is_over(pools, epoch)) {
        return sl_fail(why, SL_ERR_STALE, "pool epoch %" PRIu64 " is over", epoch);
    }
    struct sl_device_memory memory = {.fd = -1};
    sl_err err = sl_device_memory_create(device, length_bytes, &memory, why);
    if (err == SL_OK) {
        err = sl_device_memory_export(device, &memory, out, why);
    }
    if (err == SL_OK) {
        row = made_row(pools, why);
    }
    if (row == NULL) {
        sl_device_memory_free(device, &memory);
        return err != SL_OK ? err : why->code;
    }
    *row = (struct sw_made){.epoch = epoch, .memory = memory};
    return SL_OK;
}

uint64_t sw_pool_drop(struct sw_pools *pools, struct sl_device *device, uint64_t epoch)
{
    uint64_t length_bytes = 0;
    struct sw_made *row = made_find(pools, epoch);
    if (!sw_pool_is_over(pools, epoch)) {
        pools->over[pools->over_next++ % SW_OVER_MAX] = epoch;
    }
    if (row != NULL) {
        length_bytes = row->memory.length_bytes;
        sl_device_memory_free(device, &row->memory);
        row->epoch = 0;
    }
    return length_bytes;
}

uint32_t sw_pools_made(const struct sw_pools *pools)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pools->made_high; i++) {
        count += pools->made[i].epoch != 0;
    }
    return count;
}

uint64_t sw_pools_bytes(const struct sw_pools *pools)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < pools->made_high; i++) {
        bytes += pools->made[i].epoch != 0 ? pools->made[i].memory.length_bytes : 0;
    }
    return bytes;
}

bool sw_pool_is_over(const struct sw_pools *pools, uint64_t epoch)
{
    for (uint32_t i = 0; i < SW_OVER_MAX; i++) {
        if (epoch != 0 && pools->over[i] == epoch) {
            return true;
        }
    }
    return false;
}

void sw_pools_fini(struct sw_pools *pools, struct sl_device *device)
{
    for (uint32_t i = 0; i < pools->made_high; i++) {
        if (pools->made[i].epoch != 0) {
            sl_device_memory_free(device, &pools->made[i].memory);
        }
    }
    free(pools->made);
    *pools = (struct sw_pools){0};
}
