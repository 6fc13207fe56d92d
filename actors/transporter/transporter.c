/* actors/transporter/transporter.c - answers REGIONS with the plan for the arenas that are there
 * now, and turns the fabric where one is configured. */
#include "actors/transporter/transporter.h"

#include "actors/transporter/directory_service.h"
#include "actors/transporter/fabric.h"
#include "actors/transporter/gpus.h"
#include "actors/transporter/plan.h"
#include "ipc/sl_arena.h"
#include "ipc/sl_msg.h"

#include <stdlib.h>
#include <string.h>

#define ARENAS_MAX 64u    /* one a rank at most */
#define CHUNKS_MAX 65536u /* of the message table */
#define GPU_FOLDER "/proc/driver/nvidia/gpus"

struct transporter {
    struct sl_env *env;
    struct sl_mr_limit limit;
    char nic[SL_NIC_NAME_BYTES];  /* "": none */
    struct sl_item_chunk *chunks; /* grown to what a plan needs, kept */
    uint32_t chunk_capacity;
    uint32_t chunk_count;
    struct sl_fabric *fabric; /* NULL: off */
    struct sl_directory_service *directory;
    bool drained;
    sl_metric plans, regions;
};

static sl_err transporter_nic(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    struct sl_gpu *gpus = calloc(SL_GPUS_MAX, sizeof(*gpus));
    if (gpus == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the list of GPUs");
    }
    struct sl_nic_sources sources = {
        .list = sl_config_text(env->config, SL_SET_nic),
        .rank = (uint32_t)sl_config_u64(env->config, SL_SET_rank),
        .visible_devices = getenv("CUDA_VISIBLE_DEVICES"),
        .gpus = gpus,
        .gpu_count = sl_gpus_list(GPU_FOLDER, gpus),
        .registered_index = -1,
    };
    sl_err err = sl_nic_choose(&sources, self->nic, why);
    free(gpus);
    return err;
}

/* ---- what carries bytes; off unless configured ---- */

static sl_err choose(const char *name, const char *text, const char *const *words, uint32_t *index,
                     struct sl_error *why)
{
    for (*index = 0; words[*index] != NULL; (*index)++) {
        if (strcmp(text, words[*index]) == 0) {
            return SL_OK;
        }
    }
    return sl_fail(why, SL_ERR_CONFIG, "%s: '%.32s' is none of %s, %s, %s", name, text, words[0],
                   words[1], words[2]);
}

static sl_err fabric_options(struct transporter *self, bool *wanted,
                             struct sl_fabric_options *options, struct sl_error *why)
{
    static const char *const kinds[] = {"off", "tcp", "verbs", NULL};
    static const char *const copies[] = {"off", "on", "measure", NULL};
    static const enum sl_fabric_zero_copy copy_values[] = {SL_FABRIC_COPY, SL_FABRIC_ZERO_COPY,
                                                           SL_FABRIC_MEASURE};
    const struct sl_config *config = self->env->config;
    uint32_t kind = 0, copy = 0;
    sl_err err = choose("fabric", sl_config_text(config, SL_SET_fabric), kinds, &kind, why);
    if (err == SL_OK) {
        err = choose("fabric_zero_copy", sl_config_text(config, SL_SET_fabric_zero_copy), copies,
                     &copy, why);
    }
    if (err != SL_OK) {
        return err;
    }
    SL_ASSERT(copy < SL_COUNT(copy_values));
    *wanted = kind != 0;
    sl_fabric_options_init(options, kind == 2 ? SL_FABRIC_VERBS : SL_FABRIC_TCP);
    options->address = sl_config_text(config, SL_SET_fabric_address);
    options->nic = self->nic;
    options->zero_copy = copy_values[copy];
    options->lanes = (uint32_t)sl_config_u64(config, SL_SET_fabric_lanes);
    options->depth = (uint32_t)sl_config_u64(config, SL_SET_fabric_depth);
    options->unit_bytes = sl_config_u64(config, SL_SET_fabric_unit);
    options->peers_max = (uint32_t)sl_config_u64(config, SL_SET_fabric_peers_max);
    options->connections_max = (uint32_t)sl_config_u64(config, SL_SET_fabric_connections_max);
    options->stall_ns = sl_config_u64(config, SL_SET_fabric_stall);
    options->spin_ns = sl_config_u64(config, SL_SET_fabric_spin);
    options->region_bytes_max = self->limit.bytes;
    return SL_OK;
}

static sl_err fabric_open(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    struct sl_fabric_options options;
    bool wanted = false;
    sl_err err = fabric_options(self, &wanted, &options, why);
    if (err != SL_OK || !wanted) {
        return err;
    }
    if (env->ops->watch_fd == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "fabric: no descriptors in this environment");
    }
    err = sl_fabric_open(&options, &self->fabric, why);
    if (err == SL_OK) {
        err = env->ops->watch_fd(env, sl_fabric_fd(self->fabric), why);
    }
    if (err == SL_OK) {
        sl_log_write(env->log, SL_LOG_INFO, 0, "fabric: %s", sl_fabric_about(self->fabric));
        env->ops->wake_at(env, 0);
    }
    return err;
}

static sl_err transporter_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct transporter *self = state;
    self->env = env;
    self->plans = sl_metric_define(env->metrics, "region_plans");
    self->regions = sl_metric_define(env->metrics, "regions_planned");
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
                     "MC_MAX_MR_SIZE '%.64s' is not within 1 GiB..6 GiB, %llu bytes are used",
                     sources.variable, (unsigned long long)self->limit.bytes);
    }
    err = transporter_nic(self, why);
    if (err == SL_OK) {
        sl_log_write(env->log, SL_LOG_INFO, 0, "memory regions of at most %llu bytes, nic %s",
                     (unsigned long long)self->limit.bytes,
                     self->nic[0] == '\0' ? "none" : self->nic);
        err = fabric_open(self, why);
    }
    if (err == SL_OK) {
        const struct sl_directory_wishes none = {0};
        err = sl_directory_service_open(env, &none, &self->directory, why);
    }
    return err;
}

static sl_err chunk_add(struct transporter *self, uint64_t arena, const struct sl_mr_cut *cut,
                        struct sl_error *why)
{
    if (self->chunk_count == CHUNKS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u regions of at most %llu bytes", CHUNKS_MAX,
                       (unsigned long long)self->limit.bytes);
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

static void transporter_regions(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_env *env = self->env;
    struct sl_error why = {0};
    sl_err err = SL_OK;
    self->chunk_count = 0;
    for (uint32_t id = 0; err == SL_OK && id < ARENAS_MAX; id++) {
        err = arena_plan(self, id, &why);
    }
    if (err != SL_OK && err != SL_ERR_NOT_FOUND) { /* the arenas are numbered without gaps */
        sl_log_write(env->log, SL_LOG_WARN, msg->trace_id, "regions not planned: %s", why.text);
        sl_reply_code(env, msg, err, &why);
        return;
    }
    sl_metric_add(env->metrics, self->plans, 1);
    sl_metric_set(env->metrics, self->regions, self->chunk_count);
    struct sl_msg reply = {.code = SL_OK};
    reply.body.regions_reply.region_bytes_max = self->limit.bytes;
    reply.body.regions_reply.chunks.at = self->chunks;
    reply.body.regions_reply.chunks.count = self->chunk_count;
    sl_reply(env, msg, &reply);
}

static sl_err transporter_handle(void *state, const struct sl_msg *msg)
{
    struct transporter *self = state;
    if (msg->type == SL_MSG_REGIONS) {
        transporter_regions(self, msg);
    } else if (!SL_MSG_IS_REPLY(msg->type) && msg->type < SL_MSG_LOCAL_IO) {
        sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
    }
    return SL_OK;
}

static sl_err transporter_tick(void *state, uint64_t now_ns)
{
    struct transporter *self = state;
    if (self->fabric != NULL) {
        sl_fabric_step(self->fabric, now_ns);
        self->env->ops->wake_at(self->env, sl_fabric_wake_at(self->fabric));
    }
    sl_directory_service_step(self->directory, now_ns);
    return SL_OK;
}

static void transporter_drain(void *state)
{
    struct transporter *self = state;
    self->drained = true;
    self->env->ops->finish(self->env);
}

static void transporter_fini(void *state)
{
    struct transporter *self = state;
    sl_directory_service_close(&self->directory, self->drained);
    if (self->fabric != NULL) {
        self->env->ops->unwatch_fd(self->env, sl_fabric_fd(self->fabric));
        sl_fabric_close(&self->fabric);
    }
    free(self->chunks);
}

const struct sl_actor sl_transporter_actor = {
    .role = "transporter",
    .ranked = true,
    .state_bytes = sizeof(struct transporter),
    .init = transporter_init,
    .handle = transporter_handle,
    .tick = transporter_tick,
    .drain = transporter_drain,
    .fini = transporter_fini,
};
