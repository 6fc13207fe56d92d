/* runtime/sl_recording.c - see sl_recording.h.
 *
 * All numbers are little-endian. Header: magic (8), version (4), its bytes (4), file id, began,
 * memory, disk (8 each), policy (16), segment, budget, paths (8 each), zeroes, check (4), 0 (4). Frame: magic (4),
 * bytes of its events (4), their count (4), check (4), begun (8), file id (8), events. A check is the CRC-32 of zlib over all
 * of it but its own bytes, which are 0. Event: a byte of kind and
 * flags, a byte more where EXTRA is set, microseconds since the event before, and what the flags
 * do not say of name, parent, bytes, tokens, and parts with bytes of keys. Numbers are varints, names have 8 bytes. */
#include "runtime/sl_recording.h"
#include "runtime/sl_base.h"

#include <string.h>

static const unsigned char magic[8] = {'S', 'L', 'R', 'E', 'C', 'O', 'R', 'D'};

#define FRAME_MAGIC 0x4d524c53u /* SLRM */

enum {
    KIND_MASK = 7,
    PARENT_NONE = 0 << 3,
    PARENT_LAST = 1 << 3,  /* the block of the event before */
    PARENT_GIVEN = 2 << 3, /* it follows */
    PARENT_MASK = 3 << 3,
    NAME_LAST = 1 << 5, /* it is the parent of the event before */
    SAME_SIZE = 1 << 6, /* bytes and tokens of the event before */
    EXTRA = 1 << 7,
    EXTRA_HINT_MASK = 3,
    EXTRA_NEW_OP = 4,
    EXTRA_PARTS = 8, /* parts and bytes of keys follow: others than those that were told last */
};

static void put32(unsigned char *at, uint32_t value)
{
    for (uint32_t i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static void put64(unsigned char *at, uint64_t value)
{
    put32(at, (uint32_t)value);
    put32(at + 4, (uint32_t)(value >> 32));
}

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* That of zlib, which every language has; four bits at a time. */
uint32_t sl_recording_check(const unsigned char *bytes, uint64_t length_bytes)
{
    uint32_t table[16], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (uint32_t bit = 0; bit < 4; bit++) {
            table[i] = table[i] >> 1 ^ ((table[i] & 1) != 0 ? 0xedb88320u : 0);
        }
    }
    for (uint64_t i = 0; i < length_bytes; i++) {
        crc ^= bytes[i];
        crc = table[crc & 15] ^ crc >> 4;
        crc = table[crc & 15] ^ crc >> 4;
    }
    return ~crc;
}

/* ---- names ---- */

static uint64_t rotate(uint64_t value, uint32_t bits)
{
    return value << bits | value >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

/* Aumasson and Bernstein, SipHash-2-4 (2012), of 8 bytes. */
uint64_t sl_recording_name(const struct sl_recording_salt *salt, uint64_t key_hash)
{
    uint64_t v[4] = {salt->words[0] ^ UINT64_C(0x736f6d6570736575),
                     salt->words[1] ^ UINT64_C(0x646f72616e646f6d),
                     salt->words[0] ^ UINT64_C(0x6c7967656e657261),
                     salt->words[1] ^ UINT64_C(0x7465646279746573)};
    if (key_hash == 0) {
        return 0;
    }
    sip_word(v, key_hash);
    sip_word(v, UINT64_C(8) << 56);
    v[2] ^= 0xff;
    for (uint32_t i = 0; i < 4; i++) {
        sip_round(v);
    }
    uint64_t name = v[0] ^ v[1] ^ v[2] ^ v[3];
    return name != 0 ? name : 1;
}

/* ---- the header ---- */

enum {
    HEADER_VERSION = 8,
    HEADER_BYTES = 12,
    HEADER_FILE_ID = 16,
    HEADER_BEGAN = 24,
    HEADER_MEMORY = 32,
    HEADER_DISK = 40,
    HEADER_POLICY = 48,
    HEADER_SEGMENT = 64,
    HEADER_BUDGET = 72,
    HEADER_PATHS = 80,
    HEADER_CHECK = SL_RECORDING_HEADER_BYTES - 8,
};

void sl_recording_header_put(const struct sl_recording_header *header,
                             unsigned char out[SL_RECORDING_HEADER_BYTES])
{
    memset(out, 0, SL_RECORDING_HEADER_BYTES);
    memcpy(out, magic, sizeof(magic));
    put32(out + HEADER_VERSION, SL_RECORDING_VERSION);
    put32(out + HEADER_BYTES, SL_RECORDING_HEADER_BYTES);
    put64(out + HEADER_FILE_ID, header->file_id);
    put64(out + HEADER_BEGAN, header->began_unix_ns);
    put64(out + HEADER_MEMORY, header->memory_bytes);
    put64(out + HEADER_DISK, header->disk_bytes);
    memcpy(out + HEADER_POLICY, header->policy, sizeof(header->policy));
    put64(out + HEADER_SEGMENT, header->segment_bytes);
    put64(out + HEADER_BUDGET, header->budget_bytes);
    put64(out + HEADER_PATHS, header->path_count);
    put32(out + HEADER_CHECK, sl_recording_check(out, SL_RECORDING_HEADER_BYTES));
}

sl_err sl_recording_header_is(const unsigned char bytes[SL_RECORDING_HEADER_BYTES],
                              uint64_t length_bytes, uint64_t *file_id)
{
    if (length_bytes < SL_RECORDING_HEADER_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return SL_ERR_FOREIGN;
    }
    *file_id = get32(bytes + HEADER_FILE_ID) | (uint64_t)get32(bytes + HEADER_FILE_ID + 4) << 32;
    return get32(bytes + HEADER_VERSION) == SL_RECORDING_VERSION ? SL_OK : SL_ERR_VERSION;
}

/* ---- writing ---- */

enum { FRAME_LENGTH = 4, FRAME_COUNT = 8, FRAME_CHECK = 12, FRAME_BEGUN = 16, FRAME_FILE_ID = 24 };

void sl_recording_frame_begin(struct sl_recording_frame *frame, unsigned char *bytes, uint64_t room,
                              uint64_t at_us)
{
    *frame = (struct sl_recording_frame){
        .bytes = bytes, .room = room, .length = SL_RECORDING_FRAME_BYTES, .begun_us = at_us};
    frame->last.at_us = at_us;
}

static void varint_put(struct sl_recording_frame *frame, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        frame->bytes[frame->length++] = (unsigned char)(value | 0x80);
    }
    frame->bytes[frame->length++] = (unsigned char)value;
}

static void name_put(struct sl_recording_frame *frame, uint64_t name)
{
    put64(frame->bytes + frame->length, name);
    frame->length += 8;
}

bool sl_recording_frame_add(struct sl_recording_frame *frame,
                            const struct sl_recording_event *event)
{
    const struct sl_recording_event *last = &frame->last;
    uint32_t extra = event->hint | (event->new_op ? EXTRA_NEW_OP : 0);
    uint32_t head = event->kind;
    uint32_t part_count = SL_MIN(event->part_count, SL_RECORDING_PARTS_MAX);
    uint32_t key_bytes = SL_MIN(event->key_bytes, SL_RECORDING_KEY_MAX);
    bool parts =
        event->bytes != 0 && (part_count != frame->part_count || key_bytes != frame->key_bytes);
    uint64_t at_us = SL_MAX(event->at_us, last->at_us);
    if (frame->room - frame->length < SL_RECORDING_EVENT_BYTES) {
        return false;
    }
    head |= event->parent == 0            ? PARENT_NONE
            : event->parent == last->name ? PARENT_LAST
                                          : PARENT_GIVEN;
    head |= event->name == last->parent ? NAME_LAST : 0;
    head |= event->bytes == last->bytes && event->tokens == last->tokens ? SAME_SIZE : 0;
    extra |= parts ? EXTRA_PARTS : 0;
    head |= extra != 0 ? EXTRA : 0;
    frame->bytes[frame->length++] = (unsigned char)head;
    if (extra != 0) {
        frame->bytes[frame->length++] = (unsigned char)extra;
    }
    varint_put(frame, at_us - last->at_us);
    if (event->kind == SL_RECORDING_LOST) {
        varint_put(frame, event->count);
    }
    if ((head & NAME_LAST) == 0) {
        name_put(frame, event->name);
    }
    if ((head & PARENT_MASK) == PARENT_GIVEN) {
        name_put(frame, event->parent);
    }
    if ((head & SAME_SIZE) == 0) {
        varint_put(frame, event->bytes);
        varint_put(frame, event->tokens);
    }
    if (parts) {
        varint_put(frame, part_count);
        varint_put(frame, key_bytes);
        frame->part_count = part_count;
        frame->key_bytes = key_bytes;
    }
    frame->last = *event;
    frame->last.at_us = at_us;
    frame->count++;
    return true;
}

uint64_t sl_recording_frame_end(struct sl_recording_frame *frame, uint64_t file_id)
{
    put32(frame->bytes, FRAME_MAGIC);
    put32(frame->bytes + FRAME_LENGTH, (uint32_t)(frame->length - SL_RECORDING_FRAME_BYTES));
    put32(frame->bytes + FRAME_COUNT, frame->count);
    put32(frame->bytes + FRAME_CHECK, 0);
    put64(frame->bytes + FRAME_BEGUN, frame->begun_us);
    put64(frame->bytes + FRAME_FILE_ID, file_id);
    put32(frame->bytes + FRAME_CHECK, sl_recording_check(frame->bytes, frame->length));
    return frame->length;
}
