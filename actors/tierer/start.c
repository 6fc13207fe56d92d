/* actors/tierer/start.c - the start: opens all log files, oldest first, and rebuilds the table of
 * entries. Values that a lost tombstone may have removed are given up. */
#include "actors/tierer/internal.h"
#include "actors/tierer/recover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOOTERS_DOUBTED 16u
#define RECORDS_MAX     (16 * SL_MIB) /* bytes kept for footers; the rest at a later start */
#define APPLY_BATCH     32u           /* records whose table entries are prefetched together */

struct listing {
    struct tierer *self;
    bool too_many;
};

static void listing_add(void *context, const char *name, uint64_t bytes)
{
    struct listing *listing = context;
    struct tierer *self = listing->self;
    unsigned number = 0;
    char check[40];
    if (sscanf(name, "segment.%10u", &number) != 1 || number == 0 ||
        number > UINT32_MAX - (1u << 20) || /* later files need numbers as well */
        snprintf(check, sizeof(check), TI_SEGMENT_NAME_FORMAT, number) < 0 ||
        strcmp(check, name) != 0) {
        self->foreign_bytes += bytes;
        self->members.unwritten_bytes =
            strcmp(name, TI_MEMBERS_NAME) == 0 ? 0 : self->members.unwritten_bytes;
        return;
    }
    if (self->segment_count == TI_SEGMENTS_MAX) {
        listing->too_many = true;
        return;
    }
    self->segments[self->segment_count++] =
        (struct ti_segment){.number = number, .file = -1, .real_bytes = bytes};
}

static sl_err record_apply(struct tierer *self, struct ti_segment *segment,
                           const struct ti_record *record, struct ti_key_hash hash)
{
    const struct ti_entry *there = ti_entries_find(self->entries, hash);
    struct ti_place place = {record->segment, record->offset_bytes};
    if ((record->flags & TI_TOMBSTONE) != 0) {
        if (there != NULL && !ti_place_after(ti_entry_place(there), place)) {
            ti_entries_kill(self->entries, hash);
        }
        return SL_OK;
    }
    if (there != NULL && ti_place_after(ti_entry_place(there), place)) {
        return SL_OK;
    }
    struct ti_entry entry = {
        .hash = hash,
        .digest = {record->digest_low, record->digest_high},
        .length_bytes = (uint32_t)record->length_bytes,
        .segment = segment->number,
        .page = (uint32_t)(record->offset_bytes / SL_PAGE_BYTES),
    };
    return ti_entries_put(self->entries, &entry, &segment->list);
}

static sl_err records_apply(struct tierer *self, struct ti_segment *segment, const void *records,
                            uint64_t bytes, struct sl_error *why)
{
    const struct ti_record *batch[APPLY_BATCH];
    struct ti_key_hash hashes[APPLY_BATCH];
    uint64_t at = 0;
    uint32_t count = 0;
    do {
        const struct ti_record *record = NULL;
        count = 0;
        while (count < APPLY_BATCH && (record = ti_record_next(records, bytes, &at)) != NULL) {
            if (ti_record_plausible(segment, record)) {
                hashes[count] =
                    ti_entries_hash(self->entries, ti_record_key(record), record->key_length);
                ti_entries_prefetch(self->entries, hashes[count], false);
                batch[count++] = record;
            }
        }
        for (uint32_t i = 0; i < count; i++) {
            ti_entries_prefetch(self->entries, hashes[i], true);
        }
        for (uint32_t i = 0; i < count; i++) {
            sl_err err = record_apply(self, segment, batch[i], hashes[i]);
            if (err != SL_OK) {
                return sl_fail(why, err, "log file segment.%u: its values do not fit in memory",
                               segment->number);
            }
        }
    } while (count == APPLY_BATCH);
    return SL_OK;
}

/* Without a page of members the disk has the name of its log files. */
static bool segment_is_ours(struct tierer *self, const struct ti_segment *segment)
{
    if (!self->members.there) {
        memcpy(self->store, segment->store, sizeof(self->store));
    }
    return memcmp(self->store, segment->store, sizeof(self->store)) == 0;
}

static sl_err segment_drop(struct tierer *self, struct ti_segment *segment, struct sl_error *why)
{
    char name[40];
    (void)snprintf(name, sizeof(name), TI_SEGMENT_NAME_FORMAT, segment->number);
    (void)ti_entries_drop(self->entries, &segment->list, UINT32_MAX); /* on a helper thread */
    self->disk->ops->close(self->disk, segment->file);
    segment->file = -1;
    ti_segment_records_free(segment);
    return self->disk->ops->remove(self->disk, name, why);
}

/* Values are given up only if the disk itself can be read. */
static sl_err disk_reads(const struct tierer *self, struct sl_error *why)
{
    return self->unread != SL_ERR_IO
               ? SL_OK
               : sl_fail(why, SL_ERR_IO, "disk: it cannot be read now: the next start tries again");
}

/* With buffered i/o, pages may come from memory while the disk is out. So a few unreadable log
 * files are bad places; more mean that the disk is out. */
static sl_err segments_read(const struct tierer *self, const struct ti_start *start,
                            struct sl_error *why)
{
    return self->disk->direct || start->unreadable <= TI_UNREADABLE_MAX
               ? SL_OK
               : sl_fail(why, SL_ERR_IO,
                         "disk: %u of its %u segments cannot be read; remove the files segment.* "
                         "to go on with an empty disk",
                         start->unreadable, start->listed);
}

/* Gives up the values of the `count` oldest files: a later tombstone is lost, and its keys are
 * unknown. The files are removed, oldest first. The evidence of the loss stays until all are gone,
 * so that a later start continues an interrupted removal. */
static sl_err oldest_give_up(struct tierer *self, struct ti_start *start, uint32_t count,
                             const char *reason, struct sl_error *why)
{
    uint64_t values = ti_entries_live_count(self->entries);
    uint32_t newest = count > 0 ? self->segments[count - 1].number : 0;
    uint32_t gone = 0;
    sl_err err = count > 0 ? segments_read(self, start, why) : SL_OK;
    if (err != SL_OK) {
        return err; /* before anything is given up */
    }
    while (err == SL_OK && gone < count) {
        err = segment_drop(self, &self->segments[gone], why);
        gone++;
    }
    start->kept -= gone;
    memmove(&self->segments[0], &self->segments[gone], start->kept * sizeof(*self->segments));
    if (count > 0) {
        self->given_up_segments += gone;
        sl_log_write(self->env->log, SL_LOG_ERROR, 0,
                     "disk: %s: removed values could come back, so the %" PRIu64
                     " values in %u segments up to %u are given up",
                     reason, values - ti_entries_live_count(self->entries), count, newest);
    }
    return err == SL_OK
               ? SL_OK
               : sl_fail(why, err,
                         "disk: %s, and the segments before it cannot be removed; remove the files "
                         "segment.* in '%s' to go on with an empty disk",
                         reason, self->disk->place != NULL ? self->disk->place : "disk_path");
}

/* A frame of tombstones with this sequence was acknowledged. If it was not found, it came after
 * everything that is kept. */
static sl_err tombstone_named(struct tierer *self, struct ti_start *start, uint64_t sequence,
                              struct sl_error *why)
{
    if (sequence <= self->tombstone_sequence) {
        return SL_OK;
    }
    self->tombstone_sequence = sequence;
    return oldest_give_up(self, start, start->kept, "tombstones cannot be read", why);
}

/* Whether the index of a footer follows the frames: then no frame is missing at their end. */
static bool index_is_intact(struct tierer *self, const struct ti_segment *segment)
{
    uint64_t left = segment->records_bytes, at = 0;
    bool stands = left > 0 && segment->used_bytes + ti_segment_footer_bytes(left) == segment->bytes;
    for (; stands && left > 0; at += TI_SEARCH_BYTES) {
        uint64_t part = SL_MIN(left, (uint64_t)TI_SEARCH_BYTES);
        stands = ti_file_read(self, segment->file, self->search_buffer, segment->used_bytes + at,
                              sl_align_up(part, SL_PAGE_BYTES)) &&
                 memcmp(self->search_buffer, segment->records + at, part) == 0;
        left -= part;
    }
    return stands;
}

/* The remains of a damaged footer show whether frames are missing at the end of a file that was
 * cut, for its footer or by something else. */
static sl_err footer_remains(struct tierer *self, struct ti_segment *segment, struct ti_walk *walk,
                             struct sl_error *why)
{
    struct ti_trailer trailer;
    bool end = ti_trailer_read(self, segment, &trailer) && trailer.salt == segment->salt;
    if (segment->cut && !end && segment->records_lost) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "log file segment.%u: no memory for its records",
                       segment->number);
    }
    segment->cut = segment->cut && !end && !index_is_intact(self, segment);
    if (end && trailer.tombstone_last > walk->tombstones_seen) {
        walk->tombstones_seen = trailer.tombstone_last;
        walk->tombstones_lost = trailer.tombstone_last;
    }
    return SL_OK;
}

/* Applies the record, and keeps it for the future footer while there is memory. */
static sl_err record_recover(struct tierer *self, struct ti_segment *segment,
                             const struct ti_record *record, struct sl_error *why)
{
    if (segment->records_lost || !ti_segment_note(segment, record, record->record_bytes, 1)) {
        segment->record_count++;
    }
    return records_apply(self, segment, record, record->record_bytes, why);
}

/* Recovers a log file without an intact footer: after a crash, or damaged. */
static sl_err segment_recover(struct tierer *self, struct ti_start *start,
                              struct ti_segment *segment, struct sl_error *why)
{
    sl_err err = tombstone_named(self, start, segment->tombstone_before, why);
    if (err != SL_OK) {
        return err;
    }
    start->doubt = 0;
    struct ti_walk walk = {.tombstones_seen = self->tombstone_sequence};
    segment->state = TI_SEGMENT_CLOSED;
    segment->settling = true;
    segment->used_bytes = SL_PAGE_BYTES;
    bool noted = start->records_bytes < RECORDS_MAX;
    segment->records_lost = !noted && !segment->cut;
    err = ti_frames_walk(self, segment, true, record_recover, &walk, why);
    err = err == SL_OK ? footer_remains(self, segment, &walk, why) : err;
    err = err == SL_OK ? disk_reads(self, why) : err;
    if (err != SL_OK) {
        return err;
    }
    segment->last_sequence = walk.sequence;
    segment->tombstone_last = walk.tombstone_last;
    self->tombstone_segment = walk.tombstone_last != 0 ? segment->number : self->tombstone_segment;
    segment->records_planned_bytes = segment->records_bytes;
    self->tombstone_sequence = walk.tombstones_seen;
    sl_log_write(self->env->log, walk.damaged > 0 ? SL_LOG_WARN : SL_LOG_INFO, 0,
                 "disk: log file segment.%u has no footer: %u values found in its frames, %u gaps",
                 segment->number, segment->record_count, walk.damaged);
    if (walk.tombstones_lost != 0) {
        err = oldest_give_up(self, start, start->kept, "tombstones cannot be read", why);
    }
    if (err == SL_OK && walk.tombstones_lost >= segment->first_sequence &&
        walk.tombstones_lost != 0) { /* lost in this file: they may have been for its own values */
        segment->lost = true;
        return SL_OK;
    }
    if (segment->cut || walk.unreadable > 1) {
        start->doubt = segment->number;
    }
    start->records_bytes += segment->records_bytes;
    if (!noted ||
        segment->used_bytes + ti_segment_footer_bytes(segment->records_bytes) > segment->bytes) {
        ti_segment_records_free(segment); /* no footer now; its frames stay */
        segment->records_lost = true;
    }
    return err;
}

/* Recovers a log file from its footer. SL_ERR_NOT_FOUND: it has no intact one. */
static sl_err segment_adopt(struct tierer *self, struct ti_start *start, struct ti_segment *segment,
                            struct sl_error *why)
{
    struct ti_trailer trailer;
    SL_AUTO(free) unsigned char *records = NULL;
    sl_err err = ti_footer_read(self, segment, &records, &trailer, why);
    if (err != SL_OK) {
        return err;
    }
    segment->state = TI_SEGMENT_SEALED;
    segment->salt = trailer.salt;
    segment->used_bytes = trailer.index_offset_bytes;
    segment->last_sequence = trailer.last_sequence;
    segment->first_sequence = trailer.first_sequence;
    segment->tombstone_before = trailer.tombstone_before;
    segment->tombstone_last = trailer.tombstone_last;
    memcpy(segment->store, trailer.store, sizeof(segment->store));
    if (!segment_is_ours(self, segment)) {
        return SL_ERR_STALE;
    }
    err = tombstone_named(self, start, trailer.tombstone_before, why);
    start->doubt = 0;
    ti_entries_expect(self->entries, trailer.index_bytes / sizeof(struct ti_record) *
                                         start->listed); /* files are much alike */
    if (err == SL_OK) {
        err = records_apply(self, segment, records, trailer.index_bytes, why);
    }
    if (segment->tombstone_last > self->tombstone_sequence) {
        self->tombstone_sequence = segment->tombstone_last;
        self->tombstone_segment = segment->number;
    }
    return err;
}

static sl_err segment_open(struct tierer *self, struct ti_start *start, struct ti_segment *segment,
                           struct sl_error *why)
{
    char name[40];
    (void)snprintf(name, sizeof(name), TI_SEGMENT_NAME_FORMAT, segment->number);
    sl_err err =
        self->disk->ops->open(self->disk, name, false, 0, &segment->file, &segment->bytes, why);
    if (err != SL_OK && why->os_code == EMFILE) {
        return sl_fail(
            why, err,
            "disk: no descriptors for its %u log files: raise the hard limit (ulimit -Hn, "
            "or LimitNOFILE= of the unit)",
            start->listed);
    }
    if (err != SL_OK) {
        return err;
    }
    uint64_t file_bytes = segment->bytes / SL_PAGE_BYTES * SL_PAGE_BYTES;
    uint64_t blocks_bytes = segment->real_bytes;
    segment->bytes = file_bytes;
    segment->real_bytes = SL_MAX(segment->real_bytes, file_bytes);
    err = segment_adopt(self, start, segment, why);
    if (err == SL_ERR_STALE) { /* from before the disk was emptied */
        self->emptied_segments++;
        return segment_drop(self, segment, why);
    }
    if (err == SL_OK && blocks_bytes <= file_bytes / 2) {
        segment->emptied = true;
        segment->real_bytes = blocks_bytes; /* it is not written any more */
    }
    if (err != SL_ERR_NOT_FOUND) {
        return err;
    }
    switch (ti_header_find(self, segment, file_bytes)) {
    case TI_HEADER_OTHER_FORMAT:
        return sl_fail(why, SL_ERR_VERSION,
                       "disk: %s has format %u, this program (sluice " SL_VERSION
                       ") knows %u: " TI_FORMAT_WAY_OUT,
                       name, segment->version, TI_FORMAT);
    case TI_HEADER_UNREADABLE:
        err = disk_reads(self, why);
        if (err != SL_OK) {
            return err;
        }
        sl_log_write(self->env->log, SL_LOG_ERROR, 0,
                     "disk: %s cannot be read, its values are misses", name);
        segment->state = TI_SEGMENT_CLOSED;
        segment->lost = true;
        start->unreadable++;
        start->doubt = segment->number;
        return SL_OK;
    case TI_HEADER_NONE: /* died while it was made: nothing in it was acknowledged */
        sl_log_write(self->env->log, SL_LOG_INFO, 0, "disk: %s has no valid header, removed", name);
        return segment_drop(self, segment, why);
    case TI_HEADER_FINE:
        break;
    }
    if (!segment_is_ours(self, segment)) {
        self->emptied_segments++;
        return segment_drop(self, segment, why);
    }
    return segment_recover(self, start, segment, why);
}

/* Whether the file has no frames, so that its space is worth more than the file. A file with any
 * bytes at the place of its first frame is kept. */
static bool segment_unused(struct tierer *self, const struct ti_segment *segment)
{
    if (segment->state == TI_SEGMENT_SEALED || segment->lost ||
        segment->used_bytes != SL_PAGE_BYTES ||
        !ti_file_read(self, segment->file, self->frame_buffer, SL_PAGE_BYTES, SL_PAGE_BYTES)) {
        return false;
    }
    for (uint64_t i = 0; i < SL_PAGE_BYTES; i++) {
        if (self->frame_buffer[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Gives up the files that may hold values of tombstones that the page of members names but no file
 * has, and the files up to one whose end is in doubt. */
static sl_err segments_give_up_doubtful(struct tierer *self, struct ti_start *start,
                                        struct sl_error *why)
{
    const struct ti_members *page = &self->members.now;
    uint32_t named =
        page->tombstone_sequence > self->tombstone_sequence ? page->tombstone_segment : 0;
    /* After the newest file that has tombstones there are none. */
    bool doubt = start->doubt != 0 &&
                 (page->tombstone_segment == 0 || start->doubt <= page->tombstone_segment);
    uint32_t count = 0;
    while (count < start->kept && (self->segments[count].number <= named ||
                                   (doubt && self->segments[count].number <= start->doubt))) {
        count++;
    }
    if (named != 0) {
        self->tombstone_sequence = page->tombstone_sequence;
        self->tombstone_segment = page->tombstone_segment;
    }
    return oldest_give_up(self, start, count,
                          named != 0 ? "tombstones cannot be read" : "a segment cannot be read",
                          why);
}

/* Removes lost files. If one became readable later, its values could return after files with their
 * tombstones were reclaimed. */
static sl_err segments_lost_drop(struct tierer *self, struct ti_start *start, struct sl_error *why)
{
    uint32_t kept = 0;
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < start->kept; i++) {
        struct ti_segment segment = self->segments[i];
        if (err == SL_OK && segment.lost) {
            err = segment_drop(self, &segment, why);
            self->given_up_segments++;
        }
        if (segment.file >= 0) {
            self->segments[kept++] = segment;
        }
    }
    start->kept = kept;
    return err;
}

/* A footer that can be read may still not be durable: its sync may have failed, or the tierer died
 * before it. Without that footer, a given-up frame that it leaves out would count after a power
 * cut. So the newest files are synced before anything is reported. Older files need no sync: frames
 * acknowledged after them waited for their footers. */
static void footers_doubt(struct tierer *self, const struct ti_start *start)
{
    uint32_t from = start->kept > FOOTERS_DOUBTED ? start->kept - FOOTERS_DOUBTED : 0;
    for (uint32_t i = from; i < start->kept; i++) {
        self->segments[i].settling = true;
    }
}

static sl_err segments_open(struct tierer *self, struct ti_start *start, struct sl_error *why)
{
    sl_err err = SL_OK;
    qsort(self->segments, start->listed, sizeof(*self->segments), ti_segment_compare);
    self->next_number = 1;
    self->next_sequence = 1;
    ti_reads_begin(self);
    for (uint32_t i = 0; err == SL_OK && i < start->listed; i++) {
        struct ti_segment segment = self->segments[i];
        bool newest = i + 1 == start->listed;
        atomic_store_explicit(&start->done, i, memory_order_relaxed);
        if (atomic_load_explicit(&start->cancelled, memory_order_relaxed)) {
            err = sl_fail(why, SL_ERR_DRAINING, "disk: stopped while its log was being read");
            break;
        }
        self->next_number = segment.number + 1;
        err = segment_open(self, start, &segment, why);
        self->next_sequence = SL_MAX(self->next_sequence, segment.last_sequence + 1);
        if (err == SL_OK && segment.file >= 0 && newest && segment_unused(self, &segment)) {
            err = segment_drop(self, &segment, why);
        }
        if (segment.file >= 0) { /* also after a failure: ti_log_close() closes it */
            self->segments[start->kept++] = segment;
        }
    }
    if (err == SL_OK && start->unreadable > 1 && start->unreadable == start->kept) {
        err = sl_fail(why, SL_ERR_IO,
                      "disk: none of its %u segments can be read; remove the files segment.* to "
                      "go on with an empty disk",
                      start->kept);
    }
    err = err == SL_OK ? segments_read(self, start, why) : err;
    err = err == SL_OK ? segments_give_up_doubtful(self, start, why) : err;
    err = err == SL_OK ? segments_lost_drop(self, start, why) : err;
    footers_doubt(self, start);
    /* Sequences of lost frames are not reused: pages may name them. */
    self->next_sequence = SL_MAX(self->next_sequence, self->tombstone_sequence + 2);
    self->next_number = SL_MAX(self->next_number, self->members.now.tombstone_segment + 1);
    return err;
}

sl_err ti_log_open(struct tierer *self, struct sl_error *why)
{
    struct listing listing = {.self = self};
    self->members.unwritten_bytes = TI_MEMBERS_BYTES;
    sl_err err = self->disk->ops->list(self->disk, listing_add, &listing, why);
    if (err != SL_OK) {
        return err;
    }
    if (listing.too_many) {
        return sl_fail(why, SL_ERR_LIMIT, "the disk directory holds more than %u segments",
                       TI_SEGMENTS_MAX);
    }
    ti_reads_begin(self);
    self->start.listed = self->segment_count;
    self->segment_count = 0; /* none of them is open yet */
    return ti_members_open(self, why);
}

/* On a helper thread: reading a disk may take minutes. */
static sl_err log_read(void *context, uint32_t thread)
{
    struct tierer *self = context;
    (void)thread;
    return segments_open(self, &self->start, &self->start.why);
}

sl_err ti_log_read(struct tierer *self, struct sl_error *why)
{
    sl_err err = self->env->ops->job(self->env, 1, log_read, self, TI_COOKIE_START);
    if (err != SL_OK) {
        return sl_fail(why, err, "disk: no thread to read its log: %s", sl_err_text(err));
    }
    self->start.reading = true;
    self->start.since_ns = self->env->now_ns;
    self->env->starting = true;
    self->env->ops->wake_at(self->env, self->env->now_ns + TI_START_REPORT_NS);
    return SL_OK;
}

bool ti_log_was_read(struct tierer *self, sl_err result)
{
    self->start.reading = false;
    self->segment_count = self->start.kept;
    if (result != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_ERROR, 0, "%s", self->start.why.text);
        self->env->ending = self->start.why.text;
        return false;
    }
    if (self->emptied_segments > 0) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: %u segments removed: the disk was absent while others of this node "
                     "were in use, and starts empty",
                     self->emptied_segments);
    }
    sl_metric_set(self->env->metrics, self->metrics.emptied_segments, self->emptied_segments);
    sl_metric_set(self->env->metrics, self->metrics.given_up_segments, self->given_up_segments);
    sl_log_write(
        self->env->log, SL_LOG_INFO, 0,
        "disk: %u segments, %" PRIu64 " values, %" PRIu64 " bytes, read in %" PRIu64 " ms, %s",
        self->segment_count, ti_entries_live_count(self->entries),
        ti_entries_live_bytes(self->entries),
        (self->env->now_ns - self->start.since_ns) / SL_NS_PER_MS,
        self->disk->direct ? "direct i/o" : "buffered i/o: the file system has no O_DIRECT");
    ti_segments_gauges(self);
    self->env->starting = false;
    ti_health_publish(self);
    ti_log_settle(self);
    return true;
}

static bool settle_next(struct tierer *self)
{
    for (uint32_t i = 0; i < self->segment_count; i++) {
        const struct ti_segment *segment = &self->segments[i];
        struct sl_disk_request sync = {.verb = SL_DISK_SYNC, .file = segment->file};
        if (segment->settling) {
            return ti_io_start(self, TI_IO_SETTLE, NULL, segment->number, &sync);
        }
    }
    return false;
}

void ti_log_settle(struct tierer *self)
{
    self->settling = settle_next(self); /* one at a time: more than one without a footer is rare */
    if (self->settling) {
        self->env->ops->wake_at(self->env, self->env->now_ns);
    }
}

void ti_log_settled(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    (void)bytes;
    if (os_code != 0) { /* the disk may differ from what was read: only a restart shows */
        ti_health_failed(self, "sync at the start", os_code);
        self->unsettled = true;
        return;
    }
    struct ti_segment *segment = ti_log_segment(self, io->item);
    SL_ASSERT(segment != NULL); /* no file leaves before it is durable */
    segment->settling = false;
    ti_log_settle(self);
}

void ti_log_close(struct tierer *self)
{
    self->segment_count = self->start.reading ? self->start.kept : self->segment_count;
    for (uint32_t i = 0; i < self->segment_count; i++) {
        if (self->segments[i].file >= 0) {
            self->disk->ops->close(self->disk, self->segments[i].file);
        }
        ti_segment_records_free(&self->segments[i]);
    }
    ti_members_close(self);
    self->segment_count = 0;
}
