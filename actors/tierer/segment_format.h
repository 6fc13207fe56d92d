/* actors/tierer/segment_format.h - the disk format, version 1. Little-endian, fixed-width, no
 * pointers.
 *
 * A segment file is: header page | frames ... | free space | index | trailer page. The last two are
 * written when the segment is sealed; together they are the footer.
 *
 * A frame is a header (whole pages: struct sl_tier_frame, then records) and the values it lists,
 * each page-aligned. Frames of a segment are a chain: each names the digest of the frame before it,
 * the first one the segment's salt. So bytes of an earlier use of the file, of an earlier life of
 * the log, or of a write that failed are never taken for a frame, even where they are whole.
 *
 * Log order is (segment number, offset). The log is replayed in that order: a record makes its
 * value the one of its key; a tombstone forgets its key up to the place it names. Frame sequence
 * numbers grow by one; a frame whose number is not below that of the first frame of a later segment
 * was given up and counts for nothing. */
#ifndef SL_SEGMENT_FORMAT_H
#define SL_SEGMENT_FORMAT_H

#include "runtime/sl_digest.h"

#include <assert.h>

#define SL_TIER_FORMAT        1u
#define SL_TIER_HEADER_MAGIC  UINT64_C(0x3147455349554c53) /* "SLUISEG1" */
#define SL_TIER_FRAME_MAGIC   UINT64_C(0x314d524649554c53) /* "SLUIFRM1" */
#define SL_TIER_TRAILER_MAGIC UINT64_C(0x31444e4549554c53) /* "SLUIEND1" */

#define SL_TIER_FRAME_HEADER_BYTES_MAX (1024u * 1024u)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is the memory of the host");

/* First page of a segment. digest covers the page with digest zero. */
struct sl_tier_header {
    uint64_t magic;
    uint32_t version;
    uint32_t number;         /* from 1 on, never reused within a store */
    unsigned char store[16]; /* random identity of all segments of one directory */
    uint64_t salt;
    uint64_t segment_bytes; /* of the whole file */
    struct sl_digest digest;
    unsigned char zeros[4096 - 64];
};
static_assert(sizeof(struct sl_tier_header) == 4096, "one page");
static_assert(offsetof(struct sl_tier_header, digest) == 48, "fixed");

/* digest covers header_bytes with digest zero. */
struct sl_tier_frame {
    uint64_t magic;
    uint64_t salt;             /* of the segment */
    uint64_t sequence;         /* of the frame in the log */
    uint64_t durable_sequence; /* frames up to this one were durable when this one was made */
    uint64_t previous;         /* low half of the previous frame's digest; first frame: the salt */
    uint64_t offset_bytes;     /* of this frame in the segment */
    uint64_t frame_bytes;      /* header and values */
    uint32_t header_bytes;     /* whole pages */
    uint32_t records_bytes;    /* right behind this struct */
    uint32_t record_count;
    uint32_t segment;
    struct sl_digest digest;
    uint64_t reserved;
};
static_assert(sizeof(struct sl_tier_frame) == 96, "fixed");
static_assert(offsetof(struct sl_tier_frame, digest) == 72, "fixed");

enum sl_tier_flag {
    SL_TIER_TOMBSTONE = 1, /* offset and segment name the place up to which the key is forgotten */
};

/* Followed by key, group key and zeros up to record_bytes (a multiple of 8). */
struct sl_tier_record {
    uint64_t offset_bytes; /* of the value in the segment */
    uint64_t length_bytes; /* of the value; tombstone: 0 */
    uint64_t digest_low;
    uint64_t digest_high;
    uint64_t generation; /* of the extent it came from: for people */
    uint32_t segment;
    uint32_t record_bytes;
    uint16_t flags;
    uint16_t key_length;   /* 1..1024 */
    uint16_t group_length; /* 0..1024 */
    uint16_t part_index;
    uint16_t part_count;
    uint16_t reserved[3];
};
static_assert(sizeof(struct sl_tier_record) == 64, "fixed");

/* Last page of a sealed segment; the index ends right before it. digest covers the page with digest
 * zero. */
struct sl_tier_trailer {
    uint64_t magic;
    uint64_t salt;
    uint32_t version;
    uint32_t segment;
    uint64_t index_offset_bytes;
    uint64_t index_bytes; /* records; the rest of the last page is zero */
    uint64_t record_count;
    uint64_t last_sequence; /* of the frames that count; 0: none */
    struct sl_digest index_digest;
    struct sl_digest digest;
    unsigned char zeros[4096 - 88];
};
static_assert(sizeof(struct sl_tier_trailer) == 4096, "one page");
static_assert(offsetof(struct sl_tier_trailer, index_digest) == 56, "fixed");

static inline uint64_t sl_tier_record_bytes(uint64_t key_length, uint64_t group_length)
{
    return sl_align_up(sizeof(struct sl_tier_record) + key_length + group_length, 8);
}

/* Reads the record at *at of records_bytes hostile bytes (8-aligned) and moves *at behind it. Gives
 * NULL at the end, or with *at < records_bytes when what stands there is no record. */
const struct sl_tier_record *sl_tier_record_next(const void *records, uint64_t records_bytes,
                                                 uint64_t *at);
static inline const char *sl_tier_record_key(const struct sl_tier_record *record)
{
    return (const char *)(record + 1);
}
static inline const char *sl_tier_record_group(const struct sl_tier_record *record)
{
    return sl_tier_record_key(record) + record->key_length;
}

#endif
