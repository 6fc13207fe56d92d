/* actors/transporter/regions/regions.c - REGIONS: how arenas become memory regions. */
#include "actors/transporter/regions/regions.h"

#include <inttypes.h>
#include <stdlib.h>

#define CHUNKS_MAX 65536u /* of the message table */

sl_err tr_regions_init(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    self->metric.plans = sl_metric_define(env->metrics, "region_plans");
    self->metric.regions = sl_metric_define(env->metrics, "regions_planned");
    struct sl_mr_sources sources = {
        .setting_bytes = sl_config_u64(env->config, SL_SET_mr_bytes_max),
        .variable = getenv("MC_MAX_MR_SIZE"),
    };
    sl_err err = sl_mr_limit_of(&sources, &self->limit, why);
    if (err != SL_OK) {
        return err;
    }
    if (self->limit.clamped) {
        sl_log_write(env->log, SL_LOG_WARN, 0,
                     "MC_MAX_MR_SIZE '%.64s' is not within 1 GiB..6 GiB, %" PRIu64
                     " bytes are used",
                     sources.variable, self->limit.bytes);
    }
    err = tr_nic_choose(self, why);
    if (err == SL_OK) {
        sl_log_write(env->log, SL_LOG_INFO, 0,
                     "memory regions of at most %" PRIu64 " bytes, nic %s", self->limit.bytes,
                     self->nic[0] == '\0' ? "none" : self->nic);
    }
    return err;
}

void tr_regions_fini(struct transporter *self)
{
    free(self->chunks);
}

static sl_err chunk_add(struct transporter *self, uint64_t arena, const struct sl_mr_cut *cut,
                        struct sl_error *why)
{
    if (self->chunk_count == CHUNKS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u regions of at most %" PRIu64 " bytes",
                       CHUNKS_MAX, self->limit.bytes);
    }
    if (self->chunk_count == self->chunk_capacity) {
        uint32_t capacity = SL_MAX(64u, self->chunk_capacity * 2);
        struct sl_item_chunk *chunks = realloc(self->chunks, capacity * sizeof(*chunks));
        if (chunks == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u regions", capacity);
        }
        self->chunks = chunks;
        self->chunk_capacity = capacity;
    }
    self->chunks[self->chunk_count++] = (struct sl_item_chunk){
        .arena = arena, .offset_bytes = cut->offset_bytes, .length_bytes = cut->length_bytes};
    return SL_OK;
}

/* SL_ERR_NOT_FOUND: there is no such arena. */
static sl_err arena_plan(struct transporter *self, uint32_t id, struct sl_error *why)
{
    struct sl_arena *arena = NULL;
    sl_err err = sl_arena_attach(self->env->paths->shm_dir, id, false, &arena, why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t at = 0;
    struct sl_mr_cut cut;
    while (err == SL_OK &&
           sl_mr_next_of_arena(sl_arena_data_bytes(arena), sl_arena_chunk_bytes(arena),
                               self->limit.bytes, &at, &cut)) {
        err = chunk_add(self, id, &cut, why);
    }
    sl_arena_close(&arena);
    return err;
}

void tr_regions(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_env *env = self->env;
    struct sl_error why = {0};
    sl_err err = SL_OK;
    self->chunk_count = 0;
    for (uint32_t id = 0; err == SL_OK && id < TR_ARENAS_MAX; id++) {
        err = arena_plan(self, id, &why);
    }
    if (err != SL_OK && err != SL_ERR_NOT_FOUND) { /* the arenas are numbered without gaps */
        sl_log_write(env->log, SL_LOG_WARN, msg->trace_id, "regions not planned: %s", why.text);
        sl_reply_code(env, msg, err, &why);
        return;
    }
    sl_metric_add(env->metrics, self->metric.plans, 1);
    sl_metric_set(env->metrics, self->metric.regions, self->chunk_count);
    struct sl_msg reply = {.code = SL_OK};
    reply.body.regions_reply.region_bytes_max = self->limit.bytes;
    reply.body.regions_reply.chunks.at = self->chunks;
    reply.body.regions_reply.chunks.count = self->chunk_count;
    sl_reply(env, msg, &reply);
}
