/* actors/coordinator/engines.h - the registrations of engines, as far as ops need them. */
#ifndef SL_COORDINATOR_ENGINES_H
#define SL_COORDINATOR_ENGINES_H

#include "ipc/shm/sl_labels.h"
#include "runtime/base/sl_proc.h"

#define CO_RANKS_MAX 64u
#define CO_POOLS_MAX 8u

enum co_engine_state { CO_ENGINE_FREE, CO_ENGINE_ASKED, CO_ENGINE_KNOWN };
/* A slice of a pool: one part of every block of an engine. A block's parts are in the order of the
 * cuts: by part number, then by pool. */
struct co_cut {
    uint64_t length_bytes;
    uint64_t owners;   /* ranks that have it: one stores it, all load it */
    uint32_t layer_at; /* index of its layer offsets: layer_count + 1, its end included */
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
    uint64_t block_bytes;      /* sum of all parts */
    uint64_t device_block_max; /* largest block id in every region */
    uint32_t world, pool_count, part_count, block_tokens;
    uint32_t ops;                   /* that use it */
    uint64_t members[CO_RANKS_MAX]; /* engine id at each rank's swapper */
    bool team;                      /* one process per rank: none of them is watched here */
    uint64_t pull_again_ns;         /* a pull into its pools was refused: not before */
    uint64_t direct_again_ns;       /* likewise for direct hand-overs */
    bool stale; /* it, or a rank of its team, ended: the next op requests it again */
    char model[33];
    struct sl_label_place model_place;
    char key_format[32];
    char seed[256];
    char pool_names[CO_POOLS_MAX][32];
};

#endif
