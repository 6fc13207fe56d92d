/* runtime/base/sl_recording.h - recordings of what a node was asked for: the format and its
 * writer's half. `python -m sluice.recording` is the reader.
 *
 * A file is a header and frames. A frame has a check of its own and says nothing of other frames,
 * so what is torn (the machine or the writer was killed) or damaged costs that frame, and is
 * noticed. Events are packed: a block of a chain costs 10 bytes or so.
 *
 * Keys are not there. What names a block is a keyed hash of its key's hash (SipHash-2-4). The salt
 * of a file is random and stands nowhere in it, so whoever has the file cannot try keys. */
#ifndef SL_RECORDING_H
#define SL_RECORDING_H

#include "runtime/base/sl_error.h"

#define SL_RECORDING_VERSION     3u
#define SL_RECORDING_EVENT_BYTES 64u /* an event is never longer */
#define SL_RECORDING_PARTS_MAX   16383u
#define SL_RECORDING_KEY_MAX     16383u

struct sl_recording_salt {
    uint64_t words[2];
};
/* The name of a block in a recording. key_hash: sl_key_hash of its key; 0 stays 0. */
uint64_t sl_recording_name(const struct sl_recording_salt *salt, uint64_t key_hash);

/* The first bytes of a file. */
struct sl_recording_header {
    unsigned char magic[8]; /* this, version, header_bytes and check: header_seal */
    uint32_t version, header_bytes;
    uint64_t file_id;
    uint64_t began_unix_ns;
    uint64_t memory_bytes, disk_bytes; /* of the node then */
    char policy[16];                   /* evict_policy */
    uint64_t segment_bytes;            /* of the disk; this and what follows 0: there is none */
    uint64_t budget_bytes;             /* disk_write_budget */
    uint64_t path_count;               /* disks */
    unsigned char zeroes[32];
    uint32_t check; /* CRC-32 of zlib over all of it, this being 0 */
    uint32_t zero;
};
void sl_recording_header_seal(struct sl_recording_header *header);
/* Whether a file begins as a recording; its first length_bytes are in *header. Errors:
 * SL_ERR_FOREIGN (it is none), SL_ERR_VERSION. */
sl_err sl_recording_header_is(const struct sl_recording_header *header, uint64_t length_bytes);
/* Opens the file of a recording for writing, makes it where there is none, and takes its lock.
 * Gives in *length_bytes how much is in it, in *id its id; 0: it is of another version. Errors:
 * SL_ERR_OS and kin, SL_ERR_EXISTS (no recording has this name), SL_ERR_BUSY (another node records
 * there). */
sl_err sl_recording_open(const char *path, int *fd, uint64_t *length_bytes, uint64_t *id,
                         struct sl_error *why);

enum sl_recording_kind {
    SL_RECORDING_LOAD = 1,  /* a block that was there was wanted: loaded by an engine, got */
    SL_RECORDING_STORE = 2, /* a block was not there, and is now */
    SL_RECORDING_FETCH = 3, /* it came from disk because somebody wants it; a LOAD follows */
    SL_RECORDING_GONE = 4,  /* it was removed, or its time ended: no eviction */
    SL_RECORDING_LOST = 5,  /* count events before this one are missing */
    SL_RECORDING_AGAIN = 6, /* the writer was restarted: what happened meanwhile is missing */
    SL_RECORDING_FULL = 7,  /* the last one: the file has its largest size */
};
struct sl_recording_event {
    enum sl_recording_kind kind;
    uint8_t hint;   /* of the session: 0 nothing is known, 1 it ends, 2 it goes on */
    bool new_op;    /* STORE: of another op than the STORE before; ops that are not known are new */
    uint64_t at_us; /* since the file began */
    uint64_t name;
    uint64_t parent; /* name of the block before it in its chain; 0: none */
    /* STORE; 0: not known. Of others as its last STORE told. */
    uint64_t bytes; /* of memory that it takes */
    uint64_t tokens;
    uint32_t part_count; /* values that the block has, up to PARTS_MAX */
    uint32_t key_bytes;  /* of a value's key and its block's, up to KEY_MAX */
    uint64_t count;      /* LOST */
};

/* ---- writing: a frame in a buffer of the caller ---- */
struct sl_recording_frame_head { /* its events follow */
    uint32_t magic;
    uint32_t length_bytes; /* of its events */
    uint32_t count;
    uint32_t check; /* as that of the header, over head and events */
    uint64_t begun_us;
    uint64_t file_id;
};
struct sl_recording_frame {
    unsigned char *bytes;
    uint64_t room, length; /* room: at least that of a head and EVENT_BYTES */
    uint32_t count;
    uint64_t begun_us;
    struct sl_recording_event last;
    uint32_t part_count, key_bytes; /* that were told last */
};
void sl_recording_frame_begin(struct sl_recording_frame *frame, unsigned char *bytes, uint64_t room,
                              uint64_t at_us);
/* false: there may be no room. Times do not go back within a frame; one that does is the last's. */
bool sl_recording_frame_add(struct sl_recording_frame *frame,
                            const struct sl_recording_event *event);
/* Completes the frame; gives its bytes in all. */
uint64_t sl_recording_frame_end(struct sl_recording_frame *frame, uint64_t file_id);

#endif
