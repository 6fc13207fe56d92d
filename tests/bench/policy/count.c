/* tests/bench/policy/count.c - counters of a run, and the lists of names. */
#include "tests/bench/policy/internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Prefill of a model of 8 billion parameters, 32 layers of 4096: two operations a parameter and
 * token, and two products of attention with all tokens before it. */
#define FLOPS_TOKEN         16e9
#define FLOPS_TOKEN_BY_PAST (4.0 * 32 * 4096)

const struct model_policy *const model_policies[MODEL_POLICY_COUNT] = {
    &model_lru, &model_density, &model_clairvoyant, &model_unlimited};

uint64_t model_cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static double prefill_flops(double tokens)
{
    return tokens * FLOPS_TOKEN + tokens * tokens / 2 * FLOPS_TOKEN_BY_PAST;
}

void model_count(struct model_result *result, const struct model_options *options,
                 const struct replay_request *request, const uint32_t *ids, uint32_t hit_count,
                 uint32_t memory_count)
{
    uint64_t saved = SL_MIN((uint64_t)hit_count * options->block_tokens, request->input_length);
    result->reference_count += request->id_count;
    result->hit_count += hit_count;
    result->memory_hit_count += memory_count;
    for (uint32_t i = 0; i < request->id_count; i++) {
        result->bytes += model_bytes(options, ids[i]);
        result->hit_bytes += i < hit_count ? model_bytes(options, ids[i]) : 0;
    }
    result->tokens += request->input_length;
    result->tokens_saved += saved;
    result->flops += prefill_flops((double)request->input_length);
    result->flops_saved += prefill_flops((double)saved);
}

uint32_t model_id_limit(const struct replay_trace *trace)
{
    uint32_t limit = 0;
    for (uint64_t i = 0; i < trace->id_count; i++) {
        limit = SL_MAX(limit, trace->ids[i] + 1);
    }
    return limit;
}

uint64_t model_mix(uint64_t number)
{
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

bool model_admission_parse(const char *name, enum model_admission *out)
{
    static const char *const names[] = {
        [MODEL_ADMIT_ALL] = "all", [MODEL_ADMIT_REUSE] = "reuse", [MODEL_ADMIT_SECOND] = "second"};
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum model_admission)i;
            return true;
        }
    }
    return false;
}
