/* client/tools/bench/engine.h - options, state and results of the engine bench. */
#ifndef SL_CLIENT_BENCH_ENGINE_H
#define SL_CLIENT_BENCH_ENGINE_H

#include "client/tools/bench/bench.h"
#include "client/tools/bench/kinds.h"

#include <time.h>

#define ENGINE_BLOCKS     64u
#define ENGINE_PART_BYTES SL_MIB
#define ENGINE_RANKS_MAX  64u
#define ENGINE_BLOCKS_MAX 4096u
#define ENGINE_PART_MAX   (64 * SL_MIB)
#define ENGINE_LAYERS_MAX 1024u
#define ENGINE_ACTORS_MAX 128u

/* MISS: a load of blocks that were never stored, so only a lookup by the coordinator. LOOK: a
 * lookup of stored blocks in shared memory. */
enum engine_kind { ENGINE_STORE, ENGINE_LOAD, ENGINE_MISS, ENGINE_LOOK, ENGINE_KINDS };

/* A process of the node whose CPU time is counted. */
struct engine_actor {
    char name[32];
    clockid_t clock;
    uint64_t last_ns;
};

/* Results of one kind of op. */
struct engine_row {
    struct ctl_histogram ops_ns;
    uint64_t ops, busy_ns, least_ns;
    uint64_t own_ns;                      /* CPU time of this process, within the ops */
    uint64_t actor_ns[ENGINE_ACTORS_MAX]; /* of the actors, within the turns */
    double *rates[BENCH_SIDES];           /* ops/s of each round; for copies, of one rank's share */
    struct bench limit; /* copies of one rank's share in this direction, or probes */
};

struct engine_bench {
    uint64_t ranks, blocks, part_bytes, layer_count, ops, measure_ns;
    uint64_t sets; /* number of ops with device blocks of their own and stored blocks */
    uint64_t cache_bytes, walk_bytes, seed;
    struct sl_client *client;
    struct sl_engine *engine;
    struct sl_engine_layer *layers;
    bool plain;                                /* private memory */
    unsigned char *memories[ENGINE_RANKS_MAX]; /* plain: owned, else the engine's */
    uint64_t *addresses[ENGINE_RANKS_MAX];     /* plain: of each layer; owned */
    uint64_t memory_bytes;                     /* of a rank */
    unsigned char *hashes;                     /* of one op's blocks */
    char *key_texts;                           /* for the removal of an op's blocks */
    struct sl_object_key *keys;
    sl_err *codes;
    uint32_t *device_blocks; /* [sets][blocks] */

    uint64_t first, next;          /* numbers of the ops whose blocks are stored */
    uint64_t load_next, miss_next; /* next ops of the walks */
    uint64_t elsewhere;            /* loads with a block from disk or another node */

    struct engine_actor actors[ENGINE_ACTORS_MAX];
    uint32_t actor_count, round_count;
    struct engine_row rows[ENGINE_KINDS], unmeasured;
};

/* ---- engine_report.c ---- */
/* Number of sides of a row's rounds: the ops, memcpy or the bare probe, and the fastest copy
 * routine if this CPU has one. */
uint32_t engine_sides(const struct engine_bench *bench, enum engine_kind kind);
json_t *engine_json(const struct engine_bench *bench); /* new reference */

#endif
