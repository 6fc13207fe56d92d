/* actors/transporter/regions/pools_view.c - queries of registered pools: metrics, and where memory
 * lies. */
#include "actors/transporter/regions/pools_internal.h"

#include <inttypes.h>

/* ---- metrics and engines ---- */

void tr_pools_metrics_define(struct tr_pools *pools, struct sl_metrics *page)
{
    pools->metric.engines = sl_metric_define(page, "pool_engines");
    pools->metric.memories = sl_metric_define(page, "pool_memories");
    pools->metric.bytes = sl_metric_define(page, "pool_bytes");
    pools->metric.device_bytes = sl_metric_define(page, "pool_device_bytes");
    static const char *const outs[OUT_COUNT] = {"pool_device_out_fabric_bytes",
                                                "pool_device_out_swapper_bytes",
                                                "pool_device_out_nic_bytes"};
    for (uint32_t k = 0; k < OUT_COUNT; k++) {
        pools->metric.out[k] = sl_metric_define(page, outs[k]);
    }
    pools->metric.refused = sl_metric_define(page, "pools_refused");
    pools->metric.regions = sl_metric_define(page, "regions_registered");
}

void tr_pools_show(struct transporter *self)
{
    struct sl_metrics *page = self->env->metrics;
    struct tr_pools *pools = self->pools;
    uint64_t engines = 0, memories = 0, bytes = 0, device_bytes = 0;
    uint64_t out_bytes[OUT_COUNT] = {0};
    struct sl_fabric_stats stats;
    for (uint32_t i = 0; i < pools->engine_max; i++) {
        const struct engine *engine = &pools->engines[i];
        engines += engine->state == ENGINE_READY ? 1 : 0;
        for (uint32_t k = 0; k < OUT_COUNT; k++) {
            out_bytes[k] += engine->out_bytes[k];
        }
        for (uint32_t s = 0; s < engine->added; s++) {
            bool there = engine->memories[s] != NO_MEMORY;
            memories += there ? 1 : 0;
            bytes += there ? engine->spans[s].length_bytes : 0;
            device_bytes += there && engine->buffers[engine->spans[s].buffer].device
                                ? engine->spans[s].length_bytes
                                : 0;
        }
    }
    sl_fabric_stats(self->fabric, &stats);
    sl_metric_set(page, pools->metric.engines, engines);
    sl_metric_set(page, pools->metric.memories, memories);
    sl_metric_set(page, pools->metric.bytes, bytes);
    sl_metric_set(page, pools->metric.device_bytes, device_bytes);
    sl_metric_set(page, pools->metric.regions, stats.regions);
    for (uint32_t k = 0; k < OUT_COUNT; k++) {
        sl_metric_set(page, pools->metric.out[k], out_bytes[k]);
    }
}

struct engine *tr_pools_find(struct tr_pools *pools, uint64_t id)
{
    for (uint32_t i = 0; i < pools->engine_max; i++) {
        if (pools->engines[i].state != ENGINE_FREE && pools->engines[i].id == id) {
            return &pools->engines[i];
        }
    }
    return NULL;
}

unsigned char *tr_pools_span_at(const struct engine *engine, uint32_t span)
{
    SL_ASSERT(!engine->buffers[engine->spans[span].buffer].device);
    unsigned char *base = engine->buffers[engine->spans[span].buffer].mapping.base;
    return base + engine->spans[span].offset_bytes;
}

/* ---- memory ---- */

sl_err tr_pools_view(struct transporter *self, uint64_t engine_id, struct tr_pool_view *out,
                     struct sl_error *why)
{
    struct engine *engine = self->pools == NULL ? NULL : tr_pools_find(self->pools, engine_id);
    if (self->pools == NULL || (engine != NULL && engine->state == ENGINE_REFUSED)) {
        if (engine != NULL && engine->silent) {
            engine->state = ENGINE_FREE; /* the next list has it again */
        }
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "pools of engine %" PRIu64 " are not registered with the fabric", engine_id);
    }
    if (engine == NULL || engine->state != ENGINE_READY) {
        return sl_fail(why, SL_ERR_NOT_FOUND,
                       "engine %" PRIu64 " is not registered yet, or is ending", engine_id);
    }
    *out = (struct tr_pool_view){
        .layout = &engine->layout, .memories = engine->memories, .engine = engine};
    return SL_OK;
}

unsigned char *tr_pools_at(const struct tr_pool_view *view, uint32_t span)
{
    const struct engine *engine = view->engine;
    SL_ASSERT(span < engine->span_count);
    return tr_pools_span_at(engine, span);
}
