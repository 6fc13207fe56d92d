/* actors/tierer/reads.c - reads values into the arena, under the staging budget, and verifies
 * them. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The request must match the log's value of this key, and the claim on the target must be valid. */
static sl_err item_check(struct tierer *self, const struct ti_item *item)
{
    const struct ti_entry *entry = ti_entries_find(self->entries, item->hash);
    if (item->segment == self->gone_segment ||
        (ti_oldest_is_leaving(self) && item->segment == self->segments[0].number)) {
        return SL_ERR_UNREACHABLE; /* a miss; the registrar forgets nothing for it */
    }
    if (entry == NULL || entry->segment != item->segment ||
        (uint64_t)entry->page * SL_PAGE_BYTES != item->disk_offset ||
        entry->length_bytes != item->length_bytes) {
        return SL_ERR_NOT_FOUND;
    }
    if (!sl_digest_equal(entry->digest, item->digest)) {
        return SL_ERR_CORRUPT;
    }
    if (self->index == NULL &&
        sl_index_view_open(self->env->paths->shm_dir, &self->index, NULL) != SL_OK) {
        return SL_ERR_UNREACHABLE;
    }
    if (!sl_index_claim_exists(self->index, item->ref, item->generation)) {
        sl_index_view_close(&self->index); /* it may have been rebuilt: look again */
        if (sl_index_view_open(self->env->paths->shm_dir, &self->index, NULL) != SL_OK) {
            return SL_ERR_UNREACHABLE;
        }
        if (!sl_index_claim_exists(self->index, item->ref, item->generation)) {
            return SL_ERR_STALE;
        }
    }
    return ti_arena_at(self, item->arena, item->arena_offset, item->length_bytes) != NULL
               ? SL_OK
               : SL_ERR_INVALID;
}

/* Reserves staging for the whole value before its first piece. */
static sl_err item_room_take(struct tierer *self, const struct ti_job *job, struct ti_item *item)
{
    struct sl_error why = {0};
    sl_err err = ti_staging_take(&self->staging, item->length_bytes, &why);
    if (err != SL_OK) {
        if (err == SL_ERR_LIMIT) {
            sl_log_write(self->env->log, SL_LOG_WARN, job->back.trace_id, "disk read refused: %s",
                         why.text);
        }
        return err;
    }
    item->staged = true;
    if (item->length_bytes < SL_PAGE_BYTES) {
        item->bounce = ti_bounce_take(self);
        return item->bounce < 0 ? SL_ERR_BUSY : SL_OK;
    }
    return SL_OK;
}

static void item_room_give(struct tierer *self, struct ti_item *item)
{
    if (item->staged) {
        ti_staging_give(&self->staging, item->length_bytes);
        item->staged = false;
    }
    if (item->bounce >= 0) {
        ti_bounce_give(self, item->bounce);
        item->bounce = -1;
    }
}

static void item_end(struct tierer *self, struct ti_job *job, struct ti_item *item, sl_err code)
{
    self->reads_wanted_bytes -= job->ahead ? 0 : item->length_bytes;
    item->code = code;
    item->dead = true;
    job->ended++;
    item_room_give(self, item);
}

/* Starts an item's next piece. SL_ERR_BUSY: no staging, page or slot is free; wait for reads. */
static sl_err item_start(struct tierer *self, struct ti_job *job, uint32_t index)
{
    struct ti_item *item = &job->items[index];
    bool refused = self->stalled || self->probe.refused;
    sl_err err = refused ? SL_ERR_UNREACHABLE : item_check(self, item);
    if (err == SL_OK && item->started_bytes == 0) {
        err = item_room_take(self, job, item);
    }
    if (err != SL_OK) {
        return err;
    }
    struct ti_segment *segment = ti_log_segment(self, item->segment);
    SL_ASSERT(segment != NULL); /* otherwise the entry would be gone */
    unsigned char *target = ti_arena_at(self, item->arena, item->arena_offset, item->length_bytes);
    uint64_t length = SL_MIN(item->length_bytes - item->started_bytes, TI_READ_PIECE_BYTES);
    struct sl_disk_request request = {.verb = SL_DISK_READ,
                                      .file = segment->file,
                                      .memory = item->bounce >= 0 ? ti_bounce_at(self, item->bounce)
                                                                  : target + item->started_bytes,
                                      .offset_bytes = item->disk_offset + item->started_bytes,
                                      .length_bytes = sl_align_up(length, SL_PAGE_BYTES)};
    if (!ti_io_start(self, TI_IO_READ, job, index, &request)) {
        return SL_ERR_BUSY;
    }
    item->started_bytes += length;
    item->pieces++;
    segment->reads++;
    self->reads_busy_from_ns =
        self->reads_in_flight == 0 ? self->env->now_ns : self->reads_busy_from_ns;
    self->reads_in_flight++;
    return SL_OK;
}

/* Starts the next piece of the job's next item. False: it waits for something. */
static bool job_step(struct tierer *self, struct ti_job *job, bool may)
{
    struct ti_item *item = &job->items[job->started];
    sl_err err = item->code; /* of its pieces that have ended */
    if (err == SL_OK) {
        err = may ? item_start(self, job, job->started) : SL_ERR_BUSY;
    }
    if (err == SL_ERR_BUSY && (self->reads_in_flight > 0 || !may)) {
        if (item->started_bytes == 0) {
            item_room_give(self, item);
        }
        return false; /* the end of a read calls this again; order is kept */
    }
    if (err != SL_OK) {
        item->code = err;
        if (item->pieces == 0 && !item->dead) {
            item_end(self, job, item, err);
        }
    }
    job->started += err != SL_OK || item->started_bytes == item->length_bytes;
    return true;
}

/* Starts at most `most` pieces of a list. False: the rest waits for something. */
static bool list_pump(struct tierer *self, struct ti_job_list *list, uint32_t most)
{
    for (struct ti_job *job = list->first; job != NULL;) {
        struct ti_job *next = job->next;
        for (; job->started < job->item_count; most--) {
            if (!job_step(self, job, most > 0)) {
                return false;
            }
        }
        if (job->ended == job->item_count) {
            ti_job_remove(list, job);
            ti_job_reply(self, job);
        }
        job = next;
    }
    return true;
}

/* Prefetches start after all loads. In one of TI_IO_TURN_PREFETCH turns one piece starts before
 * them, so that prefetches end. */
void ti_reads_pump(struct tierer *self)
{
    if (++self->reads_turn % TI_IO_TURN_PREFETCH == 0) {
        (void)list_pump(self, &self->reads_ahead, 1);
    }
    if (list_pump(self, &self->reads, UINT32_MAX)) {
        (void)list_pump(self, &self->reads_ahead, UINT32_MAX);
    }
}

/* Bytes read and this time show how fast the disk is while it is busy. */
static void busy_count(struct tierer *self)
{
    uint64_t now_ns = self->env->now_ns;
    sl_metric_add(self->env->metrics, self->metrics.read_busy, now_ns - self->reads_busy_from_ns);
    self->reads_busy_from_ns = now_ns;
}

void ti_reads_want(struct tierer *self, const struct ti_job *job)
{
    for (uint32_t i = 0; i < job->item_count; i++) {
        self->reads_wanted_bytes += job->items[i].dead ? 0 : job->items[i].length_bytes;
    }
}

static bool job_reads_into(const struct ti_job *job, uint64_t generation)
{
    for (uint32_t i = 0; i < job->item_count; i++) {
        if (job->items[i].generation == generation) {
            return true;
        }
    }
    return false;
}

void ti_reads_take(struct tierer *self, const struct sl_msg *msg)
{
    struct ti_job *job = self->reads_ahead.first;
    if (msg->body.disk_read.raise == 0) {
        ti_job_take(self, msg);
        return;
    }
    if (msg->body.disk_read.items.count > 0) {
        sl_reply_fail(self->env, msg, SL_ERR_INVALID, "DISK_READ.items: must be empty with raise");
        return;
    }
    while (job != NULL && !job_reads_into(job, msg->body.disk_read.raise)) {
        job = job->next;
    }
    if (job != NULL) {
        ti_job_remove(&self->reads_ahead, job);
        job->ahead = false;
        ti_reads_want(self, job);
        ti_job_push(&self->reads, job);
        ti_io_raise(self, job);
    }
    sl_reply_code(self->env, msg, SL_OK, NULL);
}

/* All of the value was read: checks its digest. */
static sl_err item_verify(struct tierer *self, const struct ti_job *job, const struct ti_item *item)
{
    unsigned char *target = ti_arena_at(self, item->arena, item->arena_offset, item->length_bytes);
    const unsigned char *read = item->bounce >= 0 ? ti_bounce_at(self, item->bounce) : target;
    struct sl_digest digest =
        item->hashes != NULL
            ? sl_digest_of_chunks(item->hashes, sl_digest_chunks(item->length_bytes))
            : sl_digest_of(read, item->length_bytes);
    if (!sl_digest_equal(digest, item->digest)) {
        sl_metric_add(self->env->metrics, self->metrics.corrupt, 1);
        sl_log_write(self->env->log, SL_LOG_ERROR, job->back.trace_id,
                     "disk: log file segment.%u at %" PRIu64 ": %" PRIu64
                     " bytes do not match their digest, not served",
                     item->segment, item->disk_offset, item->length_bytes);
        ti_entries_kill(self->entries, item->hash);
        return SL_ERR_CORRUPT;
    }
    ti_health_read_ok(self, item);
    sl_metric_add(self->env->metrics, self->metrics.values_read, 1);
    sl_metric_add(self->env->metrics, self->metrics.bytes_read, item->length_bytes);
    if (item->bounce < 0) {
        return SL_OK;
    }
    if (!sl_index_claim_exists(self->index, item->ref, item->generation)) {
        return SL_ERR_STALE;
    }
    memcpy(target, read, item->length_bytes);
    return SL_OK;
}

static void piece_hash(struct ti_item *item, const unsigned char *piece, uint64_t at,
                       uint64_t length)
{
    for (uint64_t done = 0; done < length; done += SL_DIGEST_CHUNK_BYTES) {
        item->hashes[(at + done) / SL_DIGEST_CHUNK_BYTES] =
            sl_digest_chunk(piece + done, SL_MIN(length - done, (uint64_t)SL_DIGEST_CHUNK_BYTES));
    }
}

void ti_reads_io_done(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    struct ti_job *job = io->job;
    struct ti_item *item = &job->items[io->item];
    struct ti_segment *segment = ti_log_segment(self, item->segment);
    uint64_t at = io->request.offset_bytes - item->disk_offset;
    uint64_t length = SL_MIN(item->length_bytes - at, TI_READ_PIECE_BYTES);
    busy_count(self);
    self->reads_in_flight--;
    item->pieces--;
    if (segment != NULL) {
        segment->reads--;
    }
    if (os_code != 0 || bytes < length) {
        ti_health_read_failed(self, item, os_code != 0 ? os_code : EIO);
        item->code = SL_ERR_IO;
    } else if (item->hashes != NULL) {
        piece_hash(item, io->request.memory, at, length);
    }
    if (item->pieces > 0 || (item->code == SL_OK && item->started_bytes < item->length_bytes)) {
        return;
    }
    sl_err code = item->code != SL_OK ? item->code : item_verify(self, job, item);
    sl_histogram_add(self->env->metrics, self->metrics.read_ns, self->env->now_ns - io->started_ns);
    item_end(self, job, item, code);
}

/* Claims have ended. Reads that have not started notice it by themselves; the answer waits for
 * reads in flight. A FENCE of everything (no op, no claims) also refuses older requests that arrive
 * later. Requests that have arrived are done before the scan ends. If none runs, the next heartbeat
 * starts one. */
void ti_reads_fence(struct tierer *self, const struct sl_msg *msg)
{
    for (uint32_t i = 0; i < self->fence_count; i++) {
        if (sl_reply_route_matches(&self->fences[i].back, msg)) {
            return; /* a repeated request */
        }
    }
    if (msg->op_id == 0 && msg->body.fence.items.count == 0 && msg->seq > self->floor_seq) {
        self->floor_seq = msg->seq;
        self->boot_generation = self->scanning ? self->boot_generation : 0;
    }
    if (self->fence_count == TI_FENCES_MAX) {
        sl_reply_code(self->env, msg, SL_ERR_LIMIT, NULL);
        return;
    }
    struct ti_fence *fence = &self->fences[self->fence_count++];
    fence->serial = self->next_serial;
    sl_reply_route_keep(msg, &fence->back);
}

void ti_reads_fences_answer(struct tierer *self)
{
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; self->fence_count > 0 && self->reads_in_flight > 0 && i < TI_IOS_MAX;
         i++) {
        const struct ti_io *io = &self->ios[i];
        oldest = io->kind == TI_IO_READ ? SL_MIN(oldest, io->serial) : oldest;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->fence_count; i++) {
        struct sl_msg reply = {.code = SL_OK};
        if (oldest <= self->fences[i].serial) {
            self->fences[kept++] = self->fences[i];
            continue;
        }
        sl_reply_route_send(self->env, &self->fences[i].back, &reply);
    }
    self->fence_count = kept;
}
