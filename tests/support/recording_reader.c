/* tests/support/recording_reader.c - reads back what a registrar records; users have sluice/recording.py.
 *
 * Strict: all of a file has to be whole frames, and each frame what it says. */
#include "tests/support/recording_reader.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

enum { FRAME_LENGTH = 4, FRAME_COUNT = 8, FRAME_CHECK = 12, FRAME_BEGUN = 16 };
enum {
    KIND_MASK = 7,
    PARENT_LAST = 1 << 3,
    PARENT_GIVEN = 2 << 3,
    PARENT_MASK = 3 << 3,
    NAME_LAST = 1 << 5,
    SAME_SIZE = 1 << 6,
    EXTRA = 1 << 7,
    EXTRA_NEW_OP = 4,
    EXTRA_PARTS = 8,
};

struct reader {
    const unsigned char *at, *end;
    uint32_t part_count, key_bytes; /* that were told last */
};

static uint64_t number_get(struct reader *reader, uint32_t bytes)
{
    uint64_t value = 0;
    ck_assert_int_ge(reader->end - reader->at, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        value |= (uint64_t)*reader->at++ << (8 * i);
    }
    return value;
}

static uint64_t varint_get(struct reader *reader)
{
    uint64_t value = 0;
    for (uint32_t shift = 0;; shift += 7) {
        uint64_t byte = number_get(reader, 1);
        ck_assert_uint_lt(shift, 64);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
}

static struct sl_recording_event event_get(struct reader *reader,
                                           const struct sl_recording_event *last)
{
    uint64_t head = number_get(reader, 1);
    uint64_t extra = (head & EXTRA) != 0 ? number_get(reader, 1) : 0;
    struct sl_recording_event event = {.kind = (enum sl_recording_kind)(head & KIND_MASK),
                                       .hint = extra & 3,
                                       .new_op = (extra & EXTRA_NEW_OP) != 0};
    event.at_us = last->at_us + varint_get(reader);
    event.count = event.kind == SL_RECORDING_LOST ? varint_get(reader) : 0;
    event.name = (head & NAME_LAST) != 0 ? last->parent : number_get(reader, 8);
    ck_assert_uint_ne(head & PARENT_MASK, PARENT_MASK);
    event.parent = (head & PARENT_MASK) == PARENT_LAST    ? last->name
                   : (head & PARENT_MASK) == PARENT_GIVEN ? number_get(reader, 8)
                                                          : 0;
    event.bytes = (head & SAME_SIZE) != 0 ? last->bytes : varint_get(reader);
    event.tokens = (head & SAME_SIZE) != 0 ? last->tokens : varint_get(reader);
    if ((extra & EXTRA_PARTS) != 0) {
        reader->part_count = (uint32_t)varint_get(reader);
        reader->key_bytes = (uint32_t)varint_get(reader);
    }
    event.part_count = event.bytes != 0 ? reader->part_count : 0;
    event.key_bytes = event.bytes != 0 ? reader->key_bytes : 0;
    return event;
}

static void frame_read(const unsigned char *frame, uint64_t length_bytes,
                       struct recording_seen *seen)
{
    struct reader head = {.at = frame + FRAME_COUNT, .end = frame + SL_RECORDING_FRAME_BYTES};
    uint64_t count = number_get(&head, 4);
    struct reader reader = {.at = frame + SL_RECORDING_FRAME_BYTES, .end = frame + length_bytes};
    head.at = frame + FRAME_BEGUN;
    struct sl_recording_event last = {.at_us = number_get(&head, 8)};
    for (uint64_t i = 0; i < count; i++) {
        ck_assert_uint_lt(seen->count, RECORDING_EVENTS_MAX);
        last = event_get(&reader, &last);
        seen->events[seen->count++] = last;
    }
    ck_assert_ptr_eq(reader.at, reader.end);
}

void recording_bytes_read(const unsigned char *bytes, uint64_t length_bytes,
                          struct recording_seen *seen)
{
    static unsigned char frame[SL_RECORDING_FRAME_BYTES + (256 << 10)];
    ck_assert_int_eq(sl_recording_header_is(bytes, length_bytes, &seen->file_id), SL_OK);
    memcpy(seen->head, bytes, SL_RECORDING_HEADER_BYTES);
    seen->count = 0;
    seen->torn_bytes = 0;
    for (uint64_t at = SL_RECORDING_HEADER_BYTES; at < length_bytes;) {
        struct reader head = {.at = bytes + at + FRAME_LENGTH, .end = bytes + length_bytes};
        if (memcmp(bytes + at, "SLRM", 4) != 0 || length_bytes - at < SL_RECORDING_FRAME_BYTES ||
            bytes[at + 4] == ' ') { /* torn, as the suites tear it */
            at++;
            seen->torn_bytes++;
            continue;
        }
        uint64_t frame_bytes = SL_RECORDING_FRAME_BYTES + number_get(&head, 4);
        ck_assert_uint_le(frame_bytes, SL_MIN(length_bytes - at, sizeof(frame)));
        memcpy(frame, bytes + at, frame_bytes);
        head.at = frame + FRAME_CHECK;
        head.end = frame + frame_bytes;
        uint64_t check = number_get(&head, 4);
        memset(frame + FRAME_CHECK, 0, 4);
        ck_assert_uint_eq(check, sl_recording_check(frame, frame_bytes));
        frame_read(frame, frame_bytes, seen);
        at += frame_bytes;
    }
}
