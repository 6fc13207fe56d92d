/* actors/tierer/recover.c - what is on the disk at the start: footers of closed segments, records
 * one by one of all others.
 *
 * A segment with a footer costs one read, or two when its index is long. Without one its frames are
 * looked for, past damaged ones too, and every value is read: a record counts when its value is
 * right. Such a segment is then closed with a footer like any other. */
#include "actors/tierer/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#define TAIL_BYTES  (64u << 10) /* read at once at the end of a file: most indexes fit */
#define VALUE_BYTES (4u << 20)  /* of a value, read at once */
#define APPLY_BATCH 32u         /* records whose places in the table are fetched together */

struct sl_digest ti_page_digest(const void *bytes, uint64_t length)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, (size_t)length);
    return (struct sl_digest){.low = hash.low64, .high = hash.high64};
}

const struct ti_record *ti_record_next(const void *records, uint64_t records_bytes, uint64_t *at)
{
    uint64_t left = records_bytes - *at;
    if (left < sizeof(struct ti_record)) {
        return NULL;
    }
    const struct ti_record *record = (const void *)((const unsigned char *)records + *at);
    if (record->key_length == 0 || record->key_length > SL_KEY_BYTES_MAX ||
        record->group_length > SL_KEY_BYTES_MAX ||
        record->record_bytes != ti_record_bytes(record->key_length, record->group_length) ||
        record->record_bytes > left) {
        return NULL;
    }
    *at += record->record_bytes;
    return record;
}

bool ti_record_plausible(const struct ti_segment *segment, const struct ti_record *record)
{
    if ((record->flags & TI_TOMBSTONE) != 0) {
        return true;
    }
    return record->segment == segment->number && record->length_bytes >= 1 &&
           record->length_bytes <= SL_VALUE_BYTES_MAX &&
           record->offset_bytes % SL_PAGE_BYTES == 0 && record->offset_bytes >= 2 * SL_PAGE_BYTES &&
           record->offset_bytes <= segment->bytes &&
           sl_align_up(record->length_bytes, SL_PAGE_BYTES) <=
               segment->bytes - record->offset_bytes;
}

/* A read that fails may be right a moment later, and what is not read now is lost to everyone: it
 * is tried again. An error that stays is a bad place on the disk, which costs what lies there. The
 * pauses are bounded, so that a disk that is all bad does not hold up the start. */
bool ti_file_read(struct tierer *self, int file, void *memory, uint64_t offset, uint64_t length)
{
    static const uint64_t pauses_ns[] = {SL_NS_PER_MS, 10 * SL_NS_PER_MS, 50 * SL_NS_PER_MS};
    for (size_t tries = 0;; tries++) {
        uint64_t got = 0;
        sl_err err =
            self->disk->ops->read_now(self->disk, file, memory, offset, length, &got, NULL);
        if (err == SL_OK) {
            return got == length;
        }
        if (tries == SL_COUNT(pauses_ns) || self->read_pauses_left == 0) {
            return false;
        }
        self->read_pauses_left--;
        const struct timespec pause = {.tv_nsec = (long)pauses_ns[tries]};
        (void)nanosleep(&pause, NULL);
    }
}

static bool read_whole(struct tierer *self, const struct ti_segment *segment, void *memory,
                       uint64_t offset, uint64_t length)
{
    return ti_file_read(self, segment->file, memory, offset, length);
}

/* ---------------------------------------------------------------- frames */

/* Reads the frame at offset into frame_buffer and checks it; NULL when none stands there. */
static const struct ti_frame *frame_at(struct tierer *self, const struct ti_segment *segment,
                                       uint64_t offset)
{
    struct ti_frame *frame = (void *)self->frame_buffer;
    if (!read_whole(self, segment, frame, offset, SL_PAGE_BYTES)) {
        return NULL;
    }
    uint64_t header_bytes = frame->header_bytes;
    if (frame->magic != TI_FRAME_MAGIC || frame->salt != segment->salt ||
        frame->segment != segment->number || frame->offset_bytes != offset ||
        header_bytes < SL_PAGE_BYTES || header_bytes % SL_PAGE_BYTES != 0 ||
        header_bytes > TI_FRAME_HEADER_BYTES_MAX || frame->frame_bytes < header_bytes ||
        frame->frame_bytes > segment->bytes - offset || frame->frame_bytes % SL_PAGE_BYTES != 0 ||
        frame->records_bytes > header_bytes - sizeof(*frame)) {
        return NULL;
    }
    if (header_bytes > SL_PAGE_BYTES &&
        !read_whole(self, segment, self->frame_buffer + SL_PAGE_BYTES, offset + SL_PAGE_BYTES,
                    header_bytes - SL_PAGE_BYTES)) {
        return NULL;
    }
    struct sl_digest digest = frame->digest;
    frame->digest = (struct sl_digest){0};
    bool right = sl_digest_equal(digest, ti_page_digest(frame, header_bytes));
    frame->digest = digest;
    return right ? frame : NULL;
}

/* The first page at or behind offset that claims to be a frame of this segment; bytes of the
 * segment when there is none. A part that cannot be read is passed over. */
static uint64_t frame_search(struct tierer *self, const struct ti_segment *segment, uint64_t offset)
{
    while (offset < segment->bytes) {
        uint64_t want = SL_MIN((uint64_t)TI_SEARCH_BYTES, segment->bytes - offset);
        if (!read_whole(self, segment, self->search_buffer, offset, want)) {
            want = SL_PAGE_BYTES;
            if (!read_whole(self, segment, self->search_buffer, offset, want)) {
                offset += want;
                continue;
            }
        }
        for (uint64_t at = 0; at + SL_PAGE_BYTES <= want; at += SL_PAGE_BYTES) {
            const struct ti_frame *frame = (const void *)(self->search_buffer + at);
            if (frame->magic == TI_FRAME_MAGIC && frame->salt == segment->salt &&
                frame->offset_bytes == offset + at) {
                return offset + at;
            }
        }
        offset += want;
    }
    return segment->bytes;
}

struct walk {
    uint64_t offset;
    uint64_t sequence; /* of the last frame */
    uint32_t damaged;  /* places where a frame should have stood and did not */
};

/* The next frame of the segment, in frame_buffer; moves the walk behind it. NULL: no more. */
static const struct ti_frame *frame_next(struct tierer *self, const struct ti_segment *segment,
                                         struct walk *walk)
{
    bool searched = false;
    while (walk->offset + SL_PAGE_BYTES <= segment->bytes) {
        const struct ti_frame *frame = frame_at(self, segment, walk->offset);
        if (frame != NULL && frame->sequence > walk->sequence) {
            walk->damaged += searched;
            walk->offset += frame->frame_bytes;
            walk->sequence = frame->sequence;
            return frame;
        }
        walk->offset = frame_search(self, segment, walk->offset + SL_PAGE_BYTES);
        searched = true;
    }
    return NULL;
}

/* The values of one frame, as far as they are in memory: from, bytes. */
struct values {
    unsigned char *buffer; /* VALUE_BYTES */
    uint64_t offset, bytes;
};

/* Reads all values of a frame at once when they are not too large: one by one they cost a round
 * trip to the disk each. */
static void values_read(struct tierer *self, const struct ti_segment *segment,
                        const struct ti_frame *frame, struct values *values)
{
    uint64_t bytes = frame->frame_bytes - frame->header_bytes;
    values->offset = frame->offset_bytes + frame->header_bytes;
    values->bytes =
        bytes <= VALUE_BYTES && read_whole(self, segment, values->buffer, values->offset, bytes)
            ? bytes
            : 0;
}

static bool value_is_right(struct tierer *self, const struct ti_segment *segment,
                           const struct ti_record *record, struct values *values)
{
    struct sl_digest want = {record->digest_low, record->digest_high};
    struct sl_digest_stream stream;
    if (record->offset_bytes >= values->offset &&
        record->offset_bytes - values->offset + record->length_bytes <= values->bytes) {
        const unsigned char *at = values->buffer + (record->offset_bytes - values->offset);
        return sl_digest_equal(sl_digest_of(at, record->length_bytes), want);
    }
    values->bytes = 0; /* the buffer is used for parts of this one */
    sl_digest_start(&stream);
    for (uint64_t done = 0; done < record->length_bytes;) {
        uint64_t part = SL_MIN(record->length_bytes - done, (uint64_t)VALUE_BYTES);
        if (!read_whole(self, segment, values->buffer, record->offset_bytes + done,
                        sl_align_up(part, SL_PAGE_BYTES))) {
            return false;
        }
        sl_digest_feed(&stream, values->buffer, part);
        done += part;
    }
    return sl_digest_equal(sl_digest_finish(&stream), want);
}

/* Notes the records of all frames in a segment; verify: only those whose values are right. */
static sl_err frames_note(struct tierer *self, struct ti_segment *segment, bool verify,
                          struct walk *walk, struct sl_error *why)
{
    SL_AUTO(free) unsigned char *buffer = aligned_alloc(SL_PAGE_BYTES, VALUE_BYTES);
    const struct ti_frame *frame = NULL;
    struct values values = {.buffer = buffer};
    *walk = (struct walk){.offset = SL_PAGE_BYTES};
    if (buffer == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to look at values");
    }
    while ((frame = frame_next(self, segment, walk)) != NULL) {
        sl_metrics_beat_now(self->env->metrics); /* a large disk takes longer than a hang may */
        const struct ti_record *record = NULL;
        if (verify) {
            values_read(self, segment, frame, &values);
        }
        for (uint64_t at = 0;
             (record = ti_record_next(frame + 1, frame->records_bytes, &at)) != NULL;) {
            bool tombstone = (record->flags & TI_TOMBSTONE) != 0;
            if (!ti_record_plausible(segment, record) ||
                (verify && !tombstone && !value_is_right(self, segment, record, &values))) {
                continue;
            }
            if (!ti_segment_note(segment, record, record->record_bytes, 1)) {
                return sl_fail(why, SL_ERR_NO_MEMORY, "segment %u: no memory for its records",
                               segment->number);
            }
        }
        segment->used_bytes = walk->offset;
    }
    return SL_OK;
}

/* ---------------------------------------------------------------- footers and headers */

static bool trailer_right(const struct ti_segment *segment, struct ti_trailer *trailer)
{
    struct sl_digest digest = trailer->digest;
    if (trailer->magic != TI_TRAILER_MAGIC || trailer->version != TI_FORMAT ||
        trailer->segment != segment->number) {
        return false;
    }
    trailer->digest = (struct sl_digest){0};
    bool right = sl_digest_equal(digest, ti_page_digest(trailer, sizeof(*trailer)));
    trailer->digest = digest;
    return right && trailer->index_offset_bytes % SL_PAGE_BYTES == 0 &&
           trailer->index_offset_bytes <= segment->bytes &&
           trailer->index_bytes <= segment->bytes &&
           trailer->index_offset_bytes + ti_segment_footer_bytes(trailer->index_bytes) ==
               segment->bytes;
}

/* Reads the footer of a segment whose bytes are those of its file. Gives its records (free). False:
 * there is none that is whole. */
static bool footer_read(struct tierer *self, const struct ti_segment *segment,
                        unsigned char **records, struct ti_trailer *trailer)
{
    uint64_t tail_bytes = SL_MIN((uint64_t)TAIL_BYTES, segment->bytes);
    SL_AUTO(free) unsigned char *tail = aligned_alloc(SL_PAGE_BYTES, TAIL_BYTES);
    if (tail == NULL || segment->bytes < 2 * SL_PAGE_BYTES ||
        !read_whole(self, segment, tail, segment->bytes - tail_bytes, tail_bytes)) {
        return false;
    }
    memcpy(trailer, tail + tail_bytes - SL_PAGE_BYTES, sizeof(*trailer));
    if (!trailer_right(segment, trailer)) {
        return false;
    }
    uint64_t footer_bytes = ti_segment_footer_bytes(trailer->index_bytes);
    SL_AUTO(free) unsigned char *index = NULL;
    unsigned char *from = tail + tail_bytes - SL_MIN(footer_bytes, tail_bytes);
    if (footer_bytes > tail_bytes) {
        index = aligned_alloc(SL_PAGE_BYTES, footer_bytes);
        if (index == NULL ||
            !read_whole(self, segment, index, trailer->index_offset_bytes, footer_bytes)) {
            return false;
        }
        from = index;
    }
    if (!sl_digest_equal(trailer->index_digest, ti_page_digest(from, trailer->index_bytes))) {
        return false;
    }
    unsigned char *kept = malloc(trailer->index_bytes + 1);
    if (kept == NULL) {
        return false;
    }
    memcpy(kept, from, trailer->index_bytes);
    *records = kept;
    return true;
}

sl_err ti_segment_records_read(struct tierer *self, const struct ti_segment *segment,
                               unsigned char **records, uint64_t *bytes, struct sl_error *why)
{
    struct ti_trailer trailer;
    *bytes = 0;
    *records = NULL;
    if (segment->state == TI_SEGMENT_SEALED && footer_read(self, segment, records, &trailer)) {
        *bytes = trailer.index_bytes;
        return SL_OK;
    }
    /* The footer went bad, or there is none: the frames say the same. What does not count among
     * them is not what the table of entries has, and is left out by it. */
    struct ti_segment walked = *segment;
    struct walk walk;
    walked.records = NULL;
    walked.records_bytes = 0;
    walked.records_capacity = 0;
    walked.records_lost = false;
    sl_err err = frames_note(self, &walked, false, &walk, why);
    if (err != SL_OK) {
        free(walked.records);
        return err;
    }
    *records = walked.records;
    *bytes = walked.records_bytes;
    return SL_OK;
}

enum header_state { HEADER_NONE, HEADER_FINE, HEADER_TOO_NEW, HEADER_UNREADABLE };

static enum header_state header_at(struct tierer *self, struct ti_segment *segment,
                                   uint64_t file_bytes, uint64_t offset, uint32_t *version)
{
    struct ti_header *header = (void *)self->frame_buffer;
    if (!read_whole(self, segment, header, offset, sizeof(*header))) {
        return HEADER_UNREADABLE;
    }
    struct sl_digest digest = header->digest;
    header->digest = (struct sl_digest){0};
    if (header->magic != TI_HEADER_MAGIC ||
        !sl_digest_equal(digest, ti_page_digest(header, sizeof(*header)))) {
        return HEADER_NONE;
    }
    *version = header->version;
    if (header->version > TI_FORMAT) {
        return HEADER_TOO_NEW;
    }
    if (header->version < TI_FORMAT_OLDEST || header->number != segment->number) {
        return HEADER_NONE;
    }
    segment->salt = header->salt;
    /* A file cut for its footer is shorter, also when the footer went bad. */
    segment->bytes = SL_MIN(header->segment_bytes / SL_PAGE_BYTES * SL_PAGE_BYTES, file_bytes);
    memcpy(segment->store, header->store, sizeof(segment->store));
    return HEADER_FINE;
}

/* The header, or its copy. */
static enum header_state header_find(struct tierer *self, struct ti_segment *segment,
                                     uint64_t file_bytes, uint32_t *version)
{
    if (file_bytes < 2 * SL_PAGE_BYTES) {
        return HEADER_NONE;
    }
    enum header_state first = header_at(self, segment, file_bytes, 0, version);
    if (first == HEADER_FINE || first == HEADER_TOO_NEW) {
        return first;
    }
    enum header_state copy =
        header_at(self, segment, file_bytes, file_bytes - SL_PAGE_BYTES, version);
    return copy == HEADER_NONE ? first : copy;
}

/* ---------------------------------------------------------------- the start */

static int segment_compare(const void *a, const void *b)
{
    const struct ti_segment *left = a;
    const struct ti_segment *right = b;
    return left->number < right->number ? -1 : left->number > right->number;
}

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
        number == UINT32_MAX || /* there is a next one */
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
                return sl_fail(why, err, "segment %u: its values do not fit in memory",
                               segment->number);
            }
        }
    } while (count == APPLY_BATCH);
    return SL_OK;
}

/* Without a page of members the disk has the name of its segments. */
static bool segment_is_ours(struct tierer *self, const struct ti_segment *segment)
{
    if (!self->members.there) {
        memcpy(self->store, segment->store, sizeof(self->store));
    }
    return memcmp(self->store, segment->store, sizeof(self->store)) == 0;
}

/* A segment without footer: of a crash, of a full version 1 disk, or a damaged one. */
static sl_err segment_recover(struct tierer *self, struct ti_segment *segment, bool values,
                              struct sl_error *why)
{
    struct walk walk;
    segment->state = TI_SEGMENT_CLOSED;
    segment->settling = true;
    segment->used_bytes = SL_PAGE_BYTES;
    sl_err err = frames_note(self, segment, values, &walk, why);
    if (err != SL_OK) {
        return err;
    }
    segment->last_sequence = walk.sequence;
    segment->records_planned_bytes = segment->records_bytes;
    sl_log_write(self->env->log, walk.damaged > 0 ? SL_LOG_WARN : SL_LOG_INFO, 0,
                 "disk: segment %u has no footer: %u values found in its frames, %u gaps",
                 segment->number, segment->record_count, walk.damaged);
    err = records_apply(self, segment, segment->records, segment->records_bytes, why);
    if (segment->used_bytes + ti_segment_footer_bytes(segment->records_bytes) > segment->bytes) {
        free(segment->records); /* version 1 left no room for a footer: its frames stay */
        segment->records = NULL;
        segment->records_bytes = 0;
        segment->records_capacity = 0;
        segment->records_lost = true;
    }
    return err;
}

/* Takes a segment over by its footer. SL_ERR_NOT_FOUND: it has none that is whole. */
static sl_err segment_adopt(struct tierer *self, struct ti_segment *segment, struct sl_error *why)
{
    struct ti_trailer trailer;
    unsigned char *records = NULL;
    if (!footer_read(self, segment, &records, &trailer)) {
        return SL_ERR_NOT_FOUND;
    }
    segment->state = TI_SEGMENT_SEALED;
    segment->salt = trailer.salt;
    segment->used_bytes = trailer.index_offset_bytes;
    segment->last_sequence = trailer.last_sequence;
    memcpy(segment->store, trailer.store, sizeof(segment->store));
    if (!segment_is_ours(self, segment)) {
        free(records);
        return SL_ERR_STALE;
    }
    ti_entries_expect(self->entries, trailer.index_bytes / sizeof(struct ti_record) *
                                         self->segment_count); /* they are much alike */
    sl_err err = records_apply(self, segment, records, trailer.index_bytes, why);
    free(records);
    return err;
}

static sl_err segment_drop(struct tierer *self, struct ti_segment *segment, struct sl_error *why)
{
    char name[40];
    (void)snprintf(name, sizeof(name), TI_SEGMENT_NAME_FORMAT, segment->number);
    self->disk->ops->close(self->disk, segment->file);
    segment->file = -1;
    free(segment->records);
    segment->records = NULL;
    return self->disk->ops->remove(self->disk, name, why);
}

/* Of the time before the disk was emptied. */
static sl_err segment_void(struct tierer *self, struct ti_segment *segment, struct sl_error *why)
{
    self->emptied_segments++;
    return segment_drop(self, segment, why);
}

static sl_err segment_open(struct tierer *self, struct ti_segment *segment, bool newest,
                           struct sl_error *why)
{
    char name[40];
    uint32_t version = 0;
    (void)snprintf(name, sizeof(name), TI_SEGMENT_NAME_FORMAT, segment->number);
    sl_err err =
        self->disk->ops->open(self->disk, name, false, 0, &segment->file, &segment->bytes, why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t file_bytes = segment->bytes / SL_PAGE_BYTES * SL_PAGE_BYTES;
    segment->bytes = file_bytes;
    segment->real_bytes = SL_MAX(segment->real_bytes, file_bytes);
    err = segment_adopt(self, segment, why);
    if (err == SL_ERR_STALE) {
        return segment_void(self, segment, why);
    }
    if (err != SL_ERR_NOT_FOUND) {
        return err;
    }
    enum header_state header = header_find(self, segment, file_bytes, &version);
    if (header == HEADER_TOO_NEW) {
        return sl_fail(why, SL_ERR_VERSION,
                       "disk: %s has format %u, this program knows up to %u: use a newer one, or "
                       "another --disk-path",
                       name, version, TI_FORMAT);
    }
    if (header == HEADER_UNREADABLE) { /* what cannot be read now may be readable later */
        sl_log_write(self->env->log, SL_LOG_ERROR, 0,
                     "disk: %s cannot be read: left alone, its values are misses", name);
        self->foreign_bytes += segment->real_bytes;
        self->disk->ops->close(self->disk, segment->file);
        segment->file = -1;
        return SL_OK;
    }
    if (header == HEADER_NONE) { /* died while it was made: nothing of it was acknowledged */
        sl_log_write(self->env->log, SL_LOG_INFO, 0, "disk: %s has no valid header, removed", name);
        self->disk->ops->close(self->disk, segment->file);
        segment->file = -1;
        return self->disk->ops->remove(self->disk, name, why);
    }
    if (!segment_is_ours(self, segment)) {
        return segment_void(self, segment, why);
    }
    /* A full segment of version 1 never had a footer: its values were durable before the next
     * segment began. */
    return segment_recover(self, segment, newest || version > 1, why);
}

/* A segment in which nothing counts: its room is worth more than the file. One that has bytes where
 * its first frame stood is kept, whatever they are. */
static bool segment_unused(struct tierer *self, const struct ti_segment *segment)
{
    if (segment->state == TI_SEGMENT_SEALED || segment->used_bytes != SL_PAGE_BYTES ||
        !read_whole(self, segment, self->frame_buffer, SL_PAGE_BYTES, SL_PAGE_BYTES)) {
        return false;
    }
    for (uint64_t i = 0; i < SL_PAGE_BYTES; i++) {
        if (self->frame_buffer[i] != 0) {
            return false;
        }
    }
    return true;
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
    for (size_t i = 0; i < sizeof(self->store); i++) {
        self->store[i] = (unsigned char)self->env->ops->random_u64(self->env);
    }
    self->read_pauses_left = TI_READ_PAUSES_MAX;
    uint32_t listed = self->segment_count;
    self->segment_count = 0; /* none of them is open yet */
    err = ti_members_open(self, why);
    if (err != SL_OK) {
        return err;
    }
    self->segment_count = listed;
    uint32_t kept = 0;
    qsort(self->segments, listed, sizeof(*self->segments), segment_compare);
    self->next_number = 1;
    self->next_sequence = 1;
    for (uint32_t i = 0; err == SL_OK && i < listed; i++) {
        struct ti_segment segment = self->segments[i];
        sl_metrics_beat_now(self->env->metrics);
        self->next_number = segment.number + 1;
        err = segment_open(self, &segment, i + 1 == listed, why);
        self->next_sequence = SL_MAX(self->next_sequence, segment.last_sequence + 1);
        if (err == SL_OK && segment.file >= 0 && i + 1 == listed &&
            segment_unused(self, &segment)) {
            err = segment_drop(self, &segment, why);
        }
        if (segment.file >= 0) { /* also after a failure: ti_log_close() finds it */
            self->segments[kept++] = segment;
        }
    }
    self->segment_count = kept;
    if (err != SL_OK) {
        return err;
    }
    if (self->emptied_segments > 0) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: %u segments removed: the disk was away while others of this node "
                     "served, and begins empty",
                     self->emptied_segments);
    }
    sl_metric_set(self->env->metrics, self->metrics.emptied_segments, self->emptied_segments);
    sl_log_write(self->env->log, SL_LOG_INFO, 0,
                 "disk: %u segments, %" PRIu64 " values, %" PRIu64 " bytes, %s", kept,
                 ti_entries_live_count(self->entries), ti_entries_live_bytes(self->entries),
                 self->disk->direct ? "direct i/o"
                                    : "buffered i/o: the file system has no O_DIRECT");
    ti_segments_gauges(self);
    return SL_OK;
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
    self->settling = settle_next(self); /* one at a time: seldom more than one has no footer */
    if (self->settling) {
        self->env->ops->wake_at(self->env, self->env->now_ns);
    }
}

void ti_log_settled(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code)
{
    (void)bytes;
    if (os_code != 0) { /* what is read now may not be what is on the disk: only a start tells */
        ti_health_failed(self, "sync at the start", os_code);
        self->unsettled = true;
        return;
    }
    struct ti_segment *segment = ti_log_segment(self, io->item);
    SL_ASSERT(segment != NULL); /* nothing leaves before it is durable */
    segment->settling = false;
    ti_log_settle(self);
}

void ti_log_close(struct tierer *self)
{
    for (uint32_t i = 0; i < self->segment_count; i++) {
        if (self->segments[i].file >= 0) {
            self->disk->ops->close(self->disk, self->segments[i].file);
        }
        free(self->segments[i].records);
    }
    ti_members_close(self);
    free(self->seal.footer);
    self->segment_count = 0;
}
