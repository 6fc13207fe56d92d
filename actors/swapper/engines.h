/* actors/swapper/engines.h - engines whose pools of this rank are mapped. */
#ifndef SL_SWAPPER_ENGINES_H
#define SL_SWAPPER_ENGINES_H

#include "cuda/sl_device.h"
#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_metrics.h"

#define SW_POOLS_MAX 8u  /* of the message table */
#define SW_PARTS_MAX 64u /* likewise */
/* Distinct memory of the table of pools that one rank of an engine lies in. */
#define SW_EPOCHS_MAX 64u

enum sw_engine_state {
    SW_ENGINE_FREE,
    SW_ENGINE_ASKED, /* its registration is on the way */
    SW_ENGINE_READY, /* mapped */
};

/* What this rank has of a part of a pool's blocks: its layers, in their order. */
struct sw_part {
    uint32_t layers_index;
    uint32_t layer_count; /* 0: this rank does not have it */
    uint64_t
        *layer_offsets; /* layer_count + 1: where each begins in the value, and its end; owned */
    uint64_t value_bytes;
    uint64_t block_count;
    uint64_t runs; /* of a block, in all layers */
};

struct sw_pool {
    uint32_t part_count;   /* 0: one a rank, the only row of parts */
    struct sw_part *parts; /* owned */
};

struct sw_engine {
    enum sw_engine_state state;
    uint64_t engine_id; /* never reused */
    uint64_t used_ns;   /* last COPY */
    uint64_t asked_ns;  /* last answer about it, or last question */
    uint64_t call_seq;  /* of the question; 0: none is out */
    bool team;          /* others ask for its copies, who do not know when its registration ends */
    struct sl_proc_id proc;
    struct sl_mapping *mappings;      /* owned, each with what it maps */
    struct sl_memory_handle *handles; /* owned, one a mapping */
    uint32_t mapping_count;
    uint64_t epochs[SW_EPOCHS_MAX]; /* that it is mapped of */
    uint32_t epoch_count;
    struct sw_pool pools[SW_POOLS_MAX];
};

/* What engines are mapped with. */
struct sw_mapper {
    struct sl_device *device;
    struct sl_metrics *metrics; /* hears that what takes long goes on; may be NULL */
};

/* Maps the regions of `rank` and makes the layer tables: all or nothing; the rest of engine is left
 * alone. Errors: those of the device's map; SL_ERR_INVALID (names the region, or pool and part:
 * layers missing or double, sizes or runs that do not fit); SL_ERR_LIMIT. */
sl_err sw_engine_map(const struct sw_mapper *mapper, const struct sl_body_engine_get_reply *body,
                     uint64_t rank, struct sw_engine *engine, struct sl_error *why);
/* The part that the rank has; part is 0 in pools without part_count. NULL: it does not have it. */
const struct sw_part *sw_engine_part(const struct sw_engine *engine, uint64_t pool, uint64_t part);
bool sw_engine_is_of(const struct sw_engine *engine, uint64_t epoch);
/* Also accepts one that is not mapped. Leaves state, id and times alone. */
void sw_engine_unmap(struct sl_device *device, struct sw_engine *engine);

#endif
