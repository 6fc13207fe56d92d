/* actors/registrar/registrar.c - the actor: start, dispatch, ticks, health, drain. */
#include "actors/registrar/registrar.h"
#include "actors/registrar/internal.h"
#include "ipc/sl_cluster.h"
#include "ipc/sl_huge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define CALLS_MAX       4096u /* fences to every process, and what is in flight to the tierer */
#define INDEX_BYTES_MIN (64 * SL_MIB)
#define DRAIN_NS        (4 * SL_NS_PER_S)
#define LOG_TEXT_BYTES  240u

uint64_t reg_hash(const void *key, uint64_t length)
{
    return XXH3_64bits(key, length);
}

void reg_log(struct registrar *self, enum sl_log_level level, uint64_t trace_id, const char *format,
             ...)
{
    char text[LOG_TEXT_BYTES];
    va_list arguments;
    if (self->env->log == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    sl_log_write(self->env->log, level, trace_id, "%s", text);
}

void reg_reply_codes(struct registrar *self, const struct sl_return *to, uint64_t *codes,
                     uint64_t count)
{
    struct sl_msg reply = {.code = SL_OK};
    struct sl_u64s list = {.at = codes, .count = count};
    switch (to->type) {
    case SL_MSG_COMMIT:
        reply.body.commit_reply.codes = list;
        break;
    case SL_MSG_ABORT:
        reply.body.abort_reply.codes = list;
        break;
    case SL_MSG_REMOVE:
        reply.body.remove_reply.codes = list;
        break;
    case SL_MSG_PROMOTE:
        reply.body.promote_reply.codes = list;
        break;
    case SL_MSG_PREFETCH:
        reply.body.prefetch_reply.codes = list;
        break;
    case SL_MSG_DISK_FOUND:
        reply.body.disk_found_reply.codes = list;
        break;
    default:
        SL_ASSERT(false);
    }
    sl_return_reply(self->env, to, &reply);
}

/* ---- start ---- */

static void settings_read(struct registrar *self)
{
    const struct sl_config *config = self->env->config;
    struct reg_settings *set = &self->set;
    set->memory = sl_config_u64(config, SL_SET_memory);
    set->memory_chunk = sl_config_u64(config, SL_SET_memory_chunk);
    set->index_memory = sl_config_u64(config, SL_SET_index_memory);
    set->index_keys = sl_config_u64(config, SL_SET_index_keys);
    set->reservation_ttl_ns = sl_config_u64(config, SL_SET_reservation_ttl);
    set->lease_ttl_ns = sl_config_u64(config, SL_SET_lease_ttl);
    set->soft_pin_max_ns = sl_config_u64(config, SL_SET_soft_pin_max);
    set->fence_timeout_ns = sl_config_u64(config, SL_SET_fence_timeout);
    set->io_grace_ns = sl_config_u64(config, SL_SET_io_grace);
    set->heartbeat_ns = sl_config_u64(config, SL_SET_heartbeat);
    set->quarantine_bytes_max = sl_config_u64(config, SL_SET_quarantine_bytes_max);
    set->message_bytes_max = sl_config_u64(config, SL_SET_message_bytes_max);
    set->reservations_max = (uint32_t)sl_config_u64(config, SL_SET_reservations_max);
    set->clients_max = (uint32_t)sl_config_u64(config, SL_SET_clients_max);
    set->holds_max = (uint32_t)sl_config_u64(config, SL_SET_handovers_max);
    set->held_bytes_max = sl_config_u64(config, SL_SET_handover_bytes_max);
    if (set->held_bytes_max == 0) {
        set->held_bytes_max = set->memory / 2;
    }
    set->engines_max = (uint32_t)sl_config_u64(config, SL_SET_engines_max);
    set->pools_max = (uint32_t)sl_config_u64(config, SL_SET_pools_max);
    set->evict_batch = (uint32_t)sl_config_u64(config, SL_SET_evict_batch);
    set->evict_watermark_ppm = sl_config_u64(config, SL_SET_evict_watermark);
    set->evict_ratio_ppm = sl_config_u64(config, SL_SET_evict_ratio);
    set->put_preempt_ns = sl_config_u64(config, SL_SET_put_preempt);
    set->ranks = (uint32_t)sl_config_u64(config, SL_SET_ranks);
    set->populate_threads = (uint32_t)sl_config_u64(config, SL_SET_populate_threads);
    set->queue_messages = (uint32_t)sl_config_u64(config, SL_SET_queue_messages);
    set->disk = sl_config_u64(config, SL_SET_disk);
    set->disk_segment = sl_config_u64(config, SL_SET_disk_segment);
    set->disk_prefetch = sl_config_u64(config, SL_SET_disk_prefetch);
    if (set->index_memory == 0) {
        /* A ceiling, not a cost: records are sparse until used. Values of 4 KiB want a tenth of
         * their bytes. */
        uint64_t for_disk = SL_MIN(set->disk / 16, SL_MAX(set->memory, SL_GIB));
        set->index_memory = SL_MAX(set->memory / 8 + for_disk, INDEX_BYTES_MIN);
    }
    set->grants_ahead_max = (uint32_t)sl_config_u64(config, SL_SET_grants_ahead_max);
    set->grants_ahead_bytes_max = sl_config_u64(config, SL_SET_grants_ahead_bytes_max);
    if (set->grants_ahead_bytes_max == 0) {
        set->grants_ahead_bytes_max = reg_ahead_bytes_standard(set->memory);
    }
    if (set->quarantine_bytes_max == 0) {
        set->quarantine_bytes_max = set->memory / 4;
    }
    reg_disks_init(self);
}

static void metrics_define(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    struct reg_metrics *metric = &self->metric;
    const struct {
        sl_metric *at;
        const char *name;
    } names[] = {
        {&metric->huge_pages, "huge_pages"},
        {&metric->used_bytes, "used_bytes"},
        {&metric->usable_bytes, "usable_bytes"},
        {&metric->object_count, "object_count"},
        {&metric->held_count, "held_count"},
        {&metric->held_bytes, "held_bytes"},
        {&metric->hold_lapsed_count, "hold_lapsed_count"},
        {&metric->hard_pinned_count, "hard_pinned_count"},
        {&metric->soft_pinned_count, "soft_pinned_count"},
        {&metric->leased_count, "leased_count"},
        {&metric->evict_skipped_count, "evict_skipped_count"},
        {&metric->remove_leased_count, "remove_leased_count"},
        {&metric->block_count, "block_count"},
        {&metric->disk_object_count, "disk_object_count"},
        {&metric->disk_ready, "disk_ready"},
        {&metric->index_bytes, "index_bytes"},
        {&metric->segment_count, "disk_segment_count"},
        {&metric->reserve_count, "reserve_count"},
        {&metric->busy_count, "busy_count"},
        {&metric->refused_count, "refused_count"},
        {&metric->parked_count, "parked_count"},
        {&metric->ahead_count, "ahead_count"},
        {&metric->ahead_bytes, "ahead_bytes"},
        {&metric->commit_count, "commit_count"},
        {&metric->stale_count, "stale_count"},
        {&metric->abort_count, "abort_count"},
        {&metric->expired_count, "expired_count"},
        {&metric->claim_count, "claim_count"},
        {&metric->quarantined_bytes, "quarantined_bytes"},
        {&metric->retired_count, "retired_count"},
        {&metric->fence_count, "fence_count"},
        {&metric->killed_count, "killed_count"},
        {&metric->evicted_count, "evicted_count"},
        {&metric->evicted_bytes, "evicted_bytes"},
        {&metric->dropped_count, "dropped_count"},
        {&metric->ghost_count, "ghost_count"},
        {&metric->write_behind_pending_count, "write_behind_pending_count"},
        {&metric->written_count, "written_count"},
        {&metric->written_bytes, "written_bytes"},
        {&metric->write_failed_count, "write_failed_count"},
        {&metric->rewritten_count, "rewritten_count"},
        {&metric->kept_count, "rewritten_from_disk_count"},
        {&metric->prefetched_count, "prefetched_count"},
        {&metric->prefetched_bytes, "prefetched_bytes"},
        {&metric->prefetch_used_count, "prefetch_used_count"},
        {&metric->prefetch_refused_count, "prefetch_refused_count"},
        {&metric->promoted_count, "promoted_count"},
        {&metric->promoted_bytes, "promoted_bytes"},
        {&metric->promote_failed_count, "promote_failed_count"},
        {&metric->corrupt_count, "corrupt_count"},
        {&metric->forget_pending_count, "forget_pending_count"},
        {&metric->forget_skipped_count, "forget_skipped_count"},
        {&metric->peer_count, "peer_count"},
        {&metric->died_count, "died_count"},
        {&metric->engine_count, "engine_count"},
        {&metric->pool_count, "pool_count"},
        {&metric->pool_bytes, "pool_bytes"},
        {&metric->contribution_count, "contribution_count"},
        {&metric->contributed_bytes, "contributed_bytes"},
        {&metric->contributed_used_bytes, "contributed_used_bytes"},
        {&metric->replaced_count, "replaced_count"},
        {&metric->preempted_count, "preempted_count"},
        {&metric->evict_attempt_count, "evict_attempt_count"},
        {&metric->evict_success_count, "evict_success_count"},
    };
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        *names[i].at = sl_metric_define(page, names[i].name);
    }
}

static sl_err memory_open(struct registrar *self, bool *kept, struct sl_error *why)
{
    bool arena_created = false, index_created = false;
    struct sl_arena_options arena = {
        .directory = self->env->paths->shm_dir,
        .id = 0,
        .data_bytes = self->set.memory,
        .chunk_bytes = self->set.memory_chunk,
    };
    sl_err err = sl_arena_open_owner(&arena, &arena_created, &self->arena, why);
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
        .arena = self->arena,
        .lease_ttl_ns = self->set.lease_ttl_ns,
    };
    err = sl_index_open(&index, &index_created, &self->index, why);
    *kept = !index_created;
    if (err == SL_OK) { /* readers see by it whether a miss here is worth a question elsewhere */
        sl_index_set_remote(self->index, sl_cluster_reads(self->env->config));
        err = sl_index_leases_open(self->index, self->env->paths->shm_dir, self->set.lease_ttl_ns,
                                   why);
    }
    return err;
}

static sl_err tables_init(struct registrar *self, struct sl_error *why)
{
    struct reg_scratch *scratch = &self->scratch;
    scratch->items = calloc(SL_BATCH_MAX, sizeof(*scratch->items));
    scratch->groups = calloc(SL_BATCH_MAX, sizeof(*scratch->groups));
    scratch->grants = calloc(SL_BATCH_MAX, sizeof(*scratch->grants));
    scratch->seen = calloc(4 * SL_BATCH_MAX, sizeof(*scratch->seen));
    self->codes = calloc(SL_BATCH_MAX, sizeof(*self->codes));
    self->spills = calloc(REG_WRITE_ITEMS_MAX, sizeof(*self->spills));
    self->write_count = REG_WRITES_MAX * self->tier.path_count;
    self->writes = calloc(SL_MAX(self->write_count, 1u), sizeof(*self->writes));
    self->flushes = calloc(self->set.queue_messages, sizeof(*self->flushes));
    self->forget_heads = calloc(REG_FORGET_HEADS, sizeof(struct reg_forget *));
    self->forget_key_heads = calloc(REG_FORGET_HEADS, sizeof(struct reg_forget *));
    if (scratch->items == NULL || scratch->groups == NULL || scratch->grants == NULL ||
        scratch->seen == NULL || self->codes == NULL || self->spills == NULL ||
        self->writes == NULL || self->flushes == NULL || self->forget_heads == NULL ||
        self->forget_key_heads == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tables of the registrar");
    }
    sl_err err = reg_peers_init(self, why);
    err = err == SL_OK ? reg_claims_init(self, why) : err;
    err = err == SL_OK ? reg_promotes_init(self, why) : err;
    err = err == SL_OK ? reg_holds_init(self, why) : err;
    err = err == SL_OK ? reg_engines_init(self, why) : err;
    err = err == SL_OK ? reg_pools_init(self, why) : err;
    err = err == SL_OK ? reg_contributions_init(self, why) : err;
    err = err == SL_OK ? reg_ghosts_init(&self->ghosts,
                                         sl_config_u64(self->env->config, SL_SET_ghosts_max), why)
                       : err;
    err = err == SL_OK ? sl_calls_create(self->env, CALLS_MAX, &self->calls, why) : err;
    return err == SL_OK ? sl_codec_create(self->set.message_bytes_max, &self->codec, why) : err;
}

static void registrar_schedule(struct registrar *self);
static void registrar_gauges(struct registrar *self);

static sl_err registrar_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct registrar *self = state;
    bool kept = false;
    char huge[SL_HUGE_TEXT_BYTES];
    int fd = -1;
    self->env = env;
    settings_read(self);
    metrics_define(self);
    sl_err err = reg_lock_take(env->paths->runtime_dir, &fd, why);
    if (err != SL_OK) {
        return err;
    }
    self->lock_fd = fd + 1;
    err = memory_open(self, &kept, why);
    err = err == SL_OK ? tables_init(self, why) : err;
    if (err == SL_OK && kept) {
        sl_index_set_now(self->index, env->now_ns);
        err = reg_recover(self, why);
    }
    if (err != SL_OK) {
        return err;
    }
    self->huge_pages = sl_huge_pages(env->paths->shm_dir, huge);
    reg_populate_init(self);
    reg_populate_run(self);
    unsigned long long unit_count = reg_unit_count(self);
    reg_log(self, SL_LOG_INFO, 0, "%s %llu objects and blocks, %llu bytes of memory",
            kept ? "recovered" : "new node:", unit_count,
            (unsigned long long)sl_arena_data_bytes(self->arena));
    reg_log(self, SL_LOG_INFO, 0, "arena in %s pages: %s", self->huge_pages ? "huge" : "small",
            huge);
    registrar_gauges(self);
    registrar_schedule(self);
    return SL_OK;
}

/* Changes nothing in shared memory: what is killed instead leaves the same behind. The environment
 * has waited for the helper threads. */
static void registrar_fini(void *state)
{
    struct registrar *self = state;
    reg_populate_stop(self);
    reg_parked_fini(self);
    reg_removes_fini(self);
    reg_promotes_fini(self);
    reg_writes_fini(self);
    if (self->forget_heads != NULL && self->forget_key_heads != NULL) {
        reg_forgets_fini(self);
    }
    reg_segments_fini(self);
    reg_engines_fini(self);
    reg_pools_fini(self);
    reg_contributions_fini(self);
    reg_ghosts_fini(&self->ghosts);
    reg_peers_fini(self);
    reg_claims_fini(self);
    reg_holds_fini(self);
    reg_leases_fini(self);
    reg_bundles_fini(self);
    sl_calls_destroy(&self->calls);
    sl_codec_destroy(&self->codec);
    free(self->retired);
    free(self->victim_table);
    free(self->victim_pinned);
    free(self->transients.heap);
    free(self->scratch.items);
    free(self->scratch.groups);
    free(self->scratch.grants);
    free(self->scratch.seen);
    free(self->codes);
    sl_index_close(&self->index);
    sl_alloc_destroy(&self->alloc);
    sl_arena_close(&self->arena);
    if (self->lock_fd > 0) {
        close(self->lock_fd - 1);
    }
    self->lock_fd = 0;
}

/* ---- state that people see ---- */

static void registrar_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    const struct reg_metrics *metric = &self->metric;
    struct sl_alloc_stats alloc;
    struct sl_index_stats index;
    sl_alloc_stats(self->alloc, &alloc);
    sl_index_view_stats(sl_index_as_view(self->index), &index);
    sl_metric_set(page, metric->huge_pages, self->huge_pages ? 1 : 0);
    sl_metric_set(page, metric->used_bytes, alloc.used_bytes);
    sl_metric_set(page, metric->usable_bytes, alloc.usable_bytes);
    sl_metric_set(page, metric->object_count, index.key_count);
    sl_metric_set(page, metric->block_count, index.group_count);
    sl_metric_set(page, metric->index_bytes, index.mapped_bytes);
    sl_metric_set(page, metric->disk_object_count, self->tier.place_count);
    sl_metric_set(page, metric->disk_ready, reg_disks_ready(self));
    sl_metric_set(page, metric->segment_count, self->tier.segment_count);
    sl_metric_set(page, metric->parked_count, self->parked_count);
    sl_metric_set(page, metric->claim_count, self->claim_count);
    sl_metric_set(page, metric->ahead_bytes, self->ahead_bytes);
    sl_metric_set(page, metric->quarantined_bytes, self->quarantined_bytes);
    sl_metric_set(page, metric->retired_count, self->retired_count);
    sl_metric_set(page, metric->write_behind_pending_count, reg_writes_pending(self));
    sl_metric_set(page, metric->forget_pending_count, self->forget_count);
    sl_metric_set(page, metric->hard_pinned_count, self->pinned.count);
    sl_metric_set(page, metric->soft_pinned_count, self->soft.count);
    sl_metric_set(page, metric->leased_count, self->leased.count);
    sl_metric_set(page, metric->held_count, self->holds.held_count);
    sl_metric_set(page, metric->held_bytes, self->holds.bytes);
    sl_metric_set(page, metric->peer_count, self->peer_count);
    sl_metric_set(page, metric->engine_count, self->engine_count);
    reg_pools_gauges(self);
    reg_contributions_gauges(self);
}

static void registrar_health(struct registrar *self)
{
    char reason[sizeof(self->health_reason)] = "";
    if (!reg_populate_lacks(self, reason, sizeof(reason))) {
        reg_disks_health(self, reason, sizeof(reason));
    }
    enum sl_health health = reason[0] != '\0' ? SL_HEALTH_DEGRADED : SL_HEALTH_READY;
    /* What is on disk alone is a miss until the tierer has told of it. */
    bool scanning = self->env->now_ns < self->tier.scan_until_ns && !reg_tier_lost(self);
    if (scanning && !self->draining) {
        sl_metrics_health(self->env->metrics, SL_HEALTH_STARTING,
                          "what is on disk is not known yet");
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

static void registrar_schedule(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    uint64_t at_ns = now_ns + REG_TICK_NS;
    at_ns = SL_MIN(at_ns, reg_timers_next(&self->timers));
    at_ns = SL_MIN(at_ns, reg_transients_next(self));
    at_ns = SL_MIN(at_ns, reg_holds_next(self));
    at_ns = SL_MIN(at_ns, reg_pool_waiters_next(self));
    at_ns = SL_MIN(at_ns, reg_parked_next(self));
    at_ns = SL_MIN(at_ns, reg_promotes_next(self));
    at_ns = SL_MIN(at_ns, reg_flushes_next(self));
    at_ns = SL_MIN(at_ns, reg_removes_next(self));
    at_ns = SL_MIN(at_ns, reg_disks_next(self));
    at_ns = SL_MIN(at_ns, reg_reclaims_next(self));
    at_ns = SL_MIN(at_ns, reg_contributions_next(self));
    at_ns = SL_MIN(at_ns, reg_populate_next(self));
    at_ns = self->lowering ? now_ns : at_ns;
    if (self->retired_count > 0) {
        at_ns = SL_MIN(at_ns, self->retired_scan_ns + REG_RETIRED_SCAN_NS);
    }
    if (self->fetch_blocked_ns != 0 && !reg_populate_pending(self)) {
        at_ns = SL_MIN(at_ns, self->fetch_blocked_ns + REG_PROMOTE_WAIT_NS);
    }
    if (self->fences_due) {
        at_ns = SL_MIN(at_ns, now_ns + SL_NS_PER_MS);
    }
    self->env->ops->wake_at(self->env, SL_MAX(at_ns, now_ns));
}

/* What follows from whatever just happened. */
static void registrar_after(struct registrar *self)
{
    bool parked = self->parked_count > 0;
    reg_populate_run(self);
    reg_contributions_answer(self);
    reg_fences_send(self);
    reg_charges_walk(self);
    reg_watermark_run(self);
    reg_promotes_pump(self);
    reg_reclaims_run(self);
    reg_parked_retry(self);
    if (parked && self->parked_count == 0) { /* what is read ahead of use waited for them */
        reg_promotes_pump(self);
    }
    reg_members_pump(self);
    reg_writes_pump(self);
    reg_removes_run(self, self->env->now_ns);
    reg_forgets_pump(self);
    reg_flushes_check(self, self->env->now_ns);
    registrar_schedule(self);
}

static void call_expired(struct registrar *self, uint64_t cookie)
{
    uint32_t index = (uint32_t)cookie;
    switch ((enum reg_call_kind)(cookie >> 32)) {
    case REG_CALL_FENCE:
        reg_fence_expired(self, index);
        break;
    case REG_CALL_WRITE:
        reg_write_expired(self, index);
        break;
    case REG_CALL_READ:
        reg_read_expired(self, index);
        break;
    case REG_CALL_FORGET:
        reg_forget_expired(self, index);
        break;
    case REG_CALL_DISK_FENCE: /* it has no deadline but the tierer's death */
        break;
    case REG_CALL_MEMBERS:
        reg_members_reply(self, index, SL_ERR_TIMEOUT);
        break;
    case REG_CALL_POOL:
        reg_pool_call_expired(self, index);
        break;
    }
}

static void drain_check(struct registrar *self)
{
    bool pending = reg_disks_writable(self) && reg_writes_pending(self) > 0;
    if (self->draining && !self->finished &&
        (!pending || self->env->now_ns >= self->drain_until_ns)) {
        self->finished = true;
        self->env->ops->finish(self->env);
    }
}

static sl_err registrar_tick(void *state, uint64_t now_ns)
{
    struct registrar *self = state;
    struct sl_call call;
    sl_index_set_now(self->index, now_ns);
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        call_expired(self, call.cookie);
    }
    reg_populate_tick(self);
    reg_peers_drain(self);
    reg_timers_expire(self, now_ns);
    reg_ahead_settle(self);
    reg_holds_expire(self, now_ns);
    reg_pool_waiters_expire(self, now_ns);
    reg_contributions_expire(self, now_ns);
    reg_pools_tick(self);
    reg_transients_expire(self, now_ns);
    reg_dues_run(self);
    reg_parked_expire(self, now_ns);
    reg_promotes_expire(self, now_ns);
    if (self->retired_count > 0 && now_ns >= self->retired_scan_ns + REG_RETIRED_SCAN_NS) {
        reg_retired_scan(self, 0);
        self->retired_scan_ns = now_ns;
    }
    reg_disk_sweep(self);
    registrar_after(self);
    registrar_gauges(self);
    registrar_health(self);
    drain_check(self);
    return SL_OK;
}

static void registrar_drain(void *state)
{
    struct registrar *self = state;
    if (self->draining) {
        return;
    }
    self->draining = true;
    reg_populate_stop(self);
    /* What is committed goes to disk first, as far as that is quick. */
    self->drain_until_ns = self->env->now_ns + DRAIN_NS;
    reg_parked_refuse(self, SL_ERR_DRAINING);
    registrar_health(self);
    drain_check(self);
    if (!self->finished) {
        self->env->ops->wake_at(self->env, self->env->now_ns);
    }
}

/* ---- messages ---- */

static void registrar_reply_arrived(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (!sl_calls_match(self->calls, msg, &call)) {
        return; /* late, duplicate or foreign */
    }
    uint32_t index = (uint32_t)call.cookie;
    switch ((enum reg_call_kind)(call.cookie >> 32)) {
    case REG_CALL_FENCE:
        reg_fence_reply(self, index, msg->code);
        break;
    case REG_CALL_WRITE:
        reg_write_reply(self, index, msg);
        break;
    case REG_CALL_READ:
        reg_read_reply(self, index, msg);
        break;
    case REG_CALL_FORGET:
        reg_forget_reply(self, index, msg);
        break;
    case REG_CALL_DISK_FENCE:
        reg_disk_fenced(self, index, msg->code);
        break;
    case REG_CALL_MEMBERS:
        reg_members_reply(self, index, msg->code);
        break;
    case REG_CALL_POOL:
        reg_pool_reply(self, index, msg);
        break;
    }
}

static void registrar_request(struct registrar *self, const struct sl_msg *msg)
{
    switch (msg->type) {
    case SL_MSG_HELLO:
        reg_peer_hello(self, msg);
        break;
    case SL_MSG_RESERVE:
        reg_reserve(self, msg);
        break;
    case SL_MSG_COMMIT:
        reg_commit(self, msg);
        break;
    case SL_MSG_PUBLISH:
        reg_publish(self, msg);
        break;
    case SL_MSG_ABORT:
        reg_abort(self, msg);
        break;
    case SL_MSG_HOLD_END:
        reg_hold_end(self, msg);
        break;
    case SL_MSG_REMOVE:
        reg_remove(self, msg);
        break;
    case SL_MSG_PROMOTE:
    case SL_MSG_PREFETCH:
        reg_promote(self, msg);
        break;
    case SL_MSG_LOOKUP:
        reg_lookup(self, msg);
        break;
    case SL_MSG_EXPLAIN:
        reg_explain(self, msg);
        break;
    case SL_MSG_FLUSH:
        reg_flush(self, msg);
        break;
    case SL_MSG_ENGINE_REGISTER:
        reg_engine_register(self, msg);
        break;
    case SL_MSG_ENGINE_GET:
        reg_engine_get(self, msg);
        break;
    case SL_MSG_ENGINE_END:
        reg_engine_end(self, msg);
        break;
    case SL_MSG_POOL_TAKE:
        reg_pool_take(self, msg);
        break;
    case SL_MSG_POOL_AWAIT:
        reg_pool_await(self, msg);
        break;
    case SL_MSG_POOL_READY:
        reg_pool_ready(self, msg);
        break;
    case SL_MSG_POOL_MAPPED:
        reg_pool_mapped(self, msg);
        break;
    case SL_MSG_POOL_RELEASE:
        reg_pool_release(self, msg);
        break;
    case SL_MSG_POOL_REVOKE:
        reg_pool_revoke_asked(self, msg);
        break;
    case SL_MSG_POOLS:
        reg_pools_list(self, msg);
        break;
    case SL_MSG_CONTRIBUTE:
        reg_contribute(self, msg);
        break;
    case SL_MSG_WITHDRAW:
        reg_withdraw(self, msg);
        break;
    case SL_MSG_CONTRIBUTIONS:
        reg_contributions_list(self, msg);
        break;
    case SL_MSG_DISK_FOUND:
        reg_disk_found(self, msg);
        break;
    case SL_MSG_DISK_RECLAIM:
        reg_disk_reclaim(self, msg);
        break;
    default:
        sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
        break;
    }
}

static sl_err registrar_handle(void *state, const struct sl_msg *msg)
{
    struct registrar *self = state;
    sl_index_set_now(self->index, self->env->now_ns);
    if (msg->type == SL_MSG_LOCAL_DIED) {
        struct sl_proc_id proc = {.pid = (uint32_t)msg->body.local_died.pid,
                                  .start_time = msg->body.local_died.start_time};
        reg_process_died(self, proc);
    } else if (msg->type == SL_MSG_LOCAL_JOB) {
        reg_populate_ended(self, msg->code);
    } else if (SL_MSG_IS_REPLY(msg->type)) {
        registrar_reply_arrived(self, msg);
    } else {
        registrar_request(self, msg);
    }
    registrar_after(self);
    drain_check(self);
    return SL_OK;
}

const struct sl_actor sl_registrar_actor = {
    .role = "registrar",
    .ranked = false,
    .state_bytes = sizeof(struct registrar),
    .init = registrar_init,
    .handle = registrar_handle,
    .tick = registrar_tick,
    .drain = registrar_drain,
    .fini = registrar_fini,
};
