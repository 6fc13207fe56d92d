/* client/model/run.c - requests against a memory, and a disk below it. */
#include "client/model/internal.h"

#include <stdlib.h>
#include <string.h>

/* How far ahead a chance counts: while as much is referred to as the disk has blocks, twice. */
#define HORIZON_DISKS 2u
#define PROGRESS_MASK 0xfffu
/* So that what is drawn for one purpose says nothing of the others. */
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
};

static bool is_stored(const struct run *run, uint32_t id)
{
    return run->memory.here[id] == 0 && !model_disk_has(run->disk, id);
}

/* Counts what the request finds. */
static uint32_t look(struct run *run, uint64_t number, struct model_result *out)
{
    const struct replay_request *request = &run->trace->requests[number];
    const uint32_t *ids = &run->trace->ids[request->first_id];
    uint32_t hit = 0;
    uint32_t in_memory = 0;
    while (hit < request->id_count && !is_stored(run, ids[hit])) {
        in_memory += run->memory.here[ids[hit]] != 0;
        hit++;
    }
    if (model_counts(run->options, number)) {
        model_count(out, run->options, request, ids, hit, in_memory);
    }
    return hit;
}

static uint64_t horizon(const struct run *run)
{
    uint64_t block = run->block_count > 0 ? run->block_bytes / run->block_count : 1;
    return HORIZON_DISKS * (run->options->disk.capacity_bytes / SL_MAX(block, UINT64_C(1)));
}

static bool is_admitted(const struct run *run, uint32_t id)
{
    const struct model_memory *memory = &run->memory;
    switch (run->options->disk.admission) {
    case MODEL_ADMIT_REUSE:
        return memory->ops->chance(memory, id, horizon(run)) >= run->options->disk.reuse_min;
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
            model_disk_wanted(run->disk, ids[k]);
        } else if (!is_admitted(run, ids[k]) ||
                   !model_disk_write(run->disk, ids[k], request->timestamp_ms, out)) {
            out->refused_count++;
        }
    }
}

/* What the engine says with the request. */
static void say(const struct run *run, uint64_t number, struct model_use *use)
{
    const struct model_options *options = run->options;
    bool ends = run->ends[number] != 0;
    uint64_t seed = options->hints.seed;
    bool keep = replay_drawn(seed + KEEP_SEED, number) < options->keep_share;
    bool high = replay_drawn(seed + HIGH_SEED, number) < options->high_share;
    use->hint = options->said != NULL ? (enum reg_hint)options->said[number]
                                      : (enum reg_hint)replay_hint(&options->hints, ends, number);
    use->priority = high ? REG_PRIORITY_HIGH : REG_PRIORITY_NORMAL;
    use->keep = keep && (!ends || !options->keep_needed);
}

static sl_err request_play(struct run *run, uint64_t number, struct model_result *out)
{
    const struct replay_request *request = &run->trace->requests[number];
    const uint32_t *ids = &run->trace->ids[request->first_id];
    uint32_t hit = look(run, number, out);
    struct model_use use = {.ids = ids,
                            .to = run->to,
                            .count = request->id_count,
                            .before = run->options->before != NULL ? run->options->before[number]
                                                                   : MODEL_NO_BLOCK,
                            .now_s = (uint32_t)(request->timestamp_ms / 1000),
                            .kept_bytes_max = run->options->capacity_bytes / SL_DENSITY_KEPT_SHARE};
    say(run, number, &use);
    for (uint32_t k = 0; k < request->id_count; k++) {
        if (run->seen[ids[k]] == (uint32_t)number + 1) { /* once a request */
            run->to[k] = 0;
            continue;
        }
        run->seen[ids[k]] = (uint32_t)number + 1;
        bool stored = is_stored(run, ids[k]);
        bool here = run->memory.here[ids[k]] != 0;
        run->to[k] = here || stored || k < hit; /* behind a hole, what is on disk stays there */
        use.stored_count += stored;
        run->memory_bytes += !here && run->to[k] != 0 ? model_bytes(run->options, ids[k]) : 0;
        run->block_count += stored;
        run->block_bytes += stored ? model_bytes(run->options, ids[k]) : 0;
    }
    sl_err err = run->memory.ops->use(&run->memory, &use);
    if (err == SL_OK && run->disk != NULL) {
        write_behind(run, number, out);
    }
    while (err == SL_OK && run->memory_bytes > run->options->capacity_bytes) {
        uint32_t victim = run->memory.ops->victim(&run->memory);
        SL_ASSERT(victim != MODEL_NO_BLOCK);
        run->memory_bytes -= model_bytes(run->options, victim);
    }
    return err;
}

static sl_err run_begin(struct run *run, const struct model_memory_ops *ops)
{
    const struct model_disk_options *disk = &run->options->disk;
    bool knows = disk->capacity_bytes == 0 || disk->admission == MODEL_ADMIT_ALL ||
                 (ops->chance != NULL && ops->use_count != NULL);
    if (!knows) {
        return SL_ERR_UNSUPPORTED;
    }
    run->memory.ops = ops;
    run->memory.id_limit = model_id_limit(run->trace);
    run->memory.here = calloc(run->memory.id_limit + (size_t)1, sizeof(uint32_t));
    run->seen = calloc(run->memory.id_limit + (size_t)1, sizeof(*run->seen));
    run->ends = replay_ends(run->trace);
    run->to = malloc(run->trace->blocks_max + (size_t)1);
    if (run->memory.here == NULL || run->seen == NULL || run->ends == NULL || run->to == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_err err = ops->begin(&run->memory);
    if (err == SL_OK && disk->capacity_bytes > 0) {
        err = model_disk_create(run->options, run->memory.id_limit, &run->disk);
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
        if (options->progress != NULL && (i & PROGRESS_MASK) == PROGRESS_MASK) {
            options->progress(options->context, i + 1);
        }
    }
    out->seconds = (double)(model_cpu_ns() - began_ns) / 1e9;
    ops->end(&run.memory);
    model_disk_destroy(&run.disk);
    free(run.memory.here);
    free(run.seen);
    free(run.ends);
    free(run.to);
    return err;
}

static sl_err lru_run(const struct replay_trace *trace, const struct model_options *options,
                      struct model_result *out)
{
    return model_run(trace, options, &model_memory_lru, out);
}

const struct model_policy model_lru = {
    .name = "lru", .text = "the least recently used goes first", .run = lru_run};

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
