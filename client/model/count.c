/* client/model/count.c - what is counted, which hints are told, and the lists of names. */
#include "client/model/internal.h"

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

unsigned char *model_ends(const struct replay_trace *trace)
{
    unsigned char *ends = calloc(trace->request_count + 1, 1);
    uint64_t *last = calloc(model_id_limit(trace) + (size_t)1, sizeof(*last));
    if (ends == NULL || last == NULL) {
        free(ends);
        free(last);
        return NULL;
    }
    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        for (uint32_t k = 0; k < request->id_count; k++) {
            last[trace->ids[request->first_id + k]] = i;
        }
    }
    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        if (request->id_count > 0) {
            uint32_t whole = request->id_count > 1 ? request->id_count - 2 : 0;
            ends[i] = last[trace->ids[request->first_id + whole]] == i;
        }
    }
    free(last);
    return ends;
}

uint64_t model_mix(uint64_t number)
{
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

static double share_of(uint64_t seed, uint64_t request)
{
    return (double)(model_mix(model_mix(seed + 1) + request) >> 11) / (double)(UINT64_C(1) << 53);
}

enum reg_hint model_hint_of(const struct model_options *options, bool ends, uint64_t request)
{
    bool drawn = share_of(options->seed, request) < options->hint_share;
    switch (options->hints) {
    case MODEL_HINTS_ENDS:
        return ends && drawn ? REG_HINT_ENDS : REG_HINT_NONE;
    case MODEL_HINTS_ALL:
        return ends == drawn ? REG_HINT_ENDS : REG_HINT_GOES_ON;
    case MODEL_HINTS_SAID:
        return (enum reg_hint)options->said[request];
    default:
        return REG_HINT_NONE;
    }
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
