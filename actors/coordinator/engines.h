/* actors/coordinator/engines.h - what engines registered, as far as ops need it. */
#ifndef SL_COORDINATOR_ENGINES_H
#define SL_COORDINATOR_ENGINES_H

#include "ipc/shm/sl_labels.h"
#include "runtime/base/sl_proc.h"

#define CO_RANKS_MAX 64u
#define CO_POOLS_MAX 8u

enum co_engine_state { CO_ENGINE_FREE, CO_ENGINE_ASKED, CO_ENGINE_KNOWN };
/* The same part of every block of an engine: a slice of a pool. Parts of a block are in the order
 * of these: by number in the pool, then by pool. */
struct co_cut {
    uint64_t length_bytes;
    uint64_t owners;   /* ranks that have it: one stores it, all load it */
    uint32_t layer_at; /* where its layers begin in it, and its end: layer_count + 1 offsets */
    uint32_t layer_count;
    uint32_t pool, part;
};
struct co_engine {
    enum co_engine_state state;
    bool asking; /* ENGINE_GET is in flight */
    uint64_t id;
    struct sl_proc_id proc;
    uint64_t used_ns;
    struct co_cut *cuts;       /* part_count; owned */
    uint64_t *layer_offsets;   /* of all cuts; owned */
    uint64_t block_bytes;      /* of all parts */
    uint64_t device_block_max; /* largest block id that every region has */
    uint32_t world, pool_count, part_count, block_tokens;
    uint32_t ops;                   /* that use it now */
    uint64_t members[CO_RANKS_MAX]; /* what the swapper of a rank knows it as */
    bool team;                      /* one process a rank: none of them is watched here */
    uint64_t pull_again_ns;         /* its pools were none that can be pulled into; 0: not so */
    uint64_t direct_again_ns;       /* nor handed over into */
    bool stale; /* it has ended, or a rank of its team: the next op asks for it anew */
    char model[33];
    struct sl_label_place model_place;
    char key_format[32];
    char seed[256];
    char pool_names[CO_POOLS_MAX][32];
};

#endif
