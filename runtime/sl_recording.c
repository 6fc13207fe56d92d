/* runtime/sl_recording.c - see sl_recording.h.
 *
 * All numbers are little-endian. Header: magic (8), version (4), its bytes (4), file id, began,
 * memory, disk (8 each), policy (16), segment, budget, paths (8 each; since version 2), zeroes, check (8). Frame: magic (4), bytes of its events (4),
 * their count (4), 0 (4), begun (8), file id (8), check (8), events. Event: a byte of kind and
 * flags, a byte more where EXTRA is set, microseconds since the event before, and what the flags
 * do not say of name, parent, bytes, tokens, and parts with bytes of keys. Numbers are varints, names have 8 bytes. */
#include "runtime/sl_recording.h"
#include "runtime/sl_base.h"
#include "runtime/sl_digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char magic[8] = {'S', 'L', 'R', 'E', 'C', 'O', 'R', 'D'};

#define FRAME_MAGIC 0x4d524c53u /* SLRM */
/* What looks like a frame behind one that is not whole is looked at so often. */
#define FOLLOW_TRIES_MAX 4096u

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

static uint64_t get64(const unsigned char *at)
{
    return get32(at) | (uint64_t)get32(at + 4) << 32;
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
    put64(out + HEADER_CHECK, sl_digest_chunk(out, HEADER_CHECK));
}

sl_err sl_recording_header_get(const unsigned char *bytes, uint64_t length_bytes,
                               struct sl_recording_header *out, struct sl_error *why)
{
    if (length_bytes < SL_RECORDING_HEADER_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return sl_fail(why, SL_ERR_FOREIGN, "it is no recording of a node");
    }
    uint32_t version = get32(bytes + HEADER_VERSION);
    if (version < SL_RECORDING_OLDEST || version > SL_RECORDING_VERSION ||
        get32(bytes + HEADER_BYTES) != SL_RECORDING_HEADER_BYTES) {
        return sl_fail(why, SL_ERR_VERSION,
                       "it is a recording of version %u, versions %u to %u are read", version,
                       SL_RECORDING_OLDEST, SL_RECORDING_VERSION);
    }
    if (get64(bytes + HEADER_CHECK) != sl_digest_chunk(bytes, HEADER_CHECK)) {
        return sl_fail(why, SL_ERR_CORRUPT, "the head of the recording is damaged");
    }
    *out = (struct sl_recording_header){.file_id = get64(bytes + HEADER_FILE_ID),
                                        .began_unix_ns = get64(bytes + HEADER_BEGAN),
                                        .memory_bytes = get64(bytes + HEADER_MEMORY),
                                        .disk_bytes = get64(bytes + HEADER_DISK),
                                        .version = version,
                                        .segment_bytes = get64(bytes + HEADER_SEGMENT),
                                        .budget_bytes = get64(bytes + HEADER_BUDGET),
                                        .path_count = (uint32_t)get64(bytes + HEADER_PATHS)};
    memcpy(out->policy, bytes + HEADER_POLICY, sizeof(out->policy));
    out->policy[sizeof(out->policy) - 1] = '\0';
    return SL_OK;
}

/* ---- writing ---- */

enum {
    FRAME_MAGIC_AT = 0,
    FRAME_LENGTH = 4,
    FRAME_COUNT = 8,
    FRAME_BEGUN = 16,
    FRAME_FILE_ID = 24,
    FRAME_CHECK = 32,
};

/* Over all of the frame but its check. */
static uint64_t frame_check(const unsigned char *frame, uint64_t event_bytes)
{
    uint64_t parts[2] = {
        sl_digest_chunk(frame, FRAME_CHECK),
        sl_digest_chunk(frame + SL_RECORDING_FRAME_BYTES, event_bytes),
    };
    return sl_digest_chunk(parts, sizeof(parts));
}

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
    uint64_t event_bytes = frame->length - SL_RECORDING_FRAME_BYTES;
    memset(frame->bytes, 0, SL_RECORDING_FRAME_BYTES);
    put32(frame->bytes + FRAME_MAGIC_AT, FRAME_MAGIC);
    put32(frame->bytes + FRAME_LENGTH, (uint32_t)event_bytes);
    put32(frame->bytes + FRAME_COUNT, frame->count);
    put64(frame->bytes + FRAME_BEGUN, frame->begun_us);
    put64(frame->bytes + FRAME_FILE_ID, file_id);
    put64(frame->bytes + FRAME_CHECK, frame_check(frame->bytes, event_bytes));
    return frame->length;
}

/* ---- reading ---- */

struct reader {
    const unsigned char *at, *end;
    bool failed;
    uint32_t part_count, key_bytes; /* that were told last */
};

static uint64_t varint_get(struct reader *reader)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        unsigned char byte = *reader->at++;
        if (shift == 63 && byte > 1) {
            break;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    reader->failed = true;
    return 0;
}

static uint64_t name_get(struct reader *reader)
{
    if (reader->end - reader->at < 8) {
        reader->failed = true;
        return 0;
    }
    reader->at += 8;
    return get64(reader->at - 8);
}

static bool event_get(struct reader *reader, const struct sl_recording_event *last,
                      struct sl_recording_event *out)
{
    uint32_t head = *reader->at++;
    uint32_t extra = 0;
    *out = (struct sl_recording_event){.kind = (enum sl_recording_kind)(head & KIND_MASK)};
    if ((head & EXTRA) != 0) {
        reader->failed = reader->at == reader->end;
        extra = reader->failed ? 0 : *reader->at++;
    }
    out->hint = (uint8_t)(extra & EXTRA_HINT_MASK);
    out->new_op = (extra & EXTRA_NEW_OP) != 0;
    out->at_us = last->at_us + varint_get(reader);
    out->count = out->kind == SL_RECORDING_LOST ? varint_get(reader) : 0;
    out->name = (head & NAME_LAST) != 0 ? last->parent : name_get(reader);
    switch (head & PARENT_MASK) {
    case PARENT_LAST:
        out->parent = last->name;
        break;
    case PARENT_GIVEN:
        out->parent = name_get(reader);
        break;
    case PARENT_NONE:
        break;
    default:
        reader->failed = true;
    }
    bool same = (head & SAME_SIZE) != 0;
    out->bytes = same ? last->bytes : varint_get(reader);
    out->tokens = same ? last->tokens : varint_get(reader);
    if ((extra & EXTRA_PARTS) != 0) {
        uint64_t part_count = varint_get(reader);
        uint64_t key_bytes = varint_get(reader);
        reader->part_count = (uint32_t)SL_MIN(part_count, SL_RECORDING_PARTS_MAX);
        reader->key_bytes = (uint32_t)SL_MIN(key_bytes, SL_RECORDING_KEY_MAX);
    }
    out->part_count = out->bytes != 0 ? reader->part_count : 0;
    out->key_bytes = out->bytes != 0 ? reader->key_bytes : 0;
    return !reader->failed && out->kind != 0 &&
           (extra & ~(uint32_t)EXTRA_PARTS) <= (EXTRA_NEW_OP | 2u);
}

/* The bytes of the whole frame at `at`; 0: there is none. */
static uint64_t frame_whole(const unsigned char *at, uint64_t left, uint64_t file_id)
{
    if (left < SL_RECORDING_FRAME_BYTES || get32(at + FRAME_MAGIC_AT) != FRAME_MAGIC ||
        get64(at + FRAME_FILE_ID) != file_id) {
        return 0;
    }
    uint64_t event_bytes = get32(at + FRAME_LENGTH);
    if (event_bytes > SL_RECORDING_FRAME_MAX || event_bytes > left - SL_RECORDING_FRAME_BYTES ||
        get64(at + FRAME_CHECK) != frame_check(at, event_bytes)) {
        return 0;
    }
    return SL_RECORDING_FRAME_BYTES + event_bytes;
}

/* How far behind a frame that is not whole the next whole one begins; 0: there is none. */
static uint64_t frame_follows(const unsigned char *from, uint64_t left, uint64_t file_id)
{
    const unsigned char *at = from;
    static const unsigned char frame_magic[4] = {0x53, 0x4c, 0x52, 0x4d};
    const unsigned char *end = from + left;
    for (uint32_t tries = 0; tries < FOLLOW_TRIES_MAX && left > 1; tries++) {
        const unsigned char *found = memmem(at + 1, left - 1, frame_magic, sizeof(frame_magic));
        if (found == NULL) {
            return 0;
        }
        at = found;
        left = (uint64_t)(end - at);
        if (frame_whole(at, left, file_id) > 0) {
            return (uint64_t)(at - from);
        }
    }
    return 0;
}

struct reading {
    bool (*each)(void *context, const struct sl_recording_event *event);
    void *context;
    bool ended;
};

/* false: the events are not what the frame says. */
static bool frame_read(const unsigned char *frame, uint64_t length_bytes, struct reading *reading)
{
    struct reader reader = {.at = frame + SL_RECORDING_FRAME_BYTES, .end = frame + length_bytes};
    struct sl_recording_event last = {.at_us = get64(frame + FRAME_BEGUN)};
    uint32_t count = get32(frame + FRAME_COUNT);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_recording_event event;
        if (reader.at == reader.end || !event_get(&reader, &last, &event)) {
            return false;
        }
        if (reading->each != NULL && !reading->each(reading->context, &event)) {
            reading->ended = true;
            return true;
        }
        last = event;
    }
    return reader.at == reader.end;
}

/* A frame says nothing of others: one that is damaged costs itself. */
static void frames_read(const unsigned char *bytes, uint64_t length_bytes, struct reading *reading,
                        struct sl_recording_info *info)
{
    uint64_t at = SL_RECORDING_HEADER_BYTES;
    uint64_t file_id = info->header.file_id;
    while (at < length_bytes && !reading->ended) {
        uint64_t frame_bytes = frame_whole(bytes + at, length_bytes - at, file_id);
        bool damaged = frame_bytes == 0;
        frame_bytes = damaged ? frame_follows(bytes + at, length_bytes - at, file_id) : frame_bytes;
        if (frame_bytes == 0) {
            break;
        }
        if (damaged || !frame_read(bytes + at, frame_bytes, reading)) {
            info->damaged_count++;
            info->damaged_bytes += frame_bytes;
        } else {
            info->frame_count++;
            info->event_count += get32(bytes + at + FRAME_COUNT);
        }
        at += frame_bytes;
    }
    info->good_bytes = at;
    info->torn_bytes = reading->ended ? 0 : length_bytes - at;
}

/* All of a file. Gives *out to free(). */
static sl_err file_take(int fd, unsigned char **out, uint64_t *length_bytes, struct sl_error *why)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return sl_fail_os(why, errno, "stat of the recording");
    }
    uint64_t want = (uint64_t)about.st_size;
    unsigned char *bytes = malloc(want + 1);
    if (bytes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a recording of %" PRIu64 " bytes",
                       want);
    }
    uint64_t done = 0;
    while (done < want) {
        ssize_t got = pread(fd, bytes + done, want - done, (off_t)done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            sl_err err = sl_fail_os(why, errno, "read the recording");
            free(bytes);
            return err;
        }
        if (got == 0) { /* somebody cut it meanwhile */
            break;
        }
        done += (uint64_t)got;
    }
    *out = bytes;
    *length_bytes = done;
    return SL_OK;
}

sl_err sl_recording_read(int fd,
                         bool (*each)(void *context, const struct sl_recording_event *event),
                         void *context, struct sl_recording_info *info, struct sl_error *why)
{
    struct reading reading = {.each = each, .context = context};
    unsigned char *bytes = NULL;
    uint64_t length_bytes = 0;
    *info = (struct sl_recording_info){0};
    sl_err err = file_take(fd, &bytes, &length_bytes, why);
    if (err == SL_OK) {
        err = sl_recording_header_get(bytes, length_bytes, &info->header, why);
    }
    if (err == SL_OK) {
        frames_read(bytes, length_bytes, &reading, info);
    }
    free(bytes);
    return err;
}
