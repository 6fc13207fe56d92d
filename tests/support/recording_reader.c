/* tests/support/recording_reader.c - reads back a registrar's recording; users have
 * sluice/recording.py.
 *
 * Strict: the file must consist of whole frames, and each frame must match its own header. */
#include "tests/support/recording_reader.h"

#include <check.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define FRAME_BYTES_MAX (256u << 10)

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
    uint32_t part_count, key_bytes; /* from the last event that had them */
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

static void frame_read(const struct sl_recording_frame_head *head, const unsigned char *events,
                       struct recording_seen *seen)
{
    struct reader reader = {.at = events, .end = events + head->length_bytes};
    struct sl_recording_event last = {.at_us = head->begun_us};
    for (uint64_t i = 0; i < head->count; i++) {
        ck_assert_uint_lt(seen->count, RECORDING_EVENTS_MAX);
        last = event_get(&reader, &last);
        seen->events[seen->count++] = last;
    }
    ck_assert_ptr_eq(reader.at, reader.end);
}

static uint32_t check_of(struct sl_recording_frame_head head, const unsigned char *events)
{
    head.check = 0;
    return (uint32_t)crc32(crc32(0, (const void *)&head, sizeof(head)), events, head.length_bytes);
}

void recording_bytes_read(const unsigned char *bytes, uint64_t length_bytes,
                          struct recording_seen *seen)
{
    struct sl_recording_frame_head head;
    memcpy(&seen->head, bytes, SL_MIN(length_bytes, sizeof(seen->head)));
    ck_assert_int_eq(sl_recording_header_is(&seen->head, length_bytes), SL_OK);
    seen->count = 0;
    seen->torn_bytes = 0;
    for (uint64_t at = sizeof(seen->head); at < length_bytes;) {
        if (memcmp(bytes + at, "SLRM", 4) != 0 || length_bytes - at < sizeof(head) ||
            bytes[at + 4] == ' ') { /* torn on purpose by the suites */
            at++;
            seen->torn_bytes++;
            continue;
        }
        memcpy(&head, bytes + at, sizeof(head));
        at += sizeof(head);
        ck_assert_uint_le(head.length_bytes, SL_MIN(length_bytes - at, FRAME_BYTES_MAX));
        ck_assert_uint_eq(head.check, check_of(head, bytes + at));
        frame_read(&head, bytes + at, seen);
        at += head.length_bytes;
    }
}
