/* actors/swapper/engines.c - registered regions to mappings and layer tables. Every number comes
 * from another process and is checked here before an address is made of it. */
#include "actors/swapper/engines.h"
#include "runtime/sl_runs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Distinct memory handles of one rank: a tensor a layer, two for separate K and V. */
#define MAPPINGS_MAX 2048u

struct mapped { /* private_data of a mapping is the back end's, so handles stand beside */
    struct sl_memory_handle handle;
    uint64_t length_bytes; /* longest that a region needs */
};

static bool handle_equal(const struct sl_memory_handle *a, const struct sl_memory_handle *b)
{
    return a->kind == b->kind && a->pid == b->pid && a->fd == b->fd &&
           a->start_time == b->start_time && memcmp(a->ipc, b->ipc, sizeof(a->ipc)) == 0;
}

static struct sl_memory_handle handle_of(const struct sl_item_region *region, uint64_t rank)
{
    struct sl_memory_handle handle = {
        .kind = (enum sl_memory_kind)region->handle_kind,
        .pid = (uint32_t)region->pid,
        .fd = region->fd > INT32_MAX ? -1 : (int32_t)region->fd,
        .start_time = region->start_time,
        .device_index = (uint32_t)rank,
    };
    if (handle.kind == SL_MEMORY_PROCESS) {
        handle.offset_bytes = region->offset_bytes;
    }
    if (region->handle.length > 0) {
        memcpy(handle.ipc, region->handle.at,
               SL_MIN(region->handle.length, (uint64_t)sizeof(handle.ipc)));
    }
    return handle;
}

/* Gives the bytes from a block's first to its last. */
static sl_err region_runs(const struct sl_item_region *region, uint64_t number,
                          uint64_t *span_bytes, struct sl_error *why)
{
    uint64_t run_bytes = region->fragment_bytes, stride_bytes = region->fragment_stride_bytes;
    *span_bytes = sl_runs_span(region->piece_bytes, run_bytes, stride_bytes);
    if (run_bytes == 0 && stride_bytes == 0) {
        return SL_OK;
    }
    if (run_bytes == 0 || region->piece_bytes % run_bytes != 0) {
        return sl_fail(why, SL_ERR_INVALID,
                       "region %" PRIu64 ": fragment_bytes: %" PRIu64
                       " do not make a piece of %" PRIu64,
                       number, run_bytes, region->piece_bytes);
    }
    if (*span_bytes == 0 || *span_bytes > region->block_stride_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "region %" PRIu64 ": fragment_stride_bytes: runs every %" PRIu64
                       " bytes overlap, or pass the block's stride",
                       number, stride_bytes);
    }
    return SL_OK;
}

static sl_err region_check(const struct sl_item_region *region, uint64_t number,
                           const struct sl_body_engine_get_reply *body, struct sl_error *why)
{
    uint64_t used_bytes = 0, span_bytes = 0, end_bytes = 0;
    if (region->pool >= body->pools.count || region->pool >= SW_POOLS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "region %" PRIu64 ": pool %" PRIu64 " of %" PRIu64,
                       number, region->pool, body->pools.count);
    }
    /* Nobody registers what he could not read himself. */
    if (region->handle_kind == SL_MEMORY_PROCESS && region->pid != body->pid) {
        return sl_fail(why, SL_ERR_INVALID,
                       "region %" PRIu64 ": pid: plain memory of process %" PRIu64
                       ", registered by process %" PRIu64,
                       number, region->pid, body->pid);
    }
    uint64_t part_count = body->pools.at[region->pool].part_count;
    if (part_count > SW_PARTS_MAX || region->part >= SL_MAX(part_count, UINT64_C(1))) {
        return sl_fail(why, SL_ERR_INVALID,
                       "region %" PRIu64 ": part %" PRIu64 " of pool %" PRIu64 " with %" PRIu64,
                       number, region->part, region->pool, part_count);
    }
    sl_err err = region_runs(region, number, &span_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    if (region->piece_bytes == 0 || span_bytes > region->block_stride_bytes ||
        region->block_count == 0 ||
        __builtin_mul_overflow(region->block_count - 1, region->block_stride_bytes, &used_bytes) ||
        __builtin_add_overflow(used_bytes, span_bytes, &used_bytes) ||
        used_bytes > region->length_bytes ||
        __builtin_add_overflow(region->offset_bytes, region->length_bytes, &end_bytes)) {
        return sl_fail(why, SL_ERR_INVALID, "region %" PRIu64 ": blocks do not fit its length",
                       number);
    }
    return SL_OK;
}

struct plan {
    struct mapped *mapped; /* distinct handles */
    uint32_t mapped_count;
    uint32_t *mapped_of;     /* region number -> index into mapped */
    struct sl_layer *layers; /* of all parts, one part after the other */
    uint32_t layer_counts[SW_POOLS_MAX][SW_PARTS_MAX];
    uint32_t first_layers[SW_POOLS_MAX][SW_PARTS_MAX]; /* where those of a part begin */
};

static void plan_free(struct plan *plan)
{
    free(plan->mapped);
    free(plan->mapped_of);
    free(plan->layers);
}

/* Distinct handles of the rank's regions and how much of each must be mapped. */
static sl_err plan_make(const struct sl_body_engine_get_reply *body, uint64_t rank,
                        struct plan *plan, struct sl_error *why)
{
    plan->mapped = calloc(MAPPINGS_MAX, sizeof(*plan->mapped));
    plan->mapped_of = calloc(body->regions.count + 1, sizeof(*plan->mapped_of));
    plan->layers = calloc(body->regions.count + 1, sizeof(*plan->layers));
    if (plan->mapped == NULL || plan->mapped_of == NULL || plan->layers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to plan %" PRIu64 " regions",
                       body->regions.count);
    }
    for (uint64_t i = 0; i < body->regions.count; i++) {
        const struct sl_item_region *region = &body->regions.at[i];
        if (region->rank != rank) {
            continue;
        }
        sl_err err = region_check(region, i, body, why);
        if (err != SL_OK) {
            return err;
        }
        struct sl_memory_handle handle = handle_of(region, rank);
        uint32_t at = 0;
        while (at < plan->mapped_count && !handle_equal(&plan->mapped[at].handle, &handle)) {
            at++;
        }
        if (at == MAPPINGS_MAX) {
            return sl_fail(why, SL_ERR_LIMIT, "more than %u memory handles for rank %" PRIu64,
                           MAPPINGS_MAX, rank);
        }
        if (at == plan->mapped_count) {
            plan->mapped[plan->mapped_count++].handle = handle;
        }
        struct mapped *mapped = &plan->mapped[at];
        mapped->length_bytes =
            SL_MAX(mapped->length_bytes, region->offset_bytes + region->length_bytes);
        plan->mapped_of[i] = at;
        plan->layer_counts[region->pool][region->part]++;
    }
    uint32_t first = 0;
    for (uint32_t i = 0; i < SW_POOLS_MAX * SW_PARTS_MAX; i++) {
        plan->first_layers[i / SW_PARTS_MAX][i % SW_PARTS_MAX] = first;
        first += plan->layer_counts[i / SW_PARTS_MAX][i % SW_PARTS_MAX];
    }
    return SL_OK;
}

/* The layers of each part in their order; each number once, none missing. */
static sl_err layers_place(const struct sl_body_engine_get_reply *body, uint64_t rank,
                           const struct sw_engine *engine, struct plan *plan, struct sl_error *why)
{
    SL_ASSERT(engine->mappings != NULL);
    for (uint64_t i = 0; i < body->regions.count; i++) {
        const struct sl_item_region *region = &body->regions.at[i];
        if (region->rank != rank) {
            continue;
        }
        uint32_t count = plan->layer_counts[region->pool][region->part];
        struct sl_layer *layers = plan->layers + plan->first_layers[region->pool][region->part];
        if (region->layer >= count || layers[region->layer].base != NULL) {
            return sl_fail(why, SL_ERR_INVALID,
                           "region %" PRIu64 ": layer %" PRIu64
                           " is double, or one of %u is missing",
                           i, region->layer, count);
        }
        const struct sl_mapping *mapping = &engine->mappings[plan->mapped_of[i]];
        uintptr_t base = (uintptr_t)mapping->base;
        layers[region->layer] =
            (struct sl_layer){.base = (unsigned char *)(base + region->offset_bytes),
                              .block_stride_bytes = region->block_stride_bytes,
                              .piece_bytes = region->piece_bytes,
                              .block_count = region->block_count,
                              .fragment_bytes = region->fragment_bytes,
                              .fragment_stride_bytes = region->fragment_stride_bytes,
                              .remote = mapping->remote};
    }
    return SL_OK;
}

static uint64_t layers_runs(const struct sl_layer *layers, uint32_t layer_count)
{
    uint64_t runs = 0;
    for (uint32_t i = 0; i < layer_count; i++) {
        runs +=
            layers[i].fragment_bytes == 0 ? 1 : layers[i].piece_bytes / layers[i].fragment_bytes;
    }
    return runs;
}

static sl_err part_make(struct sl_device *device, const struct plan *plan, uint64_t pool,
                        uint64_t part, struct sw_part *out, struct sl_error *why)
{
    const struct sl_layer *layers = plan->layers + plan->first_layers[pool][part];
    uint32_t layer_count = plan->layer_counts[pool][part];
    out->runs = layers_runs(layers, layer_count);
    if (out->runs > SL_DEVICE_BLOCK_RUNS_MAX) {
        return sl_fail(why, SL_ERR_INVALID,
                       "pool %" PRIu64 ", part %" PRIu64 ": fragment_bytes: a block has %" PRIu64
                       " runs, up to %u are possible",
                       pool, part, out->runs, SL_DEVICE_BLOCK_RUNS_MAX);
    }
    out->layer_offsets = calloc(layer_count + 1u, sizeof(*out->layer_offsets));
    if (out->layer_offsets == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for layers");
    }
    sl_err err = device->ops->layers_add(device, layers, layer_count, &out->layers_index, why);
    if (err != SL_OK) {
        return err;
    }
    out->layer_count = layer_count;
    out->block_count = UINT64_MAX;
    for (uint32_t i = 0; i < layer_count; i++) {
        out->value_bytes += layers[i].piece_bytes;
        out->layer_offsets[i + 1] = out->value_bytes;
        out->block_count = SL_MIN(out->block_count, layers[i].block_count);
    }
    return SL_OK;
}

static sl_err pool_make(const struct sw_mapper *mapper, uint64_t part_count, uint64_t pool,
                        const struct plan *plan, struct sw_engine *engine, struct sl_error *why)
{
    struct sw_pool *out = &engine->pools[pool];
    uint64_t rows = SL_MAX(part_count, UINT64_C(1));
    sl_err err = SL_OK;
    if (part_count > SW_PARTS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "pool %" PRIu64 ": part_count: %" PRIu64 " of %u", pool,
                       part_count, SW_PARTS_MAX);
    }
    out->parts = calloc(rows, sizeof(*out->parts));
    if (out->parts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " parts", rows);
    }
    out->part_count = (uint32_t)part_count;
    for (uint64_t part = 0; err == SL_OK && part < rows; part++) {
        if (plan->layer_counts[pool][part] > 0) {
            err = part_make(mapper->device, plan, pool, part, &out->parts[part], why);
            sl_metrics_beat_now(mapper->metrics); /* a copy to the GPU each, hundreds of them */
        }
    }
    return err;
}

const struct sw_part *sw_engine_part(const struct sw_engine *engine, uint64_t pool, uint64_t part)
{
    if (pool >= SW_POOLS_MAX || part >= SL_MAX(engine->pools[pool].part_count, 1u) ||
        engine->pools[pool].parts == NULL || engine->pools[pool].parts[part].layer_count == 0) {
        return NULL;
    }
    return &engine->pools[pool].parts[part];
}

bool sw_engine_is_of(const struct sw_engine *engine, uint64_t epoch)
{
    for (uint32_t i = 0; i < engine->epoch_count; i++) {
        if (engine->epochs[i] == epoch) {
            return true;
        }
    }
    return false;
}

static sl_err epochs_note(const struct sl_body_engine_get_reply *body, uint64_t rank,
                          struct sw_engine *engine, struct sl_error *why)
{
    engine->epoch_count = 0;
    for (uint64_t i = 0; i < body->regions.count; i++) {
        uint64_t epoch = body->regions.at[i].pool_epoch;
        if (body->regions.at[i].rank != rank || epoch == 0 || sw_engine_is_of(engine, epoch)) {
            continue;
        }
        if (engine->epoch_count == SW_EPOCHS_MAX) {
            return sl_fail(why, SL_ERR_LIMIT, "region %" PRIu64 ": of more than %u pools", i,
                           SW_EPOCHS_MAX);
        }
        engine->epochs[engine->epoch_count++] = epoch;
    }
    return SL_OK;
}

static sl_err plan_map(const struct sw_mapper *mapper, struct plan *plan, struct sw_engine *engine,
                       struct sl_error *why)
{
    struct sl_device *device = mapper->device;
    engine->mappings = calloc(plan->mapped_count + 1u, sizeof(*engine->mappings));
    engine->handles = calloc(plan->mapped_count + 1u, sizeof(*engine->handles));
    if (engine->mappings == NULL || engine->handles == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u mappings", plan->mapped_count);
    }
    for (uint32_t i = 0; i < plan->mapped_count; i++) {
        const struct sl_memory_handle *handle = &plan->mapped[i].handle;
        sl_err err = device->ops->map(device, handle, plan->mapped[i].length_bytes,
                                      &engine->mappings[i], why);
        if (err != SL_OK) {
            return err;
        }
        engine->handles[engine->mapping_count++] = *handle;
        sl_metrics_beat_now(mapper->metrics); /* up to a millisecond a handle, thousands */
    }
    return SL_OK;
}

sl_err sw_engine_map(const struct sw_mapper *mapper, const struct sl_body_engine_get_reply *body,
                     uint64_t rank, struct sw_engine *engine, struct sl_error *why)
{
    struct plan plan = {0};
    sl_err err = epochs_note(body, rank, engine, why);
    if (err == SL_OK) {
        err = plan_make(body, rank, &plan, why);
    }
    if (err == SL_OK) {
        err = plan_map(mapper, &plan, engine, why);
    }
    if (err == SL_OK) {
        err = layers_place(body, rank, engine, &plan, why);
    }
    for (uint64_t pool = 0; err == SL_OK && pool < body->pools.count && pool < SW_POOLS_MAX;
         pool++) {
        err = pool_make(mapper, body->pools.at[pool].part_count, pool, &plan, engine, why);
    }
    if (err != SL_OK) {
        sw_engine_unmap(mapper->device, engine);
    }
    plan_free(&plan);
    return err;
}

void sw_engine_unmap(struct sl_device *device, struct sw_engine *engine)
{
    for (uint32_t i = 0; i < SW_POOLS_MAX; i++) {
        struct sw_pool *pool = &engine->pools[i];
        for (uint32_t p = 0; pool->parts != NULL && p < SL_MAX(pool->part_count, 1u); p++) {
            if (pool->parts[p].layer_count > 0) {
                device->ops->layers_remove(device, pool->parts[p].layers_index);
            }
            free(pool->parts[p].layer_offsets);
        }
        free(pool->parts);
        *pool = (struct sw_pool){0};
    }
    for (uint32_t i = 0; i < engine->mapping_count; i++) {
        device->ops->unmap(device, &engine->mappings[i]);
    }
    free(engine->mappings);
    free(engine->handles);
    engine->mappings = NULL;
    engine->handles = NULL;
    engine->mapping_count = 0;
    engine->epoch_count = 0;
}
