/* actors/registrar/registrar.c - the actor: start, dispatch, ticks, health and drain. It calls the
 * parts (base/part.h), which do the work. */
#include "actors/registrar/registrar.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/lock.h"
#include "actors/registrar/memory/whole.h"
#include "actors/registrar/parts.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/recover.h"
#include "ipc/msg/sl_cluster.h"
#include "ipc/shm/sl_counts.h"
#include "ipc/shm/sl_labels.h"
#include "ipc/shm/sl_shm_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 4096u /* fences to all processes, and requests to tierers */
#define DRAIN_NS  (4 * SL_NS_PER_S)

struct registrar_actor {
    struct registrar self;
    int lock_fd; /* + 1; 0: none */
    bool finished;
    uint64_t drain_until_ns;
};

/* ---- start ---- */

/* Reads what several parts use; each part reads its own settings. */
static void settings_read(struct registrar *self)
{
    const struct sl_config *config = self->env->config;
    struct reg_settings *set = &self->set;
    set->memory = sl_config_u64(config, SL_SET_memory);
    set->memory_chunk = sl_config_u64(config, SL_SET_memory_chunk);
    set->index_memory = sl_config_index_memory(config);
    set->index_keys = sl_config_u64(config, SL_SET_index_keys);
    set->reservation_ttl_ns = sl_config_u64(config, SL_SET_reservation_ttl);
    set->leases.object_ns = sl_config_u64(config, SL_SET_lease_ttl);
    set->leases.block_ns = sl_config_u64(config, SL_SET_block_lease);
    set->fence_timeout_ns = sl_config_u64(config, SL_SET_fence_timeout);
    set->message_bytes_max = sl_config_u64(config, SL_SET_message_bytes_max);
    set->reservations_max = (uint32_t)sl_config_u64(config, SL_SET_reservations_max);
    set->clients_max = (uint32_t)sl_config_u64(config, SL_SET_clients_max);
    set->ranks = (uint32_t)sl_config_u64(config, SL_SET_ranks);
    set->queue_messages = (uint32_t)sl_config_u64(config, SL_SET_queue_messages);
    set->disk = sl_config_u64(config, SL_SET_disk);
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        if (reg_parts[i]->settings != NULL) {
            reg_parts[i]->settings(self);
        }
    }
}

static void metrics_define(struct registrar *self)
{
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        const struct reg_part *part = reg_parts[i];
        char *state = NULL;
        memcpy(&state, (char *)self + part->state_at, sizeof(state));
        sl_metrics_define(self->env->metrics, part->metrics, part->metric_count, state);
    }
}

/* Opening a table of GiBs takes longer than an actor may be silent. */
static void index_heartbeat(void *context)
{
    struct registrar *self = context;
    sl_metrics_beat_now(self->env->metrics);
}

static sl_err memory_open(struct registrar *self, bool *kept, struct sl_error *why)
{
    bool arena_created = false, index_created = false;
    sl_err err = sl_shm_files_readable(self->env->paths->shm_dir, why);
    if (err != SL_OK) { /* checked before any change: another version may go on with the files */
        return err;
    }
    reg_memory_recreate_if_cut(self);
    struct sl_arena_options arena = {
        .directory = self->env->paths->shm_dir,
        .id = 0,
        .data_bytes = self->set.memory,
        .chunk_bytes = self->set.memory_chunk,
    };
    err = sl_arena_open_owner(&arena, &arena_created, &self->arena, why);
    if (err != SL_OK) {
        return err;
    }
    self->set.memory_chunk = sl_arena_chunk_bytes(self->arena);
    struct sl_alloc_options alloc = {.data_bytes = sl_arena_data_bytes(self->arena),
                                     .chunk_bytes = self->set.memory_chunk};
    err = sl_alloc_create(&alloc, &self->alloc, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_index_options index = {
        .shm_dir = self->env->paths->shm_dir,
        .index_bytes_max = self->set.index_memory,
        .key_count = self->set.index_keys,
        .derived = sl_config_index_is_derived(self->env->config),
        .arena = self->arena,
        .leases = self->set.leases,
        .goes_on = {.call = index_heartbeat, .context = self},
    };
    err = sl_counts_make(self->env->paths->shm_dir, why); /* before clients find an index */
    if (err != SL_OK) {
        return err;
    }
    struct sl_error labels = {0};
    if (sl_labels_make(self->env->paths->shm_dir, &labels) != SL_OK) { /* only statistics */
        reg_log(self, SL_LOG_WARN, 0, "nothing is counted by model and tenant: %s", labels.text);
    }
    err = sl_index_open(&index, &index_created, &self->index, why);
    *kept = !index_created;
    if (err == SL_OK) { /* readers see whether a miss here is worth asking other nodes */
        sl_index_set_remote(self->index, sl_cluster_reads(self->env->config));
        err = sl_index_leases_open(self->index, self->env->paths->shm_dir, self->set.leases, why);
    }
    if (err == SL_OK) {
        err = sl_settled_open(self->env->paths->shm_dir, &self->settled, why);
    }
    return err;
}

static sl_err parts_init(struct registrar *self, struct sl_error *why)
{
    self->codes = calloc(SL_BATCH_MAX, sizeof(*self->codes));
    if (self->codes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tables of the registrar");
    }
    sl_err err = sl_calls_create(self->env, CALLS_MAX, &self->calls, why);
    for (uint32_t i = 0; err == SL_OK && reg_parts[i] != NULL; i++) {
        err = reg_parts[i]->init != NULL ? reg_parts[i]->init(self, why) : SL_OK;
    }
    return err;
}

static void registrar_schedule(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    /* Parked requests may wait for the end of a lease, which only a tick sees. */
    bool rests = now_ns >= self->rest_from_ns && self->space.waiting_count == 0 && !self->draining;
    /* Heartbeats are due at the same instants, so one wake-up serves all of them. */
    uint64_t at_ns = rests ? sl_clock_next_ns(now_ns, REG_REST_TICK_NS) : now_ns + REG_TICK_NS;
    REG_EACH(self, REG_WALK_NEXT, part)
    {
        uint64_t next_ns = (*part)->next_ns(self);
        at_ns = SL_MIN(at_ns, next_ns);
    }
    self->env->ops->wake_at(self->env, SL_MAX(at_ns, now_ns));
}

static void registrar_gauges(struct registrar *self)
{
    REG_EACH(self, REG_WALK_GAUGES, part)
    {
        (*part)->gauges(self);
    }
}

static sl_err registrar_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct registrar_actor *actor = state;
    struct registrar *self = &actor->self;
    bool kept = false;
    int fd = -1;
    self->env = env;
    sl_err err = reg_parts_create(self, why);
    if (err != SL_OK) {
        return err;
    }
    settings_read(self);
    metrics_define(self);
    err = reg_lock_take(env->paths->runtime_dir, &fd, why);
    if (err != SL_OK) {
        return err;
    }
    actor->lock_fd = fd + 1;
    err = memory_open(self, &kept, why);
    err = err == SL_OK ? parts_init(self, why) : err;
    if (err == SL_OK && kept) {
        sl_index_set_now(self->index, env->now_ns);
        err = reg_recover(self, why);
    }
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        if (reg_parts[i]->started != NULL) {
            reg_parts[i]->started(self);
        }
    }
    reg_log(self, SL_LOG_INFO, 0, "%s %" PRIu64 " objects and blocks, %" PRIu64 " bytes of memory",
            kept ? "recovered" : "new node:", reg_unit_count(self),
            sl_arena_data_bytes(self->arena));
    registrar_gauges(self);
    reg_busy(self);
    registrar_schedule(self);
    return SL_OK;
}

/* Changes nothing in shared memory, so a stop leaves the same state as a kill. The environment has
 * already waited for the helper threads. */
static void registrar_fini(void *state)
{
    struct registrar_actor *actor = state;
    struct registrar *self = &actor->self;
    uint32_t count = 0;
    while (self->walks != NULL && reg_parts[count] != NULL) {
        count++;
    }
    while (count-- > 0) {
        if (reg_parts[count]->fini != NULL) {
            reg_parts[count]->fini(self);
        }
    }
    sl_calls_destroy(&self->calls);
    free(self->codes);
    self->codes = NULL;
    sl_settled_close(&self->settled);
    sl_index_close(&self->index);
    sl_alloc_destroy(&self->alloc);
    sl_arena_close(&self->arena);
    if (actor->lock_fd > 0) {
        close(actor->lock_fd - 1);
    }
    actor->lock_fd = 0;
    reg_parts_destroy(self);
}

/* ---- health ---- */

/* Fills in the first reported problem. Returns why the node is not ready yet, or NULL. */
static const char *parts_health(struct registrar *self, char *reason, size_t reason_bytes)
{
    const char *starting = NULL;
    bool reported = false;
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        const struct reg_part *part = reg_parts[i];
        reported = reported || (part->health != NULL && part->health(self, reason, reason_bytes));
        starting = starting == NULL && part->starting != NULL ? part->starting(self) : starting;
    }
    return starting;
}

static void registrar_health(struct registrar *self)
{
    char reason[sizeof(self->health_reason)] = "";
    const char *starting = parts_health(self, reason, sizeof(reason));
    enum sl_health health = reason[0] != '\0' ? SL_HEALTH_DEGRADED : SL_HEALTH_READY;
    if (starting != NULL && !self->draining) {
        sl_metrics_health(self->env->metrics, SL_HEALTH_STARTING, starting);
        return;
    }
    if (self->draining) {
        health = SL_HEALTH_DRAINING;
    } else if (strcmp(reason, self->health_reason) != 0) {
        memcpy(self->health_reason, reason, sizeof(reason));
        reg_log(self, reason[0] != '\0' ? SL_LOG_WARN : SL_LOG_INFO, 0, "%s",
                reason[0] != '\0' ? reason : "healthy again");
    }
    sl_metrics_health(self->env->metrics, health, reason);
}

/* ---- time ---- */

/* Lets the parts react to what just happened. */
static void registrar_after(struct registrar *self)
{
    REG_EACH(self, REG_WALK_AFTER, part)
    {
        (*part)->after(self);
    }
    registrar_schedule(self);
}

static void call_expired(struct registrar *self, uint64_t cookie)
{
    const struct reg_call *call = self->walks->calls[cookie >> 32];
    if (call->expired != NULL) {
        call->expired(self, (uint32_t)cookie);
    }
}

static void drain_check(struct registrar_actor *actor)
{
    struct registrar *self = &actor->self;
    bool pending = false;
    if (!self->draining || actor->finished) {
        return;
    }
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        pending = pending || (reg_parts[i]->drains != NULL && reg_parts[i]->drains(self));
    }
    if (!pending || self->env->now_ns >= actor->drain_until_ns) {
        actor->finished = true;
        self->env->ops->finish(self->env);
    }
}

static sl_err registrar_tick(void *state, uint64_t now_ns)
{
    struct registrar *self = state;
    struct sl_call call;
    sl_err err = reg_memory_check_sizes(self);
    if (err != SL_OK) {
        return err;
    }
    sl_index_set_now(self->index, now_ns);
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        call_expired(self, call.cookie);
    }
    REG_EACH(self, REG_WALK_TICK, part)
    {
        (*part)->tick(self);
    }
    registrar_after(self);
    registrar_gauges(self);
    registrar_health(self);
    drain_check(state);
    return SL_OK;
}

static void registrar_drain(void *state)
{
    struct registrar_actor *actor = state;
    struct registrar *self = &actor->self;
    if (self->draining) {
        return;
    }
    self->draining = true;
    /* Committed values are written to disk first, as far as time allows. */
    actor->drain_until_ns = self->env->now_ns + DRAIN_NS;
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        if (reg_parts[i]->drain != NULL) {
            reg_parts[i]->drain(self);
        }
    }
    registrar_health(self);
    drain_check(actor);
    if (!actor->finished) {
        self->env->ops->wake_at(self->env, self->env->now_ns);
    }
}

/* ---- messages ---- */

static void reply_arrived(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (sl_calls_match(self->calls, msg, &call)) { /* else late, duplicate or foreign */
        self->walks->calls[call.cookie >> 32]->reply(self, (uint32_t)call.cookie, msg);
    }
}

static void request_arrived(struct registrar *self, const struct sl_msg *msg)
{
    if (msg->type < REG_MSG_TYPES_MAX && self->walks->handlers[msg->type] != NULL) {
        self->walks->handlers[msg->type](self, msg);
    } else {
        sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
    }
}

static void job_ended(struct registrar *self, enum reg_job job, sl_err code)
{
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        if (reg_parts[i]->job_ended != NULL) {
            reg_parts[i]->job_ended(self, job, code);
        }
    }
}

static sl_err registrar_handle(void *state, const struct sl_msg *msg)
{
    struct registrar *self = state;
    sl_index_set_now(self->index, self->env->now_ns);
    if (msg->type != SL_MSG_HELLO) { /* a node at rest receives only heartbeats */
        reg_busy(self);
    }
    if (msg->type == SL_MSG_LOCAL_DIED) {
        struct sl_proc_id proc = {.pid = (uint32_t)msg->body.local_died.pid,
                                  .start_time = msg->body.local_died.start_time};
        reg_process_died(self, proc);
    } else if (msg->type == SL_MSG_LOCAL_JOB) {
        job_ended(self, (enum reg_job)msg->body.local_job.cookie, msg->code);
    } else if (SL_MSG_IS_REPLY(msg->type)) {
        reply_arrived(self, msg);
    } else if (!reg_peer_refused(self, msg)) {
        request_arrived(self, msg);
    }
    registrar_after(self);
    drain_check(state);
    return SL_OK;
}

const struct sl_actor sl_registrar_actor = {
    .role = "registrar",
    .ranked = false,
    .state_bytes = sizeof(struct registrar_actor),
    .init = registrar_init,
    .handle = registrar_handle,
    .tick = registrar_tick,
    .drain = registrar_drain,
    .fini = registrar_fini,
};
