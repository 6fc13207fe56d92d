/* tests/bench/policy/model.h - what policies of eviction and disks hit on a trace, without a node.
 *
 * A request is a chain of blocks. Its hit is the longest prefix that is in memory or on disk. What
 * was on disk of that comes to memory, the rest of the request is stored, and all of it counts as
 * used. Density is the code that a node evicts by (runtime/policy/density). */
#ifndef SL_TESTS_BENCH_POLICY_MODEL_H
#define SL_TESTS_BENCH_POLICY_MODEL_H

#include "tests/bench/policy/hints.h"
#include "tests/bench/policy/trace.h"

/* Which blocks a disk is asked to keep. One that is refused is asked for again when it is wanted.
 */
enum model_admission {
    MODEL_ADMIT_ALL,    /* when it is stored */
    MODEL_ADMIT_REUSE,  /* likely enough to be wanted again while the disk would keep it */
    MODEL_ADMIT_SECOND, /* wanted for the second time, as far as ghosts remember */
};
#define MODEL_NO_BLOCK UINT32_MAX
struct model_disk_options {
    uint64_t capacity_bytes; /* 0: no disk */
    enum model_admission admission;
    double reuse_min;     /* REUSE: the least chance, 0..1 */
    uint64_t bytes_a_day; /* that may be written, by the times of the trace; 0: no limit */
};
/* Blocks that come from disk before their session does. */
enum model_prefetch {
    MODEL_PREFETCH_NONE,
    MODEL_PREFETCH_SESSIONS,    /* as a node does it, by what is told and what is learnt */
    MODEL_PREFETCH_CLAIRVOYANT, /* each request's, just before it */
};
struct model_prefetch_options {
    enum model_prefetch kind;
    const uint64_t *pauses; /* replay_pauses; NULL: nothing is told */
    struct replay_pause_options said;
    uint32_t sessions_max; /* 0: 4096 */
};
struct model_options {
    uint64_t capacity_bytes;     /* of memory */
    const uint64_t *block_bytes; /* by identity; NULL: 1 each, so that bytes are blocks */
    uint32_t block_tokens;
    struct replay_hints_options hints; /* what the engine says about the session with a request */
    double high_share; /* of the requests, drawn by the seed: they are of high priority */
    double keep_share; /* of the requests: the engine wants all of it kept for an hour */
    bool keep_needed;  /* of those alone whose session goes on */
    struct model_disk_options disk;
    uint64_t restart_every; /* density: references until the registrar is killed, again; 0: never */
    struct model_prefetch_options prefetch;
};
struct model_result {
    uint64_t reference_count;              /* blocks asked for */
    uint64_t hit_count, memory_hit_count;  /* the rest of the hits: on disk */
    uint64_t bytes, hit_bytes;             /* of those blocks */
    uint64_t tokens, tokens_saved;         /* 0: not known */
    double flops, flops_saved;             /* of prefill, of 8 billion parameters */
    uint64_t written_count, written_bytes; /* to the disk */
    uint64_t rewritten_count;              /* of them: kept when their segment went */
    uint64_t refused_count;                /* asked of the disk and not written */
    /* Brought ahead of use; wanted then, and part of memory_hit_count; gone unwanted. */
    uint64_t ahead_count, ahead_hit_count, ahead_lost_count;
    double seconds; /* of CPU that it took, with looking up */
};
struct model_policy {
    const char *name, *text;
    /* Errors: SL_ERR_NO_MEMORY, SL_ERR_UNSUPPORTED (it has no disk, or cannot admit so). */
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
