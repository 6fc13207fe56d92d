/* actors/tierer/log.c - the log: segments of preallocated bytes, frames appended in batches, one
 * sync a batch.
 *
 * One batch is on its way at a time; what arrives meanwhile forms the next one, so syncs are shared
 * by all that wait (group commit). A value is acknowledged after the sync of its batch, never
 * before. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static struct sl_digest digest_of_page(const void *bytes, uint64_t length)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, (size_t)length);
    return (struct sl_digest){.low = hash.low64, .high = hash.high64};
}

const struct sl_tier_record *sl_tier_record_next(const void *records, uint64_t records_bytes,
                                                 uint64_t *at)
{
    uint64_t left = records_bytes - *at;
    const struct sl_tier_record *record = (const void *)((const unsigned char *)records + *at);
    if (left < sizeof(*record)) {
        return NULL;
    }
    if (record->key_length == 0 || record->key_length > SL_KEY_BYTES_MAX ||
        record->group_length > SL_KEY_BYTES_MAX ||
        record->record_bytes != sl_tier_record_bytes(record->key_length, record->group_length) ||
        record->record_bytes > left) {
        return NULL;
    }
    *at += record->record_bytes;
    return record;
}

struct segment *log_segment(struct tierer *self, uint32_t number)
{
    uint32_t low = 0;
    uint32_t high = self->segment_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (self->segments[middle].number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < self->segment_count && self->segments[low].number == number ? &self->segments[low]
                                                                             : NULL;
}

static void log_gauges(struct tierer *self)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        bytes += self->segments[i].bytes;
    }
    sl_metric_set(self->env->metrics, self->metrics.segments, self->segment_count);
    sl_metric_set(self->env->metrics, self->metrics.used_bytes, bytes);
    sl_metric_set(self->env->metrics, self->metrics.live_values,
                  sl_entries_live_count(self->entries));
    sl_metric_set(self->env->metrics, self->metrics.live_bytes,
                  sl_entries_live_bytes(self->entries));
    sl_metric_set(self->env->metrics, self->metrics.queue,
                  self->waiting.count + self->batch.count + self->reads.count);
}

void log_degrade(struct tierer *self, const char *what, int os_code)
{
    char reason[96];
    char text[64];
    (void)snprintf(reason, sizeof(reason), "%s: %s", what, strerror_r(os_code, text, sizeof(text)));
    sl_metric_add(self->env->metrics, self->metrics.io_errors, 1);
    sl_metrics_health(self->env->metrics, SL_HEALTH_DEGRADED, reason);
    sl_log_write(self->env->log, SL_LOG_ERROR, 0, "disk: %s", reason);
}

/* ---------------------------------------------------------------- finding what is there */

static int segment_compare(const void *a, const void *b)
{
    const struct segment *left = a;
    const struct segment *right = b;
    return left->number < right->number ? -1 : left->number > right->number;
}

struct listing {
    struct tierer *self;
    uint64_t foreign_bytes;
    bool too_many;
};

static void listing_add(void *context, const char *name, uint64_t bytes)
{
    struct listing *listing = context;
    struct tierer *self = listing->self;
    unsigned number = 0;
    char check[40];
    if (sscanf(name, "segment.%10u", &number) != 1 ||
        snprintf(check, sizeof(check), SEGMENT_NAME_FORMAT, number) < 0 ||
        strcmp(check, name) != 0 || number == 0 || number == UINT32_MAX) { /* there is a next one */
        listing->foreign_bytes += bytes;
        return;
    }
    if (self->segment_count == SEGMENTS_MAX) {
        listing->too_many = true;
        return;
    }
    self->segments[self->segment_count++] = (struct segment){.number = number, .file = -1};
}

static bool header_read(struct tierer *self, struct segment *segment, uint64_t file_bytes)
{
    struct sl_tier_header *header = (void *)self->frame_buffer;
    uint64_t got = 0;
    if (self->disk->ops->read_now(self->disk, segment->file, header, 0, sizeof(*header), &got,
                                  NULL) != SL_OK ||
        got < sizeof(*header)) {
        return false;
    }
    struct sl_digest digest = header->digest;
    header->digest = (struct sl_digest){0};
    if (header->magic != SL_TIER_HEADER_MAGIC || header->version != SL_TIER_FORMAT ||
        header->number != segment->number || header->segment_bytes > file_bytes ||
        header->segment_bytes < 2 * SL_PAGE_BYTES ||
        !sl_digest_equal(digest, digest_of_page(header, sizeof(*header)))) {
        return false;
    }
    segment->salt = header->salt;
    segment->bytes = header->segment_bytes;
    memcpy(self->store, header->store, sizeof(self->store));
    return true;
}

const struct sl_tier_frame *log_frame_at(struct tierer *self, const struct segment *segment,
                                         uint64_t offset, uint64_t previous)
{
    struct sl_tier_frame *frame = (void *)self->frame_buffer;
    uint64_t got = 0;
    if (offset + SL_PAGE_BYTES > segment->bytes ||
        self->disk->ops->read_now(self->disk, segment->file, frame, offset, SL_PAGE_BYTES, &got,
                                  NULL) != SL_OK ||
        got < SL_PAGE_BYTES) {
        return NULL;
    }
    uint64_t header_bytes = frame->header_bytes;
    if (frame->magic != SL_TIER_FRAME_MAGIC || frame->salt != segment->salt ||
        frame->segment != segment->number || frame->offset_bytes != offset ||
        frame->previous != previous || header_bytes < SL_PAGE_BYTES ||
        header_bytes % SL_PAGE_BYTES != 0 || header_bytes > SL_TIER_FRAME_HEADER_BYTES_MAX ||
        frame->frame_bytes < header_bytes || frame->frame_bytes > segment->bytes - offset ||
        frame->frame_bytes % SL_PAGE_BYTES != 0 ||
        frame->records_bytes > header_bytes - sizeof(*frame)) {
        return NULL;
    }
    if (header_bytes > SL_PAGE_BYTES &&
        (self->disk->ops->read_now(self->disk, segment->file, self->frame_buffer + SL_PAGE_BYTES,
                                   offset + SL_PAGE_BYTES, header_bytes - SL_PAGE_BYTES, &got,
                                   NULL) != SL_OK ||
         got < header_bytes - SL_PAGE_BYTES)) {
        return NULL;
    }
    struct sl_digest digest = frame->digest;
    frame->digest = (struct sl_digest){0};
    bool right = sl_digest_equal(digest, digest_of_page(frame, header_bytes));
    frame->digest = digest;
    return right ? frame : NULL;
}

/* The values of a frame of the newest segment may not have reached the disk: the frame counts only
 * when all do. */
static bool frame_values_whole(struct tierer *self, const struct segment *segment,
                               const struct sl_tier_frame *frame)
{
    const unsigned char *records = (const unsigned char *)(frame + 1);
    const struct sl_tier_record *record = NULL;
    SL_AUTO(free) unsigned char *buffer = aligned_alloc(SL_PAGE_BYTES, BATCH_BYTES_MAX);
    bool whole = buffer != NULL;
    for (uint64_t at = 0;
         whole && (record = sl_tier_record_next(records, frame->records_bytes, &at)) != NULL;) {
        if ((record->flags & SL_TIER_TOMBSTONE) != 0) {
            continue;
        }
        struct sl_digest_stream stream;
        sl_digest_start(&stream);
        for (uint64_t done = 0; whole && done < record->length_bytes;) {
            uint64_t want = SL_MIN(record->length_bytes - done, (uint64_t)BATCH_BYTES_MAX);
            uint64_t got = 0;
            whole = self->disk->ops->read_now(
                        self->disk, segment->file, buffer, record->offset_bytes + done,
                        sl_align_up(want, SL_PAGE_BYTES), &got, NULL) == SL_OK &&
                    got >= want;
            if (whole) {
                sl_digest_feed(&stream, buffer, want);
            }
            done += want;
        }
        whole =
            whole && sl_digest_equal(sl_digest_finish(&stream),
                                     (struct sl_digest){record->digest_low, record->digest_high});
    }
    return whole;
}

static bool record_in_frame(const struct sl_tier_record *record, const struct sl_tier_frame *frame)
{
    uint64_t end_bytes = frame->offset_bytes + frame->frame_bytes;
    if ((record->flags & SL_TIER_TOMBSTONE) != 0) {
        return true;
    }
    return record->segment == frame->segment && record->length_bytes >= 1 &&
           record->length_bytes <= SL_VALUE_BYTES_MAX &&
           record->offset_bytes % SL_PAGE_BYTES == 0 &&
           record->offset_bytes >= frame->offset_bytes + frame->header_bytes &&
           record->offset_bytes <= end_bytes &&
           sl_align_up(record->length_bytes, SL_PAGE_BYTES) <= end_bytes - record->offset_bytes;
}

static sl_err record_apply(struct tierer *self, struct segment *segment,
                           const struct sl_tier_record *record)
{
    struct sl_key_hash hash =
        sl_entries_hash(self->entries, sl_tier_record_key(record), record->key_length);
    if ((record->flags & SL_TIER_TOMBSTONE) != 0) {
        const struct sl_tier_entry *entry = sl_entries_find(self->entries, hash);
        struct sl_log_place until = {record->segment, record->offset_bytes};
        if (entry != NULL && !sl_log_place_after(sl_tier_entry_place(entry), until)) {
            sl_entries_kill(self->entries, hash);
        }
        return SL_OK;
    }
    struct sl_tier_entry entry = {
        .hash = hash,
        .digest = {record->digest_low, record->digest_high},
        .length_bytes = (uint32_t)record->length_bytes,
        .segment = segment->number,
        .page = (uint32_t)(record->offset_bytes / SL_PAGE_BYTES),
    };
    return sl_entries_put(self->entries, &entry, &segment->list);
}

/* Replays the frames of a segment up to the first that is not whole. */
static sl_err segment_replay(struct tierer *self, struct segment *segment, bool newest,
                             struct sl_error *why)
{
    segment->used_bytes = SL_PAGE_BYTES;
    segment->previous = segment->salt;
    for (;;) {
        const struct sl_tier_frame *frame =
            log_frame_at(self, segment, segment->used_bytes, segment->previous);
        sl_metrics_beat_now(self->env->metrics); /* a large disk takes longer than a hang may */
        if (frame == NULL || (newest && !frame_values_whole(self, segment, frame))) {
            break;
        }
        const struct sl_tier_record *record = NULL;
        for (uint64_t at = 0;
             (record = sl_tier_record_next(frame + 1, frame->records_bytes, &at)) != NULL;) {
            sl_err err =
                record_in_frame(record, frame) ? record_apply(self, segment, record) : SL_OK;
            if (err != SL_OK) {
                return sl_fail(why, err, "segment %u: its values do not fit in memory",
                               segment->number);
            }
        }
        self->next_sequence = SL_MAX(self->next_sequence, frame->sequence + 1);
        segment->previous = frame->digest.low;
        segment->used_bytes += frame->frame_bytes;
    }
    segment->durable_bytes = segment->used_bytes;
    return SL_OK;
}

static sl_err segment_reopen(struct tierer *self, struct segment *segment, bool newest,
                             struct sl_error *why)
{
    char name[40];
    uint64_t file_bytes = 0;
    (void)snprintf(name, sizeof(name), SEGMENT_NAME_FORMAT, segment->number);
    sl_err err =
        self->disk->ops->open(self->disk, name, false, 0, &segment->file, &file_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    if (!header_read(self, segment, file_bytes)) { /* died while it was made, or damaged: nothing of
                                                      it was acknowledged, or none can be trusted */
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "disk: %s has no valid header, removed", name);
        self->disk->ops->close(self->disk, segment->file);
        segment->file = -1;
        return self->disk->ops->remove(self->disk, name, why);
    }
    return segment_replay(self, segment, newest, why);
}

/* The newest segment was made and never written to: its room is worth more than the file. One that
 * has bytes where its first frame stood is kept, whatever they are. */
static sl_err log_drop_unused(struct tierer *self, uint32_t *kept, struct sl_error *why)
{
    struct segment *newest = &self->segments[*kept - 1];
    uint64_t got = 0;
    if (newest->used_bytes != SL_PAGE_BYTES ||
        self->disk->ops->read_now(self->disk, newest->file, self->frame_buffer, SL_PAGE_BYTES,
                                  SL_PAGE_BYTES, &got, NULL) != SL_OK) {
        return SL_OK;
    }
    for (uint64_t i = 0; i < got; i++) {
        if (self->frame_buffer[i] != 0) {
            return SL_OK;
        }
    }
    char name[40];
    (void)snprintf(name, sizeof(name), SEGMENT_NAME_FORMAT, newest->number);
    self->disk->ops->close(self->disk, newest->file);
    self->segment_count = --*kept;
    return self->disk->ops->remove(self->disk, name, why);
}

sl_err log_open(struct tierer *self, struct sl_error *why)
{
    struct listing listing = {.self = self};
    sl_err err = self->disk->ops->list(self->disk, listing_add, &listing, why);
    if (err != SL_OK) {
        return err;
    }
    if (listing.too_many) {
        return sl_fail(why, SL_ERR_LIMIT, "the disk directory holds more than %u segments",
                       SEGMENTS_MAX);
    }
    qsort(self->segments, self->segment_count, sizeof(*self->segments), segment_compare);
    self->next_number = 1;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        struct segment segment = self->segments[i];
        err = segment_reopen(self, &segment, i + 1 == self->segment_count, why);
        if (err != SL_OK) {
            self->segment_count = kept;
            return err;
        }
        self->next_number = segment.number + 1;
        if (segment.file >= 0) {
            self->segments[kept++] = segment;
        }
    }
    self->segment_count = kept;
    err = kept > 0 ? log_drop_unused(self, &kept, why) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    if (kept > 0) { /* never append behind what an earlier life left: its tail may hold half of a
                       frame that looks whole later */
        self->segments[kept - 1].abandoned = true;
    } else {
        for (size_t i = 0; i < sizeof(self->store); i++) {
            self->store[i] = (unsigned char)self->env->ops->random_u64(self->env);
        }
    }
    if (self->next_sequence == 0) {
        self->next_sequence = 1;
    }
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "disk: %u segments, %llu values, %llu bytes, %s",
                 kept, (unsigned long long)sl_entries_live_count(self->entries),
                 (unsigned long long)sl_entries_live_bytes(self->entries),
                 self->disk->direct ? "direct i/o"
                                    : "buffered i/o: the file system has no O_DIRECT");
    log_gauges(self);
    return SL_OK;
}

void log_close(struct tierer *self)
{
    for (uint32_t i = 0; i < self->segment_count; i++) {
        if (self->segments[i].file >= 0) {
            self->disk->ops->close(self->disk, self->segments[i].file);
        }
    }
    self->segment_count = 0;
}

/* ---------------------------------------------------------------- segments come and go */

static struct segment *log_newest(struct tierer *self)
{
    return self->segment_count > 0 ? &self->segments[self->segment_count - 1] : NULL;
}

static uint64_t log_real_bytes(const struct tierer *self)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        bytes += SL_MAX(self->segments[i].bytes, self->segment_bytes);
    }
    return bytes;
}

static void reclaim_ask(struct tierer *self)
{
    if (self->reclaiming || self->segment_count == 0 || self->segments[0].reads > 0) {
        return;
    }
    struct sl_msg reclaim = {.type = SL_MSG_DISK_RECLAIM};
    reclaim.body.disk_reclaim.segment = self->segments[0].number;
    uint64_t deadline_ns =
        sl_deadline_ns(self->env->now_ns, sl_config_u64(self->env->config, SL_SET_op_timeout));
    if (sl_calls_send(self->calls, "registrar", &reclaim, deadline_ns, self->segments[0].number,
                      NULL) == SL_OK) {
        self->reclaiming = true;
    }
}

/* The registrar points nowhere into the oldest segment any more: it goes. */
void log_reclaimed(struct tierer *self, const struct sl_msg *reply)
{
    self->reclaiming = false;
    if (reply == NULL || reply->code != SL_OK || self->segment_count == 0) {
        log_pump(self); /* asks again while room is wanted */
        return;
    }
    struct segment *oldest = &self->segments[0];
    if (oldest->reads > 0) {
        return; /* asked again when the reads have ended */
    }
    char name[40];
    struct sl_error why = {0};
    (void)snprintf(name, sizeof(name), SEGMENT_NAME_FORMAT, oldest->number);
    sl_entries_drop(self->entries, &oldest->list);
    self->disk->ops->close(self->disk, oldest->file);
    if (self->disk->ops->remove(self->disk, name, &why) != SL_OK) {
        log_degrade(self, why.text, why.os_code);
    }
    self->segment_count--;
    memmove(&self->segments[0], &self->segments[1], self->segment_count * sizeof(*self->segments));
    sl_metric_add(self->env->metrics, self->metrics.reclaimed_segments, 1);
    log_gauges(self);
    log_pump(self);
}

static sl_err segment_create(struct tierer *self, struct sl_error *why)
{
    struct segment segment = {
        .number = self->next_number, .file = -1, .bytes = self->segment_bytes};
    char name[40];
    uint64_t bytes = 0;
    (void)snprintf(name, sizeof(name), SEGMENT_NAME_FORMAT, segment.number);
    sl_err err = self->disk->ops->open(self->disk, name, true, self->segment_bytes, &segment.file,
                                       &bytes, why);
    if (err != SL_OK) {
        return err;
    }
    segment.salt = self->env->ops->random_u64(self->env);
    segment.previous = segment.salt;
    segment.used_bytes = SL_PAGE_BYTES;
    segment.durable_bytes = SL_PAGE_BYTES;
    self->segments[self->segment_count++] = segment;
    self->next_number++;
    log_gauges(self);
    return SL_OK;
}

/* A segment with room for frame_bytes, made if need be. NULL: not now (reclaim asked, or the disk
 * refuses). */
static struct segment *segment_for(struct tierer *self, uint64_t frame_bytes, bool *fresh)
{
    *fresh = false;
    if (self->reclaiming && self->segment_count == 1) {
        return NULL; /* the only segment is about to go */
    }
    if (self->segment_count > 0) {
        struct segment *newest = &self->segments[self->segment_count - 1];
        if (!newest->abandoned && newest->used_bytes + frame_bytes <= newest->bytes) {
            return newest;
        }
    }
    if (log_real_bytes(self) + self->segment_bytes > self->disk_bytes_max ||
        self->segment_count == SEGMENTS_MAX) {
        reclaim_ask(self);
        return NULL;
    }
    struct sl_error why = {0};
    if (segment_create(self, &why) != SL_OK) {
        log_degrade(self, "no new segment", why.os_code);
        self->blocked_until_ns = sl_deadline_ns(self->env->now_ns, HEALTH_RETRY_NS);
        self->env->ops->wake_at(self->env, self->blocked_until_ns);
        return NULL;
    }
    *fresh = true;
    return log_newest(self);
}

/* ---------------------------------------------------------------- batches */

/* Looks at the bytes of each value: what is not what was promised stays out. Gives header and frame
 * sizes. */
static void job_measure(struct tierer *self, struct job *job)
{
    uint64_t records_bytes = 0;
    uint64_t values_bytes = 0;
    for (uint32_t i = 0; i < job->item_count; i++) {
        struct item *item = &job->items[i];
        if (item->dead) {
            continue;
        }
        if (job->kind == JOB_WRITE) {
            const unsigned char *value =
                tierer_arena_at(self, item->arena, item->arena_offset, item->length_bytes);
            if (value == NULL ||
                !sl_digest_equal(sl_digest_of(value, item->length_bytes), item->digest)) {
                item->dead = true;
                item->code = value == NULL ? SL_ERR_INVALID : SL_ERR_CORRUPT;
                sl_metric_add(self->env->metrics, self->metrics.corrupt, value != NULL);
                continue;
            }
            values_bytes += sl_align_up(item->length_bytes, SL_PAGE_BYTES);
        }
        records_bytes += sl_tier_record_bytes(item->key_length, item->group_length);
    }
    job->frame_header_bytes =
        sl_align_up(sizeof(struct sl_tier_frame) + records_bytes, SL_PAGE_BYTES);
    job->frame_bytes = records_bytes == 0 ? 0 : job->frame_header_bytes + values_bytes;
}

static void record_write(unsigned char *at, const struct job *job, const struct item *item,
                         uint64_t offset, uint32_t segment)
{
    struct sl_tier_record *record = (void *)at;
    *record = (struct sl_tier_record){
        .offset_bytes = job->kind == JOB_FORGET ? item->disk_offset : offset,
        .length_bytes = job->kind == JOB_FORGET ? 0 : item->length_bytes,
        .digest_low = item->digest.low,
        .digest_high = item->digest.high,
        .generation = item->generation,
        .segment = job->kind == JOB_FORGET ? item->segment : segment,
        .record_bytes = (uint32_t)sl_tier_record_bytes(item->key_length, item->group_length),
        .flags = job->kind == JOB_FORGET ? SL_TIER_TOMBSTONE : 0,
        .key_length = item->key_length,
        .group_length = item->group_length,
        .part_index = item->part_index,
        .part_count = item->part_count,
    };
    memcpy(record + 1, item->key, item->key_length);
    memcpy((unsigned char *)(record + 1) + item->key_length, item->group, item->group_length);
}

/* Builds the job's frame at the segment's end and queues its writes. */
static bool job_write(struct tierer *self, struct job *job, struct segment *segment)
{
    job->frame = aligned_alloc(SL_PAGE_BYTES, job->frame_header_bytes);
    if (job->frame == NULL) {
        return false;
    }
    memset(job->frame, 0, job->frame_header_bytes);
    struct sl_tier_frame *frame = job->frame;
    unsigned char *records = (unsigned char *)(frame + 1);
    uint64_t records_bytes = 0;
    uint64_t offset = segment->used_bytes + job->frame_header_bytes;
    bool queued = true;
    job->frame_offset = segment->used_bytes;
    for (uint32_t i = 0; i < job->item_count; i++) {
        struct item *item = &job->items[i];
        if (item->dead) {
            continue;
        }
        record_write(records + records_bytes, job, item, offset, segment->number);
        records_bytes += sl_tier_record_bytes(item->key_length, item->group_length);
        frame->record_count++;
        if (job->kind == JOB_FORGET) {
            continue;
        }
        uint64_t space = sl_align_up(item->length_bytes, SL_PAGE_BYTES);
        unsigned char *from =
            tierer_arena_at(self, item->arena, item->arena_offset, item->length_bytes);
        if (item->length_bytes < SL_PAGE_BYTES) { /* shares its page of the arena with others */
            item->bounce = bounce_take(self);
            if (item->bounce >= 0) {
                memset(bounce_at(self, item->bounce), 0, SL_PAGE_BYTES);
                memcpy(bounce_at(self, item->bounce), from, item->length_bytes);
                from = bounce_at(self, item->bounce);
            } else {
                from = NULL;
            }
        }
        item->segment = segment->number;
        item->disk_offset = offset;
        struct sl_disk_request request = {.verb = SL_DISK_WRITE,
                                          .file = segment->file,
                                          .memory = from,
                                          .offset_bytes = offset,
                                          .length_bytes = space};
        queued = queued && from != NULL && io_start(self, IO_WRITE, job, i, &request);
        offset += space;
    }
    frame->magic = SL_TIER_FRAME_MAGIC;
    frame->salt = segment->salt;
    frame->sequence = self->next_sequence++;
    frame->durable_sequence = frame->sequence - 1;
    frame->previous = segment->previous;
    frame->offset_bytes = job->frame_offset;
    frame->frame_bytes = job->frame_bytes;
    frame->header_bytes = (uint32_t)job->frame_header_bytes;
    frame->records_bytes = (uint32_t)records_bytes;
    frame->segment = segment->number;
    frame->digest = digest_of_page(frame, job->frame_header_bytes);
    segment->previous = frame->digest.low;
    segment->used_bytes += job->frame_bytes;
    struct sl_disk_request request = {.verb = SL_DISK_WRITE,
                                      .file = segment->file,
                                      .memory = frame,
                                      .offset_bytes = job->frame_offset,
                                      .length_bytes = job->frame_header_bytes};
    return queued && io_start(self, IO_WRITE, job, UINT32_MAX, &request);
}

/* The header of a fresh segment goes with its first batch, under the same sync. Its page is given
 * back by its completion: item carries the page, job is NULL. */
static bool header_write(struct tierer *self, const struct segment *segment)
{
    int32_t page = bounce_take(self);
    if (page < 0) {
        return false;
    }
    struct sl_tier_header *header = (void *)bounce_at(self, page);
    memset(header, 0, sizeof(*header));
    header->magic = SL_TIER_HEADER_MAGIC;
    header->version = SL_TIER_FORMAT;
    header->number = segment->number;
    header->salt = segment->salt;
    header->segment_bytes = segment->bytes;
    memcpy(header->store, self->store, sizeof(header->store));
    header->digest = digest_of_page(header, sizeof(*header));
    struct sl_disk_request request = {.verb = SL_DISK_WRITE,
                                      .file = segment->file,
                                      .memory = header,
                                      .length_bytes = sizeof(*header)};
    return io_start(self, IO_WRITE, NULL, (uint32_t)page, &request);
}

static void batch_end(struct tierer *self)
{
    struct segment *segment = log_newest(self);
    SL_ASSERT(segment !=
              NULL); /* a batch has a segment, and the newest does not go while one is written */
    sl_err code = self->batch_os_code == 0        ? SL_OK
                  : self->batch_os_code == ENOSPC ? SL_ERR_NO_SPACE
                                                  : SL_ERR_IO;
    if (code != SL_OK) {
        log_degrade(self, "write", self->batch_os_code);
        segment->abandoned =
            true; /* what stands behind the last durable frame counts for nothing */
        self->blocked_until_ns = sl_deadline_ns(self->env->now_ns, HEALTH_RETRY_NS);
        self->env->ops->wake_at(self->env, self->blocked_until_ns);
    } else {
        segment->durable_bytes = segment->used_bytes;
        sl_metrics_health(self->env->metrics, self->draining ? SL_HEALTH_DRAINING : SL_HEALTH_READY,
                          "");
        sl_metric_add(self->env->metrics, self->metrics.syncs, 1);
    }
    sl_histogram_add(self->env->metrics, self->metrics.write_ns,
                     self->env->now_ns - self->batch_started_ns);
    for (struct job *job = job_pop(&self->batch); job != NULL; job = job_pop(&self->batch)) {
        for (uint32_t i = 0; i < job->item_count; i++) {
            struct item *item = &job->items[i];
            if (item->bounce >= 0) {
                bounce_give(self, item->bounce);
                item->bounce = -1;
            }
            if (item->dead) {
                continue;
            }
            item->code = code;
            if (code == SL_OK && job->kind == JOB_WRITE) {
                struct sl_tier_entry entry = {.hash = item->hash,
                                              .digest = item->digest,
                                              .length_bytes = (uint32_t)item->length_bytes,
                                              .segment = item->segment,
                                              .page =
                                                  (uint32_t)(item->disk_offset / SL_PAGE_BYTES)};
                item->code = sl_entries_put(self->entries, &entry, &segment->list);
                sl_metric_add(self->env->metrics, self->metrics.values_written, 1);
                sl_metric_add(self->env->metrics, self->metrics.bytes_written, item->length_bytes);
            } else if (code == SL_OK) {
                const struct sl_tier_entry *entry = sl_entries_find(self->entries, item->hash);
                struct sl_log_place until = {item->segment, item->disk_offset};
                if (entry != NULL && !sl_log_place_after(sl_tier_entry_place(entry), until)) {
                    sl_entries_kill(self->entries, item->hash);
                }
                sl_metric_add(self->env->metrics, self->metrics.tombstones, 1);
            }
        }
        job_reply(self, job);
    }
    self->phase = BATCH_IDLE;
    self->batch_os_code = 0;
    log_gauges(self);
    log_pump(self);
}

void log_io_done(struct tierer *self, struct io *io, uint64_t bytes, int os_code)
{
    if (io->kind == IO_WRITE && io->job == NULL) {
        bounce_give(self, (int32_t)io->item);
    }
    if (os_code == 0 && io->kind == IO_WRITE && bytes != io->request.length_bytes) {
        os_code = EIO;
    }
    if (os_code != 0 && self->batch_os_code == 0) {
        self->batch_os_code = os_code;
    }
    self->batch_ios--;
    if (self->batch_ios > 0) {
        return;
    }
    if (self->phase == BATCH_WRITING && self->batch_os_code == 0) {
        const struct segment *segment = log_newest(self);
        SL_ASSERT(segment != NULL);
        struct sl_disk_request sync = {.verb = SL_DISK_SYNC, .file = segment->file};
        self->phase = BATCH_SYNCING;
        if (io_start(self, IO_SYNC, NULL, 0, &sync)) {
            return;
        }
        self->batch_os_code = EAGAIN;
    }
    batch_end(self);
}

static uint32_t job_bounces(const struct job *job)
{
    uint32_t count = 0;
    for (uint32_t i = 0; job->kind == JOB_WRITE && i < job->item_count; i++) {
        count += !job->items[i].dead && job->items[i].length_bytes < SL_PAGE_BYTES;
    }
    return count;
}

/* Jobs whose values are all dead, or that can never fit, are answered without a frame. */
static bool job_trivial(struct tierer *self, struct job *job)
{
    if (job->frame_bytes > 0 && job->frame_bytes + SL_PAGE_BYTES <= self->segment_bytes &&
        job->frame_header_bytes <= SL_TIER_FRAME_HEADER_BYTES_MAX &&
        job->item_count <= FOUND_ITEMS_MAX && job_bounces(job) < BOUNCE_PAGES) {
        return false;
    }
    for (uint32_t i = 0; job->frame_bytes > 0 && i < job->item_count; i++) {
        job->items[i].code = job->items[i].dead ? job->items[i].code : SL_ERR_LIMIT;
    }
    return true;
}

void log_pump(struct tierer *self)
{
    uint64_t batch_bytes = 0;
    if (self->phase != BATCH_IDLE || self->waiting.count == 0 ||
        self->env->now_ns < self->blocked_until_ns) {
        return;
    }
    struct segment *segment = NULL;
    while (self->waiting.first != NULL && batch_bytes < BATCH_BYTES_MAX) {
        struct job *job = self->waiting.first;
        bool fresh = false;
        job_measure(self, job);
        if (job_trivial(self, job)) {
            job_reply(self, job_pop(&self->waiting));
            continue;
        }
        if (segment != NULL && segment->used_bytes + job->frame_bytes > segment->bytes) {
            break; /* one segment a batch: one sync */
        }
        if (job_bounces(job) + 1 > self->bounce_free_count) {
            if (segment == NULL) {
                return; /* reads hold the pages: their end comes here again */
            }
            break;
        }
        if (segment == NULL) {
            segment = segment_for(self, job->frame_bytes, &fresh);
            if (segment == NULL) {
                return;
            }
            self->phase = BATCH_WRITING;
            self->batch_started_ns = self->env->now_ns;
            self->batch_ios = 0;
        }
        if (fresh && !header_write(self, segment)) {
            self->batch_os_code = EAGAIN;
        }
        job_push(&self->batch, job_pop(&self->waiting));
        if (!job_write(self, job, segment)) {
            self->batch_os_code = ENOMEM;
        }
        batch_bytes += job->frame_bytes;
        if (self->batch_os_code != 0) {
            break;
        }
    }
    if (self->phase == BATCH_WRITING && self->batch_ios == 0) {
        batch_end(self);
    }
}
