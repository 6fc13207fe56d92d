/* actors/tierer/log.c - the log. Requests become frames, which are written side by side. One sync
 * makes all frames durable that were written before it (group commit). A value is acknowledged only
 * after a sync that began after its frame was written. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_DELAY_NS (5 * SL_NS_PER_MS) /* longest wait to batch writes for one sync */

static bool job_has_key(const struct ti_job *job, struct ti_key_hash hash)
{
    for (uint32_t i = 0; i < job->item_count; i++) {
        if (job->items[i].hash.low == hash.low && job->items[i].hash.high == hash.high) {
            return true;
        }
    }
    return false;
}

/* Whether a tombstone for this key is being written: its value will soon be gone. */
static bool is_being_forgotten(const struct tierer *self, struct ti_key_hash hash)
{
    for (const struct ti_job *at = self->active.first; at != NULL; at = at->next) {
        if (at->kind == TI_JOB_FORGET && job_has_key(at, hash)) {
            return true;
        }
    }
    return false;
}

/* Whether the value is on the disk already: the request was repeated after its answer, or after an
 * answer was lost. It gets the existing place. A second copy would make the first one dead, while
 * the registrar may refer to it. */
static bool item_is_present(struct tierer *self, struct ti_item *item)
{
    const struct ti_entry *entry = ti_entries_find(self->entries, item->hash);
    if (entry == NULL || !sl_digest_equal(entry->digest, item->digest) ||
        entry->length_bytes != item->length_bytes ||
        (self->reclaiming && entry->segment == self->segments[0].number) ||
        is_being_forgotten(self, item->hash)) {
        return false;
    }
    item->present = true;
    item->dead = true;
    item->code = SL_OK;
    item->segment = entry->segment;
    item->disk_offset = ti_entry_place(entry).offset_bytes;
    return true;
}

/* Values found on the disk when the request was measured may be gone. False: measure again. */
static bool job_present_stands(struct tierer *self, struct ti_job *job)
{
    bool stands = true;
    for (uint32_t i = 0; i < job->item_count; i++) {
        struct ti_item *item = &job->items[i];
        if (item->present && !item_is_present(self, item)) {
            item->present = false;
            item->dead = false;
            stands = false;
        }
    }
    job->measured = job->measured && stands;
    return stands;
}

/* Tombstones are written twice: no later frame names the end of the log yet, and one bad place
 * there must not bring removed values back. */
static uint64_t job_frames(const struct ti_job *job)
{
    return job->kind == TI_JOB_FORGET ? 2 : 1;
}

static uint64_t job_headers_bytes(const struct ti_job *job)
{
    return job_frames(job) * job->frame_header_bytes;
}

/* Leaves out values that do not match their digests. Sets the sizes of header and frame. */
static void job_measure(struct tierer *self, struct ti_job *job)
{
    uint64_t values_bytes = 0;
    job->measured = true;
    job->records_bytes = 0;
    job->record_count = 0;
    job->small_count = 0;
    for (uint32_t i = 0; i < job->item_count; i++) {
        struct ti_item *item = &job->items[i];
        if (item->dead || (job->kind == TI_JOB_WRITE && item_is_present(self, item))) {
            continue;
        }
        if (job->kind == TI_JOB_WRITE) {
            const unsigned char *value =
                ti_arena_at(self, item->arena, item->arena_offset, item->length_bytes);
            bool fits = ti_staging_fits(&self->staging, item->length_bytes);
            if (value == NULL || !fits ||
                !sl_digest_equal(sl_digest_of(value, item->length_bytes), item->digest)) {
                item->dead = true;
                /* SL_ERR_LIMIT would mean: too many at once. */
                item->code = fits ? SL_ERR_CORRUPT : SL_ERR_UNSUPPORTED;
                item->code = value == NULL ? SL_ERR_INVALID : item->code;
                sl_metric_add(self->env->metrics, self->metrics.corrupt,
                              item->code == SL_ERR_CORRUPT);
                continue;
            }
            values_bytes += sl_align_up(item->length_bytes, SL_PAGE_BYTES);
            job->small_count += item->length_bytes < SL_PAGE_BYTES;
        }
        job->records_bytes += ti_record_bytes(item->key_length, item->group_length);
        job->record_count++;
    }
    job->frame_header_bytes =
        sl_align_up(sizeof(struct ti_frame) + job->records_bytes, SL_PAGE_BYTES);
    job->frame_bytes = job->records_bytes == 0 ? 0 : job_headers_bytes(job) + values_bytes;
}

/* Whether the job needs no frame: its values are all dead, or can never fit. */
static bool job_is_trivial(struct tierer *self, struct ti_job *job)
{
    uint64_t wanted =
        SL_PAGE_BYTES + job->frame_bytes + ti_segment_footer_bytes(job->records_bytes);
    if (job->frame_bytes > 0 && wanted <= self->segment_bytes &&
        job->frame_header_bytes <= TI_FRAME_HEADER_BYTES_MAX &&
        (job->kind == TI_JOB_FORGET || job->item_count < SL_DISK_PIECES_MAX)) {
        return false;
    }
    for (uint32_t i = 0; job->frame_bytes > 0 && i < job->item_count; i++) {
        job->items[i].code = job->items[i].dead ? job->items[i].code : SL_ERR_LIMIT;
    }
    return true;
}

static void record_write(unsigned char *at, const struct ti_job *job, const struct ti_item *item,
                         uint64_t offset, uint32_t segment)
{
    struct ti_record *record = (void *)at;
    *record = (struct ti_record){
        .offset_bytes = job->kind == TI_JOB_FORGET ? item->disk_offset : offset,
        .length_bytes = job->kind == TI_JOB_FORGET ? 0 : item->length_bytes,
        .digest_low = item->digest.low,
        .digest_high = item->digest.high,
        .generation = item->generation,
        .segment = job->kind == TI_JOB_FORGET ? item->segment : segment,
        .record_bytes = (uint32_t)ti_record_bytes(item->key_length, item->group_length),
        .flags = job->kind == TI_JOB_FORGET ? TI_TOMBSTONE : 0,
        .key_length = item->key_length,
        .group_length = item->group_length,
        .part_index = item->part_index,
        .part_count = item->part_count,
    };
    memcpy(record + 1, item->key, item->key_length);
    memcpy((unsigned char *)(record + 1) + item->key_length, item->group, item->group_length);
}

/* Appends memory to the pieces, or extends the last piece if it continues it. */
static uint32_t piece_add(struct iovec *pieces, uint32_t count, void *at, uint64_t length)
{
    if (count > 0 &&
        (unsigned char *)pieces[count - 1].iov_base + pieces[count - 1].iov_len == at) {
        pieces[count - 1].iov_len += length;
        return count;
    }
    pieces[count] = (struct iovec){.iov_base = at, .iov_len = length};
    return count + 1;
}

/* Writes the records, and lists header and values as pieces. Gives the number of pieces. */
static uint32_t job_lay_out(struct tierer *self, struct ti_job *job,
                            const struct ti_segment *segment)
{
    unsigned char *record = job->frame + sizeof(struct ti_frame);
    unsigned char *small = job->frame + job_headers_bytes(job);
    uint64_t offset = job->frame_offset + job->frame_header_bytes;
    uint32_t count = piece_add(job->pieces, 0, job->frame, job_headers_bytes(job));
    for (uint32_t i = 0; i < job->item_count; i++) {
        struct ti_item *item = &job->items[i];
        if (item->dead) {
            continue;
        }
        if (job->kind == TI_JOB_FORGET && item->segment == 0) { /* any place up to here */
            item->segment = segment->number;
            item->disk_offset = job->frame_offset;
        }
        record_write(record, job, item, offset, segment->number);
        record += ti_record_bytes(item->key_length, item->group_length);
        if (job->kind == TI_JOB_FORGET) {
            continue;
        }
        uint64_t space = sl_align_up(item->length_bytes, SL_PAGE_BYTES);
        unsigned char *from =
            ti_arena_at(self, item->arena, item->arena_offset, item->length_bytes);
        if (item->length_bytes < SL_PAGE_BYTES) { /* its page of the arena has other values */
            memcpy(small, from, item->length_bytes);
            from = small;
            small += SL_PAGE_BYTES;
        }
        count = piece_add(job->pieces, count, from, space);
        item->segment = segment->number;
        item->disk_offset = offset;
        offset += space;
    }
    return count;
}

/* The header of a new file, and its copy in the last page, are synced with its first frame. Both
 * are written from one page, which follows the frame in its memory. */
static bool header_write(struct tierer *self, struct ti_job *job, const struct ti_segment *segment)
{
    unsigned char *page = job->frame + job_headers_bytes(job) + job->small_count * SL_PAGE_BYTES;
    ti_segment_header(self, segment, (void *)page);
    struct sl_disk_request request = {.verb = SL_DISK_WRITE,
                                      .file = segment->file,
                                      .memory = page,
                                      .length_bytes = SL_PAGE_BYTES};
    bool queued = ti_io_start(self, TI_IO_WRITE, job, 0, &request);
    job->ios += queued;
    request.offset_bytes = segment->bytes - SL_PAGE_BYTES;
    bool copied = queued && ti_io_start(self, TI_IO_WRITE, job, 0, &request);
    job->ios += copied;
    return copied;
}

/* Queues the writes of a frame. Large pieces are written by themselves, since a registered buffer
 * saves looking up their pages; runs of smaller ones are one vectored write. */
static bool pieces_write(struct tierer *self, struct ti_job *job, int file, uint32_t count)
{
    uint64_t offset = job->frame_offset;
    for (uint32_t from = 0, to = 0; from < count; from = to) {
        uint64_t bytes = job->pieces[from].iov_len;
        bool small = bytes < TI_REGISTERED_BYTES_MIN;
        for (to = from + 1; small && to < count; to++) {
            if (job->pieces[to].iov_len >= TI_REGISTERED_BYTES_MIN) {
                break;
            }
            bytes += job->pieces[to].iov_len;
        }
        bool one = to == from + 1;
        struct sl_disk_request request = {.verb = SL_DISK_WRITE,
                                          .file = file,
                                          .memory = one ? job->pieces[from].iov_base : NULL,
                                          .offset_bytes = offset,
                                          .length_bytes = bytes,
                                          .pieces = one ? NULL : &job->pieces[from],
                                          .piece_count = one ? 0 : to - from};
        if (!ti_io_start(self, TI_IO_WRITE, job, 0, &request)) {
            return false;
        }
        job->ios++;
        offset += bytes;
    }
    return true;
}

/* Completes the header of the job's frame number `copy`. */
static void frame_head(struct tierer *self, const struct ti_job *job,
                       const struct ti_segment *segment, uint64_t copy)
{
    struct ti_frame *frame = (void *)(job->frame + copy * job->frame_header_bytes);
    if (copy > 0) {
        memcpy(frame, job->frame, job->frame_header_bytes);
    }
    frame->magic = TI_FRAME_MAGIC;
    frame->salt = segment->salt;
    frame->sequence = job->sequence + copy;
    frame->durable_sequence = self->durable_sequence;
    frame->tombstone_sequence = self->tombstone_sequence;
    frame->offset_bytes = job->frame_offset + copy * job->frame_header_bytes;
    frame->frame_bytes = job->frame_bytes / job_frames(job);
    frame->header_bytes = (uint32_t)job->frame_header_bytes;
    frame->records_bytes = (uint32_t)job->records_bytes;
    frame->record_count = job->record_count;
    frame->segment = segment->number;
    frame->digest = (struct sl_digest){0};
    frame->digest = ti_page_digest(frame, job->frame_header_bytes);
}

/* Builds the job's frame at the file's end and queues its writes. False: no memory, or only a part
 * of the writes was queued; these end first. */
static bool job_write(struct tierer *self, struct ti_job *job, struct ti_segment *segment,
                      bool fresh)
{
    uint64_t pages = job_headers_bytes(job) + (job->small_count + UINT64_C(1)) * SL_PAGE_BYTES;
    job->frame = aligned_alloc(SL_PAGE_BYTES, pages);
    job->pieces = calloc(job->item_count + 1u, sizeof(*job->pieces));
    if (job->frame == NULL || job->pieces == NULL) {
        return false;
    }
    memset(job->frame, 0, pages);
    job->segment = segment->number;
    job->frame_offset = segment->used_bytes;
    job->sequence = self->next_sequence;
    self->next_sequence += job_frames(job);
    uint32_t count = job_lay_out(self, job, segment);
    for (uint64_t copy = 0; copy < job_frames(job); copy++) {
        frame_head(self, job, segment, copy);
    }
    segment->used_bytes += job->frame_bytes;
    segment->records_planned_bytes += job->records_bytes;
    segment->last_sequence = self->next_sequence - 1;
    segment->frames++;
    return pieces_write(self, job, segment->file, count) &&
           (!fresh || header_write(self, job, segment));
}

static void item_durable(struct tierer *self, const struct ti_job *job, struct ti_item *item,
                         struct ti_segment *segment)
{
    const struct ti_entry *there = ti_entries_find(self->entries, item->hash);
    struct ti_place place = {item->segment, item->disk_offset};
    if (job->kind == TI_JOB_FORGET) {
        if (there != NULL && !ti_place_after(ti_entry_place(there), place)) {
            ti_entries_kill(self->entries, item->hash);
        }
        sl_metric_add(self->env->metrics, self->metrics.tombstones, 1);
        return;
    }
    struct ti_entry entry = {.hash = item->hash,
                             .digest = item->digest,
                             .length_bytes = (uint32_t)item->length_bytes,
                             .segment = item->segment,
                             .page = (uint32_t)(item->disk_offset / SL_PAGE_BYTES)};
    /* Log order decides, even if frames end in another order. */
    item->code = there != NULL && ti_place_after(ti_entry_place(there), place)
                     ? SL_ERR_STALE
                     : ti_entries_put(self->entries, &entry, &segment->list);
    sl_metric_add(self->env->metrics, self->metrics.values_written, 1);
    sl_metric_add(self->env->metrics, self->metrics.bytes_written, item->length_bytes);
}

/* The frame is durable (os_code 0) or given up. In phase NAMING it is durable even if the name
 * failed: a page that names it may be on the disk. */
static void frame_end(struct tierer *self, struct ti_job *job, int os_code)
{
    int name_code = job->phase == TI_JOB_NAMING ? os_code : 0;
    os_code = job->phase == TI_JOB_NAMING ? 0 : os_code;
    os_code = job->answered && os_code == 0 && job->phase != TI_JOB_NAMING ? ETIMEDOUT : os_code;
    struct ti_segment *segment = ti_log_segment(self, job->segment);
    SL_ASSERT(segment != NULL &&
              segment->frames > 0); /* a file stays while it has frames in flight */
    segment->frames--;
    ti_job_remove(&self->active, job);
    self->active_bytes -= job->frame_bytes;
    if (os_code == 0) {
        if (!segment->records_lost &&
            !ti_segment_note(segment, job->frame + sizeof(struct ti_frame), job->records_bytes,
                             job->record_count)) {
            sl_log_write(
                self->env->log, SL_LOG_WARN, 0,
                "disk: log file segment.%u: no memory for its records: it gets no footer, and the "
                "next start reads its values",
                segment->number);
        }
        if (segment->records_lost) {
            ti_scan_again(self); /* the records that it has read lack this frame */
        }
        self->durable_sequence = SL_MAX(self->durable_sequence, job->sequence);
        if (job->kind == TI_JOB_FORGET) {
            segment->tombstone_last = SL_MAX(segment->tombstone_last, job->sequence);
            self->tombstone_sequence = job->sequence;
            self->tombstone_segment = job->segment;
        }
    } else {
        segment->failed = true;
        segment->state = segment->state == TI_SEGMENT_OPEN ? TI_SEGMENT_CLOSED : segment->state;
    }
    sl_err code = os_code == 0 ? SL_OK : ti_is_no_room(os_code) ? SL_ERR_NO_SPACE : SL_ERR_IO;
    for (uint32_t i = 0; i < job->item_count; i++) {
        struct ti_item *item = &job->items[i];
        if (item->dead) {
            continue;
        }
        if (!job->answered) {
            item->code = name_code == 0 ? code : SL_ERR_IO; /* the registrar asks again */
        }
        if (code == SL_OK) {
            item_durable(self, job, item, segment);
        }
    }
    sl_histogram_add(self->env->metrics, self->metrics.write_ns,
                     self->env->now_ns - job->started_ns);
    ti_job_reply(self, job);
}

/* Ends the file's frames that are not durable as failed; frames being written end with their
 * writes. */
static void frames_give_up(struct tierer *self, uint32_t number, int os_code)
{
    struct ti_job *next = NULL;
    for (struct ti_job *job = self->active.first; job != NULL; job = next) {
        next = job->next;
        if (job->segment != number) {
            continue;
        }
        if (job->phase == TI_JOB_WRITTEN) {
            frame_end(self, job, os_code);
        } else {
            job->os_code = job->os_code != 0 ? job->os_code : os_code;
        }
    }
}

static void frame_written(struct tierer *self, struct ti_job *job)
{
    struct ti_segment *segment = ti_log_segment(self, job->segment);
    SL_ASSERT(segment != NULL);
    if (job->os_code != 0) {
        ti_health_failed(self, "write", job->os_code);
        if (job->begins_segment) { /* without a header no frame of the file can be found */
            frames_give_up(self, job->segment, job->os_code);
        }
        frame_end(self, job, job->os_code);
        return;
    }
    segment->header_written = segment->header_written || job->begins_segment;
    job->phase = TI_JOB_WRITTEN;
    job->written_ns = self->env->now_ns;
}

/* The frame is durable. The first one with tombstones in a file is named in the page of members
 * before it is acknowledged, because all of that file may become unreadable. */
static void frame_durable(struct tierer *self, struct ti_job *job)
{
    const struct ti_members_file *members = &self->members;
    if (job->kind == TI_JOB_FORGET && job->os_code == 0 && !job->answered && members->there &&
        members->now.tombstone_segment != job->segment) {
        job->phase = TI_JOB_NAMING;
        return;
    }
    frame_end(self, job, job->os_code);
}

/* Later ones are named soon after: damage at the log's end may cover more than one page. */
static void naming_pump(struct tierer *self)
{
    struct ti_members_file *members = &self->members;
    uint64_t now_ns = self->env->now_ns;
    for (const struct ti_job *job = self->active.first; job != NULL; job = job->next) {
        if (job->phase == TI_JOB_NAMING) { /* at most one */
            ti_members_name_frame(self, job->segment, job->sequence);
            return;
        }
    }
    if (!members->there || self->settling || self->tombstone_segment == 0 ||
        members->now.tombstone_sequence >= self->tombstone_sequence ||
        now_ns < self->blocked_until_ns) {
        return;
    }
    if (now_ns >= members->name_at_ns) {
        members->name_at_ns = sl_deadline_ns(now_ns, TI_NAME_NS);
        ti_members_name_frame(self, self->tombstone_segment, self->tombstone_sequence);
    } else {
        self->env->ops->wake_at(self->env, members->name_at_ns);
    }
}

void ti_log_frame_named(struct tierer *self, uint32_t segment, int os_code)
{
    for (struct ti_job *job = self->active.first; job != NULL; job = job->next) {
        if (job->phase == TI_JOB_NAMING && job->segment == segment) {
            frame_end(self, job, os_code);
            return;
        }
    }
}

static void sync_end(struct tierer *self, int os_code)
{
    uint32_t number = self->sync.segment;
    self->sync.busy = false;
    sl_histogram_add(self->env->metrics, self->metrics.sync_ns,
                     self->env->now_ns - self->sync.started_ns);
    if (os_code != 0) {
        ti_health_failed(self, "sync", os_code);
    } else {
        sl_metric_add(self->env->metrics, self->metrics.syncs, 1);
        ti_health_write_ok(self);
    }
    struct ti_job *next = NULL;
    for (struct ti_job *job = self->active.first; job != NULL; job = next) {
        next = job->next;
        if (job->segment == number && job->phase == TI_JOB_SYNCING) {
            job->os_code = job->os_code != 0 ? job->os_code : os_code;
            frame_durable(self, job);
        }
    }
    if (os_code != 0) { /* after a failed sync no later one proves what was written */
        frames_give_up(self, number, os_code);
    }
    ti_segments_gauges(self);
}

void ti_log_io_done(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    if (io->kind == TI_IO_SYNC) {
        sync_end(self, os_code);
        return;
    }
    struct ti_job *job = io->job;
    if (os_code == 0 && bytes != io->request.length_bytes) {
        os_code = EIO;
    }
    job->os_code = job->os_code != 0 ? job->os_code : os_code;
    job->ios--;
    if (job->ios == 0 && job->phase == TI_JOB_WRITING) {
        frame_written(self, job);
    }
}

/* Whether a sync is due, and of which file: the one of the oldest frame that waits for a sync. */
static bool sync_due(struct tierer *self, uint32_t *number, uint64_t *due_ns)
{
    const struct ti_job *oldest = self->active.first;
    bool writing = false;
    uint64_t bytes = 0;
    *due_ns = SL_NEVER_NS;
    while (oldest != NULL && oldest->phase != TI_JOB_WRITTEN) {
        oldest = oldest->next;
    }
    const struct ti_segment *segment =
        oldest != NULL ? ti_log_segment(self, oldest->segment) : NULL;
    if (segment == NULL || !segment->header_written) {
        return false; /* frames are found only through their file's header */
    }
    for (const struct ti_job *job = self->active.first; job != NULL; job = job->next) {
        if (job->segment == oldest->segment) {
            writing = writing || job->phase == TI_JOB_WRITING;
            bytes += job->phase == TI_JOB_WRITTEN ? job->frame_bytes : 0;
        }
    }
    *number = oldest->segment;
    *due_ns = sl_deadline_ns(oldest->written_ns, COMMIT_DELAY_NS);
    return !writing || bytes >= TI_SYNC_BYTES || self->env->now_ns >= *due_ns;
}

static void sync_pump(struct tierer *self)
{
    uint32_t number = 0;
    uint64_t due_ns = 0;
    if (self->sync.busy) {
        return;
    }
    if (!sync_due(self, &number, &due_ns)) {
        if (due_ns != SL_NEVER_NS) {
            self->env->ops->wake_at(self->env, due_ns);
        }
        return;
    }
    const struct ti_segment *segment = ti_log_segment(self, number);
    SL_ASSERT(segment != NULL);
    struct sl_disk_request sync = {.verb = SL_DISK_SYNC, .file = segment->file};
    if (!ti_io_start(self, TI_IO_SYNC, NULL, 0, &sync)) {
        return; /* all slots are in use: the end of a request calls this again */
    }
    self->sync.busy = true;
    self->sync.segment = number;
    self->sync.started_ns = self->env->now_ns;
    for (struct ti_job *job = self->active.first; job != NULL; job = job->next) {
        if (job->segment == number && job->phase == TI_JOB_WRITTEN) {
            job->phase = TI_JOB_SYNCING;
        }
    }
}

/* Frames may end in any order, and the last to end counts, here and in the footer. So a tombstone
 * starts when no write of its keys is in flight. (The registrar waits for these too, except for a
 * write that it gave up.) Frames of tombstones follow each other: each names the one before. */
static bool tombstone_waits(const struct tierer *self, const struct ti_job *job)
{
    if (job->kind != TI_JOB_FORGET) {
        return false;
    }
    for (const struct ti_job *at = self->active.first; at != NULL; at = at->next) {
        if (at->kind == TI_JOB_FORGET) {
            return true;
        }
        for (uint32_t i = 0; at->kind == TI_JOB_WRITE && i < job->item_count; i++) {
            if (job_has_key(at, job->items[i].hash)) {
                return true;
            }
        }
    }
    return false;
}

static void job_refuse(struct tierer *self, struct ti_job *job)
{
    bool full = self->room.full || ti_is_no_room(self->degraded_os_code);
    for (uint32_t i = 0; i < job->item_count; i++) {
        struct ti_item *item = &job->items[i];
        item->code = item->dead ? item->code : full ? SL_ERR_NO_SPACE : SL_ERR_IO;
    }
    ti_job_answer(self, job);
}

/* Starts the next request. False: there is none, or not now. */
static bool job_start_next(struct tierer *self)
{
    struct ti_job *job = self->waiting.first;
    bool fresh = false;
    if (job == NULL || self->stalled || self->settling ||
        self->env->now_ns < self->blocked_until_ns ||
        (self->active.count > 0 && self->active_bytes >= TI_ACTIVE_BYTES_MAX) ||
        tombstone_waits(self, job)) {
        return false;
    }
    if (!job->measured || !job_present_stands(self, job)) {
        job_measure(self, job);
    }
    if (job_is_trivial(self, job)) {
        ti_job_reply(self, ti_job_pop(&self->waiting));
        return true;
    }
    /* With room for no other file, the rest of the newest one is for tombstones. */
    bool barred = self->room.full && job->kind == TI_JOB_WRITE;
    struct ti_segment *segment =
        barred ? NULL : ti_segment_for(self, job->frame_bytes, job->records_bytes, &fresh);
    if (segment == NULL && self->room.full) {
        (void)ti_job_pop(&self->waiting);
        job_refuse(self, job);
        ti_job_reply(self, job);
        return true;
    }
    if (segment == NULL) {
        return false;
    }
    (void)ti_job_pop(&self->waiting);
    job->started_ns = self->env->now_ns;
    bool begun = job_write(self, job, segment, fresh);
    if (!begun && job->segment == 0) { /* no memory for its frame: nothing was written */
        for (uint32_t i = 0; i < job->item_count; i++) {
            job->items[i].code = job->items[i].dead ? job->items[i].code : SL_ERR_NO_MEMORY;
        }
        segment->failed = segment->failed || fresh; /* its header was not written */
        segment->state = fresh ? TI_SEGMENT_CLOSED : segment->state;
        ti_job_reply(self, job);
        return true;
    }
    job->phase = TI_JOB_WRITING;
    job->begins_segment = fresh;
    job->os_code = begun ? 0 : EAGAIN;
    self->active_bytes += job->frame_bytes;
    ti_job_push(&self->active, job);
    if (job->ios == 0) {
        frame_written(self, job);
    }
    return true;
}

bool ti_log_idle(const struct tierer *self)
{
    return self->waiting.count == 0 && self->active.count == 0 && !self->sync.busy &&
           !self->settling;
}

void ti_log_refuse(struct tierer *self)
{
    uint64_t now_ns = self->env->now_ns;
    while (self->degraded && self->waiting.first != NULL &&
           now_ns >= self->waiting.first->arrived_ns + TI_HEALTH_REFUSE_NS) {
        struct ti_job *job = ti_job_pop(&self->waiting);
        job_refuse(self, job);
        ti_job_reply(self, job);
    }
    /* The disk only reads their memory, which may be reused; their frames are given up. */
    for (struct ti_job *job = self->active.first; self->stalled && job != NULL; job = job->next) {
        if (!job->answered && now_ns >= job->started_ns + TI_HEALTH_STALL_NS) {
            job_refuse(self, job);
            job->os_code = job->os_code != 0 ? job->os_code : ETIMEDOUT;
        }
    }
}

/* A tick clears earlier wake-ups, so each wait requests its own again. */
static void log_wake_later(struct tierer *self)
{
    uint64_t now_ns = self->env->now_ns;
    uint64_t times[] = {
        self->budget.retry_at_ns, self->blocked_until_ns,    self->reclaim_at_ns,
        self->spare.retry_at_ns,  self->scan_retry_ns,       self->room.retry_at_ns,
        self->room.again_ns,      ti_segments_seal_at(self), ti_health_next_ns(self)};
    uint64_t next_ns = SL_NEVER_NS;
    for (size_t i = 0; i < SL_COUNT(times); i++) {
        next_ns = times[i] > now_ns ? SL_MIN(next_ns, times[i]) : next_ns;
    }
    if (next_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, next_ns);
    }
}

void ti_log_pump(struct tierer *self)
{
    /* One frame a turn: comparing its bytes takes a while, and loads have priority. */
    if (job_start_next(self) && self->waiting.count > 0) {
        self->env->ops->wake_at(self->env, self->env->now_ns);
    }
    sync_pump(self);
    naming_pump(self);
    ti_segments_prepare(self);
    ti_segments_seal(self);
    ti_segments_dead(self);
    ti_health_probe(self);
    ti_budget_pump(self);
    log_wake_later(self);
}
