/* actors/swapper/pools.h - pool memory that this swapper made, and epochs that are over. */
#ifndef SL_SWAPPER_POOLS_H
#define SL_SWAPPER_POOLS_H

#include "cuda/sl_device.h"

#define SW_MADE_MAX 1024u
/* Epochs remembered as over, because an answer about an engine may be in flight. */
#define SW_OVER_MAX 256u

struct sw_made {
    uint64_t epoch; /* 0: free */
    struct sl_device_memory memory;
};

struct sw_pools {
    struct sw_made *made; /* owned */
    uint32_t made_high;   /* rows used so far */
    uint64_t over[SW_OVER_MAX];
    uint32_t over_next;
};

/* Makes memory for the epoch, or finds it if made before, and says how to map it. Errors: those of
 * sl_device_memory_create; SL_ERR_LIMIT, SL_ERR_STALE (the epoch is over). why is not NULL. */
sl_err sw_pool_make(struct sw_pools *pools, struct sl_device *device, uint64_t epoch,
                    uint64_t length_bytes, struct sl_memory_handle *out, struct sl_error *why);
/* The epoch is over: frees its memory, which must not be mapped here. Gives its bytes. */
uint64_t sw_pool_drop(struct sw_pools *pools, struct sl_device *device, uint64_t epoch);
uint32_t sw_pools_made(const struct sw_pools *pools); /* present number */
uint64_t sw_pools_bytes(const struct sw_pools *pools);
bool sw_pool_is_over(const struct sw_pools *pools, uint64_t epoch);
void sw_pools_fini(struct sw_pools *pools, struct sl_device *device);

#endif
