/* runtime/base/sl_recording.h - recordings of the requests to a node: the format and the writer.
 * The reader is `python -m sluice.recording`.
 *
 * A file is a header and frames. Each frame has its own check and is independent of other frames,
 * so a torn or damaged frame (the machine or the writer was killed) is detected and costs only
 * itself. Events are packed: a block of a chain takes about 10 bytes.
 *
 * A recording has no keys. A block is named by a keyed hash (SipHash-2-4) of its key's hash. The
 * salt of a file is random and not stored in it, so a reader of the file cannot test guessed
 * keys. */
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
    unsigned char magic[8]; /* this, version, header_bytes and check: set by header_seal */
    uint32_t version, header_bytes;
    uint64_t file_id;
    uint64_t began_unix_ns;
    uint64_t memory_bytes, disk_bytes; /* of the node at that time */
    char policy[16];                   /* evict_policy */
    uint64_t segment_bytes;            /* of the disk; 0 without one, as are the next two */
    uint64_t budget_bytes;             /* disk_write_budget */
    uint64_t path_count;               /* disks */
    unsigned char zeroes[32];
    uint32_t check; /* CRC-32 of zlib over the header, with this field as 0 */
    uint32_t zero;
};
void sl_recording_header_seal(struct sl_recording_header *header);
/* Checks that the first length_bytes of a file, in *header, begin a recording. Errors:
 * SL_ERR_FOREIGN (they do not), SL_ERR_VERSION. */
sl_err sl_recording_header_is(const struct sl_recording_header *header, uint64_t length_bytes);
/* Opens or creates the file of a recording for writing and locks it. *length_bytes: its size; *id:
 * its id, 0 if it is of another version. Errors: SL_ERR_OS and kin, SL_ERR_EXISTS (the file is not
 * a recording), SL_ERR_BUSY (another node records to it). */
sl_err sl_recording_open(const char *path, int *fd, uint64_t *length_bytes, uint64_t *id,
                         struct sl_error *why);

enum sl_recording_kind {
    SL_RECORDING_LOAD =
        1, /* a block that existed was used: loaded by an engine, or read by a get */
    SL_RECORDING_STORE = 2, /* a block that did not exist is now stored */
    SL_RECORDING_FETCH = 3, /* read from disk because a client wants it; a LOAD follows */
    SL_RECORDING_GONE = 4,  /* removed or expired; not an eviction */
    SL_RECORDING_LOST = 5,  /* `count` events before this one are missing */
    SL_RECORDING_AGAIN = 6, /* the writer was restarted: events in between are missing */
    SL_RECORDING_FULL = 7,  /* the last event: the file has reached its size limit */
};
struct sl_recording_event {
    enum sl_recording_kind kind;
    uint8_t hint;   /* of the session: 0 unknown, 1 it ends, 2 it continues */
    bool new_op;    /* STORE: of another op than the STORE before; unknown ops are new */
    uint64_t at_us; /* since the file began */
    uint64_t name;
    uint64_t parent; /* name of the previous block in its chain; 0: none */
    /* Set with STORE, 0: unknown. Other events: as in the block's last STORE. */
    uint64_t bytes; /* memory that the block takes */
    uint64_t tokens;
    uint32_t part_count; /* number of the block's values, up to PARTS_MAX */
    uint32_t key_bytes;  /* key of a value plus key of its block, up to KEY_MAX */
    uint64_t count;      /* of LOST */
};

/* ---- writing: a frame in the caller's buffer ---- */
struct sl_recording_frame_head { /* its events follow */
    uint32_t magic;
    uint32_t length_bytes; /* of its events */
    uint32_t count;
    uint32_t check; /* as in the header, over head and events */
    uint64_t begun_us;
    uint64_t file_id;
};
struct sl_recording_frame {
    unsigned char *bytes;
    uint64_t room, length; /* room: at least a head and EVENT_BYTES */
    uint32_t count;
    uint64_t begun_us;
    struct sl_recording_event last;
    uint32_t part_count, key_bytes; /* as written last */
};
void sl_recording_frame_begin(struct sl_recording_frame *frame, unsigned char *bytes, uint64_t room,
                              uint64_t at_us);
/* False: there may be no room. Within a frame times do not decrease; an earlier one is raised. */
bool sl_recording_frame_add(struct sl_recording_frame *frame,
                            const struct sl_recording_event *event);
/* Completes the frame and returns its total bytes. */
uint64_t sl_recording_frame_end(struct sl_recording_frame *frame, uint64_t file_id);

#endif
