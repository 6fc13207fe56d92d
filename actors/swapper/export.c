/* actors/swapper/export.c - POOL_EXPORT: a transporter requests device memory of an engine for its
 * NIC. Only the swapper uses the device, so it makes the descriptor; exports.c hands it out. */
#include "actors/swapper/exports.h"
#include "actors/swapper/internal.h"

#include <string.h>

/* NULL: the engine has no such memory mapped. */
static const struct sl_mapping *mapping_of(const struct sw_engine *engine,
                                           const struct sl_body_pool_export *body)
{
    for (uint32_t i = 0; i < engine->mapping_count; i++) {
        const struct sl_memory_handle *handle = &engine->handles[i];
        uint64_t fd = handle->fd < 0 ? UINT32_MAX : (uint64_t)handle->fd;
        bool same_fd = fd == body->fd || (handle->fd < 0 && body->fd > INT32_MAX);
        if ((uint64_t)handle->kind == body->handle_kind && handle->pid == body->pid && same_fd &&
            body->handle.length <= sizeof(handle->ipc) &&
            memcmp(handle->ipc, body->handle.at, body->handle.length) == 0) {
            return &engine->mappings[i];
        }
    }
    return NULL;
}

static sl_err export_make(struct swapper *self, struct sw_engine *engine,
                          const struct sl_body_pool_export *body, struct sl_msg *reply,
                          struct sl_error *why)
{
    SL_ASSERT(engine != NULL); /* it is mapped */
    const struct sl_mapping *mapping = mapping_of(engine, body);
    struct sl_device_dmabuf dmabuf = {.fd = -1};
    struct sw_export made;
    if (mapping == NULL || mapping->length_bytes < body->length_bytes) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "engine %llu has no such memory on this rank",
                       (unsigned long long)body->engine_id);
    }
    sl_err err = sl_device_dmabuf(self->memory.device, mapping, &dmabuf, why);
    if (err == SL_OK) {
        err = sw_exports_add(&self->exports, self->env, &dmabuf, engine->engine_id, &made, why);
    }
    if (err != SL_OK) {
        return err;
    }
    engine->used_ns = self->env->now_ns;
    struct sl_body_pool_export_reply *out = &reply->body.pool_export_reply;
    out->pid = self->env->self.pid;
    out->number = made.number;
    out->name = made.name;
    out->life = made.life;
    out->length_bytes = dmabuf.length_bytes;
    out->offset_bytes = dmabuf.offset_bytes;
    return SL_OK;
}

sl_err sw_pool_export(struct swapper *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_export *body = &msg->body.pool_export;
    struct sl_error why = {0};
    struct sl_msg reply = {.code = SL_OK};
    struct sw_engine *engine = NULL;
    sl_err err = SL_OK;
    if (body->rank != self->rank) {
        err = sl_fail(&why, SL_ERR_INVALID, "rank %llu: this is the swapper of another rank",
                      (unsigned long long)body->rank);
    } else if (self->draining) {
        err = sl_fail(&why, SL_ERR_DRAINING, "the swapper exports no more memory");
    } else {
        err = sw_engine_ready(self, body->engine_id, msg->trace_id, &engine, &why);
    }
    if (err == SL_OK) {
        err = export_make(self, engine, body, &reply, &why);
    }
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
        return sl_err_class(err) == SL_CLASS_RESTART ? err : SL_OK;
    }
    sl_metric_add(self->env->metrics, self->metrics.exports, 1);
    sl_reply(self->env, msg, &reply);
    sw_exports_tick(self);
    return SL_OK;
}

void sw_exports_tick(struct swapper *self)
{
    uint64_t next_ns = sw_exports_end(self->exports, 0, self->env->now_ns);
    if (next_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, next_ns);
    }
}
