/* actors/tierer/tierer.c - the actor contract of the tierer: messages, replies, time. */
#include "actors/tierer/tierer.h"

#include "actors/tierer/internal.h"
#include "runtime/disk/sl_disk_place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(tierer, metrics.bytes_written, "bytes_written"),
    SL_METRIC_ROW(tierer, metrics.bytes_read, "bytes_read"),
    SL_METRIC_ROW(tierer, metrics.values_written, "values_written"),
    SL_METRIC_ROW(tierer, metrics.values_read, "values_read"),
    SL_METRIC_ROW(tierer, metrics.corrupt, "corrupt_count"),
    SL_METRIC_ROW(tierer, metrics.io_errors, "io_error_count"),
    SL_METRIC_ROW(tierer, metrics.segments, "segments"),
    SL_METRIC_ROW(tierer, metrics.used_bytes, "disk_used_bytes"),
    SL_METRIC_ROW(tierer, metrics.ceiling, "disk_ceiling_bytes"),
    SL_METRIC_ROW(tierer, metrics.live_values, "live_values"),
    SL_METRIC_ROW(tierer, metrics.live_bytes, "live_bytes"),
    SL_METRIC_ROW(tierer, metrics.reclaimed_segments, "reclaimed_segments"),
    SL_METRIC_ROW(tierer, metrics.tombstones, "tombstones_written"),
    SL_METRIC_ROW(tierer, metrics.syncs, "syncs"),
    SL_METRIC_ROW(tierer, metrics.sealed_segments, "sealed_segments"),
    SL_METRIC_ROW(tierer, metrics.in_flight, "requests_in_flight"),
    SL_METRIC_ROW(tierer, metrics.buffers_bytes, "registered_bytes"),
    SL_METRIC_ROW(tierer, metrics.unreadable, "unreadable_places"),
    SL_METRIC_ROW(tierer, metrics.emptied_segments, "emptied_segments"),
    SL_METRIC_ROW(tierer, metrics.given_up_segments, "given_up_segments"),
    SL_METRIC_ROW(tierer, metrics.budget, "write_budget_bytes"),
    SL_METRIC_ROW(tierer, metrics.budget_left, "write_budget_left_bytes"),
    SL_METRIC_ROW(tierer, metrics.written_today, "written_today_bytes"),
    SL_METRIC_ROW(tierer, metrics.written_all, "written_all_bytes"),
    SL_METRIC_ROW(tierer, metrics.read_busy, "read_busy_ns"),
    SL_METRIC_ROW(tierer, metrics.read_queue, "read_queue_bytes"),
    SL_HISTOGRAM_ROW(tierer, metrics.sync_ns, "sync_ns"),
    SL_METRIC_ROW(tierer, metrics.queue, "queued_requests"),
    SL_HISTOGRAM_ROW(tierer, metrics.write_ns, "write_ns"),
    SL_HISTOGRAM_ROW(tierer, metrics.read_ns, "read_ns"),
};

static sl_err tierer_sizes(struct tierer *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    uint32_t disk_count = sl_config_disk_count(config);
    struct sl_disk_sizes sizes;
    if (sl_config_u64(config, SL_SET_disk) == 0) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "disk is 0: there is no disk tier on this node, so no tierer");
    }
    if (sl_config_u64(config, SL_SET_rank) >= disk_count) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "rank %" PRIu64 ": disk_path names %u directories, from 0 on",
                       sl_config_u64(config, SL_SET_rank), disk_count);
    }
    sl_err err = sl_disk_sizes(config, &sizes, why);
    if (err != SL_OK) {
        return err;
    }
    if (sizes.adapted) {
        sl_log_write(self->env->log, SL_LOG_INFO, 0,
                     "log files have %" PRIu64
                     " bytes, not disk_segment: 4 to %u of them must fill "
                     "the disk's share",
                     sizes.segment_bytes, SL_DISK_SEGMENTS_MAX);
    }
    self->disk_bytes_max = sizes.share_bytes;
    self->room.bytes_max = sizes.share_bytes;
    sl_metric_set(self->env->metrics, self->metrics.ceiling, sizes.share_bytes);
    self->budget.day_max_bytes = sl_config_u64(config, SL_SET_disk_write_budget);
    self->segment_bytes = sizes.segment_bytes;
    ti_staging_init(&self->staging, sl_config_u64(config, SL_SET_disk_staging),
                    sl_config_u64(config, SL_SET_disk_staging_usable));
    return SL_OK;
}

static sl_err tierer_memory(struct tierer *self, struct sl_error *why)
{
    struct rlimit descriptors = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &descriptors);
    self->segments_max = (uint32_t)SL_MIN((rlim_t)TI_SEGMENTS_MAX, descriptors.rlim_cur / 4 * 3);
    self->segments = calloc(TI_SEGMENTS_MAX, sizeof(*self->segments));
    self->ios = calloc(TI_IOS_MAX, sizeof(*self->ios));
    self->bounce = aligned_alloc(SL_PAGE_BYTES, (size_t)TI_BOUNCE_PAGES * SL_PAGE_BYTES);
    self->frame_buffer = aligned_alloc(SL_PAGE_BYTES, TI_FRAME_HEADER_BYTES_MAX);
    self->search_buffer = aligned_alloc(SL_PAGE_BYTES, TI_SEARCH_BYTES);
    self->scan_items = calloc(TI_FOUND_ITEMS_MAX, sizeof(*self->scan_items));
    self->probe.page = aligned_alloc(SL_PAGE_BYTES, SL_PAGE_BYTES);
    if (self->segments == NULL || self->ios == NULL || self->bounce == NULL ||
        self->frame_buffer == NULL || self->search_buffer == NULL || self->scan_items == NULL ||
        self->probe.page == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tierer's tables");
    }
    for (uint32_t i = 0; i < TI_IOS_MAX; i++) {
        self->ios[i].next = i + 1 < TI_IOS_MAX ? &self->ios[i + 1] : NULL;
    }
    self->io_free = &self->ios[0];
    memset(self->bounce_free, 0xff, sizeof(self->bounce_free));
    self->bounce_free_count = TI_BOUNCE_PAGES;
    /* Bounded by the log files, not by the setting, which may be lower than at an earlier start. */
    return ti_entries_create(self->env->ops->random_u64(self->env), UINT64_C(1) << 31,
                             &self->entries, why);
}

static sl_err tierer_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct tierer *self = state;
    self->env = env;
    self->members.file = self->other.file = -1;
    self->scan_pause_ns = TI_SCAN_RETRY_NS;
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self);
    sl_err err = tierer_sizes(self, why);
    if (err == SL_OK) {
        err = tierer_memory(self, why);
    }
    if (err == SL_OK) {
        err = sl_calls_create(env, 64, &self->calls, why);
    }
    if (err == SL_OK) {
        err = env->ops->disk_open(
            env, env->paths->disk_paths[sl_config_u64(env->config, SL_SET_rank)],
            (uint32_t)sl_config_u64(env->config, SL_SET_disk_queue_depth),
            sl_config_bool(env->config, SL_SET_disk_direct), &self->disk, why);
    }
    if (err == SL_OK && self->disk->place != NULL) {
        sl_log_write(env->log, SL_LOG_INFO, 0, "disk: its files are in '%s'", self->disk->place);
    }
    self->lending = err == SL_OK && self->disk->ops->register_memory != NULL;
    sl_metric_set(env->metrics, self->metrics.buffers_bytes, 0);
    sl_metric_set(env->metrics, self->metrics.read_queue, 0);
    if (err == SL_OK) {
        err = ti_log_open(self, why);
    }
    ti_budget_begin(self);
    return err == SL_OK ? ti_log_read(self, why) : err;
}

/* reply NULL: no answer. */
static void call_ended(struct tierer *self, const struct sl_call *call, const struct sl_msg *reply)
{
    if (call->type == SL_MSG_DISK_RECLAIM) {
        ti_log_reclaimed(self, reply);
    } else if (call->type == SL_MSG_DISK_FOUND &&
               call->cookie == (TI_COOKIE_FOUND | self->scan_generation)) {
        ti_scan_answered(self, reply);
    }
}

static void take_reply(struct tierer *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (sl_calls_match(self->calls, msg, &call)) {
        call_ended(self, &call, msg);
    }
}

/* Work for idle moments. */
static void tierer_idle(struct tierer *self)
{
    if (self->reads.count + self->reads_ahead.count + self->waiting.count == 0) {
        ti_arena_register(self);
    }
}

static void maybe_finish(struct tierer *self)
{
    struct ti_segment *newest = ti_log_newest(self);
    if (!self->draining || self->start.reading || !ti_log_idle(self) ||
        self->reads.count + self->reads_ahead.count > 0) {
        return;
    }
    if (newest != NULL && newest->state == TI_SEGMENT_OPEN) {
        newest->state =
            TI_SEGMENT_CLOSED; /* with a footer the next start has no frames to search */
        ti_segments_seal(self);
        ti_io_pump(self);
    }
    if (ti_segments_all_sealed(self) && ti_budget_settled(self)) {
        self->env->ops->finish(self->env);
    }
}

static void hello_answered(struct tierer *self, const struct sl_msg *msg)
{
    uint64_t boot_generation = msg->body.hello_reply.boot_generation;
    if (msg->code == SL_OK && boot_generation != self->boot_generation && !self->draining) {
        self->boot_generation = boot_generation;
        ti_scan_start(self);
    }
    (void)ti_arena_at(self, 0, 0, 1); /* attached as soon as it exists */
    ti_health_check_directory(self);  /* at each heartbeat */
    tierer_idle(self);
}

static void job_ended(struct tierer *self, const struct sl_msg *msg)
{
    if (msg->body.local_job.cookie == TI_COOKIE_SCAN) {
        ti_scan_was_read(self, msg->code);
    } else {
        ti_segments_prepared(self, msg->code);
    }
}

static const struct {
    uint32_t type;
    void (*handle)(struct tierer *self, const struct sl_msg *msg);
} handlers[] = {
    {SL_MSG_LOCAL_IO, ti_io_completed},      {SL_MSG_DISK_WRITE, ti_job_take},
    {SL_MSG_DISK_FORGET, ti_job_take},       {SL_MSG_DISK_READ, ti_reads_take},
    {SL_MSG_FENCE, ti_reads_fence},          {SL_MSG_DISK_MEMBERS, ti_members_take},
    {SL_MSG_HELLO_REPLY, hello_answered},    {SL_MSG_LOCAL_JOB, job_ended},
    {SL_MSG_DISK_RECLAIM_REPLY, take_reply}, {SL_MSG_DISK_FOUND_REPLY, take_reply},
};

static void message_handle(struct tierer *self, const struct sl_msg *msg)
{
    for (size_t i = 0; i < SL_COUNT(handlers); i++) {
        if (handlers[i].type == msg->type) {
            handlers[i].handle(self, msg);
            return;
        }
    }
    if (!SL_MSG_IS_REPLY(msg->type)) {
        sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
    }
}

/* Handles messages while the log is read. A FENCE is answered: no request from before this process
 * is in flight. */
static sl_err start_handle(struct tierer *self, const struct sl_msg *msg)
{
    if (msg->type == SL_MSG_LOCAL_JOB) {
        const struct sl_msg hello = {.body.hello_reply.boot_generation = self->start.registrar};
        if (!ti_log_was_read(self, msg->code)) {
            return SL_ERR_DEVICE;
        }
        hello_answered(self, &hello);
    } else if (msg->type == SL_MSG_HELLO_REPLY && msg->code == SL_OK) {
        self->start.registrar = msg->body.hello_reply.boot_generation;
    }
    if (msg->type == SL_MSG_FENCE) {
        ti_reads_fence(self, msg);
        ti_reads_fences_answer(self);
    } else if (!SL_MSG_IS_REPLY(msg->type) && msg->type != SL_MSG_LOCAL_JOB) {
        sl_reply_fail(self->env, msg, SL_ERR_BUSY, "the disk's log is being read");
    }
    return SL_OK;
}

/* Work that grows with a log file: one slice a turn. A turn has many messages. */
static void tierer_slice(struct tierer *self)
{
    if (self->left == 0) {
        ti_scan_pump(self);
        return;
    }
    if (ti_entries_drop(self->entries, &self->left, 4096)) { /* 0.8 ms */
        ti_segments_gauges(self);
    }
    self->env->ops->wake_at(self->env, self->env->now_ns); /* for the rest, or a waiting scan */
}

static sl_err tierer_handle(void *state, const struct sl_msg *msg)
{
    struct tierer *self = state;
    if (msg->sender.length > 0 &&
        strcmp(msg->sender.at, "registrar") != 0) { /* completions have no sender */
        if (!SL_MSG_IS_REPLY(msg->type)) {
            sl_reply_code(self->env, msg, SL_ERR_PERMISSION, NULL);
        }
        return SL_OK;
    }
    if (self->start.reading) {
        sl_err err = start_handle(self, msg);
        if (err != SL_OK || self->start.reading) {
            return err;
        }
    } else {
        message_handle(self, msg);
    }
    ti_reads_fences_answer(self);
    ti_reads_pump(self); /* loads have priority over write-back */
    ti_log_pump(self);
    ti_io_pump(self);
    if (self->left != 0 || self->scanning) {
        self->env->ops->wake_at(self->env, self->env->now_ns);
    }
    if (self->degraded) {
        ti_health_check_stall(self);
    }
    sl_metric_set(self->env->metrics, self->metrics.queue, ti_jobs_waiting(self));
    sl_metric_set(self->env->metrics, self->metrics.read_queue, self->reads_wanted_bytes);
    sl_metric_set(self->env->metrics, self->metrics.in_flight, self->ios_in_flight);
    maybe_finish(self);
    /* A directory that vanished takes its files along, though we hold them open. */
    return self->gone || self->unsettled || self->members.emptied ? SL_ERR_DEVICE : SL_OK;
}

static sl_err tierer_tick(void *state, uint64_t now_ns)
{
    struct tierer *self = state;
    struct sl_call call;
    if (self->start.reading) {
        ti_health_publish(self);
        self->env->ops->wake_at(self->env, now_ns + TI_START_REPORT_NS);
        return SL_OK;
    }
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        call_ended(self, &call, NULL);
    }
    ti_reads_pump(self);
    ti_log_pump(self);
    ti_io_pump(self);
    tierer_slice(self);
    ti_health_check_stall(self);
    tierer_idle(self);
    maybe_finish(self);
    return SL_OK;
}

static void tierer_drain(void *state)
{
    struct tierer *self = state;
    self->draining = true;
    atomic_store_explicit(&self->start.cancelled, true, memory_order_relaxed);
    if (self->start.reading) {
        self->env->ops->finish(self->env); /* a disk may answer late or never */
        return;
    }
    ti_log_pump(self);
    ti_io_pump(self);
    maybe_finish(self);
}

static void tierer_fini(void *state)
{
    struct tierer *self = state;
    if (self->disk != NULL) {
        ti_log_close(self);
        self->disk->ops->destroy(self->disk); /* before memory that requests use */
        self->disk = NULL;
    }
    ti_jobs_free(self);
    sl_arena_close(&self->arena);
    sl_index_view_close(&self->index);
    sl_calls_destroy(&self->calls);
    ti_entries_destroy(&self->entries);
    free(self->segments);
    free(self->ios);
    free(self->bounce);
    free(self->frame_buffer);
    free(self->search_buffer);
    free(self->scan_records);
    free(self->scan_read.records);
    free(self->scan_items);
    free(self->probe.page);
}

const struct sl_actor sl_tierer_actor = {
    .role = "tierer",
    .ranked = true,
    .state_bytes = sizeof(struct tierer),
    .init = tierer_init,
    .handle = tierer_handle,
    .tick = tierer_tick,
    .drain = tierer_drain,
    .fini = tierer_fini,
};
