/* actors/swapper/engines.c - maps registered regions and makes the device's layer tables. */
#include "actors/swapper/engines.h"
#include "ipc/msg/sl_layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Memory handles of one rank: a tensor for each layer, two for separate K and V. */
#define MAPPINGS_MAX 2048u

struct mapped { /* a mapping's private_data is the back end's, so handles are kept here */
    struct sl_memory_handle handle;
    uint64_t length_bytes; /* the most that a region needs */
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

struct plan {
    struct sl_layout layout; /* of the rank's regions */
    struct mapped *mapped;   /* distinct handles */
    uint32_t mapped_count;
    uint32_t *mapped_of;     /* index for each layer */
    struct sl_layer *layers; /* scratch for all */
};

static void plan_free(struct plan *plan)
{
    sl_layout_fini(&plan->layout);
    free(plan->mapped);
    free(plan->mapped_of);
    free(plan->layers);
}

/* Finds the distinct handles of the rank's regions, and how much of each to map. */
static sl_err plan_make(const struct sl_body_engine_get_reply *body, uint64_t rank,
                        struct plan *plan, struct sl_error *why)
{
    sl_err err = sl_layout_make(body, UINT64_C(1) << rank, &plan->layout, why);
    if (err != SL_OK) {
        return err;
    }
    plan->mapped = calloc(MAPPINGS_MAX, sizeof(*plan->mapped));
    plan->mapped_of = calloc(plan->layout.layer_count + 1u, sizeof(*plan->mapped_of));
    plan->layers = calloc(plan->layout.layer_count + 1u, sizeof(*plan->layers));
    if (plan->mapped == NULL || plan->mapped_of == NULL || plan->layers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to plan %u regions",
                       plan->layout.layer_count);
    }
    for (uint32_t i = 0; i < plan->layout.layer_count; i++) {
        uint32_t number = plan->layout.layers[i].region;
        const struct sl_item_region *region = &body->regions.at[number];
        /* A process may only register memory that it could read itself. */
        if (region->handle_kind == SL_MEMORY_PROCESS && region->pid != body->pid) {
            return sl_fail(why, SL_ERR_INVALID,
                           "regions[%u].pid: plain memory of process %" PRIu64
                           ", registered by process %" PRIu64,
                           number, region->pid, body->pid);
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

static sl_err part_make(struct sl_device *device, const struct sl_body_engine_get_reply *body,
                        const struct plan *plan, const struct sl_layout_row *row,
                        struct sw_engine *engine, struct sl_error *why)
{
    struct sw_part *out = &engine->pools[row->pool].parts[row->part];
    out->layer_offsets = calloc(row->layer_count + 1u, sizeof(*out->layer_offsets));
    if (out->layer_offsets == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for layers");
    }
    for (uint32_t i = 0; i < row->layer_count; i++) {
        const struct sl_layout_layer *layer = &plan->layout.layers[row->first_layer + i];
        const struct sl_item_region *region = &body->regions.at[layer->region];
        const struct sl_mapping *mapping = &engine->mappings[plan->mapped_of[row->first_layer + i]];
        uintptr_t base = (uintptr_t)mapping->base;
        plan->layers[i] = (struct sl_layer){.base = (unsigned char *)(base + region->offset_bytes),
                                            .block_stride_bytes = region->block_stride_bytes,
                                            .piece_bytes = region->piece_bytes,
                                            .block_count = region->block_count,
                                            .fragment_bytes = region->fragment_bytes,
                                            .fragment_stride_bytes = region->fragment_stride_bytes,
                                            .remote = mapping->remote};
        out->layer_offsets[i] = layer->part_offset_bytes;
    }
    out->layer_offsets[row->layer_count] = out->value_bytes = row->length_bytes;
    out->block_count = row->block_count;
    out->runs = layers_runs(plan->layers, row->layer_count);
    if (out->runs > SL_DEVICE_BLOCK_RUNS_MAX) {
        return sl_fail(why, SL_ERR_INVALID,
                       "pool %u, part %u: fragment_bytes: a block has %" PRIu64
                       " runs, up to %u are possible",
                       row->pool, row->part, out->runs, SL_DEVICE_BLOCK_RUNS_MAX);
    }
    sl_err err =
        device->ops->layers_add(device, plan->layers, row->layer_count, &out->layers_index, why);
    out->layer_count = err == SL_OK ? row->layer_count : 0;
    return err;
}

static sl_err parts_make(const struct sw_mapper *mapper,
                         const struct sl_body_engine_get_reply *body, const struct plan *plan,
                         struct sw_engine *engine, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint64_t i = 0; i < body->pools.count && i < SW_POOLS_MAX; i++) {
        uint64_t count = SL_MIN(body->pools.at[i].part_count, (uint64_t)SW_PARTS_MAX);
        engine->pools[i] =
            (struct sw_pool){.part_count = (uint32_t)count,
                             .parts = calloc(SL_MAX(count, UINT64_C(1)), sizeof(struct sw_part))};
        if (engine->pools[i].parts == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " parts", count);
        }
    }
    for (uint32_t i = 0; err == SL_OK && i < plan->layout.row_count; i++) {
        err = part_make(mapper->device, body, plan, &plan->layout.rows[i], engine, why);
        sl_metrics_beat_now(mapper->metrics); /* each copies to the GPU; there are hundreds */
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
            return sl_fail(why, SL_ERR_LIMIT,
                           "region %" PRIu64 ": the rank uses more than %u pools", i,
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
        sl_metrics_beat_now(mapper->metrics); /* up to a millisecond each; there are thousands */
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
        err = parts_make(mapper, body, &plan, engine, why);
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
