/* tests/bench/policy/policy.h - generated traffic, and a picture of policies' hits. */
#ifndef SL_TESTS_BENCH_POLICY_POLICY_H
#define SL_TESTS_BENCH_POLICY_POLICY_H

#include "tests/bench/policy/model.h"

#define MODEL_BLOCK_TOKENS 512u

/* Shapes of traffic that no policy was made for; `conversation` is the project's own workload. */
#define MODEL_SHAPES "conversation, scan, burst, agents, loop, shift, drift, rag, tenants, phases"
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
