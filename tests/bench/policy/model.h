/* tests/bench/policy/model.h - policies of eviction against a trace, without a node. */
#ifndef SL_TESTS_BENCH_POLICY_MODEL_H
#define SL_TESTS_BENCH_POLICY_MODEL_H

#include "client/bench/replay_hints.h"
#include "client/bench/replay_trace.h"

#define MODEL_BLOCK_TOKENS 512u

struct model_options {
    uint64_t capacity_blocks;
    enum replay_hints_kind hints; /* what the engine says about the session with a request */
    double
        hint_share; /* ENDS: of the ends that are told; ALL: of the requests that tell the truth */
    uint64_t seed;  /* which */
    double high_share; /* of the requests that are of high priority */
    double keep_share; /* of the requests after which the engine wants all kept for an hour */
    bool keep_needed;  /* of those alone whose session goes on */
};
struct model_result {
    uint64_t reference_count, hit_count;
    uint64_t tokens, tokens_saved;
    double flops, flops_saved; /* of prefill */
    double seconds;            /* of CPU that the policy took, with looking up */
};
struct model_policy {
    const char *name, *text;
    /* Errors: SL_ERR_NO_MEMORY. */
    sl_err (*run)(const struct replay_trace *trace, const struct model_options *options,
                  struct model_result *out);
};
extern const struct model_policy model_lru, model_density, model_clairvoyant, model_unlimited;

/* Counts a request whose first hit_count blocks were there. */
void model_count(struct model_result *result, const struct replay_request *request,
                 uint32_t hit_count);
/* Identities are below this. */
uint32_t model_id_limit(const struct replay_trace *trace);

/* Shapes of traffic that a policy may not know: `conversation` is the project's own workload. */
#define MODEL_SHAPES "conversation, scan, burst, agents, loop, shift"
/* Errors: SL_ERR_INVALID (no such shape), SL_ERR_NO_MEMORY. */
sl_err model_generate(const char *shape, uint64_t seed, uint64_t reference_count,
                      struct replay_trace *out, struct sl_error *why);

/* Hits by memory of each policy, as an SVG. shares[policy][size] in 0..1. */
struct model_picture {
    const char *title;
    const char *const *names;
    uint32_t name_count;
    const uint64_t *sizes;
    uint32_t size_count;
    const double *shares;
};
sl_err model_picture_write(const char *path, const struct model_picture *picture,
                           struct sl_error *why);

#endif
