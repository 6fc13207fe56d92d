/* actors/transporter/regions/pools.c - see pools.h: steps of registering and releasing pools. */
#include "actors/transporter/regions/pools_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIST_NS        SL_NS_PER_S /* interval of ENGINES requests */
#define BUSY_NS        (10 * SL_NS_PER_MS)
#define POPULATE_BYTES (32 * SL_MIB)        /* in one turn */
#define BUFFERS_MAX    2048u                /* of an engine: a tensor for each layer and rank */
#define STAGING_BYTES  (UINT64_C(64) << 10) /* the minimum; this device copies nothing */

/* ---- life of a registration ---- */

/* Whether another engine of the process watches it. */
static bool is_watched(const struct tr_pools *pools, const struct engine *engine)
{
    bool watched = false;
    for (uint32_t i = 0; i < pools->engine_max; i++) {
        const struct engine *other = &pools->engines[i];
        watched |= other != engine && other->watched && sl_proc_id_equal(other->proc, engine->proc);
    }
    return watched;
}

static void engine_unwatch(struct transporter *self, struct engine *engine)
{
    if (engine->watched && !is_watched(self->pools, engine)) {
        self->env->ops->unwatch(self->env, engine->proc);
    }
    engine->watched = false;
}

/* Frees the entry. Nothing of the engine is registered or mapped any more. */
static void engine_over(struct transporter *self, struct engine *engine)
{
    struct sl_msg reply = {.code = SL_OK};
    bool refused = engine->refused && !engine->over_asked;
    SL_ASSERT(engine->added == 0 && engine->mapped == 0 && !engine->adding);
    if (engine->call_seq != 0) {
        sl_calls_drop(self->calls, engine->call_seq);
    }
    engine_unwatch(self, engine);
    if (engine->over_asked) {
        sl_reply_route_send(self->env, &engine->over, &reply);
    }
    self->pools->span_count -= engine->span_count;
    free(engine->buffers);
    free(engine->spans);
    free(engine->memories);
    tr_layout_fini(&engine->layout);
    *engine = (struct engine){.state = refused ? ENGINE_REFUSED : ENGINE_FREE,
                              .silent = refused && engine->silent,
                              .id = engine->id};
    tr_pools_show(self);
}

static void engine_end(struct transporter *self, struct engine *engine)
{
    if (engine->state == ENGINE_READY) {
        self->events.engine_ends(self, engine->id);
    }
    engine->state = ENGINE_ENDING;
    self->env->ops->wake_at(self->env, 0);
}

/* Gives up: the engine stays unregistered, as if the setting were off. */
static void engine_refuse(struct transporter *self, struct engine *engine,
                          const struct sl_error *why)
{
    sl_log_write(self->env->log, SL_LOG_WARN, 0,
                 "pools of engine %" PRIu64 " are not registered with the fabric: %s", engine->id,
                 why->text);
    sl_metric_add(self->env->metrics, self->pools->metric.refused, 1);
    engine->refused = true;
    engine->silent = why->code == SL_ERR_TIMEOUT;
    engine_end(self, engine);
}

/* ---- planning ---- */

static bool is_device(const struct sl_item_region *region)
{
    return region->handle_kind == SL_MEMORY_CUDA_IPC || region->handle_kind == SL_MEMORY_CUDA_FD ||
           region->handle_kind == SL_MEMORY_CUDA_PARTS;
}

/* Device memory of several ranks is a buffer for each, because each has its swapper. */
static bool buffer_is(const struct buffer *buffer, const struct sl_memory_handle *handle,
                      uint64_t rank)
{
    return buffer->handle.kind == handle->kind && buffer->handle.pid == handle->pid &&
           buffer->handle.start_time == handle->start_time && buffer->handle.fd == handle->fd &&
           memcmp(buffer->handle.ipc, handle->ipc, sizeof(handle->ipc)) == 0 &&
           (!buffer->device || buffer->rank == rank);
}

/* Finds or adds the region's buffer. Gives its index; BUFFERS_MAX: too many. */
static uint32_t buffer_of(struct engine *engine, const struct sl_item_region *region)
{
    uint32_t at = 0;
    struct sl_memory_handle handle = {.kind = (enum sl_memory_kind)region->handle_kind,
                                      .pid = (uint32_t)region->pid,
                                      .start_time = region->start_time,
                                      .fd = region->fd > INT32_MAX ? -1 : (int32_t)region->fd};
    if (is_device(region) && region->handle.length > 0) {
        memcpy(handle.ipc, region->handle.at,
               SL_MIN(region->handle.length, (uint64_t)sizeof(handle.ipc)));
    }
    while (at < engine->buffer_count && !buffer_is(&engine->buffers[at], &handle, region->rank)) {
        at++;
    }
    if (at < BUFFERS_MAX) {
        struct buffer *buffer = &engine->buffers[at];
        buffer->handle = handle;
        buffer->device = is_device(region);
        buffer->rank = (uint32_t)region->rank;
        buffer->length_bytes =
            SL_MAX(buffer->length_bytes, region->offset_bytes + region->length_bytes);
        engine->buffer_count = SL_MAX(engine->buffer_count, at + 1);
    }
    return at;
}

/* Whether the fabric supports device memory. */
static bool devices_may(struct transporter *self, const struct engine *engine)
{
    struct sl_error why = {0};
    bool may = sl_fabric_dmabuf_check(self->fabric, &why) == SL_OK;
    if (!may) {
        sl_log_write(self->env->log, SL_LOG_INFO, 0,
                     "device memory of engine %" PRIu64 " is left out: %s", engine->id, why.text);
    }
    return may;
}

/* Makes the layout and sets the buffer of each layer that can be mapped or may be a dmabuf. */
static sl_err engine_layout(struct transporter *self, struct engine *engine,
                            const struct sl_body_engine_get_reply *body, struct sl_error *why)
{
    bool asked = false, devices = false;
    sl_err err = tr_layout_make(body, &engine->layout, why);
    for (uint32_t i = 0; err == SL_OK && i < engine->layout.layer_count; i++) {
        struct tr_layer *layer = &engine->layout.layers[i];
        const struct sl_item_region *region = &body->regions.at[layer->region];
        if (is_device(region) && !asked) {
            devices = devices_may(self, engine);
            asked = true;
        }
        layer->device = is_device(region) && devices;
        if (region->handle_kind == SL_MEMORY_SHARED_FD || layer->device) {
            layer->buffer = buffer_of(engine, region);
            if (layer->buffer == BUFFERS_MAX) {
                err = sl_fail(why, SL_ERR_LIMIT, "more than %u memory handles", BUFFERS_MAX);
            }
        } else {
            engine->other_bytes += region->length_bytes;
            engine->out_bytes[OUT_FABRIC] += is_device(region) ? region->length_bytes : 0;
        }
    }
    return err;
}

static sl_err engine_spans(struct engine *engine, uint32_t *count, struct sl_error *why)
{
    const struct tr_layout *layout = &engine->layout;
    engine->spans = calloc(layout->layer_count + 1u, sizeof(*engine->spans));
    if (engine->spans == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to plan %u regions", layout->layer_count);
    }
    *count = 0;
    for (uint32_t i = 0; i < layout->layer_count; i++) {
        const struct tr_layer *layer = &layout->layers[i];
        if (layer->buffer != TR_NO_SPAN) {
            engine->spans[(*count)++] =
                (struct tr_span){.buffer = layer->buffer,
                                 .offset_bytes = layer->offset_bytes,
                                 .length_bytes = layer->length_bytes,
                                 .stride_bytes = layer->block_stride_bytes,
                                 .block_bytes = tr_layer_block_bytes(layer)};
        }
    }
    return tr_spans_join(engine->spans, count, why);
}

static sl_err engine_plan(struct transporter *self, struct engine *engine,
                          const struct sl_body_engine_get_reply *body, struct sl_error *why)
{
    struct tr_pools *pools = self->pools;
    uint32_t count = 0;
    engine->buffers = calloc(BUFFERS_MAX, sizeof(*engine->buffers));
    if (engine->buffers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u buffers", BUFFERS_MAX);
    }
    sl_err err = engine_layout(self, engine, body, why);
    if (err == SL_OK) {
        err = engine_spans(engine, &count, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (count > TR_SPANS_MAX - pools->span_count) {
        return sl_fail(why, SL_ERR_LIMIT, "%u tensors, together with other engines more than %u",
                       count, TR_SPANS_MAX);
    }
    engine->memories = calloc(count + 1u, sizeof(*engine->memories));
    if (engine->memories == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u tensors", count);
    }
    tr_layout_spans(&engine->layout, engine->spans, count);
    engine->span_count = count;
    pools->span_count += count;
    return SL_OK;
}

void tr_pools_described(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    struct engine *engine = &self->pools->engines[index];
    struct sl_error why = {0};
    SL_ASSERT(index < self->pools->engine_max);
    engine->call_seq = 0;
    if (engine->state != ENGINE_ASKED) {
        return; /* it has ended meanwhile */
    }
    if (reply == NULL || reply->code != SL_OK) { /* it has ended, or the next list has it again */
        engine_over(self, engine);
        return;
    }
    const struct sl_body_engine_get_reply *body = &reply->body.engine_get_reply;
    engine->proc = (struct sl_proc_id){.pid = (uint32_t)body->pid, .start_time = body->start_time};
    engine->state = ENGINE_MAPPING;
    if (engine_plan(self, engine, body, &why) != SL_OK) {
        engine_refuse(self, engine, &why);
    }
    self->env->ops->wake_at(self->env, 0);
}

/* ---- steps ---- */

/* All buffers are mapped. The process is watched from now on: if it died meanwhile, this is
 * reported at once, so memory of a later process with its pid cannot stay mapped. */
static void engine_mapped(struct transporter *self, struct engine *engine)
{
    struct sl_error why = {0};
    sl_err err = is_watched(self->pools, engine)
                     ? SL_OK
                     : self->env->ops->watch(self->env, engine->proc, engine->id);
    engine->watched = err == SL_OK;
    engine->state = ENGINE_ADDING;
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "its process %u cannot be watched", engine->proc.pid);
        engine_refuse(self, engine, &why);
    }
}

static void buffer_close(struct transporter *self, struct buffer *buffer)
{
    struct tr_pools *pools = self->pools;
    if (buffer->device) {
        tr_dmabuf_close(&buffer->dmabuf);
    } else {
        pools->device->ops->unmap(pools->device, &buffer->mapping);
    }
}

/* Leaves a buffer out: its parts use the arena and the swapper. */
static void buffer_leave_out(struct transporter *self, struct engine *engine, uint32_t number,
                             enum out cause, const struct sl_error *why)
{
    uint64_t before = engine->other_bytes;
    buffer_close(self, &engine->buffers[number]);
    tr_layout_leave_out(&engine->layout, number);
    for (uint32_t i = 0; i < engine->layout.layer_count; i++) {
        const struct tr_layer *layer = &engine->layout.layers[i];
        engine->other_bytes += layer->buffer == number ? layer->length_bytes : 0;
    }
    engine->out_bytes[cause] += engine->other_bytes - before;
    tr_pools_show(self);
    sl_log_write(self->env->log, SL_LOG_WARN, 0,
                 "device memory of engine %" PRIu64 ", rank %u, is left out of the fabric: %s",
                 engine->id, engine->buffers[number].rank, why->text);
}

/* Asks for the next dmabuf. Gives when to call again. */
static uint64_t buffer_export(struct transporter *self, struct engine *engine)
{
    struct buffer *buffer = &engine->buffers[engine->mapped];
    struct sl_error why = {0};
    uint64_t next_ns = 0;
    if (buffer->dmabuf.state == TR_DMABUF_ASKED) {
        return SL_NEVER_NS;
    }
    if (buffer->dmabuf.state == TR_DMABUF_WANTED) {
        const struct tr_dmabuf_want want = {.engine_id = engine->id,
                                            .length_bytes = buffer->length_bytes,
                                            .rank = buffer->rank,
                                            .index = (uint32_t)(engine - self->pools->engines),
                                            .handle = &buffer->handle};
        next_ns = tr_dmabuf_ask(self, &buffer->dmabuf, &want, &engine->call_seq, &why);
    }
    if (buffer->dmabuf.state == TR_DMABUF_NONE) {
        buffer_leave_out(self, engine, engine->mapped, OUT_SWAPPER, &why);
        next_ns = 0;
        engine->mapped++;
    }
    return next_ns;
}

void tr_pools_exported(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    struct engine *engine = &self->pools->engines[index];
    struct sl_error why = {0};
    SL_ASSERT(index < self->pools->engine_max);
    engine->call_seq = 0;
    if (engine->state != ENGINE_MAPPING) {
        return; /* it has ended meanwhile */
    }
    struct tr_dmabuf *dmabuf = &engine->buffers[engine->mapped].dmabuf;
    tr_dmabuf_answered(self, dmabuf, reply, &why);
    if (dmabuf->state == TR_DMABUF_NONE) {
        buffer_leave_out(self, engine, engine->mapped, OUT_SWAPPER, &why);
    }
    engine->mapped += dmabuf->state == TR_DMABUF_WANTED ? 0 : 1;
    self->env->ops->wake_at(self->env, 0);
}

/* Maps the next buffer. Gives when to call again. */
static uint64_t engine_map(struct transporter *self, struct engine *engine)
{
    struct sl_error why = {0};
    if (engine->mapped == engine->buffer_count) {
        engine_mapped(self, engine);
        return 0;
    }
    struct buffer *buffer = &engine->buffers[engine->mapped];
    if (buffer->device) {
        return buffer_export(self, engine);
    }
    if (self->pools->device->ops->map(self->pools->device, &buffer->handle, buffer->length_bytes,
                                      &buffer->mapping, &why) == SL_OK) {
        engine->mapped++;
    } else {
        engine_refuse(self, engine, &why);
    }
    return 0;
}

/* Populates a slice of the span, because a NIC pins what it registers, and missing pages make that
 * slow. True: the span is populated. */
static bool span_populate(struct transporter *self, struct engine *engine)
{
#ifdef MADV_POPULATE_WRITE
    uint64_t length_bytes = engine->spans[engine->added].length_bytes;
    if (self->whole_arena && engine->populated_bytes < length_bytes) {
        uintptr_t at = (uintptr_t)tr_pools_span_at(engine, engine->added) + engine->populated_bytes;
        uint64_t step_bytes =
            SL_MIN(length_bytes - engine->populated_bytes, (uint64_t)POPULATE_BYTES);
        uintptr_t page = at / SL_PAGE_BYTES * SL_PAGE_BYTES;
        /* This changes no bytes. On kernels without it, the registration populates. */
        (void)madvise((void *)page, step_bytes + (at - page), MADV_POPULATE_WRITE);
        engine->populated_bytes += step_bytes;
        return false;
    }
#else
    (void)self;
    (void)engine;
#endif
    return true;
}

/* A span could not be registered: device memory is left out, other memory ends the engine. */
static void engine_not_added(struct transporter *self, struct engine *engine,
                             const struct sl_error *why)
{
    uint32_t number = engine->spans[engine->added].buffer;
    if (!engine->buffers[number].device) {
        engine_refuse(self, engine, why);
    } else if (engine->state == ENGINE_ADDING) {
        buffer_leave_out(self, engine, number, OUT_NIC, why);
        engine->memories[engine->added++] = NO_MEMORY;
    }
}

static void engine_add(struct transporter *self, struct engine *engine)
{
    struct sl_error why = {0};
    if (engine->added == engine->span_count) {
        engine->state = ENGINE_READY;
        tr_pools_show(self);
        sl_log_write(self->env->log, SL_LOG_INFO, 0,
                     "engine %" PRIu64 " of process %u: %u memories registered with the fabric, "
                     "%" PRIu64 " bytes are left out",
                     engine->id, engine->proc.pid, engine->span_count, engine->other_bytes);
        return;
    }
    const struct tr_span *span = &engine->spans[engine->added];
    const struct buffer *buffer = &engine->buffers[span->buffer];
    if (buffer->device && buffer->dmabuf.state == TR_DMABUF_NONE) {
        engine->memories[engine->added++] = NO_MEMORY;
        return;
    }
    if (engine->adding || (!buffer->device && !span_populate(self, engine))) {
        return;
    }
    struct sl_fabric_dmabuf dmabuf = buffer->dmabuf.memory;
    dmabuf.offset_bytes += span->offset_bytes;
    const struct sl_fabric_memory memory = {
        .at = buffer->device ? NULL : tr_pools_span_at(engine, engine->added),
        .dmabuf = buffer->device ? &dmabuf : NULL,
        .length_bytes = span->length_bytes,
        .stride_bytes = span->stride_bytes,
        .unread = !sl_config_bool(self->env->config, SL_SET_handover_pools_readable)};
    if (sl_fabric_memory_add(self->fabric, &memory, &engine->memories[engine->added], &why) ==
        SL_OK) {
        engine->adding = true;
    } else {
        engine_not_added(self, engine, &why);
    }
}

bool tr_pools_registered(struct transporter *self, uint32_t memory, const struct sl_error *why)
{
    for (uint32_t i = 0; self->pools != NULL && i < self->pools->engine_max; i++) {
        struct engine *engine = &self->pools->engines[i];
        if (!engine->adding || engine->memories[engine->added] != memory) {
            continue;
        }
        engine->adding = false;
        engine->populated_bytes = 0;
        if (why == NULL || why->code == SL_OK) {
            engine->added++;
        } else {
            engine_not_added(self, engine, why);
        }
        tr_pools_show(self);
        self->env->ops->wake_at(self->env, 0);
        return true;
    }
    return false;
}

/* Releases one region or buffer. False: a transfer or grant still uses it. */
static bool engine_release_step(struct transporter *self, struct engine *engine)
{
    bool gone = false;
    if (engine->adding) { /* cancel the registration */
        (void)sl_fabric_memory_remove_step(self->fabric, engine->memories[engine->added], &gone);
        engine->adding = !gone;
    } else if (engine->added > 0 && engine->memories[engine->added - 1] == NO_MEMORY) {
        engine->added--;
    } else if (engine->added > 0) {
        sl_err err =
            sl_fabric_memory_remove_step(self->fabric, engine->memories[engine->added - 1], &gone);
        engine->added -= gone ? 1 : 0;
        return err != SL_ERR_BUSY;
    } else if (engine->mapped > 0) {
        buffer_close(self, &engine->buffers[--engine->mapped]);
    }
    if (!engine->adding && engine->added == 0 && engine->mapped == 0) {
        engine_over(self, engine); /* in this turn, since ENGINE_OVER may wait */
    }
    return true;
}

/* Takes the engine's next step. Gives when to call again. */
static uint64_t engine_step(struct transporter *self, struct engine *engine, uint64_t now_ns)
{
    switch (engine->state) {
    case ENGINE_MAPPING:
        return engine_map(self, engine);
    case ENGINE_ADDING:
        engine_add(self, engine);
        return engine->adding ? SL_NEVER_NS : 0; /* the fabric reports the end */
    case ENGINE_ENDING:
        return engine_release_step(self, engine) ? 0 : now_ns + BUSY_NS;
    case ENGINE_FREE:
    case ENGINE_ASKED:
    case ENGINE_READY:
    case ENGINE_REFUSED:
        break;
    }
    return SL_NEVER_NS;
}

/* ---- the list of engines ---- */

static void list_ask(struct transporter *self, uint64_t now_ns)
{
    struct tr_pools *pools = self->pools;
    struct sl_msg msg = {.type = SL_MSG_ENGINES};
    pools->list_due_ns = sl_deadline_ns(now_ns, LIST_NS);
    if (pools->list_seq == 0 &&
        sl_calls_send(self->calls, "registrar", &msg, sl_deadline_ns(now_ns, TR_CALL_NS),
                      tr_cookie(TR_CALL_ENGINES, 0), &pools->list_seq) != SL_OK) {
        pools->list_seq = 0;
    }
}

/* Asks for a new engine. If a table is full, the next list has it again. */
static void engine_ask(struct transporter *self, uint64_t id)
{
    struct tr_pools *pools = self->pools;
    uint32_t at = 0;
    while (at < pools->engine_max && pools->engines[at].state != ENGINE_FREE) {
        at++;
    }
    if (at == pools->engine_max) {
        return;
    }
    struct sl_msg msg = {.type = SL_MSG_ENGINE_GET};
    msg.body.engine_get.engine_id = id;
    struct engine fresh = {.state = ENGINE_ASKED, .id = id, .listed = true};
    if (sl_calls_send(self->calls, "registrar", &msg, sl_deadline_ns(self->env->now_ns, TR_CALL_NS),
                      tr_cookie(TR_CALL_ENGINE, at), &fresh.call_seq) == SL_OK) {
        pools->engines[at] = fresh;
    }
}

void tr_pools_listed(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    (void)index;
    struct tr_pools *pools = self->pools;
    pools->list_seq = 0;
    if (reply == NULL || reply->code != SL_OK) {
        return;
    }
    const struct sl_u64s *ids = &reply->body.engines_reply.engine_ids;
    for (uint32_t i = 0; i < pools->engine_max; i++) {
        pools->engines[i].listed = false;
    }
    for (uint64_t i = 0; i < ids->count; i++) {
        struct engine *engine = tr_pools_find(pools, ids->at[i]);
        if (engine != NULL) {
            engine->listed = true;
        } else {
            engine_ask(self, ids->at[i]);
        }
    }
    for (uint32_t i = 0; i < pools->engine_max; i++) {
        struct engine *engine = &pools->engines[i];
        if (engine->state != ENGINE_FREE && !engine->listed) {
            engine->refused = false;
            engine_end(self, engine);
        }
    }
    tr_pools_show(self); /* the arena may have been registered */
}

void tr_pools_added(struct transporter *self, const struct sl_msg *msg)
{
    uint64_t id = msg->body.engine_added.engine_id;
    if (self->pools != NULL && tr_pools_find(self->pools, id) == NULL) {
        engine_ask(self, id);
    }
    sl_reply_code(self->env, msg, SL_OK, NULL);
}

void tr_pools_over(struct transporter *self, const struct sl_msg *msg)
{
    struct engine *engine =
        self->pools == NULL ? NULL : tr_pools_find(self->pools, msg->body.engine_over.engine_id);
    if (engine == NULL) {
        sl_reply_code(self->env, msg, SL_OK, NULL);
        return;
    }
    engine->over_asked = true; /* only the last repetition is answered */
    sl_reply_route_keep(msg, &engine->over);
    engine_end(self, engine);
}

void tr_pools_died(struct transporter *self, const struct sl_body_local_died *died)
{
    struct sl_proc_id proc = {.pid = (uint32_t)died->pid, .start_time = died->start_time};
    for (uint32_t i = 0; self->pools != NULL && i < self->pools->engine_max; i++) {
        struct engine *engine = &self->pools->engines[i];
        if (engine->watched && sl_proc_id_equal(engine->proc, proc)) {
            engine_end(self, engine);
        }
    }
}

uint64_t tr_pools_step(struct transporter *self, uint64_t now_ns)
{
    struct tr_pools *pools = self->pools;
    if (pools == NULL) {
        return SL_NEVER_NS;
    }
    if (now_ns >= pools->list_due_ns) {
        list_ask(self, now_ns);
    }
    uint64_t next_ns = pools->list_due_ns;
    for (uint32_t i = 0; i < pools->engine_max; i++) {
        next_ns = SL_MIN(next_ns, engine_step(self, &pools->engines[i], now_ns));
    }
    return next_ns;
}

/* ---- life ---- */

sl_err tr_pools_init(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    if (!sl_config_bool(env->config, SL_SET_fabric_pools)) {
        return SL_OK;
    }
    struct tr_pools *pools = calloc(1, sizeof(*pools));
    if (pools == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for engines' pools");
    }
    self->pools = pools;
    pools->engine_max = (uint32_t)sl_config_u64(env->config, SL_SET_engines_max);
    pools->engines = calloc(pools->engine_max, sizeof(*pools->engines));
    if (pools->engines == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u engines", pools->engine_max);
    }
    tr_pools_metrics_define(pools, env->metrics);
    const struct sl_device_options options = {.name = "host",
                                              .staging_bytes = STAGING_BYTES,
                                              .runtime_directory = env->paths->runtime_dir};
    return sl_device_open(&options, &pools->device, why);
}

void tr_pools_fini(struct transporter *self)
{
    struct tr_pools *pools = self->pools;
    if (pools == NULL) {
        return;
    }
    for (uint32_t i = 0; pools->engines != NULL && i < pools->engine_max; i++) {
        struct engine *engine = &pools->engines[i];
        for (uint32_t b = 0; b < engine->mapped; b++) {
            buffer_close(self, &engine->buffers[b]);
        }
        free(engine->buffers);
        free(engine->spans);
        free(engine->memories);
        tr_layout_fini(&engine->layout);
    }
    free(pools->engines);
    sl_device_close(&pools->device);
    free(pools);
    self->pools = NULL;
}
