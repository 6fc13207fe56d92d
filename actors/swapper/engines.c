/* actors/swapper/engines.c - registered regions to mappings and layer tables. Every number comes
 * from another process and is checked here before an address is made of it. */
#include "actors/swapper/engines.h"

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
           memcmp(a->ipc, b->ipc, sizeof(a->ipc)) == 0;
}

static struct sl_memory_handle handle_of(const struct sl_item_region *region, uint64_t rank)
{
    struct sl_memory_handle handle = {
        .kind = (enum sl_memory_kind)region->handle_kind,
        .pid = (uint32_t)region->pid,
        .fd = region->fd > INT32_MAX ? -1 : (int32_t)region->fd,
        .device_index = (uint32_t)rank,
    };
    if (region->handle.length > 0) {
        memcpy(handle.ipc, region->handle.at,
               SL_MIN(region->handle.length, (uint64_t)sizeof(handle.ipc)));
    }
    return handle;
}

static sl_err region_check(const struct sl_item_region *region, uint64_t number,
                           uint64_t pool_count, struct sl_error *why)
{
    uint64_t used_bytes = 0, end_bytes = 0;
    if (region->pool >= pool_count || region->pool >= SW_POOLS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "region %" PRIu64 ": pool %" PRIu64 " of %" PRIu64,
                       number, region->pool, pool_count);
    }
    if (region->piece_bytes == 0 || region->piece_bytes > region->block_stride_bytes ||
        region->block_count == 0 ||
        __builtin_mul_overflow(region->block_count - 1, region->block_stride_bytes, &used_bytes) ||
        __builtin_add_overflow(used_bytes, region->piece_bytes, &used_bytes) ||
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
    uint32_t *mapped_of; /* region number -> index into mapped */
};

static void plan_free(struct plan *plan)
{
    free(plan->mapped);
    free(plan->mapped_of);
}

/* Distinct handles of the rank's regions and how much of each must be mapped. */
static sl_err plan_make(const struct sl_body_engine_get_reply *body, uint64_t rank,
                        struct plan *plan, struct sl_error *why)
{
    plan->mapped = calloc(MAPPINGS_MAX, sizeof(*plan->mapped));
    plan->mapped_of = calloc(body->regions.count + 1, sizeof(*plan->mapped_of));
    if (plan->mapped == NULL || plan->mapped_of == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to plan %" PRIu64 " regions",
                       body->regions.count);
    }
    for (uint64_t i = 0; i < body->regions.count; i++) {
        const struct sl_item_region *region = &body->regions.at[i];
        if (region->rank != rank) {
            continue;
        }
        sl_err err = region_check(region, i, body->pools.count, why);
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
    }
    return SL_OK;
}

/* The layers of one pool in their order; each number once, none missing. */
static sl_err pool_layers(const struct sl_body_engine_get_reply *body, uint64_t rank, uint64_t pool,
                          const struct sw_engine *engine, const struct plan *plan,
                          struct sl_layer *layers, uint32_t *layer_count, struct sl_error *why)
{
    uint32_t count = 0;
    SL_ASSERT(engine->mappings != NULL);
    for (uint64_t i = 0; i < body->regions.count; i++) {
        count += body->regions.at[i].rank == rank && body->regions.at[i].pool == pool;
    }
    for (uint64_t i = 0; i < body->regions.count; i++) {
        const struct sl_item_region *region = &body->regions.at[i];
        if (region->rank != rank || region->pool != pool) {
            continue;
        }
        if (region->layer >= count || layers[region->layer].base != NULL) {
            return sl_fail(why, SL_ERR_INVALID,
                           "region %" PRIu64 ": layer %" PRIu64
                           " is double, or one of %u is missing",
                           i, region->layer, count);
        }
        unsigned char *base = engine->mappings[plan->mapped_of[i]].base;
        layers[region->layer] = (struct sl_layer){.base = base + region->offset_bytes,
                                                  .block_stride_bytes = region->block_stride_bytes,
                                                  .piece_bytes = region->piece_bytes,
                                                  .block_count = region->block_count};
    }
    *layer_count = count;
    return SL_OK;
}

static sl_err pool_make(struct sl_device *device, const struct sl_body_engine_get_reply *body,
                        uint64_t rank, uint64_t pool, const struct plan *plan,
                        struct sw_engine *engine, struct sl_error *why)
{
    uint32_t layer_count = 0;
    struct sw_pool *out = &engine->pools[pool];
    struct sl_layer *layers = calloc(body->regions.count + 1, sizeof(*layers));
    if (layers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for layers");
    }
    sl_err err = pool_layers(body, rank, pool, engine, plan, layers, &layer_count, why);
    if (err == SL_OK && layer_count > 0) {
        out->layer_offsets = calloc(layer_count + 1u, sizeof(*out->layer_offsets));
        err = out->layer_offsets != NULL
                  ? device->ops->layers_add(device, layers, layer_count, &out->layers_index, why)
                  : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for layers");
    }
    if (err == SL_OK && layer_count > 0) {
        SL_ASSERT(out->layer_offsets != NULL);
        out->present = true;
        out->layer_count = layer_count;
        out->value_bytes = 0;
        out->block_count = UINT64_MAX;
        for (uint32_t i = 0; i < layer_count; i++) {
            out->value_bytes += layers[i].piece_bytes;
            out->layer_offsets[i + 1] = out->value_bytes;
            out->block_count = SL_MIN(out->block_count, layers[i].block_count);
        }
    }
    free(layers);
    return err;
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

sl_err sw_engine_map(struct sl_device *device, struct sl_metrics *metrics,
                     const struct sl_body_engine_get_reply *body, uint64_t rank,
                     struct sw_engine *engine, struct sl_error *why)
{
    struct plan plan = {0};
    sl_err err = epochs_note(body, rank, engine, why);
    if (err == SL_OK) {
        err = plan_make(body, rank, &plan, why);
    }
    if (err == SL_OK) {
        engine->mappings = calloc(plan.mapped_count + 1u, sizeof(*engine->mappings));
        if (engine->mappings == NULL) {
            err = sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u mappings", plan.mapped_count);
        }
    }
    for (uint32_t i = 0; err == SL_OK && i < plan.mapped_count; i++) {
        err = device->ops->map(device, &plan.mapped[i].handle, plan.mapped[i].length_bytes,
                               &engine->mappings[i], why);
        engine->mapping_count += err == SL_OK;
        if (plan.mapped[i].handle.kind != SL_MEMORY_SHARED_FD) {
            sl_metrics_beat_now(metrics); /* up to a millisecond a handle, thousands of them */
        }
    }
    for (uint64_t pool = 0; err == SL_OK && pool < body->pools.count && pool < SW_POOLS_MAX;
         pool++) {
        err = pool_make(device, body, rank, pool, &plan, engine, why);
    }
    if (err != SL_OK) {
        sw_engine_unmap(device, engine);
    }
    plan_free(&plan);
    return err;
}

void sw_engine_unmap(struct sl_device *device, struct sw_engine *engine)
{
    for (uint32_t i = 0; i < SW_POOLS_MAX; i++) {
        if (engine->pools[i].present) {
            device->ops->layers_remove(device, engine->pools[i].layers_index);
        }
        free(engine->pools[i].layer_offsets);
        engine->pools[i] = (struct sw_pool){0};
    }
    for (uint32_t i = 0; i < engine->mapping_count; i++) {
        device->ops->unmap(device, &engine->mappings[i]);
    }
    free(engine->mappings);
    engine->mappings = NULL;
    engine->mapping_count = 0;
    engine->epoch_count = 0;
}
