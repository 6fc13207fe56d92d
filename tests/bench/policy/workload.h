/* tests/bench/policy/workload.h - makes a trace of the shape of production chat traffic.
 *
 * `sessions` conversations are alive at a time. Each begins with one of a few system prompts
 * (popular ones more often) and has a geometric number of turns. Every turn's input is the
 * conversation so far plus new user tokens. A hash id names the content of one block and all
 * before it: full blocks of a conversation keep theirs, a cut last block gets a new one each
 * time. A small share of requests is an exact retry. Arrivals are Poisson, lengths log-normal. */
#ifndef SL_TESTS_BENCH_POLICY_WORKLOAD_H
#define SL_TESTS_BENCH_POLICY_WORKLOAD_H

#include "runtime/base/sl_error.h"

struct workload_options {
    uint64_t requests; /* 1..10^7 */
    uint64_t seed;
    uint32_t block_tokens;   /* 16..65536 */
    uint32_t sessions;       /* 1..65536 */
    uint32_t system_prompts; /* 1..1024 */
    double rate_per_s;       /* > 0 */
};
struct workload_request {
    uint64_t timestamp_ms;
    uint32_t input_length, output_length;
    const uint32_t *hash_ids; /* borrowed until the next call */
    uint32_t hash_count;
};
struct workload; /* opaque */
/* Errors: SL_ERR_INVALID (names the option), SL_ERR_NO_MEMORY. */
sl_err workload_create(const struct workload_options *options, struct workload **out,
                       struct sl_error *why);
void workload_destroy(struct workload **workload);
/* Gives the next request; false: all are made, or memory ran out (see workload_failed). */
bool workload_next(struct workload *workload, struct workload_request *out);
bool workload_failed(const struct workload *workload);

#endif
