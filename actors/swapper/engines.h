/* actors/swapper/engines.h - the mapped pools of engines, for this rank. */
#ifndef SL_SWAPPER_ENGINES_H
#define SL_SWAPPER_ENGINES_H

#include "cuda/sl_device.h"
#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_metrics.h"

#define SW_POOLS_MAX 8u  /* of the message table */
#define SW_PARTS_MAX 64u /* likewise */
/* Epochs of pool memory that one rank of an engine may use. */
#define SW_EPOCHS_MAX 64u

enum sw_engine_state {
    SW_ENGINE_FREE,
    SW_ENGINE_ASKED, /* its registration was requested */
    SW_ENGINE_READY, /* mapped */
};

/* The rank's layers of a part of a pool's blocks, in order. */
struct sw_part {
    uint32_t layers_index;
    uint32_t layer_count;    /* 0: not on this rank */
    uint64_t *layer_offsets; /* layer_count + 1 offsets in the value, with its end; owned */
    uint64_t value_bytes;
    uint64_t block_count;
    uint64_t runs; /* in all layers of a block */
};

struct sw_pool {
    uint32_t part_count;   /* 0: one per rank, and `parts` has one row */
    struct sw_part *parts; /* owned */
};

struct sw_engine {
    enum sw_engine_state state;
    uint64_t engine_id; /* never reused */
    uint64_t used_ns;   /* last COPY */
    uint64_t asked_ns;  /* last answer about it, or last request */
    uint64_t call_seq;  /* of ENGINE_GET; 0: none in flight */
    bool team;          /* others send its COPYs, and do not know when its registration ends */
    struct sl_proc_id proc;
    struct sl_mapping *mappings;      /* owned, with what each maps */
    struct sl_memory_handle *handles; /* owned, one a mapping */
    uint32_t mapping_count;
    uint64_t epochs[SW_EPOCHS_MAX]; /* of its memory */
    uint32_t epoch_count;
    struct sw_pool pools[SW_POOLS_MAX];
};

/* Used by sw_engine_map. */
struct sw_mapper {
    struct sl_device *device;
    struct sl_metrics *metrics; /* gets a heartbeat during long work; may be NULL */
};

/* Maps the regions of `rank` and makes the layer tables: all or nothing. Changes no other field of
 * engine. Errors: those of the device's map; SL_ERR_INVALID (names the region, or pool and part:
 * layers missing or double, sizes or runs that do not fit); SL_ERR_LIMIT. */
sl_err sw_engine_map(const struct sw_mapper *mapper, const struct sl_body_engine_get_reply *body,
                     uint64_t rank, struct sw_engine *engine, struct sl_error *why);
/* The rank's part; `part` is 0 in pools without part_count. NULL: the rank does not have it. */
const struct sw_part *sw_engine_part(const struct sw_engine *engine, uint64_t pool, uint64_t part);
bool sw_engine_is_of(const struct sw_engine *engine, uint64_t epoch);
/* Also accepts an engine that is not mapped. Keeps state, id and times. */
void sw_engine_unmap(struct sl_device *device, struct sw_engine *engine);

#endif
