/* actors/registrar/recorder.c - turns commits, uses and drops into events of a recording. */
#include "actors/registrar/recorder.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/engines/engines.h"
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/records/units.h"
#include "runtime/disk/sl_disk_place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_BYTES    32u /* length of the model's name in a block's key */
#define MODEL_AGAIN_NS SL_NS_PER_S

/* ---- frames ---- */

static void recorder_end(struct registrar *self, enum sl_log_level level, const char *why)
{
    struct reg_recorder *recorder = self->recorder;
    reg_log(self, level, 0, "recording ends: %s", why);
    recorder->on = false;
}

static uint64_t now_us(const struct registrar *self)
{
    const struct reg_recorder *recorder = self->recorder;
    uint64_t began_ns = recorder->note.began_ns;
    return self->env->now_ns > began_ns ? (self->env->now_ns - began_ns) / SL_NS_PER_US : 0;
}

static void frame_begin(struct registrar *self)
{
    struct reg_recorder *recorder = self->recorder;
    sl_recording_frame_begin(&recorder->frame, recorder->buffers[recorder->active],
                             REG_RECORD_BUFFER_BYTES, now_us(self));
    recorder->frame_began_ns = self->env->now_ns;
}

static bool job_give(struct registrar *self, sl_err (*job)(void *context, uint32_t thread))
{
    struct reg_recorder *recorder = self->recorder;
    sl_err err = self->env->ops->job(self->env, 1, job, &recorder->file, REG_JOB_RECORD);
    recorder->working = err == SL_OK;
    return recorder->working; /* else a later tick tries again */
}

/* Gives the frame to a helper thread and begins the next one. False: not possible now. */
static bool frame_write(struct registrar *self)
{
    struct reg_recorder *recorder = self->recorder;
    if (!recorder->opened || recorder->working || recorder->frame.count == 0) {
        return false;
    }
    recorder->file.frame = recorder->frame;
    if (!job_give(self, reg_record_file_write)) {
        return false;
    }
    recorder->given_bytes += recorder->frame.length;
    recorder->active ^= 1;
    frame_begin(self);
    return true;
}

static bool event_add(struct registrar *self, const struct sl_recording_event *event)
{
    struct reg_recorder *recorder = self->recorder;
    bool added = sl_recording_frame_add(&recorder->frame, event) ||
                 (frame_write(self) && sl_recording_frame_add(&recorder->frame, event));
    if (added) {
        sl_metric_add(self->env->metrics, recorder->metric.recorded_count, 1);
    }
    return added;
}

/* Records the number of lost events ahead of the next event. */
static bool lost_add(struct registrar *self)
{
    struct reg_recorder *recorder = self->recorder;
    uint64_t rings = self->accesses->lost_count - recorder->rings_lost_count;
    struct sl_recording_event event = {
        .kind = SL_RECORDING_LOST, .at_us = now_us(self), .count = recorder->lost_count + rings};
    if (event.count == 0) {
        return true;
    }
    if (!event_add(self, &event)) {
        return false;
    }
    recorder->lost_count = 0;
    recorder->rings_lost_count += rings;
    sl_metric_add(self->env->metrics, recorder->metric.record_lost_count, event.count);
    return true;
}

/* Leaves room for the final event and its frame. */
static bool is_full(const struct reg_recorder *recorder)
{
    return recorder->given_bytes + recorder->frame.length + 2 * SL_RECORDING_EVENT_BYTES >
           recorder->bytes_max;
}

static void record(struct registrar *self, struct sl_recording_event *event)
{
    struct reg_recorder *recorder = self->recorder;
    if (recorder->last) {
        return;
    }
    if (is_full(recorder)) {
        struct sl_recording_event full = {.kind = SL_RECORDING_FULL, .at_us = now_us(self)};
        recorder->last = event_add(self, &full);
        return;
    }
    event->at_us = now_us(self);
    if (!lost_add(self) || !event_add(self, event)) {
        recorder->lost_count++;
    }
}

/* ---- events of a unit ---- */

/* The tokens of a block, from the registration of its engine. An unknown model is looked up again
 * after a while, since its engine may have registered by then. */
static uint64_t model_tokens(struct registrar *self, const struct sl_entry *entry)
{
    struct reg_recorder *recorder = self->recorder;
    bool block = entry->kind == SL_RECORD_GROUP && entry->key_length > MODEL_BYTES &&
                 entry->key[MODEL_BYTES] == '/';
    uint64_t hash = block ? reg_hash(entry->key, MODEL_BYTES) : 0;
    if (!block || (hash == recorder->model_hash &&
                   (recorder->model_tokens != 0 || self->env->now_ns < recorder->model_at_ns))) {
        return block ? recorder->model_tokens : 0;
    }
    recorder->model_hash = hash;
    recorder->model_tokens = 0;
    recorder->model_at_ns = self->env->now_ns + MODEL_AGAIN_NS;
    for (uint32_t i = 0; i < self->engines->max && recorder->model_tokens == 0; i++) {
        struct sl_msg kept;
        const struct reg_engine *engine = &self->engines->all[i];
        if (engine->used && reg_engine_body(self, engine, &kept)) {
            const struct sl_body_engine_register *body = (const void *)&kept.body.engine_get_reply;
            bool same = body->model.length == MODEL_BYTES &&
                        memcmp(body->model.at, entry->key, MODEL_BYTES) == 0;
            recorder->model_tokens = same ? body->block_tokens : 0;
        }
    }
    return recorder->model_tokens;
}

static uint64_t name_of(const struct registrar *self, uint64_t key_hash)
{
    return sl_recording_name(&self->recorder->note.salt, key_hash);
}

/* Fills in the unit's values and key bytes, for the space that they need on a disk. */
static void parts_fill(struct registrar *self, sl_ref unit, const struct sl_entry *entry,
                       struct sl_recording_event *event)
{
    struct reg_unit_parts parts;
    struct sl_entry part = *entry;
    bool block = entry->kind == SL_RECORD_GROUP;
    reg_unit_parts(self, unit, &parts);
    if (block && parts.count > 0) {
        sl_index_read(self->index, parts.refs[0], &part);
    }
    event->part_count = parts.count;
    event->key_bytes = part.key_length + (block ? (uint32_t)entry->key_length : 0u);
}

static void unit_record(struct registrar *self, sl_ref unit, struct sl_recording_event *event)
{
    struct sl_entry entry;
    sl_index_read(self->index, unit, &entry);
    event->name = name_of(self, reg_hash(entry.key, entry.key_length));
    if (entry.kind == SL_RECORD_GROUP) {
        const struct sl_unit_note *note = sl_index_unit_note(self->index, unit);
        event->parent = name_of(self, note->parent_hash);
        event->hint = note->hint <= 2 ? note->hint : 0;
    }
    if (event->kind == SL_RECORDING_STORE) { /* valid also for later events of the unit */
        event->bytes = reg_unit_space_bytes(self, unit, false);
        event->tokens = model_tokens(self, &entry);
        parts_fill(self, unit, &entry, event);
    }
    record(self, event);
}

static void recorder_used(struct registrar *self, const struct reg_used *what)
{
    if (self->recorder->on) {
        struct sl_recording_event event = {.kind = what->fetched ? SL_RECORDING_FETCH
                                                                 : SL_RECORDING_LOAD};
        unit_record(self, what->unit, &event);
    }
}

/* An engine loads the blocks before those that it stores, so its uses are recorded first. */
static void recorder_committed(struct registrar *self, const struct reg_committed *what)
{
    struct reg_recorder *recorder = self->recorder;
    if (!recorder->on) {
        return;
    }
    if (!recorder->drained) {
        recorder->drained = true;
        (void)reg_accesses_drain(self);
    }
    uint64_t op_id = what->group != NULL ? what->group->op_id : 0;
    struct sl_recording_event event = {.kind = SL_RECORDING_STORE,
                                       .new_op = op_id == 0 || op_id != recorder->op_id};
    recorder->op_id = op_id;
    unit_record(self, what->unit, &event);
}

static bool is_eviction(enum reg_ghost_reason reason)
{
    return reason == REG_GHOST_EVICTED || reason == REG_GHOST_INDEX_FULL ||
           reason == REG_GHOST_DISK_RECLAIMED || reason == REG_GHOST_DISK_FAILED;
}

/* A block is recorded once for each part: this is rare, and a repetition changes nothing. */
static void recorder_dropped(struct registrar *self, const struct reg_dropped *what)
{
    struct sl_entry entry = *what->record;
    if (!self->recorder->on || is_eviction(what->how->reason)) {
        return;
    }
    if (entry.group != 0) {
        sl_index_read(self->index, entry.group, &entry);
    }
    struct sl_recording_event event = {.kind = SL_RECORDING_GONE};
    event.name = name_of(self, reg_hash(entry.key, entry.key_length));
    record(self, &event);
}

/* ---- steps ---- */

static void recorder_after(struct registrar *self)
{
    self->recorder->drained = false;
}

static void recorder_tick(struct registrar *self)
{
    struct reg_recorder *recorder = self->recorder;
    if (!recorder->on || recorder->working) {
        return;
    }
    if (!recorder->opened) {
        (void)job_give(self, reg_record_file_open);
    } else if (recorder->last || self->draining ||
               self->env->now_ns >= recorder->frame_began_ns + REG_RECORD_FLUSH_NS) {
        (void)frame_write(self);
    }
}

static uint64_t recorder_next(const struct registrar *self)
{
    const struct reg_recorder *recorder = self->recorder;
    if (!recorder->on || recorder->working || (recorder->opened && recorder->frame.count == 0)) {
        return SL_NEVER_NS;
    }
    return recorder->opened ? recorder->frame_began_ns + REG_RECORD_FLUSH_NS
                            : self->env->now_ns + REG_TICK_NS;
}

static void recorder_job_ended(struct registrar *self, enum reg_job job, sl_err code)
{
    struct reg_recorder *recorder = self->recorder;
    if (job != REG_JOB_RECORD) {
        return;
    }
    recorder->working = false;
    if (code != SL_OK) {
        recorder_end(self, SL_LOG_WARN, recorder->file.why.text);
    } else if (!recorder->opened) {
        recorder->opened = true;
        recorder->given_bytes = recorder->file.end_bytes;
        if (recorder->file.continued && is_full(recorder)) {
            recorder_end(self, SL_LOG_WARN, "it has reached record_max");
            return;
        }
        reg_log(self, SL_LOG_INFO, 0, "requests are recorded in '%s'%s", recorder->file.path,
                recorder->file.continued ? ", continuing the file" : "");
    } else if (recorder->last && recorder->frame.count == 0) {
        recorder_end(self, SL_LOG_WARN, "it has reached record_max");
    }
    if (recorder->on && (recorder->last || self->draining)) {
        (void)frame_write(self);
    }
}

static void recorder_drain(struct registrar *self)
{
    if (self->recorder->on) {
        (void)reg_accesses_drain(self); /* uses since the last tick */
        (void)frame_write(self);
    }
}

static bool recorder_drains(const struct registrar *self)
{
    const struct reg_recorder *recorder = self->recorder;
    return recorder->working || (recorder->on && recorder->opened && recorder->frame.count > 0);
}

static void recorder_gauges(struct registrar *self)
{
    if (!self->recorder->working) { /* else a helper thread has the file */
        sl_metric_set(self->env->metrics, self->recorder->metric.record_bytes,
                      self->recorder->file.end_bytes);
    }
}

/* ---- start and end ---- */

static sl_err recorder_init(struct registrar *self, struct sl_error *why)
{
    struct reg_recorder *recorder = self->recorder;
    recorder->file.path = sl_config_text(self->env->config, SL_SET_record);
    recorder->file.fd = -1;
    recorder->bytes_max = sl_config_u64(self->env->config, SL_SET_record_max);
    if (recorder->file.path[0] == '\0') {
        return SL_OK;
    }
    for (uint32_t i = 0; i < SL_COUNT(recorder->buffers); i++) {
        recorder->buffers[i] = malloc(REG_RECORD_BUFFER_BYTES);
    }
    if (recorder->buffers[0] == NULL || recorder->buffers[1] == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a recording");
    }
    return SL_OK;
}

static sl_err recorder_restore(struct registrar *self, sl_ref note, const void *bytes,
                               uint32_t length_bytes, struct sl_error *why)
{
    struct reg_recorder *recorder = self->recorder;
    (void)why;
    if (recorder->buffers[0] == NULL || length_bytes != sizeof(recorder->note) ||
        recorder->note_ref != 0) {
        return SL_ERR_FOREIGN;
    }
    memcpy(&recorder->note, bytes, sizeof(recorder->note));
    recorder->note_ref = note;
    recorder->file.append_to = true;
    return SL_OK;
}

static void disk_fill(const struct registrar *self, struct sl_recording_header *header)
{
    struct sl_disk_sizes sizes;
    if (self->set.disk > 0 && sl_disk_sizes(self->env->config, &sizes, NULL) == SL_OK) {
        header->segment_bytes = sizes.segment_bytes;
        header->budget_bytes = sl_config_u64(self->env->config, SL_SET_disk_write_budget);
        header->path_count = self->tier->path_count;
    }
}

/* The salt becomes a note before the first write, so that the next registrar continues the file. */
static void recorder_started(struct registrar *self)
{
    struct reg_recorder *recorder = self->recorder;
    if (recorder->buffers[0] == NULL) {
        return;
    }
    if (!recorder->file.append_to) {
        recorder->note = (struct reg_record_note){.salt = {{self->env->ops->random_u64(self->env),
                                                            self->env->ops->random_u64(self->env)}},
                                                  .file_id = self->env->ops->random_u64(self->env),
                                                  .began_ns = self->env->now_ns};
        if (reg_note_put(self, &recorder->note, sizeof(recorder->note), REG_BLOB_RECORDING,
                         &recorder->note_ref, NULL) != SL_OK) {
            recorder_end(self, SL_LOG_WARN, "the index has no room for its salt");
            return;
        }
    }
    recorder->file.header = (struct sl_recording_header){.file_id = recorder->note.file_id,
                                                         .memory_bytes = self->set.memory,
                                                         .disk_bytes = self->set.disk};
    disk_fill(self, &recorder->file.header);
    (void)snprintf(recorder->file.header.policy, sizeof(recorder->file.header.policy), "%s",
                   self->units->policy->name);
    recorder->given_bytes = sizeof(recorder->file.header);
    frame_begin(self);
    if (recorder->file.append_to) { /* uses from before the restart are not recorded */
        (void)reg_accesses_drain(self);
        recorder->on = true;
        struct sl_recording_event again = {.kind = SL_RECORDING_AGAIN};
        record(self, &again);
    }
    recorder->on = true;
}

static void recorder_fini(struct registrar *self)
{
    struct reg_recorder *recorder = self->recorder;
    reg_record_file_close(&recorder->file);
    free(recorder->buffers[0]);
    free(recorder->buffers[1]);
    recorder->buffers[0] = recorder->buffers[1] = NULL;
    recorder->on = false;
}

/* ---- the part ---- */

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_recorder, recorded_count),
    REG_METRIC(reg_recorder, record_lost_count),
    REG_METRIC(reg_recorder, record_bytes),
};

static const struct reg_blob blobs[] = {{REG_BLOB_RECORDING, recorder_restore}};

const struct reg_part reg_recorder_part = {
    .name = "recorder",
    REG_STATE(recorder, reg_recorder),
    REG_METRICS(metrics),
    REG_BLOBS(blobs),
    .init = recorder_init,
    .started = recorder_started,
    .drain = recorder_drain,
    .drains = recorder_drains,
    .fini = recorder_fini,
    .tick = recorder_tick,
    .after = recorder_after,
    .next_ns = recorder_next,
    .job_ended = recorder_job_ended,
    .committed = recorder_committed,
    .used = recorder_used,
    .dropped = recorder_dropped,
    .gauges = recorder_gauges,
};
