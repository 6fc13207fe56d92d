/* tests/bench/policy/run.c - runs requests on a memory, and a disk below it. */
#include "tests/bench/policy/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A chance of reuse counts for twice as many references as the disk has blocks. */
#define HORIZON_DISKS 2u
/* At most 1/AHEAD_SHARE of memory holds prefetched, not yet requested blocks, as at a node. */
#define AHEAD_SHARE 2u
/* Makes draws for different purposes independent. */
#define KEEP_SEED UINT64_C(1000003)
#define HIGH_SEED UINT64_C(2000003)

struct run {
    const struct replay_trace *trace;
    const struct model_options *options;
    struct model_memory memory;
    struct model_disk *disk;
    unsigned char *ends;
    unsigned char *to; /* by place in the request; blocks_max */
    uint32_t *seen;    /* by identity: 1 + the request that has it, modulo 2^32 */
    uint64_t memory_bytes;
    uint64_t block_count, block_bytes; /* stored so far: how large a block is */
    struct model_prefetcher *ahead;    /* NULL: no prefetching */
    unsigned char *unused_prefetch;    /* by identity: prefetched, and not requested yet */
    uint64_t prefetched_count, prefetched_lost_count, unread_bytes;
};

static bool is_stored(const struct run *run, uint32_t id)
{
    return run->memory.here[id] == 0 && !model_disk_has(run->disk, id);
}

/* Bytes of memory for blocks that engines want kept, and for prefetched chains. */
static uint64_t kept_bytes_max(const struct run *run)
{
    uint64_t all = run->options->capacity_bytes;
    return all / SL_DENSITY_KEPT_SHARE + (run->ahead != NULL ? all / AHEAD_SHARE : 0);
}

static uint64_t unread_end(struct run *run, uint32_t id)
{
    uint64_t was = run->unused_prefetch[id];
    run->unused_prefetch[id] = 0;
    run->unread_bytes -= was * model_bytes(run->options, id);
    return was;
}

/* Counts the hits of the request. */
static uint32_t hits_count(struct run *run, uint64_t number, struct model_result *out)
{
    const struct replay_request *request = &run->trace->requests[number];
    const uint32_t *ids = &run->trace->ids[request->first_id];
    uint32_t hit = 0;
    uint32_t in_memory = 0;
    while (hit < request->id_count && !is_stored(run, ids[hit])) {
        in_memory += run->memory.here[ids[hit]] != 0;
        out->prefetched_hit_count += unread_end(run, ids[hit]);
        hit++;
    }
    model_count(out, run->options, request, ids, hit, in_memory);
    return hit;
}

static uint64_t horizon(const struct run *run)
{
    uint64_t block = run->block_count > 0 ? run->block_bytes / run->block_count : 1;
    return HORIZON_DISKS * (run->options->disk.capacity_bytes / SL_MAX(block, UINT64_C(1)));
}

/* Chance that it is requested again in time; 1 if unknown, as with lru. */
static double chance_of(const struct run *run, uint32_t id)
{
    const struct model_memory *memory = &run->memory;
    return memory->ops->chance != NULL ? memory->ops->chance(memory, id, horizon(run)) : 1.0;
}

static bool is_admitted(const struct run *run, uint32_t id, uint64_t now_ms)
{
    const struct model_memory *memory = &run->memory;
    bool picks = run->options->disk.bytes_a_day > 0 && memory->ops->chance != NULL;
    if (picks && !model_disk_allows(run->disk, id, chance_of(run, id), now_ms)) {
        return false;
    }
    switch (run->options->disk.admission) {
    case MODEL_ADMIT_REUSE:
        return chance_of(run, id) >= run->options->disk.reuse_min;
    case MODEL_ADMIT_SECOND:
        return memory->ops->use_count(memory, id) >= 2;
    default:
        return true;
    }
}

static void write_behind(struct run *run, uint64_t number, struct model_result *out)
{
    const struct replay_request *request = &run->trace->requests[number];
    const uint32_t *ids = &run->trace->ids[request->first_id];
    for (uint32_t k = 0; k < request->id_count; k++) {
        if (run->to[k] == 0) {
            continue;
        }
        if (model_disk_has(run->disk, ids[k])) {
            model_disk_requested(run->disk, ids[k]);
        } else if (!is_admitted(run, ids[k], request->timestamp_ms) ||
                   !model_disk_write(run->disk, ids[k], request->timestamp_ms, out)) {
            out->refused_count++;
        }
    }
}

/* Applies the engine's hints of the request. */
static void hints_apply(const struct run *run, uint64_t number, struct model_use *use)
{
    const struct model_options *options = run->options;
    bool ends = run->ends[number] != 0;
    uint64_t seed = options->hints.seed;
    bool keep = replay_drawn(seed + KEEP_SEED, number) < options->keep_share;
    bool high = replay_drawn(seed + HIGH_SEED, number) < options->high_share;
    use->hint = (enum reg_hint)replay_hint(&options->hints, ends, number);
    use->priority = high ? REG_PRIORITY_HIGH : REG_PRIORITY_NORMAL;
    use->keep = keep && (!ends || !options->keep_needed);
}

static uint32_t victim_take(struct run *run)
{
    uint32_t victim = run->memory.ops->victim(&run->memory);
    SL_ASSERT(victim != MODEL_NO_BLOCK);
    run->memory_bytes -= model_bytes(run->options, victim);
    run->prefetched_lost_count += unread_end(run, victim);
    return victim;
}

/* ---- ahead of use ---- */

static bool ahead_here(void *context, uint32_t id)
{
    const struct run *run = context;
    return run->memory.here[id] != 0;
}

static bool ahead_on_disk(void *context, uint32_t id)
{
    const struct run *run = context;
    return run->memory.here[id] == 0 && model_disk_has(run->disk, id);
}

static bool ahead_fits(void *context, uint64_t now_ns, uint64_t bytes)
{
    struct run *run = context;
    const struct model_keep now = {.now_s = (uint32_t)(now_ns / SL_NS_PER_S),
                                   .kept_bytes_max = kept_bytes_max(run)};
    run->memory.ops->keep_expire(&run->memory, &now);
    uint64_t most = run->options->capacity_bytes / AHEAD_SHARE;
    return run->memory.ops->kept(&run->memory) + bytes <= most;
}

static double ahead_full(void *context, uint64_t refused_bytes)
{
    const struct run *run = context;
    uint64_t most_bytes = run->options->capacity_bytes / AHEAD_SHARE;
    bool ever = refused_bytes <= most_bytes; /* otherwise it must not delay others */
    uint64_t bytes = run->memory.ops->kept(&run->memory) + (ever ? refused_bytes : 0);
    return bytes < most_bytes ? (double)bytes / (double)most_bytes : 1;
}

static double ahead_edge(void *context)
{
    const struct run *run = context;
    bool full = run->memory_bytes >= run->options->capacity_bytes;
    return full ? run->memory.ops->edge(&run->memory) : 0;
}

static sl_err ahead_bring(void *context, uint32_t id, uint32_t before, double worth, bool rest,
                          bool *brought)
{
    struct run *run = context;
    uint64_t bytes = model_bytes(run->options, id);
    *brought = false;
    while (run->memory_bytes + bytes > run->options->capacity_bytes) {
        double edge = run->memory_bytes > 0 ? run->memory.ops->edge(&run->memory) : worth;
        if (edge >= worth && !(rest && edge < HUGE_VAL)) {
            return SL_OK;
        }
        (void)victim_take(run);
    }
    sl_err err = run->memory.ops->bring(&run->memory, id, before);
    if (err == SL_OK) {
        *brought = true;
        run->memory_bytes += bytes;
        run->unused_prefetch[id] = 1;
        run->unread_bytes += bytes;
        run->prefetched_count++;
    }
    return err;
}

static void ahead_keep(void *context, uint32_t id, uint64_t now_ns, uint64_t for_ns)
{
    struct run *run = context;
    const struct model_keep keep = {
        .now_s = (uint32_t)(now_ns / SL_NS_PER_S),
        .end_s = (uint32_t)((now_ns + for_ns + SL_NS_PER_S - 1) / SL_NS_PER_S),
        .kept_bytes_max = kept_bytes_max(run)};
    run->memory.ops->keep(&run->memory, id, &keep);
}

static const struct model_prefetcher_ops ahead_ops = {.on_disk = ahead_on_disk,
                                                      .here = ahead_here,
                                                      .fits = ahead_fits,
                                                      .full = ahead_full,
                                                      .bring = ahead_bring,
                                                      .keep = ahead_keep,
                                                      .edge = ahead_edge};

static sl_err request_play(struct run *run, uint64_t number, struct model_result *out)
{
    const struct replay_request *request = &run->trace->requests[number];
    const uint32_t *ids = &run->trace->ids[request->first_id];
    sl_err err = run->ahead != NULL ? model_prefetcher_until(run->ahead, number) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    uint32_t hit = hits_count(run, number, out);
    struct model_use use = {.ids = ids,
                            .to = run->to,
                            .count = request->id_count,
                            .now_s = (uint32_t)(request->timestamp_ms / 1000),
                            .kept_bytes_max = kept_bytes_max(run)};
    hints_apply(run, number, &use);
    if (run->ahead != NULL && use.hint == REG_HINT_NONE &&
        model_prefetcher_pause(run->ahead, number) != 0) {
        use.hint = REG_HINT_CONTINUES;
    }
    for (uint32_t k = 0; k < request->id_count; k++) {
        if (run->seen[ids[k]] == (uint32_t)number + 1) { /* once a request */
            run->to[k] = 0;
            continue;
        }
        run->seen[ids[k]] = (uint32_t)number + 1;
        bool stored = is_stored(run, ids[k]);
        bool here = run->memory.here[ids[k]] != 0;
        run->to[k] = here || stored || k < hit; /* after a hole, blocks stay on disk */
        use.stored_count += stored;
        run->memory_bytes += !here && run->to[k] != 0 ? model_bytes(run->options, ids[k]) : 0;
        run->block_count += stored;
        run->block_bytes += stored ? model_bytes(run->options, ids[k]) : 0;
    }
    err = run->memory.ops->use(&run->memory, &use);
    if (err == SL_OK && run->disk != NULL) {
        write_behind(run, number, out);
    }
    while (err == SL_OK && run->memory_bytes > run->options->capacity_bytes) {
        (void)victim_take(run);
    }
    if (err == SL_OK && run->ahead != NULL) {
        model_prefetcher_request_done(run->ahead, number, use.hint == REG_HINT_ENDS);
    }
    return err;
}

static sl_err run_begin(struct run *run, const struct model_memory_ops *ops)
{
    const struct model_disk_options *disk = &run->options->disk;
    bool knows = disk->capacity_bytes == 0 || disk->admission == MODEL_ADMIT_ALL ||
                 (ops->chance != NULL && ops->use_count != NULL);
    bool brings = run->options->prefetch.kind == MODEL_PREFETCH_NONE ||
                  (ops->bring != NULL && disk->capacity_bytes > 0);
    if (!knows || !brings) {
        return SL_ERR_UNSUPPORTED;
    }
    run->memory.ops = ops;
    run->memory.id_limit = model_id_limit(run->trace);
    run->memory.here = calloc(run->memory.id_limit + (size_t)1, sizeof(uint32_t));
    run->seen = calloc(run->memory.id_limit + (size_t)1, sizeof(*run->seen));
    run->ends = replay_ends(run->trace);
    run->to = malloc(run->trace->blocks_max + (size_t)1);
    run->unused_prefetch = calloc(run->memory.id_limit + (size_t)1, 1);
    if (run->unused_prefetch == NULL || run->memory.here == NULL || run->seen == NULL ||
        run->ends == NULL || run->to == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_err err = ops->begin(&run->memory);
    if (err == SL_OK && run->options->restart_every > 0) {
        err = model_restarts_create(run->options->restart_every, run->memory.id_limit,
                                    &run->memory.restarts);
    }
    if (err == SL_OK && disk->capacity_bytes > 0) {
        err = model_disk_create(run->options, run->memory.id_limit, &run->disk);
        if (err == SL_OK && run->trace->request_count > 0) {
            const struct replay_request *all = run->trace->requests;
            uint64_t last = run->trace->request_count - 1;
            model_disk_span(run->disk, all[last].timestamp_ms - all[0].timestamp_ms);
        }
    }
    if (err == SL_OK && run->options->prefetch.kind != MODEL_PREFETCH_NONE) {
        err = model_prefetcher_create(run->trace, run->options, &ahead_ops, run, &run->ahead);
    }
    return err;
}

sl_err model_run(const struct replay_trace *trace, const struct model_options *options,
                 const struct model_memory_ops *ops, struct model_result *out)
{
    struct run run = {.trace = trace, .options = options};
    sl_err err = run_begin(&run, ops);
    uint64_t began_ns = model_cpu_ns();
    for (uint64_t i = 0; err == SL_OK && i < trace->request_count; i++) {
        err = request_play(&run, i, out);
    }
    out->seconds = (double)(model_cpu_ns() - began_ns) / 1e9;
    out->prefetched_count = run.prefetched_count;
    out->prefetched_lost_count = run.prefetched_lost_count;
    model_prefetcher_destroy(&run.ahead);
    ops->end(&run.memory);
    model_restarts_destroy(&run.memory.restarts);
    model_disk_destroy(&run.disk);
    free(run.memory.here);
    free(run.seen);
    free(run.ends);
    free(run.to);
    free(run.unused_prefetch);
    return err;
}

static sl_err lru_run(const struct replay_trace *trace, const struct model_options *options,
                      struct model_result *out)
{
    return model_run(trace, options, &model_memory_lru, out);
}

const struct model_policy model_lru = {
    .name = "lru", .text = "evicts the least recently used first", .run = lru_run};

static sl_err density_run(const struct replay_trace *trace, const struct model_options *options,
                          struct model_result *out)
{
    return model_run(trace, options, &model_memory_density, out);
}

const struct model_policy model_density = {
    .name = "density", .text = "chain hit density, as a node evicts", .run = density_run};

static sl_err unlimited_run(const struct replay_trace *trace, const struct model_options *options,
                            struct model_result *out)
{
    struct model_options all = *options;
    if (options->disk.capacity_bytes > 0) {
        return SL_ERR_UNSUPPORTED;
    }
    all.capacity_bytes = UINT64_MAX;
    return model_run(trace, &all, &model_memory_lru, out);
}

const struct model_policy model_unlimited = {
    .name = "unlimited", .text = "nothing is ever evicted", .run = unlimited_run};
