/* tests/bench/policy/workload.c */
#include "tests/bench/policy/workload.h"
#include "runtime/base/sl_array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Medians and spreads (sigma of the logarithm) in tokens. They give about 15 blocks of 512 a
 * request, a third of them reusable, like the public chat traces that this imitates. */
#define SYSTEM_MEDIAN      1500.0
#define SYSTEM_SIGMA       0.7
#define USER_MEDIAN        2600.0
#define USER_SIGMA         1.3
#define OUTPUT_MEDIAN      250.0
#define OUTPUT_SIGMA       0.9
#define TURN_END_SHARE     0.50 /* share of turns that are a conversation's last */
#define RETRY_SHARE        0.01 /* share of requests that repeat one exactly */
#define CONTEXT_TOKENS_MAX 131072u

struct session {
    uint32_t *ids; /* full blocks of the conversation */
    uint32_t id_count, id_room;
    uint32_t tokens; /* of the conversation so far: prompt and output */
    bool alive;
};

struct system_prompt {
    uint32_t first_id, block_count;
};

struct workload {
    struct workload_options options;
    uint64_t random;
    uint64_t made;
    double clock_ms;
    uint32_t next_id;
    struct system_prompt *prompts;
    struct session *sessions;
    uint32_t *ids; /* ids of the last request returned */
    uint32_t id_room, id_count, input_length, output_length;
    bool failed;
};

static uint64_t next_random(struct workload *workload)
{
    uint64_t z = workload->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* In (0, 1): never 0, so its logarithm is finite. */
static double uniform(struct workload *workload)
{
    return ((double)(next_random(workload) >> 11) + 0.5) * 0x1p-53;
}

static uint32_t below(struct workload *workload, uint32_t bound)
{
    return (uint32_t)(next_random(workload) % bound);
}

static uint32_t log_normal(struct workload *workload, double median, double sigma)
{
    double radius = sqrt(-2.0 * log(uniform(workload)));
    double normal = radius * cos(6.283185307179586 * uniform(workload));
    double value = median * exp(sigma * normal);
    return (uint32_t)fmin(fmax(value, 1.0), (double)CONTEXT_TOKENS_MAX / 2);
}

static sl_err options_check(const struct workload_options *options, struct sl_error *why)
{
    if (options->requests < 1 || options->requests > 10000000) {
        return sl_fail(why, SL_ERR_INVALID, "requests: 1 to 10000000");
    }
    if (options->block_tokens < 16 || options->block_tokens > 65536) {
        return sl_fail(why, SL_ERR_INVALID, "block-tokens: 16 to 65536");
    }
    if (options->sessions < 1 || options->sessions > 65536) {
        return sl_fail(why, SL_ERR_INVALID, "sessions: 1 to 65536");
    }
    if (options->system_prompts < 1 || options->system_prompts > 1024) {
        return sl_fail(why, SL_ERR_INVALID, "system-prompts: 1 to 1024");
    }
    if (!(options->rate_per_s > 0 && options->rate_per_s <= 1e6)) {
        return sl_fail(why, SL_ERR_INVALID, "rate: above 0, at most 1000000");
    }
    return SL_OK;
}

sl_err workload_create(const struct workload_options *options, struct workload **out,
                       struct sl_error *why)
{
    sl_err err = options_check(options, why);
    if (err != SL_OK) {
        return err;
    }
    struct workload *workload = calloc(1, sizeof *workload);
    if (workload != NULL) {
        workload->options = *options;
        workload->random = options->seed;
        workload->prompts = calloc(options->system_prompts, sizeof *workload->prompts);
        workload->sessions = calloc(options->sessions, sizeof *workload->sessions);
    }
    if (workload == NULL || workload->prompts == NULL || workload->sessions == NULL) {
        workload_destroy(&workload);
        return sl_fail(why, SL_ERR_NO_MEMORY, "workload of %u sessions", options->sessions);
    }
    for (uint32_t i = 0; i < options->system_prompts; i++) {
        uint32_t tokens = log_normal(workload, SYSTEM_MEDIAN, SYSTEM_SIGMA);
        workload->prompts[i].first_id = workload->next_id;
        workload->prompts[i].block_count = tokens / options->block_tokens;
        workload->next_id += workload->prompts[i].block_count;
    }
    *out = workload;
    return SL_OK;
}

void workload_destroy(struct workload **workload)
{
    struct workload *gone = workload == NULL ? NULL : *workload;
    if (gone == NULL) {
        return;
    }
    for (uint32_t i = 0; gone->sessions != NULL && i < gone->options.sessions; i++) {
        free(gone->sessions[i].ids);
    }
    free(gone->sessions);
    free(gone->prompts);
    free(gone->ids);
    free(gone);
    *workload = NULL;
}

/* Replaces an ended conversation by a new one: its system prompt's whole blocks are shared. */
static bool session_begin(struct workload *workload, struct session *session)
{
    uint32_t a = below(workload, workload->options.system_prompts);
    uint32_t b = below(workload, workload->options.system_prompts);
    const struct system_prompt *prompt =
        &workload->prompts[SL_MIN(a, b)]; /* low numbers are the popular ones */
    if (!SL_ARRAY_ROOM(session->ids, session->id_room, prompt->block_count)) {
        return false;
    }
    for (uint32_t i = 0; i < prompt->block_count; i++) {
        session->ids[i] = prompt->first_id + i;
    }
    session->id_count = prompt->block_count;
    session->tokens = prompt->block_count * workload->options.block_tokens;
    session->alive = true;
    return true;
}

/* Adds tokens to the conversation; they become full blocks with ids of their own. */
static bool session_append(struct workload *workload, struct session *session, uint32_t tokens)
{
    session->tokens += tokens;
    uint32_t full = session->tokens / workload->options.block_tokens;
    if (!SL_ARRAY_ROOM(session->ids, session->id_room, full)) {
        return false;
    }
    while (session->id_count < full) {
        session->ids[session->id_count++] = workload->next_id++;
    }
    return true;
}

static bool turn_make(struct workload *workload)
{
    struct session *session = &workload->sessions[below(workload, workload->options.sessions)];
    if (!session->alive && !session_begin(workload, session)) {
        return false;
    }
    if (!session_append(workload, session, log_normal(workload, USER_MEDIAN, USER_SIGMA))) {
        return false;
    }
    uint32_t cut = session->tokens % workload->options.block_tokens != 0;
    if (!SL_ARRAY_ROOM(workload->ids, workload->id_room, session->id_count + cut)) {
        return false;
    }
    if (session->id_count > 0) {
        memcpy(workload->ids, session->ids, session->id_count * sizeof *session->ids);
    }
    workload->id_count = session->id_count;
    if (cut != 0) {
        workload->ids[workload->id_count++] = workload->next_id++;
    }
    workload->input_length = session->tokens;
    workload->output_length = log_normal(workload, OUTPUT_MEDIAN, OUTPUT_SIGMA);
    if (!session_append(workload, session, workload->output_length)) {
        return false;
    }
    session->alive = uniform(workload) >= TURN_END_SHARE && session->tokens < CONTEXT_TOKENS_MAX;
    return true;
}

bool workload_next(struct workload *workload, struct workload_request *out)
{
    if (workload->made == workload->options.requests || workload->failed) {
        return false;
    }
    bool retry = uniform(workload) < RETRY_SHARE && workload->made > 0;
    if (!retry && !turn_make(workload)) {
        workload->failed = true;
        return false;
    }
    workload->clock_ms += -log(uniform(workload)) * 1000.0 / workload->options.rate_per_s;
    workload->made++;
    *out = (struct workload_request){.timestamp_ms = (uint64_t)workload->clock_ms,
                                     .input_length = workload->input_length,
                                     .output_length = workload->output_length,
                                     .hash_ids = workload->ids,
                                     .hash_count = workload->id_count};
    return true;
}

bool workload_failed(const struct workload *workload)
{
    return workload->failed;
}
