/* tests/bench/policy/prefetch.c - reads blocks from disk before their session continues, as at a
 * node: by the same table of sessions (runtime/policy/sessions). */
#include "runtime/base/sl_clock.h"
#include "runtime/policy/sessions/sessions.h"
#include "tests/bench/policy/internal.h"

#include <stdlib.h>

#define SESSIONS_MAX 4096u
/* The rate of references is measured over this number of last requests. */
#define RATE_REQUESTS 256u

struct model_prefetcher {
    const struct replay_trace *trace;
    const struct model_options *options;
    const struct model_prefetcher_ops *ops;
    void *context;
    struct sl_sessions *sessions;
    uint64_t *last;   /* by session: its last request */
    uint64_t *hashes; /* hashes of one request */
};

static bool chain_in_memory(void *context, uint32_t session);

sl_err model_prefetcher_create(const struct replay_trace *trace,
                               const struct model_options *options,
                               const struct model_prefetcher_ops *ops, void *context,
                               struct model_prefetcher **out)
{
    struct model_prefetcher *ahead = calloc(1, sizeof(*ahead));
    uint32_t most = options->prefetch.sessions_max;
    if (ahead == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *ahead = (struct model_prefetcher){
        .trace = trace, .options = options, .ops = ops, .context = context};
    most = most != 0 ? most : SESSIONS_MAX;
    ahead->last = calloc(most, sizeof(*ahead->last));
    ahead->hashes = malloc((trace->blocks_max + (size_t)1) * sizeof(*ahead->hashes));
    if (ahead->last == NULL || ahead->hashes == NULL ||
        sl_sessions_create(most, chain_in_memory, ahead, &ahead->sessions) != SL_OK) {
        model_prefetcher_destroy(&ahead);
        return SL_ERR_NO_MEMORY;
    }
    *out = ahead;
    return SL_OK;
}

void model_prefetcher_destroy(struct model_prefetcher **ahead)
{
    if (*ahead != NULL) {
        sl_sessions_destroy(&(*ahead)->sessions);
        free((*ahead)->last);
        free((*ahead)->hashes);
        free(*ahead);
        *ahead = NULL;
    }
}

static uint64_t request_ns(const struct model_prefetcher *ahead, uint64_t request)
{
    return ahead->trace->requests[request].timestamp_ms * SL_NS_PER_MS;
}

/* References a second, before the request; 0: not known. */
static double rate(const struct model_prefetcher *ahead, uint64_t request)
{
    uint64_t from = request > RATE_REQUESTS ? request - RATE_REQUESTS : 0;
    if (request == 0) {
        return 0;
    }
    const struct replay_request *first = &ahead->trace->requests[from];
    const struct replay_request *last = &ahead->trace->requests[request - 1];
    uint64_t references = last->first_id + last->id_count - first->first_id;
    uint64_t ms = last->timestamp_ms - SL_MIN(first->timestamp_ms, last->timestamp_ms);
    return ms > 0 ? (double)references * 1000 / (double)ms : 0;
}

/* The last block is cut: the next turn has another one in its place. */
static uint32_t whole_count(const struct replay_request *request)
{
    return request->id_count > 1 ? request->id_count - 1 : request->id_count;
}

/* Bytes to read for the chain of the request. */
static uint64_t chain_bytes(const struct model_prefetcher *ahead, uint64_t number)
{
    const struct replay_request *request = &ahead->trace->requests[number];
    const uint32_t *ids = &ahead->trace->ids[request->first_id];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < whole_count(request); i++) {
        if (ahead->ops->on_disk(ahead->context, ids[i])) {
            bytes += model_bytes(ahead->options, ids[i]);
        } else if (!ahead->ops->here(ahead->context, ids[i])) {
            break;
        }
    }
    return bytes;
}

/* Prefetches the chain of the request. *here: all of it that exists is in memory. */
static sl_err chain_prefetch(struct model_prefetcher *ahead, uint64_t number, double worth,
                             bool *here)
{
    const struct replay_request *request = &ahead->trace->requests[number];
    const uint32_t *ids = &ahead->trace->ids[request->first_id];
    sl_err err = SL_OK;
    bool begun = false;
    *here = true;
    for (uint32_t i = 0; err == SL_OK && *here && i < whole_count(request); i++) {
        if (ahead->ops->here(ahead->context, ids[i])) {
            continue;
        }
        if (!ahead->ops->on_disk(ahead->context, ids[i])) {
            break;
        }
        err = ahead->ops->bring(ahead->context, ids[i], i > 0 ? ids[i - 1] : MODEL_NO_BLOCK, worth,
                                begun, here);
        begun = true;
    }
    return err;
}

static void chain_keep(struct model_prefetcher *ahead, uint64_t number, uint64_t now_ns,
                       uint64_t for_ns)
{
    const struct replay_request *request = &ahead->trace->requests[number];
    const uint32_t *ids = &ahead->trace->ids[request->first_id];
    for (uint32_t i = request->id_count; i-- > 0;) {
        if (ahead->ops->here(ahead->context, ids[i])) {
            ahead->ops->keep(ahead->context, ids[i], now_ns, for_ns);
            return;
        }
    }
}

/* Whether all existing blocks of a session's chain are still in memory. */
static bool chain_in_memory(void *context, uint32_t session)
{
    const struct model_prefetcher *ahead = context;
    const struct replay_request *request = &ahead->trace->requests[ahead->last[session]];
    const uint32_t *ids = &ahead->trace->ids[request->first_id];
    uint32_t count = whole_count(request);
    while (count > 0 && !ahead->ops->here(ahead->context, ids[count - 1]) &&
           !ahead->ops->on_disk(ahead->context, ids[count - 1])) {
        count--;
    }
    return count == 0 || ahead->ops->here(ahead->context, ids[count - 1]);
}

sl_err model_prefetcher_until(struct model_prefetcher *ahead, uint64_t request)
{
    uint64_t until_ns = request_ns(ahead, request);
    double a_second = rate(ahead, request);
    sl_err err = SL_OK;
    if (ahead->options->prefetch.kind == MODEL_PREFETCH_CLAIRVOYANT) {
        bool here;
        return chain_prefetch(ahead, request, 1e9, &here);
    }
    if (!(a_second > 0)) {
        return SL_OK;
    }
    for (uint64_t now_ns = 0; err == SL_OK;) {
        struct sl_session_due due;
        bool here = false;
        uint64_t next_ns = sl_sessions_next_ns(ahead->sessions);
        if (next_ns >= until_ns) {
            break;
        }
        now_ns = SL_MAX(now_ns, next_ns);
        sl_sessions_edge(ahead->sessions, ahead->ops->edge(ahead->context) * a_second, 0);
        if (sl_sessions_due(ahead->sessions, now_ns, &due)) {
            uint64_t number = ahead->last[due.session];
            uint64_t bytes = chain_bytes(ahead, number);
            bool fits = ahead->ops->fits(ahead->context, now_ns, bytes);
            if (fits) {
                err = chain_prefetch(ahead, number, due.worth / a_second, &here);
            }
            if (here) {
                chain_keep(ahead, number, now_ns, due.for_ns);
            }
            double full = ahead->ops->full(ahead->context, fits ? 0 : bytes);
            sl_sessions_result(ahead->sessions, &due, here, full, now_ns);
        }
    }
    return err;
}

uint64_t model_prefetcher_pause(const struct model_prefetcher *ahead, uint64_t request)
{
    const struct model_prefetch_options *set = &ahead->options->prefetch;
    return set->pauses == NULL
               ? 0
               : replay_pause(&set->said, set->pauses, ahead->trace->request_count, request);
}

void model_prefetcher_request_done(struct model_prefetcher *ahead, uint64_t request, bool ends)
{
    const struct replay_request *at = &ahead->trace->requests[request];
    for (uint32_t i = 0; i < at->id_count; i++) {
        ahead->hashes[i] = model_mix(ahead->trace->ids[at->first_id + i] + UINT64_C(1));
    }
    const struct sl_turn turn = {.blocks = ahead->hashes,
                                 .count = at->id_count,
                                 .pause_ns = model_prefetcher_pause(ahead, request) * SL_NS_PER_MS,
                                 .load = true,
                                 .ends = ends};
    bool fresh;
    uint32_t session = sl_sessions_turn(ahead->sessions, &turn, request_ns(ahead, request), &fresh);
    if (session != SL_SESSION_NONE) {
        ahead->last[session] = request;
    }
}
