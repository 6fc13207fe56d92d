/* actors/tierer/segment_format.h - the disk format, version 4. Little-endian, fixed-width, no
 * pointers.
 *
 * A segment file is: header page | frames ... | index | trailer page. Index and trailer, the
 * footer, are written when the segment is closed; the last page of an open segment is a copy of its
 * header. The trailer is the last page of the file, which may be shorter than segment_bytes; the
 * index ends right before it.
 *
 * A frame is a header (whole pages: struct ti_frame, then records) and the values it lists,
 * each page-aligned. A frame counts when it stands where it says, in the segment it says, with the
 * segment's salt (random, so bytes of an earlier use of the disk or values that look like frames do
 * not) and its digest is right. Behind a damaged frame the search goes on page by page. Sequence
 * numbers grow with the offset: a frame with a lower number than one before it is a leftover.
 *
 * The footer lists the records that were acknowledged and replaces the frames. In a segment without
 * footer a record counts when the digest of its value is right: a crash leaves frames whose values
 * did not arrive.
 *
 * Log order is (segment number, offset). The log is replayed in that order: a record makes its
 * value the one of its key; a tombstone forgets its key up to the place it names.
 *
 * A tombstone that is lost would bring its values back. So it is seen when one is missing: whatever
 * is written later names the newest frame of tombstones that was acknowledged by then
 * (tombstone_sequence of frames, headers and trailers). There is one such frame on its way at a
 * time, so that each names the one before, and it is written twice, as two frames. The end of the
 * log, or the last segment, may be what is lost: so the page of members names the first one of a
 * segment before it is acknowledged, and the others soon after. A frame that was not durable is
 * named by nobody.
 *
 * Sluice 0.2 wrote versions 1 to 3. They are refused, and left as they are.
 */
#ifndef SL_TIERER_SEGMENT_FORMAT_H
#define SL_TIERER_SEGMENT_FORMAT_H

#include "runtime/base/sl_digest.h"
#include "runtime/disk/sl_disk_place.h"

#include <assert.h>

#define TI_FORMAT         SL_DISK_FORMAT
#define TI_FORMAT_WAY_OUT SL_DISK_FORMAT_WAY_OUT
#define TI_HEADER_MAGIC   SL_DISK_SEGMENT_MAGIC
#define TI_FRAME_MAGIC    UINT64_C(0x314d524649554c53) /* "SLUIFRM1" */
#define TI_TRAILER_MAGIC  UINT64_C(0x31444e4549554c53) /* "SLUIEND1" */

#define TI_FRAME_HEADER_BYTES_MAX (1024u * 1024u)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is the memory of the host");

/* First page of a segment, and last page of an open one. digest covers the page with digest zero.
 */
struct ti_header {
    uint64_t magic;
    uint32_t version;
    uint32_t number;         /* from 1 on, never reused within a store */
    unsigned char store[16]; /* random identity of all segments of one directory */
    uint64_t salt;
    uint64_t segment_bytes; /* of the whole file while it is open */
    struct sl_digest digest;
    uint64_t first_sequence;     /* no frame here has a lower one */
    uint64_t tombstone_sequence; /* acknowledged when the segment was made; 0: none */
    unsigned char zeros[4096 - 80];
};
static_assert(sizeof(struct ti_header) == 4096, "one page");
static_assert(offsetof(struct ti_header, digest) == SL_DISK_DIGEST_AT, "fixed");

/* digest covers header_bytes with digest zero. */
struct ti_frame {
    uint64_t magic;
    uint64_t salt;             /* of the segment */
    uint64_t sequence;         /* of the frame in the log */
    uint64_t durable_sequence; /* some frame that was durable when this one was made: for people */
    uint64_t tombstone_sequence; /* acknowledged when this one was made; 0: none */
    uint64_t offset_bytes;       /* of this frame in the segment */
    uint64_t frame_bytes;        /* header and values */
    uint32_t header_bytes;       /* whole pages */
    uint32_t records_bytes;      /* right behind this struct */
    uint32_t record_count;
    uint32_t segment;
    struct sl_digest digest;
    uint64_t reserved;
};
static_assert(sizeof(struct ti_frame) == 96, "fixed");
static_assert(offsetof(struct ti_frame, digest) == 72, "fixed");

enum ti_flag {
    TI_TOMBSTONE = 1, /* offset and segment name the place up to which the key is forgotten */
};

/* Followed by key, group key and zeros up to record_bytes (a multiple of 8). */
struct ti_record {
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
static_assert(sizeof(struct ti_record) == 64, "fixed");

/* Last page of a closed segment; the index ends right before it. digest covers the page with digest
 * zero. */
struct ti_trailer {
    uint64_t magic;
    uint64_t salt;
    uint32_t version;
    uint32_t segment;
    uint64_t index_offset_bytes;
    uint64_t index_bytes; /* records; the rest of the last page is zero */
    uint64_t record_count;
    uint64_t last_sequence; /* of all frames; 0: none */
    struct sl_digest index_digest;
    struct sl_digest digest;
    unsigned char store[16];
    uint64_t first_sequence;
    uint64_t tombstone_before; /* as in the header */
    uint64_t tombstone_last;   /* the newest acknowledged frame of tombstones here; 0: none */
    unsigned char zeros[4096 - 128];
};
static_assert(sizeof(struct ti_trailer) == 4096, "one page");
static_assert(offsetof(struct ti_trailer, index_digest) == 56, "fixed");

/* The file TI_MEMBERS_NAME: the disk's name, which disks have missed nothing that was removed while
 * this one served, and the account of disk_write_budget. Four pages: slot 0, slot 1, slot 0 again,
 * slot 1 again. What is written goes to the slot of its sequence's lowest bit, so the one before
 * stays whole. Segments of another name than the newest page's are what the disk was emptied of. */
#define TI_MEMBERS_NAME  SL_DISK_MEMBERS_NAME
#define TI_MEMBERS_MAGIC UINT64_C(0x3152424d49554c53) /* "SLUIMBR1" */
#define TI_MEMBERS_BYTES (4u * 4096u)
#define TI_MEMBERS_MAX   32u

struct ti_member {
    unsigned char store[16];
    uint64_t epoch;
};
static_assert(sizeof(struct ti_member) == 24, "as in messages");

/* With disk_write_budget: what the disk may be written. */
struct ti_account {
    int64_t left_bytes;  /* at wall_ns; negative: a debt */
    uint64_t wall_ns;    /* since 1970; 0: there is no account */
    uint64_t day;        /* since 1970, UTC */
    uint64_t day_bytes;  /* written on that day */
    uint64_t life_bytes; /* written in all */
};

/* digest covers the page with digest zero. */
struct ti_members {
    uint64_t magic;
    uint32_t version;
    uint32_t count;
    uint64_t sequence; /* from 1 on */
    uint64_t epoch;    /* of the list; never 0 */
    unsigned char store[16];
    struct sl_digest digest;
    struct ti_member list[TI_MEMBERS_MAX];
    uint64_t tombstone_sequence; /* a frame of tombstones that is durable; 0: none */
    uint32_t tombstone_segment;  /* where it is: the newest segment that has some */
    uint32_t reserved;
    struct ti_account account; /* with what is to be written until the next page */
    unsigned char zeros[4096 - 120 - TI_MEMBERS_MAX * 24];
};
static_assert(sizeof(struct ti_members) == 4096, "one page");
static_assert(offsetof(struct ti_members, digest) == 48, "fixed");

static inline uint64_t ti_record_bytes(uint64_t key_length, uint64_t group_length)
{
    return sl_align_up(sizeof(struct ti_record) + key_length + group_length, 8);
}

/* Reads the record at *at of records_bytes hostile bytes (8-aligned) and moves *at behind it. Gives
 * NULL at the end, or with *at < records_bytes when what stands there is no record. */
const struct ti_record *ti_record_next(const void *records, uint64_t records_bytes, uint64_t *at);
static inline const char *ti_record_key(const struct ti_record *record)
{
    return (const char *)(record + 1);
}
static inline const char *ti_record_group(const struct ti_record *record)
{
    return ti_record_key(record) + record->key_length;
}

#endif
