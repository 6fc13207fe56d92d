/* runtime/fabric/core/front.h - what stands behind a struct sl_fabric that moves nothing by itself:
 * several rails as one (rails.h), or a rail that another process drives.
 *
 * Each function is that of fabric.h with the same name, and keeps its promises. */
#ifndef SL_FABRIC_CORE_FRONT_H
#define SL_FABRIC_CORE_FRONT_H

#include "runtime/fabric/core/fabric.h"

struct fabric_front {
    void (*close)(struct sl_fabric *fabric); /* frees the struct, too */
    void (*step)(struct sl_fabric *fabric, uint64_t now_ns);
    uint64_t (*wake_at)(const struct sl_fabric *fabric);
    const char *(*about)(const struct sl_fabric *fabric); /* NULL: as it was at the start */
    void (*stats)(const struct sl_fabric *fabric, struct sl_fabric_stats *out);
    sl_err (*memory_add)(struct sl_fabric *fabric, const struct sl_fabric_memory *memory,
                         uint32_t *out, struct sl_error *why);
    sl_err (*memory_remove)(struct sl_fabric *fabric, uint32_t memory);
    sl_err (*memory_remove_step)(struct sl_fabric *fabric, uint32_t memory, bool *gone);
    /* No more of it is registered, and registered() does not come; one that is ready stays so. */
    void (*memory_give_up)(struct sl_fabric *fabric, uint32_t memory);
    uint64_t (*region_bytes_max)(const struct sl_fabric *fabric);
    sl_err (*peer_add)(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why);
    sl_err (*peer_address)(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                           uint32_t length_bytes, struct sl_error *why);
    void (*peer_remove)(struct sl_fabric *fabric, uint32_t peer);
    enum sl_fabric_link (*peer_link)(const struct sl_fabric *fabric, uint32_t peer);
    sl_err (*grant_add)(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                        uint32_t *out, void *key, uint32_t *key_bytes, struct sl_error *why);
    sl_err (*grant_end)(struct sl_fabric *fabric, uint32_t grant);
    void (*grants_shut)(struct sl_fabric *fabric, const struct sl_fabric_place *ranges,
                        uint32_t count);
    bool (*grant_recheck)(struct sl_fabric *fabric, uint32_t grant);
    sl_err (*key_open)(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                       uint32_t length_bytes, uint32_t *out, struct sl_error *why);
    sl_err (*key_renew)(struct sl_fabric *fabric, uint32_t key, const void *blob,
                        uint32_t length_bytes, struct sl_error *why);
    void (*key_close)(struct sl_fabric *fabric, uint32_t key);
    sl_err (*post)(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                   struct sl_error *why);
    uint32_t (*cancel)(struct sl_fabric *fabric, uint64_t cookie);
};

#endif
