/* actors/tierer/recover.c - reads the records of log files: from footers, or frame by frame where a
 * footer is missing. Without a footer a record counts if its value is intact. */
#include "actors/tierer/recover.h"
#include "actors/tierer/internal.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define TAIL_BYTES  (64u << 10) /* read at once at the end of a file: most indexes fit */
#define VALUE_BYTES (4u << 20)  /* of a value, read at once */

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

/* The pauses are bounded, so that a disk that is bad everywhere does not delay the start. */
bool ti_file_read(struct tierer *self, int file, void *memory, uint64_t offset, uint64_t length)
{
    sl_err err = self->unread; /* of a disk that is out nothing more is read */
    if (err != SL_ERR_IO) {
        err = sl_disk_read(self->disk, file, &self->other, memory, offset, length,
                           &self->read_pauses_left);
        self->unread = err == SL_ERR_IO || err == SL_ERR_CORRUPT ? err : self->unread;
    }
    return err == SL_OK;
}

/* Reads the frame at walk->offset into frame_buffer and checks it. NULL: no valid frame. */
static const struct ti_frame *frame_at(struct tierer *self, const struct ti_segment *segment,
                                       struct ti_walk *walk)
{
    struct ti_frame *frame = (void *)self->frame_buffer;
    uint64_t offset = walk->offset;
    if (!ti_file_read(self, segment->file, frame, offset, SL_PAGE_BYTES)) {
        walk->unreadable++;
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
        !ti_file_read(self, segment->file, self->frame_buffer + SL_PAGE_BYTES,
                      offset + SL_PAGE_BYTES, header_bytes - SL_PAGE_BYTES)) {
        return NULL;
    }
    struct sl_digest digest = frame->digest;
    frame->digest = (struct sl_digest){0};
    bool right = sl_digest_equal(digest, ti_page_digest(frame, header_bytes));
    frame->digest = digest;
    return right ? frame : NULL;
}

/* The first page after walk->offset that looks like a frame of this file; the file's size if there
 * is none. Where a range cannot be read, its pages are read one by one. */
static uint64_t frame_search(struct tierer *self, const struct ti_segment *segment,
                             struct ti_walk *walk)
{
    uint64_t offset = walk->offset + SL_PAGE_BYTES;
    uint64_t singly_to = 0;
    while (offset < segment->bytes) {
        uint64_t want = SL_MIN((uint64_t)TI_SEARCH_BYTES, segment->bytes - offset);
        want = offset < singly_to ? SL_PAGE_BYTES : want;
        if (!ti_file_read(self, segment->file, self->search_buffer, offset, want)) {
            if (want == SL_PAGE_BYTES) {
                walk->unreadable++;
                offset += want;
            } else {
                singly_to = offset + want;
            }
            continue;
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

/* Gives the next frame, in frame_buffer, and moves the walk past it. NULL: no more. */
static const struct ti_frame *frame_next(struct tierer *self, const struct ti_segment *segment,
                                         struct ti_walk *walk)
{
    bool searched = false;
    while (walk->offset + SL_PAGE_BYTES <= segment->bytes) {
        const struct ti_frame *frame = frame_at(self, segment, walk);
        if (frame != NULL && frame->sequence > walk->sequence) {
            walk->unreadable = 0;
            walk->damaged += searched;
            walk->offset += frame->frame_bytes;
            walk->sequence = frame->sequence;
            return frame;
        }
        walk->offset = frame_search(self, segment, walk);
        searched = true;
    }
    return NULL;
}

/* Values of one frame that are in memory. */
struct values {
    unsigned char *buffer; /* VALUE_BYTES */
    uint64_t offset, bytes;
};

/* Reads all values of a frame at once, if not too large: separate reads each cost a round trip. */
static void values_read(struct tierer *self, const struct ti_segment *segment,
                        const struct ti_frame *frame, struct values *values)
{
    uint64_t bytes = frame->frame_bytes - frame->header_bytes;
    values->offset = frame->offset_bytes + frame->header_bytes;
    values->bytes = bytes <= VALUE_BYTES &&
                            ti_file_read(self, segment->file, values->buffer, values->offset, bytes)
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
    values->bytes = 0; /* the buffer is used for parts of this value */
    sl_digest_start(&stream);
    for (uint64_t done = 0; done < record->length_bytes;) {
        uint64_t part = SL_MIN(record->length_bytes - done, (uint64_t)VALUE_BYTES);
        if (!ti_file_read(self, segment->file, values->buffer, record->offset_bytes + done,
                          sl_align_up(part, SL_PAGE_BYTES))) {
            return false;
        }
        sl_digest_feed(&stream, values->buffer, part);
        done += part;
    }
    return sl_digest_equal(sl_digest_finish(&stream), want);
}

/* Notes the newest frame of tombstones that this frame names. */
static void walk_named(struct ti_walk *walk, const struct ti_frame *frame)
{
    if (frame->tombstone_sequence > walk->tombstones_seen) {
        walk->tombstones_lost = frame->tombstone_sequence;
        walk->tombstones_seen = frame->tombstone_sequence;
    }
}

/* Whether the frame is the second copy of the same tombstones, which count once. */
static bool walk_repeats(struct ti_walk *walk, const struct ti_frame *frame)
{
    const struct ti_record *first = (const void *)(frame + 1);
    uint64_t at = 0;
    if (ti_record_next(first, frame->records_bytes, &at) == NULL ||
        (first->flags & TI_TOMBSTONE) == 0) {
        return false;
    }
    struct sl_digest records = ti_page_digest(frame + 1, frame->records_bytes);
    bool again = walk->tombstone_last != 0 && walk->sequence == walk->tombstone_last + 1 &&
                 sl_digest_equal(records, walk->tombstones);
    walk->tombstones = records;
    walk->tombstone_last = walk->sequence;
    walk->tombstones_seen = walk->sequence;
    return again;
}

sl_err ti_frames_walk(struct tierer *self, struct ti_segment *segment, bool verify, ti_take_fn take,
                      struct ti_walk *walk, struct sl_error *why)
{
    SL_AUTO(free) unsigned char *buffer = aligned_alloc(SL_PAGE_BYTES, VALUE_BYTES);
    const struct ti_frame *frame = NULL;
    struct values values = {.buffer = buffer};
    *walk = (struct ti_walk){.offset = SL_PAGE_BYTES, .tombstones_seen = walk->tombstones_seen};
    if (buffer == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to check values");
    }
    while ((frame = frame_next(self, segment, walk)) != NULL) {
        if (atomic_load_explicit(&self->start.cancelled, memory_order_relaxed)) {
            return sl_fail(why, SL_ERR_DRAINING, "disk: stopped while its log was being read");
        }
        const struct ti_record *record = NULL;
        walk_named(walk, frame);
        segment->used_bytes = walk->offset;
        if (walk_repeats(walk, frame)) {
            continue;
        }
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
            sl_err err = take(self, segment, record, why);
            if (err != SL_OK) {
                return err;
            }
        }
    }
    return SL_OK;
}

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

bool ti_trailer_read(struct tierer *self, const struct ti_segment *segment,
                     struct ti_trailer *trailer)
{
    struct ti_trailer *page = (void *)self->frame_buffer;
    if (segment->bytes < 2 * SL_PAGE_BYTES ||
        !ti_file_read(self, segment->file, page, segment->bytes - sizeof(*page), sizeof(*page)) ||
        !trailer_right(segment, page)) {
        return false;
    }
    *trailer = *page;
    return true;
}

static sl_err no_memory(const struct ti_segment *segment, struct sl_error *why)
{
    return sl_fail(why, SL_ERR_NO_MEMORY, "log file segment.%u: no memory for its records",
                   segment->number);
}

sl_err ti_footer_read(struct tierer *self, const struct ti_segment *segment,
                      unsigned char **records, struct ti_trailer *trailer, struct sl_error *why)
{
    uint64_t tail_bytes = SL_MIN((uint64_t)TAIL_BYTES, segment->bytes);
    SL_AUTO(free) unsigned char *tail = aligned_alloc(SL_PAGE_BYTES, TAIL_BYTES);
    if (tail == NULL) {
        return no_memory(segment, why);
    }
    if (segment->bytes < 2 * SL_PAGE_BYTES ||
        !ti_file_read(self, segment->file, tail, segment->bytes - tail_bytes, tail_bytes)) {
        return SL_ERR_NOT_FOUND;
    }
    memcpy(trailer, tail + tail_bytes - SL_PAGE_BYTES, sizeof(*trailer));
    if (!trailer_right(segment, trailer)) {
        return SL_ERR_NOT_FOUND;
    }
    uint64_t footer_bytes = ti_segment_footer_bytes(trailer->index_bytes);
    SL_AUTO(free) unsigned char *index = NULL;
    unsigned char *from = tail + tail_bytes - SL_MIN(footer_bytes, tail_bytes);
    if (footer_bytes > tail_bytes) {
        index = aligned_alloc(SL_PAGE_BYTES, footer_bytes);
        if (index == NULL) {
            return no_memory(segment, why);
        }
        if (!ti_file_read(self, segment->file, index, trailer->index_offset_bytes, footer_bytes)) {
            return SL_ERR_NOT_FOUND;
        }
        from = index;
    }
    if (!sl_digest_equal(trailer->index_digest, ti_page_digest(from, trailer->index_bytes))) {
        return SL_ERR_NOT_FOUND;
    }
    *records = malloc(trailer->index_bytes + 1);
    if (*records == NULL) {
        return no_memory(segment, why);
    }
    memcpy(*records, from, trailer->index_bytes);
    return SL_OK;
}

static sl_err record_note(struct tierer *self, struct ti_segment *segment,
                          const struct ti_record *record, struct sl_error *why)
{
    (void)self, (void)why;
    return ti_segment_note(segment, record, record->record_bytes, 1) ? SL_OK : SL_ERR_NO_MEMORY;
}

sl_err ti_segment_records_read(struct tierer *self, const struct ti_segment *segment,
                               unsigned char **records, uint64_t *bytes, struct sl_error *why)
{
    struct ti_trailer trailer = {0};
    *bytes = 0;
    *records = NULL;
    sl_err err = segment->state == TI_SEGMENT_SEALED
                     ? ti_footer_read(self, segment, records, &trailer, why)
                     : SL_ERR_NOT_FOUND;
    if (err != SL_ERR_NOT_FOUND) {
        *bytes = err == SL_OK ? trailer.index_bytes : 0;
        return err;
    }
    /* The footer is damaged or missing; the frames have the same records. Records among them that
     * do not count are not in the table of entries, so the caller skips them. */
    struct ti_segment walked = {.number = segment->number,
                                .file = segment->file,
                                .salt = segment->salt,
                                .bytes = segment->used_bytes}; /* it has no later frames */
    struct ti_walk walk = {0};
    self->unread = SL_OK;
    err = ti_frames_walk(self, &walked, false, record_note, &walk, why);
    *bytes = err == SL_OK ? walked.records_bytes : 0;
    *records = malloc(*bytes + 1);
    bool nothing = !self->disk->direct && walk.sequence == 0 && walk.unreadable > TI_UNREADABLE_MAX;
    if (err == SL_OK && (self->unread == SL_ERR_IO || nothing)) {
        err = sl_fail(why, SL_ERR_IO, "log file segment.%u: the disk cannot be read now",
                      segment->number);
    }
    if (err == SL_ERR_NO_MEMORY || *records == NULL) {
        err = no_memory(&walked, why);
    } else if (*bytes > 0) {
        memcpy(*records, walked.records, *bytes);
    }
    ti_segment_records_free(&walked);
    return err;
}

static enum ti_header_state header_at(struct tierer *self, struct ti_segment *segment,
                                      uint64_t file_bytes, uint64_t offset)
{
    struct ti_header *header = (void *)self->frame_buffer;
    if (!ti_file_read(self, segment->file, header, offset, sizeof(*header))) {
        return TI_HEADER_UNREADABLE;
    }
    struct sl_digest digest = header->digest;
    header->digest = (struct sl_digest){0};
    if (header->magic != TI_HEADER_MAGIC ||
        !sl_digest_equal(digest, ti_page_digest(header, sizeof(*header)))) {
        return TI_HEADER_NONE;
    }
    segment->version = header->version;
    if (header->version != TI_FORMAT) {
        return TI_HEADER_OTHER_FORMAT;
    }
    if (header->number != segment->number) {
        return TI_HEADER_NONE;
    }
    segment->salt = header->salt;
    segment->first_sequence = header->first_sequence;
    segment->tombstone_before = header->tombstone_sequence;
    segment->cut = header->segment_bytes > file_bytes;
    /* A file cut for its footer is shorter, even if the footer was damaged. */
    segment->bytes = SL_MIN(header->segment_bytes / SL_PAGE_BYTES * SL_PAGE_BYTES, file_bytes);
    memcpy(segment->store, header->store, sizeof(segment->store));
    return TI_HEADER_FINE;
}

enum ti_header_state ti_header_find(struct tierer *self, struct ti_segment *segment,
                                    uint64_t file_bytes)
{
    if (file_bytes < 2 * SL_PAGE_BYTES) {
        return TI_HEADER_NONE;
    }
    enum ti_header_state first = header_at(self, segment, file_bytes, 0);
    if (first == TI_HEADER_FINE || first == TI_HEADER_OTHER_FORMAT) {
        return first;
    }
    enum ti_header_state copy = header_at(self, segment, file_bytes, file_bytes - SL_PAGE_BYTES);
    return copy == TI_HEADER_NONE ? first : copy;
}
