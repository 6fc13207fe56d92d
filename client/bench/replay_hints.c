/* client/bench/replay_hints.c */
#include "client/bench/replay_hints.h"
#include "runtime/sl_base.h"

#include <stdlib.h>

unsigned char *replay_ends(const struct replay_trace *trace)
{
    size_t limit = 1;
    for (uint64_t i = 0; i < trace->id_count; i++) {
        limit = SL_MAX(limit, (size_t)trace->ids[i] + 1);
    }
    unsigned char *ends = calloc(trace->request_count + 1, 1);
    uint64_t *last = calloc(limit, sizeof(*last)); /* request that has the block last */
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
        if (request->id_count > 0) { /* the last block is cut, and another's when it is longer */
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
        return ends == drawn ? SL_SESSION_ENDS : SL_SESSION_GOES_ON;
    case REPLAY_HINTS_NONE:
        break;
    }
    return SL_SESSION_UNKNOWN;
}
