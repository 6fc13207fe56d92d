/* tests/bench/policy/model.h - hits of eviction policies and disks on a trace, computed without
 * a node.
 *
 * A request is a chain of blocks. Its hit is the longest prefix that is in memory or on disk.
 * Blocks of that prefix that were on disk enter memory, the rest of the request is stored, and
 * all of it counts as used. Density is the code that a node evicts by (runtime/policy/density). */
#ifndef SL_TESTS_BENCH_POLICY_MODEL_H
#define SL_TESTS_BENCH_POLICY_MODEL_H

#include "tests/bench/policy/hints.h"
#include "tests/bench/policy/trace.h"

/* Which blocks a disk admits. A refused block is offered again at its next request. */
enum model_admission {
    MODEL_ADMIT_ALL,    /* when it is stored */
    MODEL_ADMIT_REUSE,  /* likely enough to be requested again while the disk would keep it */
    MODEL_ADMIT_SECOND, /* at its second request, as far as ghosts remember */
};
#define MODEL_NO_BLOCK UINT32_MAX
struct model_disk_options {
    uint64_t capacity_bytes; /* 0: no disk */
    enum model_admission admission;
    double reuse_min;     /* REUSE: the least chance, 0..1 */
    uint64_t bytes_a_day; /* write limit, by the times of the trace; 0: no limit */
};
/* Blocks that are read from disk before their session continues. */
enum model_prefetch {
    MODEL_PREFETCH_NONE,
    MODEL_PREFETCH_SESSIONS,    /* as a node does it, by announced and by learned pauses */
    MODEL_PREFETCH_CLAIRVOYANT, /* each request's, just before it */
};
struct model_prefetch_options {
    enum model_prefetch kind;
    const uint64_t *pauses; /* replay_pauses; NULL: no pause is announced */
    struct replay_pause_options said;
    uint32_t sessions_max; /* 0: 4096 */
};
struct model_options {
    uint64_t capacity_bytes;     /* size of memory */
    const uint64_t *block_bytes; /* by identity; NULL: 1 each, so that bytes are blocks */
    uint32_t block_tokens;
    struct replay_hints_options hints; /* the engine's hints about the session */
    double high_share; /* share of the requests with high priority, drawn by the seed */
    double keep_share; /* share of the requests whose blocks the engine wants kept for an hour */
    bool keep_needed;  /* only of those whose session continues */
    struct model_disk_options disk;
    uint64_t restart_every; /* density: references between two kills of the registrar; 0: never */
    struct model_prefetch_options prefetch;
};
struct model_result {
    uint64_t reference_count;              /* blocks requested */
    uint64_t hit_count, memory_hit_count;  /* the rest of the hits: on disk */
    uint64_t bytes, hit_bytes;             /* of the requested blocks */
    uint64_t tokens, tokens_saved;         /* 0: not known */
    double flops, flops_saved;             /* of prefill with 8 billion parameters */
    uint64_t written_count, written_bytes; /* written to the disk */
    uint64_t rewritten_count;              /* of them: rewritten when their log file was
                                            * reclaimed */
    uint64_t refused_count;                /* offered to the disk and not written */
    /* Prefetched; then requested, and part of memory_hit_count; evicted before any request. */
    uint64_t prefetched_count, prefetched_hit_count, prefetched_lost_count;
    double seconds; /* CPU time, including lookups */
};
struct model_policy {
    const char *name, *text;
    /* Errors: SL_ERR_NO_MEMORY, SL_ERR_UNSUPPORTED (it has no disk, or no such admission). */
    sl_err (*run)(const struct replay_trace *trace, const struct model_options *options,
                  struct model_result *out);
};
extern const struct model_policy model_lru, model_density, model_clairvoyant, model_unlimited;
#define MODEL_POLICY_COUNT 4u
extern const struct model_policy *const model_policies[MODEL_POLICY_COUNT];

/* Gives the admission of this name (all, reuse, second); false: there is none. */
bool model_admission_parse(const char *name, enum model_admission *out);

/* Identities are below this. */
uint32_t model_id_limit(const struct replay_trace *trace);

#endif
