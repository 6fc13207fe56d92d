/* actors/tierer/state.h - the state of a tierer. A segment is a log file of its disk. */
#ifndef SL_TIERER_STATE_H
#define SL_TIERER_STATE_H

#include "actors/tierer/entries.h"
#include "actors/tierer/files.h"
#include "actors/tierer/segment_format.h"
#include "actors/tierer/staging.h"
#include "ipc/msg/sl_msg.h"
#include "ipc/shm/sl_index.h"
#include "runtime/base/sl_actor.h"
#include "runtime/disk/sl_disk_place.h"

#include <stdatomic.h>

#define TI_SEARCH_BYTES         (1u << 20)   /* read at once to find the next frame */
#define TI_LEND_BYTES           (64u << 20)  /* of the arena, registered at once */
#define TI_REGISTERED_BYTES_MIN (256u << 10) /* smaller pieces of a frame are written together */
#define TI_SEGMENTS_MAX         SL_DISK_SEGMENTS_MAX
#define TI_LENGTHS_MAX          2u /* ceilings: bounds the files' lengths, punched pages included */
#define TI_IOS_MAX              4096u
#define TI_IOS_KEPT             256u  /* slots kept for writes and syncs: a frame needs several */
#define TI_JOBS_MAX             1024u /* requests that wait for a batch or for reads */
#define TI_ACTIVE_BYTES_MAX     (64u << 20) /* frames being written */
#define TI_SYNC_BYTES           (16u << 20) /* written and not synced: the sync starts */
#define TI_SEGMENT_SLACK_BYTES  (64u << 10) /* for blocks that the file system adds to a file */
/* A value is read in pieces: one is hashed while the others are read. Only a few pieces are at the
 * disk at a time, in order. A disk that has all of them ends them all at once, and is then idle
 * while they are hashed and copied and the next ones are requested. */
#define TI_READ_PIECE_BYTES  (1u << 20)
#define TI_READ_WINDOW_BYTES (4u << 20)
#define TI_BOUNCE_PAGES      512u /* for values smaller than a page */
#define TI_FENCES_MAX        16u
#define TI_FOUND_ITEMS_MAX   512u  /* in one DISK_FOUND */
#define TI_FOUND_RECORDS_MAX 2048u /* examined for one in a turn: 1 ms */
#define TI_ANSWERED_MAX      64u /* jobs; the registrar has 16 writes and a DISK_FORGET in flight */
#define TI_ANSWERED_READS_MAX \
    32u /* it has 8 reads and 4 prefetches in flight, and gets answers in order */
#define TI_READ_PAUSES_MAX     16u
#define TI_UNREADABLE_MAX      4u /* files of a start, pages of a file; more: the disk is out */
#define TI_SCAN_RETRY_NS       (5 * SL_NS_PER_MS)
#define TI_SCAN_RETRY_NS_MAX   (160 * SL_NS_PER_MS)
#define TI_HEALTH_RETRY_NS     (2 * SL_NS_PER_S)
#define TI_HEALTH_REFUSE_NS    (3 * SL_NS_PER_S) /* a request waits this long for a failing disk */
#define TI_HEALTH_STALL_NS     (5 * SL_NS_PER_S) /* without an answer: the disk hangs */
#define TI_HEALTH_PROBE_NS     SL_NS_PER_S       /* between two probes of a doubtful disk */
#define TI_START_REPORT_NS     (300 * SL_NS_PER_MS) /* a longer start is shown in the health text */
#define TI_ROOM_RETRY_NS       (60 * SL_NS_PER_S)   /* then a full file system is tried again */
#define TI_ROOM_WARN_NS        (60 * TI_ROOM_RETRY_NS) /* between two warnings that it is full */
#define TI_ROOM_DOUBT_NS       (500 * SL_NS_PER_MS) /* refused this long: the file system is full */
#define TI_NAME_NS             (100 * SL_NS_PER_MS) /* between two pages that name tombstones */
#define TI_BAD_PLACES_MAX      64u
#define TI_BAD_PLACE_FAILURES  3u /* on an otherwise healthy disk: the place is given up */
#define TI_SEGMENT_NAME_FORMAT SL_DISK_SEGMENT_NAME "%010u"

enum ti_segment_state {
    TI_SEGMENT_OPEN,   /* frames are appended */
    TI_SEGMENT_CLOSED, /* complete; no footer yet */
    TI_SEGMENT_SEALED, /* its footer is durable */
};

struct ti_segment {
    uint32_t number;
    int file;
    uint64_t salt;
    unsigned char store[16];
    enum ti_segment_state state;
    uint64_t bytes;         /* of the file */
    uint64_t real_bytes;    /* charged to the ceiling */
    uint64_t used_bytes;    /* end of the frames, those in flight included */
    uint64_t last_sequence; /* of its frames */
    uint32_t version;
    uint64_t first_sequence;   /* lowest of its frames; 0: unknown */
    uint64_t tombstone_before; /* newest frame of tombstones when the file was made; 0: none */
    uint64_t tombstone_last;   /* newest one that was acknowledged here; 0: none */
    ti_entry_ref list;         /* entries whose values are here */
    uint32_t reads, frames;    /* in flight: the file stays */
    bool settling;             /* from an earlier process: maybe not durable yet */
    bool header_written;       /* written: a sync makes frames findable */
    bool leaving;              /* the file is being removed */
    bool emptied;              /* sealed, and the pages of its values were freed */
    bool lost;                 /* at the start: none of it can be read */
    bool cut;                  /* at the start: the file is shorter than its header says */
    bool failed;               /* a frame was given up: the footer precedes new frames */
    bool sealing;
    uint32_t seal_failures;
    uint64_t seal_at_ns;
    /* The acknowledged records, in log order: the index of the future footer. NULL when it is
     * sealed or empty, or without memory (records_lost: no footer, the frames are read). */
    unsigned char *records;
    uint64_t records_bytes, records_capacity;
    uint64_t records_planned_bytes; /* with those of frames in flight */
    uint32_t record_count;
    bool records_lost;
};

enum ti_job_kind { TI_JOB_WRITE, TI_JOB_FORGET, TI_JOB_READ };
enum ti_job_phase {
    TI_JOB_WAITING,
    TI_JOB_WRITING,
    TI_JOB_WRITTEN,
    TI_JOB_SYNCING,
    TI_JOB_NAMING, /* tombstones: the page of members must name the frame first */
};

struct ti_item {
    sl_err code;
    bool dead;    /* left out of the frame */
    bool present; /* dead, because the disk has the value */
    struct ti_key_hash hash;
    struct sl_digest digest;
    uint64_t generation;
    uint64_t length_bytes;
    uint64_t arena_offset;
    uint64_t disk_offset;
    uint32_t segment;
    uint32_t arena;
    sl_ref ref;
    int32_t bounce; /* page of the bounce pool, -1: none */
    /* reads: */
    bool staged;            /* counted in the staging budget */
    uint64_t started_bytes; /* its pieces up to here were started */
    uint32_t pieces;        /* of these, in flight */
    uint64_t *hashes;       /* of its chunks; NULL: it is one piece */
    uint16_t part_index, part_count, key_length, group_length;
    const char *key, *group;
};

struct ti_job {
    enum ti_job_kind kind;
    struct sl_reply_route back;
    struct ti_job *next;
    struct ti_item *items; /* and their texts, one allocation */
    uint32_t item_count;
    uint32_t started; /* reads: items begun */
    uint32_t ended;
    uint64_t value_bytes;
    uint64_t arrived_ns;
    bool answered; /* its reply was sent; if still in flight, the result does not count */
    bool ahead;    /* reads: a prefetch, which no request waits for */
    /* its frame, being written: */
    enum ti_job_phase phase;
    bool begins_segment;  /* the file's header is written with it */
    bool measured;        /* bytes were compared with their digests */
    unsigned char *frame; /* header, records, then values smaller than a page */
    struct iovec *pieces;
    uint64_t frame_header_bytes, frame_bytes, frame_offset, records_bytes;
    uint64_t sequence, started_ns, written_ns;
    uint32_t segment, small_count, record_count;
    uint32_t ios; /* writes in flight */
    int os_code;  /* of the first failed write */
};

struct ti_job_list {
    struct ti_job *first, *last;
    uint32_t count;
};

/* A FENCE that waits for reads in flight. */
struct ti_fence {
    struct sl_reply_route back;
    uint64_t serial; /* answered when no older read is in flight */
};

enum ti_io_kind {
    TI_IO_FREE,
    TI_IO_WRITE,
    TI_IO_SYNC,
    TI_IO_READ,
    TI_IO_SEAL,
    TI_IO_SEAL_SYNC,
    TI_IO_SEAL_CUT,
    TI_IO_REMOVE,
    TI_IO_PROBE,
    TI_IO_SETTLE,
    TI_IO_MEMBERS,
    TI_IO_MEMBERS_SYNC,
    TI_IO_MEMBERS_MAKE,
};

/* Priorities at the disk: loads, prefetches, the rest. No class starves: while they wait, one of
 * TI_IO_TURN_BACKGROUND requests is of TI_IO_BACKGROUND, one of TI_IO_TURN_PREFETCH of
 * TI_IO_PREFETCH. */
enum ti_io_class { TI_IO_DEMAND, TI_IO_PREFETCH, TI_IO_BACKGROUND, TI_IO_CLASSES };
#define TI_IO_TURN_BACKGROUND 4u
#define TI_IO_TURN_PREFETCH   16u

struct ti_io {
    enum ti_io_kind kind;
    struct ti_job *job;
    uint32_t item;
    struct sl_disk_request request;
    struct ti_io *next; /* waiting to be submitted, or free */
    uint64_t started_ns;
    uint64_t serial;
};

/* The next log file. A helper thread makes it while the current one fills: allocating and syncing a
 * file take longer than writing a quarter of it. */
enum ti_spare_state { TI_SPARE_NONE, TI_SPARE_MAKING, TI_SPARE_READY };
struct ti_spare {
    enum ti_spare_state state;
    uint32_t number;
    uint64_t real_bytes;
    uint64_t retry_at_ns; /* after a failure: not before; 0: a job runs */
    uint64_t started_ns;  /* when the job started */
    /* used by the job: */
    struct sl_disk *disk;
    char from[40], name[40]; /* from: a reclaimed file, or empty */
    uint64_t bytes;
    struct sl_error why;
};

/* Space in the file system, which may be full below the configured ceiling. */
struct ti_room {
    uint64_t bytes_max;   /* of all files: the setting, or less while the file system is full */
    uint64_t retry_at_ns; /* when the setting applies again; 0: it applies */
    uint64_t refused_ns;  /* first recent refusal; a single one may be transient */
    uint64_t again_ns;    /* until then no file is made and the ceiling is not lowered again */
    uint64_t warn_at_ns;  /* no warning before */
    bool full;            /* no file can be made and none may be removed: writes are refused */
};

/* A place whose read failed. The failure counts against the place if the next probe succeeds
 * elsewhere on the disk. While the whole disk fails, it proves nothing about the place. */
struct ti_bad_place {
    struct ti_place place; /* segment 0: unused */
    struct ti_key_hash hash;
    uint32_t failures;
    bool suspect; /* it failed since the last probe started */
    bool probed;  /* the running probe decides */
};

/* Reads another place: is only that place bad, or the disk? */
struct ti_probe {
    unsigned char *page;
    bool busy;
    bool doubted; /* a read failed, and no probe has succeeded since */
    bool refused; /* the probe failed as well: no reads are sent to the disk */
    uint32_t segment, turn;
    uint64_t at_ns; /* not before */
};

/* The footer being written. */
struct ti_seal {
    bool busy;
    uint32_t segment;
    uint64_t footer_bytes, offset_bytes; /* its memory: the records */
    bool cut;                            /* the file was shortened */
};

/* The start: a helper thread reads what earlier processes wrote. Until it ends, only that thread
 * uses the disk, segments[] and the entries. */
struct ti_start {
    bool reading;
    bool all_reported; /* a registrar has received all contents */
    uint64_t since_ns;
    uint64_t registrar;    /* boot generation of the registrar to inform; 0: none yet */
    uint32_t listed, kept; /* segments[0 .. kept) are open */
    uint32_t unreadable;
    uint64_t records_bytes; /* kept for footers of files that had none */
    /* Newest file with an unreadable end whose tombstones no later file shows; 0: none. */
    uint32_t doubt;
    _Atomic uint32_t done; /* of the listed files */
    _Atomic bool cancelled;
    struct sl_error why;
};

/* A helper thread reads the records of a log file that has none in memory. */
struct ti_scan_read {
    bool busy;
    bool empties;        /* no value is live: their pages are freed */
    uint32_t generation; /* of the scan that wanted them */
    struct tierer *self;
    struct ti_segment segment; /* a copy */
    unsigned char *records;
    uint64_t bytes;
    struct sl_error why;
};

struct tierer {
    struct sl_env *env;
    struct sl_calls *calls;
    struct sl_disk *disk;
    struct ti_entries *entries;
    struct sl_index_view *index;
    struct sl_arena *arena;      /* NULL: not attached yet */
    uint64_t registered_bytes;   /* of the arena, registered with the disk */
    bool lending;                /* the disk takes registered memory */
    struct ti_segment *segments; /* oldest first; the last one may be open */
    uint32_t segment_count;
    uint32_t segments_max; /* each holds a descriptor */
    uint64_t segment_bytes, disk_bytes_max;
    uint64_t foreign_bytes; /* other files in the directory, also charged */
    unsigned char store[16];
    struct ti_members_file members;
    struct ti_budget budget;
    struct ti_start start;
    uint32_t emptied_segments, given_up_segments; /* at the start */
    uint64_t next_sequence;
    uint64_t tombstone_sequence; /* newest acknowledged frame of tombstones; 0: none */
    uint32_t tombstone_segment;  /* the file that holds it; 0: none */
    uint32_t next_number;
    char leaving_name[40]; /* file being removed */

    struct ti_job_list waiting; /* writes and tombstones */
    struct ti_job_list active;  /* their frames are being written, in log order */
    /* Recently answered writes and tombstones. A request that was resent while its answer was on
     * the way must not run twice: the second copy would follow a tombstone meant for the value. */
    struct ti_job_list answered;
    /* Reads likewise: until the answer arrives the claims are valid, and a second read could write
     * to memory that has another value by then. */
    struct ti_job_list answered_reads;
    uint64_t active_bytes, durable_sequence;
    struct {
        bool busy;
        uint32_t segment;
        uint64_t started_ns;
    } sync;
    struct ti_seal seal;
    struct ti_spare spare;
    struct ti_room room;
    bool settling;          /* writes of earlier processes are being synced */
    bool unsettled;         /* a sync at the start failed: only a restart shows what is durable */
    bool gone;              /* the directory vanished: only a restart helps */
    uint64_t reclaim_at_ns; /* not before */
    bool reclaiming, gone_notified; /* the oldest file was asked for; a removal was reported */
    uint32_t gone_segment;     /* removed file, until the registrar has acknowledged it; 0: none */
    ti_entry_ref left;         /* entries of the removed file, freed in slices */
    uint64_t blocked_until_ns; /* after a failure: writes pause */
    bool degraded, stalled;    /* writes fail; the disk does not answer */
    int degraded_os_code;
    struct ti_probe probe;
    struct ti_bad_place bad_places[TI_BAD_PLACES_MAX];
    uint32_t bad_place_count, bad_place_next;

    struct ti_job_list reads, reads_ahead;
    uint32_t reads_turn;
    struct ti_staging staging;
    uint32_t reads_in_flight;
    uint64_t read_bytes_at_disk;
    uint64_t reads_busy_from_ns; /* with reads in flight: busy time is counted up to here */
    uint64_t reads_wanted_bytes; /* of loads, not of prefetches */
    uint32_t ios_in_flight;
    unsigned char *bounce;
    uint64_t bounce_free[TI_BOUNCE_PAGES / 64]; /* bit: free */
    uint32_t bounce_free_count;

    struct ti_fence fences[TI_FENCES_MAX];
    uint32_t fence_count;
    uint64_t floor_seq;   /* older requests than the last FENCE of everything are refused */
    uint64_t next_serial; /* of the requests to the disk */
    struct ti_io *ios;
    struct ti_io *io_free;
    struct {
        struct ti_io *first, *last;
    } io_queues[TI_IO_CLASSES]; /* not yet at the disk */
    uint32_t io_turn;

    uint64_t boot_generation;              /* of the registrar that was last informed */
    bool scanning, scan_first, scan_asked; /* asked: a DISK_FOUND is in flight */
    bool scan_paused;                      /* the next DISK_FOUND is still to be filled */
    uint64_t scan_retry_ns;     /* after a refusal or a failure: not before; 0: at once */
    uint64_t scan_pause_ns;     /* the next back-off */
    uint32_t scan_segment;      /* number */
    uint64_t scan_offset;       /* in its records */
    uint32_t scan_from_segment; /* start of the batch that the registrar has */
    uint64_t scan_from_offset;
    unsigned char *scan_records; /* of a file that has none in memory */
    uint64_t scan_records_bytes;
    uint32_t scan_records_of; /* its number; 0: none */
    uint32_t scan_generation;
    struct ti_scan_read scan_read;
    bool scan_waits;          /* for a file that could not be read */
    uint32_t dead_cursor;     /* next file checked for live values */
    bool punch_frees_nothing; /* punching holes frees no space here */
    uint64_t scan_started_ns;
    struct sl_item_found *scan_items;
    uint32_t scan_count;
    bool scan_last, scan_skipped; /* skipped: a file being removed */
    unsigned char *frame_buffer;  /* TI_FRAME_HEADER_BYTES_MAX, aligned */
    unsigned char *search_buffer; /* TI_SEARCH_BYTES, aligned */
    uint32_t read_pauses_left;    /* for failing reads, in this start or scan */
    struct sl_disk_other other;   /* read to tell a bad place from a bad disk */
    sl_err unread;                /* SL_ERR_CORRUPT: a place; SL_ERR_IO: the disk */

    bool draining;
    struct {
        sl_metric bytes_written, bytes_read, values_written, values_read, corrupt, io_errors,
            segments, used_bytes, live_values, live_bytes, reclaimed_segments, tombstones, syncs,
            queue, sealed_segments, in_flight, buffers_bytes, unreadable, emptied_segments,
            given_up_segments, budget, budget_left, written_today, written_all, read_busy,
            read_queue, ceiling;
        sl_histogram write_ns, read_ns, sync_ns;
    } metrics;
};

#endif
