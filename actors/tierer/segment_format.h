/* actors/tierer/segment_format.h - the disk format, version 4. Little-endian, fixed-width, no
 * pointers.
 *
 * A log file (segment) is: header page | frames ... | index | trailer page. Index and trailer are
 * the footer, written when the file is closed. The last page of an open file is a copy of its
 * header. The trailer is the last page of the file, which may be shorter than segment_bytes; the
 * index ends right before it.
 *
 * A frame is a header (whole pages: struct ti_frame, then records) and the values that it lists,
 * each page-aligned. A frame is valid if its segment, offset and salt match its place and its
 * digest is right. The salt is random, so old bytes on the disk and values that look like frames do
 * not match. After a damaged frame the search continues page by page. Sequence numbers grow with
 * the offset: a frame with a lower number than one before it is stale.
 *
 * The footer lists the records that were acknowledged and replaces the frames. Without a footer, a
 * record counts if the digest of its value is right: a crash leaves frames whose values were not
 * written.
 *
 * Log order is (segment number, offset). Replay in this order: a record makes its value the one of
 * its key; a tombstone forgets its key up to the place that it names.
 *
 * A lost tombstone would bring its values back, so its loss must be noticed. Everything written
 * later names the newest frame of tombstones acknowledged by then (tombstone_sequence of frames,
 * headers and trailers). One such frame is in flight at a time, so each names the one before, and
 * it is written twice, as two frames. At the end of the log nothing follows. So the page of members
 * names the first frame of tombstones of a file before it is acknowledged, and the others soon
 * after. A frame that was not durable is never named.
 *
 * Sluice 0.2 wrote versions 1 to 3. They are refused and left as they are. */
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

/* First page of a log file; last page of an open one. digest covers the page with digest zero. */
struct ti_header {
    uint64_t magic;
    uint32_t version;
    uint32_t number;         /* from 1 on, never reused under a disk's name */
    unsigned char store[16]; /* random name of the disk: of all its log files */
    uint64_t salt;
    uint64_t segment_bytes; /* of the whole file while it is open */
    struct sl_digest digest;
    uint64_t first_sequence;     /* no frame here has a lower sequence */
    uint64_t tombstone_sequence; /* acknowledged when the file was made; 0: none */
    unsigned char zeros[4096 - 80];
};
static_assert(sizeof(struct ti_header) == 4096, "one page");
static_assert(offsetof(struct ti_header, digest) == SL_DISK_DIGEST_AT, "fixed");

/* digest covers header_bytes with digest zero. */
struct ti_frame {
    uint64_t magic;
    uint64_t salt;               /* of the log file */
    uint64_t sequence;           /* of the frame in the log */
    uint64_t durable_sequence;   /* of a frame durable at that time; for debugging */
    uint64_t tombstone_sequence; /* acknowledged when the frame was built; 0: none */
    uint64_t offset_bytes;       /* of this frame in the file */
    uint64_t frame_bytes;        /* header and values */
    uint32_t header_bytes;       /* whole pages */
    uint32_t records_bytes;      /* right after this struct */
    uint32_t record_count;
    uint32_t segment;
    struct sl_digest digest;
    uint64_t reserved;
};
static_assert(sizeof(struct ti_frame) == 96, "fixed");
static_assert(offsetof(struct ti_frame, digest) == 72, "fixed");

enum ti_flag {
    TI_TOMBSTONE = 1, /* segment and offset name the place up to which the key is forgotten */
};

/* Followed by key, group key and zeros up to record_bytes (a multiple of 8). */
struct ti_record {
    uint64_t offset_bytes; /* of the value in the file */
    uint64_t length_bytes; /* of the value; tombstone: 0 */
    uint64_t digest_low;
    uint64_t digest_high;
    uint64_t generation; /* of the extent it came from; for debugging */
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

/* Last page of a closed log file, after the index. digest covers the page with digest zero. */
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
    uint64_t tombstone_last;   /* newest frame of tombstones acknowledged here; 0: none */
    unsigned char zeros[4096 - 128];
};
static_assert(sizeof(struct ti_trailer) == 4096, "one page");
static_assert(offsetof(struct ti_trailer, index_digest) == 56, "fixed");

/* The file TI_MEMBERS_NAME: the disk's name, the disks that have missed no removal while this one
 * served, and the account of disk_write_budget. Four pages: slot 0, slot 1, and a copy of each. The
 * lowest bit of a page's sequence selects its slot, so the previous page stays intact. Log files
 * with another name than the newest page are from before the disk was emptied. */
#define TI_MEMBERS_NAME  SL_DISK_MEMBERS_NAME
#define TI_MEMBERS_MAGIC UINT64_C(0x3152424d49554c53) /* "SLUIMBR1" */
#define TI_MEMBERS_BYTES (4u * 4096u)
#define TI_MEMBERS_MAX   32u

struct ti_member {
    unsigned char store[16];
    uint64_t epoch;
};
static_assert(sizeof(struct ti_member) == 24, "as in messages");

/* The account of disk_write_budget. */
struct ti_account {
    int64_t left_bytes;  /* at wall_ns; negative: a debt */
    uint64_t wall_ns;    /* since 1970; 0: no account */
    uint64_t day;        /* since 1970, UTC */
    uint64_t day_bytes;  /* written on that day */
    uint64_t life_bytes; /* written in total */
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
    uint64_t tombstone_sequence; /* a durable frame of tombstones; 0: none */
    uint32_t tombstone_segment;  /* its file: the newest that has tombstones */
    uint32_t reserved;
    struct ti_account account; /* includes what may be written until the next page */
    unsigned char zeros[4096 - 120 - TI_MEMBERS_MAX * 24];
};
static_assert(sizeof(struct ti_members) == 4096, "one page");
static_assert(offsetof(struct ti_members, digest) == 48, "fixed");

static inline uint64_t ti_record_bytes(uint64_t key_length, uint64_t group_length)
{
    return sl_align_up(sizeof(struct ti_record) + key_length + group_length, 8);
}

/* Gives the record at *at of records_bytes untrusted bytes (8-aligned) and moves *at past it. NULL
 * at the end, or with *at < records_bytes when the bytes there are no record. */
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
