/* tests/bench/policy/policies.c - what each policy has in memory when a request comes.
 *
 * A request is a chain of blocks. Its hit is the longest prefix that is in memory; the rest is
 * stored. All of it counts as used. The density is the registrar's own code. */
#include "runtime/density/density_units.h"
#include "tests/bench/policy/model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Prefill of a model of 8 billion parameters, 32 layers of 4096: two operations a parameter and
 * token, and two products of attention with all tokens before it. */
#define FLOPS_TOKEN         16e9
#define FLOPS_TOKEN_BY_PAST (4.0 * 32 * 4096)

static uint64_t cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static double prefill_flops(double tokens)
{
    return tokens * FLOPS_TOKEN + tokens * tokens / 2 * FLOPS_TOKEN_BY_PAST;
}

void model_count(struct model_result *result, const struct replay_request *request,
                 uint32_t hit_count)
{
    uint64_t saved = SL_MIN((uint64_t)hit_count * MODEL_BLOCK_TOKENS, request->input_length);
    result->reference_count += request->id_count;
    result->hit_count += hit_count;
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

static uint64_t mix(uint64_t number)
{
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

static double share_of(uint64_t seed, uint64_t request)
{
    return (double)(mix(mix(seed + 1) + request) >> 11) / (double)(UINT64_C(1) << 53);
}

static enum reg_hint hint_of(const struct model_options *options, bool ends, uint64_t request)
{
    bool drawn = share_of(options->seed, request) < options->hint_share;
    switch (options->hints) {
    case MODEL_HINTS_ENDS:
        return ends && drawn ? REG_HINT_ENDS : REG_HINT_NONE;
    case MODEL_HINTS_ALL:
        return ends == drawn ? REG_HINT_ENDS : REG_HINT_GOES_ON;
    default:
        return REG_HINT_NONE;
    }
}

/* ---- density ---- */

struct density_run {
    struct reg_density *density;
    uint32_t *units; /* by identity; 0: not in memory */
    uint64_t unit_count;
};

static uint32_t prefix_of(const uint32_t *here, const uint32_t *ids, uint32_t count)
{
    uint32_t hit = 0;
    while (hit < count && here[ids[hit]] != 0) {
        hit++;
    }
    return hit;
}

static sl_err density_request(struct density_run *run, const uint32_t *ids, uint32_t count,
                              enum reg_hint hint)
{
    uint32_t stored = 0;
    for (uint32_t i = 0; i < count; i++) {
        stored += run->units[ids[i]] == 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (run->units[ids[i]] != 0) {
            reg_density_use(run->density, run->units[ids[i]], hint);
            continue;
        }
        struct reg_wanted wanted = {.parent_hash = i > 0 ? mix(ids[i - 1] + UINT64_C(1)) : 0,
                                    .stored_count = stored,
                                    .cut = i + 1 == count,
                                    .hint = hint};
        run->units[ids[i]] =
            reg_density_enter(run->density, mix(ids[i] + UINT64_C(1)), ids[i], &wanted);
        if (run->units[ids[i]] == 0) {
            return SL_ERR_NO_MEMORY;
        }
        run->unit_count++;
    }
    return SL_OK;
}

static void density_evict(struct density_run *run, uint64_t capacity)
{
    uint32_t unit = run->unit_count > capacity ? reg_density_first(run->density) : 0;
    while (run->unit_count > capacity && unit != 0) {
        run->units[reg_density_user(run->density, unit)] = 0;
        reg_density_leave(run->density, unit);
        run->unit_count--;
        unit = reg_density_next(run->density, false);
    }
}

static sl_err density_run(const struct replay_trace *trace, const struct model_options *options,
                          struct model_result *out)
{
    struct reg_density_options plan = {.ghosts_min = REG_DENSITY_GHOSTS_MIN,
                                       .ghosts_max = REG_DENSITY_GHOSTS_MAX};
    struct density_run run = {.units = calloc(model_id_limit(trace) + (size_t)1, sizeof(uint32_t))};
    unsigned char *ends = model_ends(trace);
    sl_err err = run.units == NULL || ends == NULL ? SL_ERR_NO_MEMORY
                                                   : reg_density_create(&plan, &run.density);
    uint64_t began_ns = cpu_ns();
    for (uint64_t i = 0; err == SL_OK && i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        const uint32_t *ids = &trace->ids[request->first_id];
        model_count(out, request, prefix_of(run.units, ids, request->id_count));
        err = density_request(&run, ids, request->id_count, hint_of(options, ends[i] != 0, i));
        density_evict(&run, options->capacity_blocks);
    }
    out->seconds = (double)(cpu_ns() - began_ns) / 1e9;
    reg_density_destroy(&run.density);
    free(run.units);
    free(ends);
    return err;
}

const struct model_policy model_density = {
    .name = "density", .text = "chain hit density: the registrar's own code", .run = density_run};

/* ---- least recently used ---- */

struct lru_run {
    uint32_t *older, *newer; /* a ring by identity; the last identity is its end */
    uint32_t *here;
    uint32_t end;
    uint64_t count;
};

static void lru_out(struct lru_run *run, uint32_t id)
{
    run->newer[run->older[id]] = run->newer[id];
    run->older[run->newer[id]] = run->older[id];
}

static void lru_use(struct lru_run *run, uint32_t id)
{
    if (run->here[id] != 0) {
        lru_out(run, id);
    }
    run->count += run->here[id] == 0;
    run->here[id] = 1;
    run->older[id] = run->older[run->end];
    run->newer[id] = run->end;
    run->newer[run->older[id]] = id;
    run->older[run->end] = id;
}

static sl_err lru_run(const struct replay_trace *trace, const struct model_options *options,
                      struct model_result *out)
{
    uint32_t end = model_id_limit(trace);
    uint32_t *words = calloc(((size_t)end + 1) * 3, sizeof(*words));
    if (words == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct lru_run run = {.older = words,
                          .newer = words + end + 1,
                          .here = words + 2 * ((size_t)end + 1),
                          .end = end};
    run.older[end] = end;
    run.newer[end] = end;
    uint64_t began_ns = cpu_ns();
    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        const uint32_t *ids = &trace->ids[request->first_id];
        model_count(out, request, prefix_of(run.here, ids, request->id_count));
        for (uint32_t k = request->id_count; k-- > 0;) { /* the end of a chain goes first */
            lru_use(&run, ids[k]);
        }
        for (; run.count > options->capacity_blocks; run.count--) {
            uint32_t victim = run.newer[end];
            lru_out(&run, victim);
            run.here[victim] = 0;
        }
    }
    out->seconds = (double)(cpu_ns() - began_ns) / 1e9;
    free(words);
    return SL_OK;
}

const struct model_policy model_lru = {
    .name = "lru", .text = "the least recently used goes first", .run = lru_run};

/* ---- all that can be known ---- */

static sl_err unlimited_run(const struct replay_trace *trace, const struct model_options *options,
                            struct model_result *out)
{
    struct model_options all = *options;
    all.capacity_blocks = UINT64_MAX;
    return lru_run(trace, &all, out);
}

const struct model_policy model_unlimited = {
    .name = "unlimited", .text = "nothing is ever evicted", .run = unlimited_run};

#define NEVER UINT64_MAX

/* A heap of references, the one that is used again last on top; of two, the later in its chain. */
struct far {
    uint64_t next; /* the request that uses it again */
    uint32_t depth, id;
};
struct far_heap {
    struct far *all;
    uint64_t count;
};

static bool far_before(const struct far *a, const struct far *b)
{
    return a->next != b->next ? a->next > b->next : a->depth > b->depth;
}

static void far_push(struct far_heap *heap, struct far item)
{
    uint64_t at = heap->count++;
    for (; at > 0 && far_before(&item, &heap->all[(at - 1) / 2]); at = (at - 1) / 2) {
        heap->all[at] = heap->all[(at - 1) / 2];
    }
    heap->all[at] = item;
}

static struct far far_pop(struct far_heap *heap)
{
    struct far top = heap->all[0];
    struct far item = heap->all[--heap->count];
    uint64_t at = 0;
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child + 1 < heap->count && far_before(&heap->all[child + 1], &heap->all[child])) {
            child++;
        }
        if (child >= heap->count || !far_before(&heap->all[child], &item)) {
            break;
        }
        heap->all[at] = heap->all[child];
        at = child;
    }
    heap->all[at] = item;
    return top;
}

/* For each reference the request that makes the next one to the same block. */
static uint64_t *next_uses(const struct replay_trace *trace)
{
    uint64_t *next = malloc((trace->id_count + 1) * sizeof(*next));
    uint64_t *seen = malloc((model_id_limit(trace) + (size_t)1) * sizeof(*seen));
    if (next == NULL || seen == NULL) {
        free(next);
        free(seen);
        return NULL;
    }
    memset(seen, 0xff, (model_id_limit(trace) + (size_t)1) * sizeof(*seen));
    for (uint64_t i = trace->request_count; i-- > 0;) {
        const struct replay_request *request = &trace->requests[i];
        for (uint32_t k = 0; k < request->id_count; k++) {
            next[request->first_id + k] = seen[trace->ids[request->first_id + k]];
        }
        for (uint32_t k = 0; k < request->id_count; k++) {
            seen[trace->ids[request->first_id + k]] = i;
        }
    }
    free(seen);
    return next;
}

/* Belady (1966), along chains: what is used again last goes first, and a block is never used
 * without those before it, so ends of chains go before their beginnings. */
static sl_err clairvoyant_run(const struct replay_trace *trace, const struct model_options *options,
                              struct model_result *out)
{
    uint64_t *next = next_uses(trace);
    uint64_t *due = calloc(model_id_limit(trace) + (size_t)1, sizeof(*due));
    uint32_t *here = calloc(model_id_limit(trace) + (size_t)1, sizeof(*here));
    struct far_heap heap = {.all = malloc((trace->id_count + 1) * sizeof(struct far))};
    bool fine = next != NULL && due != NULL && here != NULL && heap.all != NULL;
    uint64_t count = 0;
    uint64_t began_ns = cpu_ns();
    for (uint64_t i = 0; fine && i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        const uint32_t *ids = &trace->ids[request->first_id];
        model_count(out, request, prefix_of(here, ids, request->id_count));
        for (uint32_t k = 0; k < request->id_count; k++) {
            count += here[ids[k]] == 0;
            here[ids[k]] = 1;
            due[ids[k]] = next[request->first_id + k];
            far_push(&heap, (struct far){.next = due[ids[k]], .depth = k, .id = ids[k]});
        }
        while (count > options->capacity_blocks) {
            struct far victim = far_pop(&heap);
            if (here[victim.id] != 0 && due[victim.id] == victim.next) {
                here[victim.id] = 0;
                count--;
            }
        }
    }
    out->seconds = (double)(cpu_ns() - began_ns) / 1e9;
    free(next);
    free(due);
    free(here);
    free(heap.all);
    return fine ? SL_OK : SL_ERR_NO_MEMORY;
}

const struct model_policy model_clairvoyant = {
    .name = "clairvoyant",
    .text = "Belady along chains: what is used again last goes first",
    .run = clairvoyant_run};
