/* runtime/base/sl_recording.c - see sl_recording.h.
 *
 * All numbers are little-endian. An event is: a byte of kind and flags; another byte if EXTRA is
 * set; microseconds since the previous event; of LOST its count; then name, parent, bytes, tokens,
 * part count and key bytes, if the flags do not imply them. Numbers are varints, names 8 bytes. */
#include "runtime/base/sl_recording.h"
#include "runtime/base/sl_base.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static const unsigned char magic[8] = {'S', 'L', 'R', 'E', 'C', 'O', 'R', 'D'};
static_assert(sizeof(struct sl_recording_header) == 128, "it is in files");
static_assert(sizeof(struct sl_recording_frame_head) == 32, "it is in files");

#define FRAME_MAGIC 0x4d524c53u /* SLRM */

enum {
    KIND_MASK = 7,
    PARENT_NONE = 0 << 3,
    PARENT_LAST = 1 << 3,  /* the name of the previous event */
    PARENT_GIVEN = 2 << 3, /* the parent's name follows */
    PARENT_MASK = 3 << 3,
    NAME_LAST = 1 << 5, /* the name is the parent of the previous event */
    SAME_SIZE = 1 << 6, /* bytes and tokens of the previous event */
    EXTRA = 1 << 7,
    EXTRA_HINT_MASK = 3,
    EXTRA_NEW_OP = 4,
    EXTRA_PARTS = 8, /* part count and key bytes follow: they differ from those written last */
};

static uint32_t check_of(const void *bytes, uint64_t length_bytes)
{
    return (uint32_t)crc32_z(0, bytes, length_bytes);
}

uint64_t sl_recording_name(const struct sl_recording_salt *salt, uint64_t key_hash)
{
    uint64_t name = 0;
    static_assert(crypto_shorthash_BYTES == sizeof(name) &&
                      crypto_shorthash_KEYBYTES == sizeof(salt->words),
                  "SipHash-2-4");
    if (key_hash == 0) {
        return 0;
    }
    (void)crypto_shorthash((void *)&name, (const void *)&key_hash, sizeof(key_hash),
                           (const void *)salt->words);
    return name != 0 ? name : 1;
}

void sl_recording_header_seal(struct sl_recording_header *header)
{
    memcpy(header->magic, magic, sizeof(magic));
    header->version = SL_RECORDING_VERSION;
    header->header_bytes = sizeof(*header);
    header->check = 0;
    header->check = check_of(header, sizeof(*header));
}

sl_err sl_recording_header_is(const struct sl_recording_header *header, uint64_t length_bytes)
{
    if (length_bytes < sizeof(*header) || memcmp(header->magic, magic, sizeof(magic)) != 0) {
        return SL_ERR_FOREIGN;
    }
    return header->version == SL_RECORDING_VERSION ? SL_OK : SL_ERR_VERSION;
}

sl_err sl_recording_open(const char *path, int *fd, uint64_t *length_bytes, uint64_t *id,
                         struct sl_error *why)
{
    struct sl_recording_header head;
    struct stat about;
    SL_AUTO(close)
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    bool locked = file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0;
    if (file >= 0 && !locked && errno == EWOULDBLOCK) {
        return sl_fail(why, SL_ERR_BUSY, "'%s': another node records there", path);
    }
    if (!locked || fstat(file, &about) != 0) { /* under the lock: no process appends any more */
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    ssize_t got = S_ISREG(about.st_mode) ? pread(file, &head, sizeof(head), 0) : -1;
    sl_err is = got == 0  ? SL_OK
                : got < 0 ? SL_ERR_FOREIGN
                          : sl_recording_header_is(&head, (uint64_t)got);
    if (is != SL_OK && is != SL_ERR_VERSION) {
        return sl_fail(why, SL_ERR_EXISTS, "'%s' exists and is not a recording of a node", path);
    }
    *id = is == SL_OK && got > 0 ? head.file_id : 0;
    *length_bytes = (uint64_t)about.st_size;
    *fd = file;
    file = -1;
    return SL_OK;
}

/* ---- writing ---- */

void sl_recording_frame_begin(struct sl_recording_frame *frame, unsigned char *bytes, uint64_t room,
                              uint64_t at_us)
{
    *frame = (struct sl_recording_frame){.bytes = bytes,
                                         .room = room,
                                         .length = sizeof(struct sl_recording_frame_head),
                                         .begun_us = at_us};
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
    memcpy(frame->bytes + frame->length, &name, sizeof(name));
    frame->length += sizeof(name);
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
    struct sl_recording_frame_head head = {.magic = FRAME_MAGIC,
                                           .length_bytes = (uint32_t)(frame->length - sizeof(head)),
                                           .count = frame->count,
                                           .begun_us = frame->begun_us,
                                           .file_id = file_id};
    memcpy(frame->bytes, &head, sizeof(head));
    head.check = check_of(frame->bytes, frame->length);
    memcpy(frame->bytes, &head, sizeof(head));
    return frame->length;
}
