/* actors/swapper/pools.h - memory of pools that this swapper made for others, and which memory is
 * over. */
#ifndef SL_SWAPPER_POOLS_H
#define SL_SWAPPER_POOLS_H

#include "cuda/sl_device.h"

#define SL_SWAPPER_MADE_MAX 1024u
/* Epochs that are remembered as over: an answer about an engine may be on its way meanwhile. */
#define SL_SWAPPER_OVER_MAX 256u

struct sl_swapper_made {
    uint64_t epoch; /* 0: free */
    struct sl_device_memory memory;
};

struct sl_swapper_pools {
    struct sl_swapper_made *made; /* owned */
    uint32_t made_high;           /* no row from here on was used */
    uint64_t over[SL_SWAPPER_OVER_MAX];
    uint32_t over_next;
};

/* Makes memory for the epoch, or finds what was made before, and says how others map it. Errors:
 * those of sl_device_memory_create; SL_ERR_LIMIT, SL_ERR_STALE (the epoch is over). why is not
 * NULL. */
sl_err sl_swapper_pool_make(struct sl_swapper_pools *pools, struct sl_device *device,
                            uint64_t epoch, uint64_t length_bytes, struct sl_memory_handle *out,
                            struct sl_error *why);
/* The epoch is over: frees what was made for it. Gives the bytes. Nothing here may map it. */
uint64_t sl_swapper_pool_drop(struct sl_swapper_pools *pools, struct sl_device *device,
                              uint64_t epoch);
uint32_t sl_swapper_pools_made(const struct sl_swapper_pools *pools); /* how many there are */
bool sl_swapper_pool_is_over(const struct sl_swapper_pools *pools, uint64_t epoch);
void sl_swapper_pools_fini(struct sl_swapper_pools *pools, struct sl_device *device);

#endif
