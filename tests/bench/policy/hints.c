/* tests/bench/policy/hints.c */
#include "tests/bench/policy/hints.h"
#include "runtime/base/sl_base.h"

#include <stdlib.h>

static size_t id_limit(const struct replay_trace *trace)
{
    size_t limit = 1;
    for (uint64_t i = 0; i < trace->id_count; i++) {
        limit = SL_MAX(limit, (size_t)trace->ids[i] + 1);
    }
    return limit;
}

unsigned char *replay_ends(const struct replay_trace *trace)
{
    unsigned char *ends = calloc(trace->request_count + 1, 1);
    uint64_t *last = calloc(id_limit(trace), sizeof(*last)); /* request that has the block last */
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
        if (request->id_count > 0) { /* the last block is cut, and differs when it is longer */
            uint32_t whole = request->id_count > 1 ? request->id_count - 2 : 0;
            ends[i] = last[trace->ids[request->first_id + whole]] == i;
        }
    }
    free(last);
    return ends;
}

static uint64_t mix(uint64_t number)
{
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

double replay_drawn(uint64_t seed, uint64_t request)
{
    return (double)(mix(mix(seed + 1) + request) >> 11) / (double)(UINT64_C(1) << 53);
}

enum sl_session replay_hint(const struct replay_hints_options *options, bool ends, uint64_t request)
{
    bool drawn = replay_drawn(options->seed, request) < options->share;
    switch (options->kind) {
    case REPLAY_HINTS_ENDS:
        return ends && drawn ? SL_SESSION_ENDS : SL_SESSION_UNKNOWN;
    case REPLAY_HINTS_ALL:
        return ends == drawn ? SL_SESSION_ENDS : SL_SESSION_CONTINUES;
    case REPLAY_HINTS_NONE:
        break;
    }
    return SL_SESSION_UNKNOWN;
}

/* Finds the request that this one continues, by the last of its blocks that were known. */
static bool continued(const struct replay_trace *trace, const uint64_t *last, uint64_t number,
                      uint64_t *from)
{
    const struct replay_request *request = &trace->requests[number];
    const uint32_t *ids = &trace->ids[request->first_id];
    uint32_t here = 0;
    while (here < request->id_count && last[ids[here]] != 0) {
        here++;
    }
    if (here < 2) {
        return false;
    }
    *from = last[ids[here - 1]] - 1;
    return here + 1 >= trace->requests[*from].id_count;
}

uint64_t *replay_pauses(const struct replay_trace *trace)
{
    uint64_t *pauses = calloc(trace->request_count + 1, sizeof(*pauses));
    uint64_t *last = calloc(id_limit(trace), sizeof(*last)); /* 1 + the request that had it last */
    for (uint64_t i = 0; pauses != NULL && last != NULL && i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        uint64_t from = 0;
        if (continued(trace, last, i, &from) && pauses[from] == 0) {
            uint64_t then_ms = trace->requests[from].timestamp_ms;
            pauses[from] =
                SL_MAX(request->timestamp_ms - SL_MIN(then_ms, request->timestamp_ms), UINT64_C(1));
        }
        for (uint32_t k = 0; k < request->id_count; k++) {
            last[trace->ids[request->first_id + k]] = i + 1;
        }
    }
    if (last == NULL) {
        free(pauses);
        pauses = NULL;
    }
    free(last);
    return pauses;
}

/* Makes draws for different purposes independent. */
#define TOLD_SEED  UINT64_C(3000017)
#define RIGHT_SEED UINT64_C(4000037)
#define OTHER_SEED UINT64_C(5000011)
#define ERROR_SEED UINT64_C(6000011)
#define OTHERS_MAX 64u

uint64_t replay_pause(const struct replay_pause_options *options, const uint64_t *pauses,
                      uint64_t request_count, uint64_t request)
{
    if (!(replay_drawn(options->seed + TOLD_SEED, request) < options->told)) {
        return 0;
    }
    uint64_t pause = pauses[request];
    if (!(replay_drawn(options->seed + RIGHT_SEED, request) < options->right)) {
        pause = 0;
        for (uint64_t i = 0; pause == 0 && i < OTHERS_MAX; i++) {
            double drawn = replay_drawn(options->seed + OTHER_SEED + i, request);
            pause = pauses[(uint64_t)(drawn * (double)request_count)];
        }
    }
    double off = options->error * (2 * replay_drawn(options->seed + ERROR_SEED, request) - 1);
    double said = (double)pause * SL_MAX(1 + off, 0.0);
    return pause == 0 ? 0 : SL_MAX((uint64_t)said, UINT64_C(1));
}
