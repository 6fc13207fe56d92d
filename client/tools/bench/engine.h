/* client/tools/bench/engine.h - the bench of an engine: what is asked, measured and printed. */
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

/* MISS: a load of blocks that nobody stored, so a look-up through the coordinator. LOOK: the
 * look-up in shared memory, for blocks that are there. */
enum engine_kind { ENGINE_STORE, ENGINE_LOAD, ENGINE_MISS, ENGINE_LOOK, ENGINE_KINDS };

/* A process of the node whose CPU time counts. */
struct engine_actor {
    char name[32];
    clockid_t clock;
    uint64_t last_ns;
};

/* What was measured of one kind of op. */
struct engine_row {
    struct ctl_histogram ops_ns;
    uint64_t ops, busy_ns, least_ns;
    uint64_t own_ns;                      /* CPU time of this process, within the ops */
    uint64_t actor_ns[ENGINE_ACTORS_MAX]; /* of the actors, within the turns */
    double *rates[BENCH_SIDES];           /* ops/s of each round; a copy's op is one rank's share */
    struct bench limit; /* copies of one rank's share in this direction, or probes */
};

struct engine_bench {
    uint64_t ranks, blocks, part_bytes, layer_count, ops, measure_ns;
    uint64_t sets; /* ops' worth of device blocks, and of blocks that are stored */
    uint64_t cache_bytes, walk_bytes, seed;
    struct sl_client *client;
    struct sl_engine *engine;
    struct sl_engine_layer *layers;
    bool plain;                                /* memory of this process that nobody can map */
    unsigned char *memories[ENGINE_RANKS_MAX]; /* plain: owned, else the engine's */
    uint64_t *addresses[ENGINE_RANKS_MAX];     /* plain: of each layer; owned */
    uint64_t memory_bytes;                     /* of a rank */
    unsigned char *hashes;                     /* of one op's blocks */
    char *key_texts;                           /* of one op's blocks, to remove them */
    struct sl_object_key *keys;
    sl_err *codes;
    uint32_t *device_blocks; /* [sets][blocks] */

    uint64_t first, next;          /* numbers of the ops whose blocks are stored */
    uint64_t load_next, miss_next; /* of the walks */
    uint64_t elsewhere;            /* loads that had a block from disk or from another node */

    struct engine_actor actors[ENGINE_ACTORS_MAX];
    uint32_t actor_count, round_count;
    struct engine_row rows[ENGINE_KINDS], unmeasured;
};

/* ---- engine_report.c ---- */
/* Sides of a row's rounds: the ops, memcpy or the bare probe, the fastest copy where this CPU has
 * one. */
uint32_t engine_sides(const struct engine_bench *bench, enum engine_kind kind);
json_t *engine_json(const struct engine_bench *bench); /* new reference */

#endif
