/* actors/tierer/state.h - state of the tierer. */
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

#define TI_SEARCH_BYTES         (1u << 20)   /* read at once while looking for the next frame */
#define TI_LEND_BYTES           (64u << 20)  /* of an arena, registered at once */
#define TI_REGISTERED_BYTES_MIN (256u << 10) /* smaller pieces of a frame travel together */
#define TI_SEGMENTS_MAX         SL_DISK_SEGMENTS_MAX
#define TI_LENGTHS_MAX          2u /* ceilings: all files, with what was given back of them */
#define TI_IOS_MAX              4096u
#define TI_IOS_KEPT             256u /* of these for others than reads: a frame needs a part of them */
#define TI_JOBS_MAX             1024u       /* requests that wait for their batch or their reads */
#define TI_ACTIVE_BYTES_MAX     (64u << 20) /* frames on their way to the disk */
#define TI_SYNC_BYTES           (16u << 20) /* written and not synced: no waiting for more */
#define TI_SEGMENT_SLACK_BYTES  (64u << 10) /* blocks of the file system's own beside a segment */
/* A value is read in pieces, so that one is hashed while others are read. Of loads and prefetches
 * the disk has a few at a time, in their order: one that has all of them at once ends them all at
 * once, and then does nothing while they are hashed, copied and the next ones asked for. */
#define TI_READ_PIECE_BYTES  (1u << 20)
#define TI_READ_WINDOW_BYTES (4u << 20)
#define TI_BOUNCE_PAGES      512u /* for values that are no whole pages of the arena */
#define TI_FENCES_MAX        16u
#define TI_FOUND_ITEMS_MAX   512u  /* one DISK_FOUND */
#define TI_FOUND_RECORDS_MAX 2048u /* looked at for one, in a turn: 1 ms */
#define TI_ANSWERED_MAX      64u /* jobs; the registrar has 16 writes and a DISK_FORGET under way */
#define TI_ANSWERED_READS_MAX \
    32u /* it has 8 reads and 4 ahead of use, and hears answers in order */
#define TI_READ_PAUSES_MAX     16u
#define TI_UNREADABLE_MAX      4u /* segments of a start, pages of a segment: more are the disk */
#define TI_SCAN_RETRY_NS       (5 * SL_NS_PER_MS)
#define TI_SCAN_RETRY_NS_MAX   (160 * SL_NS_PER_MS)
#define TI_HEALTH_RETRY_NS     (2 * SL_NS_PER_S)
#define TI_HEALTH_REFUSE_NS    (3 * SL_NS_PER_S) /* a request waits so long for a disk that fails */
#define TI_HEALTH_STALL_NS     (5 * SL_NS_PER_S) /* no answer for so long: the disk hangs */
#define TI_HEALTH_PROBE_NS     SL_NS_PER_S       /* between two probes of a disk in doubt */
#define TI_START_TELL_NS       (300 * SL_NS_PER_MS)    /* a start that takes longer is told of */
#define TI_ROOM_RETRY_NS       (60 * SL_NS_PER_S)      /* a full file system may have room again */
#define TI_ROOM_WARN_NS        (60 * TI_ROOM_RETRY_NS) /* said so often while it is full */
#define TI_ROOM_DOUBT_NS       (500 * SL_NS_PER_MS)    /* refused for so long: it is full */
#define TI_NAME_NS             (100 * SL_NS_PER_MS)    /* between two frames of tombstones named */
#define TI_BAD_PLACES_MAX      64u
#define TI_BAD_PLACE_FAILURES  3u /* on a disk that is well otherwise: the place is given up */
#define TI_SEGMENT_NAME_FORMAT SL_DISK_SEGMENT_NAME "%010u"

enum ti_segment_state {
    TI_SEGMENT_OPEN,   /* frames are appended */
    TI_SEGMENT_CLOSED, /* nothing is appended any more; no footer yet */
    TI_SEGMENT_SEALED, /* its footer is durable */
};

struct ti_segment {
    uint32_t number;
    int file;
    uint64_t salt;
    unsigned char store[16];
    enum ti_segment_state state;
    uint64_t bytes;         /* of the file */
    uint64_t real_bytes;    /* what it counts for, against the ceiling */
    uint64_t used_bytes;    /* frames end here, those on their way included */
    uint64_t last_sequence; /* of its frames */
    uint32_t version;
    uint64_t first_sequence;   /* of its frames; 0: unknown (version 2) */
    uint64_t tombstone_before; /* frames of tombstones: the newest one when it was made, */
    uint64_t tombstone_last;   /* the newest that was acknowledged here; 0: none */
    ti_entry_ref list;         /* entries whose values lie here */
    uint32_t reads, frames;    /* in flight: the file stays */
    bool settling;             /* found without a footer: not all of it may be durable yet */
    bool header_there;         /* written: a sync makes frames findable */
    bool leaving;              /* the file is being removed */
    bool emptied;              /* sealed, and the room of its values was given back */
    bool lost;                 /* at the start: nothing of it can be read */
    bool cut;                  /* at the start: the file is shorter than its header says */
    bool failed;               /* some frame was given up: its footer comes before new frames */
    bool sealing;
    uint32_t seal_failures;
    uint64_t seal_at_ns;
    /* What was acknowledged here, in that order: the index of the footer to come. NULL when it is
     * sealed or empty, or when there is no memory (records_lost: no footer, the frames are read).
     */
    unsigned char *records;
    uint64_t records_bytes, records_capacity;
    uint64_t records_planned_bytes; /* those of frames on their way included */
    uint32_t record_count;
    bool records_lost;
};

enum ti_job_kind { TI_JOB_WRITE, TI_JOB_FORGET, TI_JOB_READ };
enum ti_job_phase {
    TI_JOB_WAITING,
    TI_JOB_WRITING,
    TI_JOB_WRITTEN,
    TI_JOB_SYNCING,
    TI_JOB_NAMING, /* tombstones: the page of members is to name the frame */
};

struct ti_item {
    sl_err code;
    bool dead;    /* left out of the frame */
    bool present; /* dead, because it is on the disk already */
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
    /* reads */
    bool staged;            /* its bytes count in the staging budget */
    uint64_t started_bytes; /* its pieces up to here were handed over */
    uint32_t pieces;        /* of these, not ended */
    uint64_t *hashes;       /* of its chunks; NULL: it is one piece */
    uint16_t part_index, part_count, key_length, group_length;
    const char *key, *group;
};

struct ti_job {
    enum ti_job_kind kind;
    struct sl_return back;
    struct ti_job *next;
    struct ti_item *items; /* with the texts behind them: one piece of memory */
    uint32_t item_count;
    uint32_t started; /* reads: items taken up so far */
    uint32_t ended;
    uint64_t value_bytes;
    uint64_t arrived_ns;
    bool answered; /* too early for the disk: what comes of it does not count */
    bool ahead;    /* reads: nobody waits for them */
    /* its frame, on its way to the disk */
    enum ti_job_phase phase;
    bool begins_segment;  /* the segment's header goes with it */
    bool measured;        /* bytes were compared with their digests */
    unsigned char *frame; /* header, records, then values that are no whole pages of the arena */
    struct iovec *pieces;
    uint64_t frame_header_bytes, frame_bytes, frame_offset, records_bytes;
    uint64_t sequence, started_ns, written_ns;
    uint32_t segment, small_count, record_count;
    uint32_t ios; /* writes not ended */
    int os_code;  /* of the first that failed */
};

struct ti_job_list {
    struct ti_job *first, *last;
    uint32_t count;
};

/* A FENCE that waits for reads in flight. */
struct ti_fence {
    struct sl_return back;
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

/* What goes to the disk first. Nothing starves: of TI_IO_TURN_BEHIND requests one is of
 * TI_IO_BEHIND when some wait, of TI_IO_TURN_AHEAD one of TI_IO_AHEAD. */
enum ti_io_class { TI_IO_DEMAND, TI_IO_AHEAD, TI_IO_BEHIND, TI_IO_CLASSES };
#define TI_IO_TURN_BEHIND 4u
#define TI_IO_TURN_AHEAD  16u

struct ti_io {
    enum ti_io_kind kind;
    struct ti_job *job;
    uint32_t item;
    struct sl_disk_request request;
    struct ti_io *next; /* waiting to be submitted, or free */
    uint64_t started_ns;
    uint64_t serial;
};

/* The file of the next segment, made by a helper thread while the current one fills: allocating and
 * syncing take longer than writing a quarter of a segment. */
enum ti_spare_state { TI_SPARE_NONE, TI_SPARE_MAKING, TI_SPARE_READY };
struct ti_spare {
    enum ti_spare_state state;
    uint32_t number;
    uint64_t real_bytes;
    uint64_t retry_at_ns; /* making failed: not before; 0: a job is at it */
    uint64_t started_ns;  /* the job */
    /* lent to the job */
    struct sl_disk *disk;
    char from[40], name[40]; /* from: a reclaimed segment's file, or empty */
    uint64_t bytes;
    struct sl_error why;
};

/* What the file system has room for: it may be full below the ceiling of the setting. */
struct ti_room {
    uint64_t bytes_max;   /* of all files: the setting, less while the file system is full */
    uint64_t retry_at_ns; /* then the setting counts again; 0: it does */
    uint64_t refused_ns;  /* the first refusal of late; one alone may be over soon: */
    uint64_t again_ns;    /* before, no file is made, and the ceiling falls no further */
    uint64_t warn_at_ns;  /* nor said again */
    bool full;            /* no file can be made, and none may go: nothing is written */
};

/* A place whose read failed. It counts as a failure of the place when the probe after it shows that
 * the disk reads elsewhere; what a disk that is ill altogether fails to read says nothing. */
struct ti_bad_place {
    struct ti_place place; /* segment 0: none */
    struct ti_key_hash hash;
    uint32_t failures;
    bool suspect; /* it failed since the last probe began */
    bool probed;  /* the probe that is under way decides */
};

/* Reads somewhere else: is it the place, or the disk? */
struct ti_probe {
    unsigned char *page;
    bool busy;
    bool doubted; /* a read failed, and no probe has succeeded since */
    bool refused; /* the probe failed as well: no read is handed to the disk */
    uint32_t segment, turn;
    uint64_t at_ns; /* not before */
};

/* One footer on its way. */
struct ti_seal {
    bool busy;
    uint32_t segment;
    uint64_t footer_bytes, offset_bytes; /* its memory is the segment's records */
    bool cut;                            /* the file is */
};

/* The start: a helper thread reads what lives before this one wrote. Until it has ended, the loop
 * leaves the disk, segments[] and the entries alone. */
struct ti_start {
    bool reading;
    bool told; /* a registrar has heard all that is there */
    uint64_t since_ns;
    uint64_t registrar;    /* boot generation of who is told when the log was read; 0: none yet */
    uint32_t listed, kept; /* segments[0 .. kept) are open */
    uint32_t unreadable;
    uint64_t records_bytes; /* noted for the footers of segments that had none */
    /* Number of the newest segment whose end cannot be read, while nobody who came after it says
     * which tombstones there were; 0: none. */
    uint32_t doubt;
    _Atomic uint32_t done; /* of the listed ones */
    _Atomic bool cancelled;
    struct sl_error why;
};

/* Records of a segment that keeps none in memory, being read by a helper thread. */
struct ti_scan_read {
    bool busy;
    bool empties;        /* none of its values is live: their room is given back */
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
    struct sl_arena *arena;      /* NULL: not there yet */
    uint64_t lent_bytes;         /* of it, registered with the disk so far */
    bool lending;                /* the disk takes registered memory */
    struct ti_segment *segments; /* oldest first; the last one is open unless abandoned */
    uint32_t segment_count;
    uint32_t segments_max; /* each holds a descriptor */
    uint64_t segment_bytes, disk_bytes_max;
    uint64_t foreign_bytes; /* other files in the directory count as well */
    unsigned char store[16];
    struct ti_members_file members;
    struct ti_budget budget;
    struct ti_start start;
    uint32_t emptied_segments, given_up_segments; /* at the start */
    uint64_t next_sequence;
    uint64_t tombstone_sequence; /* the newest frame of tombstones that was acknowledged; 0: none */
    uint32_t tombstone_segment;  /* where it is; 0: nowhere any more */
    uint32_t next_number;
    char leaving_name[40]; /* of the segment whose file is being removed */

    struct ti_job_list waiting; /* writes and tombstones */
    struct ti_job_list active;  /* their frames are on the way, in log order */
    /* Writes and tombstones that were answered lately: a request that was sent again and overtook
     * its answer must not be carried out twice, since a second copy would lie behind a tombstone
     * that is meant for the value. */
    struct ti_job_list answered;
    /* Reads likewise: while the answer is on its way the claims stand still, and a second read
     * would land in memory that is another value's by then. */
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
    bool settling;              /* what a life before this one wrote is being made durable */
    bool unsettled;             /* only a new start tells what is there */
    bool gone;                  /* the directory is not there any more: only a new start helps */
    uint64_t reclaim_at_ns;     /* not before */
    bool reclaiming, gone_told; /* the registrar was asked for the oldest one; was told of */
    uint32_t gone_segment;      /* its file goes or has gone; 0: none, or the registrar knows it */
    ti_entry_ref left;          /* entries of the one that went last: freed in slices */
    uint64_t blocked_until_ns;  /* the disk failed: writes wait until then */
    bool degraded, stalled;     /* writes fail; nothing is answered */
    int degraded_os_code;
    struct ti_probe probe;
    struct ti_bad_place bad_places[TI_BAD_PLACES_MAX];
    uint32_t bad_place_count, bad_place_next;

    struct ti_job_list reads, reads_ahead;
    uint32_t reads_turn;
    struct ti_staging staging;
    uint32_t reads_in_flight;
    uint64_t read_bytes_at_disk;
    uint64_t reads_busy_from_ns; /* with reads in flight: up to then it is counted */
    uint64_t reads_wanted_bytes; /* of values that somebody waits for */
    uint32_t ios_in_flight;
    unsigned char *bounce;
    uint64_t bounce_free[TI_BOUNCE_PAGES / 64]; /* bit: free */
    uint32_t bounce_free_count;

    struct ti_fence fences[TI_FENCES_MAX];
    uint32_t fence_count;
    uint64_t floor_seq;   /* what was asked before a FENCE of everything is not taken up any more */
    uint64_t next_serial; /* of the requests to the disk */
    struct ti_io *ios;
    struct ti_io *io_free;
    struct {
        struct ti_io *first, *last;
    } io_queues[TI_IO_CLASSES]; /* not yet taken by the disk */
    uint32_t io_turn;

    uint64_t boot_generation;              /* of the registrar that was told everything */
    bool scanning, scan_first, scan_asked; /* asked: the last DISK_FOUND has no answer yet */
    bool scan_paused;           /* all durable is told, or what is durable is not known yet */
    uint64_t scan_retry_ns;     /* the registrar was not ready for it: not before; 0: it was */
    uint64_t scan_pause_ns;     /* before the next try, when that comes */
    uint32_t scan_segment;      /* number */
    uint64_t scan_offset;       /* in its records */
    uint32_t scan_from_segment; /* where the batch that is with the registrar begins */
    uint64_t scan_from_offset;
    unsigned char *scan_records; /* of a segment that keeps none in memory */
    uint64_t scan_records_bytes;
    uint32_t scan_records_of; /* its number; 0: none */
    uint32_t scan_generation;
    struct ti_scan_read scan_read;
    bool scan_waits;      /* for a segment that could not be read */
    uint32_t dead_cursor; /* the next segment that is looked at: has it live values? */
    bool keeps_room;      /* the file system gives nothing back */
    uint64_t scan_started_ns;
    struct sl_item_found *scan_items;
    uint32_t scan_count;
    bool scan_last, scan_skipped; /* skipped: a segment whose file is about to go */
    unsigned char *frame_buffer;  /* TI_FRAME_HEADER_BYTES_MAX, aligned */
    unsigned char *search_buffer; /* TI_SEARCH_BYTES, aligned */
    uint32_t read_pauses_left;    /* for reads that fail, in this start or scan */
    struct sl_disk_other other;   /* is it the place, or the disk? */
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
