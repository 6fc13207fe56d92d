/* actors/tierer/internal.h - state of the tierer, shared by its files. */
#ifndef SL_TIERER_INTERNAL_H
#define SL_TIERER_INTERNAL_H

#include "actors/tierer/entries.h"
#include "actors/tierer/segment_format.h"
#include "actors/tierer/staging.h"
#include "ipc/sl_index.h"
#include "ipc/sl_msg.h"
#include "runtime/sl_actor.h"

#define SEARCH_BYTES         (1u << 20)   /* read at once while looking for the next frame */
#define LEND_BYTES           (64u << 20)  /* of an arena, registered at once */
#define REGISTERED_BYTES_MIN (256u << 10) /* smaller pieces of a frame travel together */
#define SEGMENTS_MAX         8192u
#define IOS_MAX              4096u
#define IOS_KEPT             256u /* of these for others than reads: a frame needs a part of them */
#define JOBS_MAX             1024u       /* requests that wait for their batch or their reads */
#define ACTIVE_BYTES_MAX     (64u << 20) /* frames on their way to the disk */
#define SYNC_BYTES           (16u << 20) /* written and not synced: no waiting for more */
#define SEGMENT_SLACK_BYTES  (64u << 10) /* blocks of the file system's own beside a segment */
#define BOUNCE_PAGES         512u        /* for values that are no whole pages of the arena */
#define FENCES_MAX           16u
#define ARENAS_MAX           16u
#define FOUND_ITEMS_MAX      4096u /* one DISK_FOUND */
#define FOUND_SEGMENTS_MAX   256u
#define ANSWERED_MAX         64u /* jobs; the registrar has 16 writes and a DISK_FORGET under way */
#define READ_PAUSES_MAX      16u
#define SCAN_RETRY_NS        (5 * SL_NS_PER_MS)
#define HEALTH_RETRY_NS      (2 * SL_NS_PER_S)
#define HEALTH_REFUSE_NS     (3 * SL_NS_PER_S) /* a request waits so long for a disk that fails */
#define HEALTH_STALL_NS      (5 * SL_NS_PER_S) /* no answer for so long: the disk hangs */
#define HEALTH_PROBE_NS      SL_NS_PER_S       /* between two probes of a disk in doubt */
#define BAD_PLACES_MAX       64u
#define BAD_PLACE_FAILURES   3u /* on a disk that is well otherwise: the place is given up */
#define SEGMENT_NAME_FORMAT  "segment.%010u"

enum segment_state {
    SEGMENT_OPEN,   /* frames are appended */
    SEGMENT_CLOSED, /* nothing is appended any more; no footer yet */
    SEGMENT_SEALED, /* its footer is durable */
};

struct segment {
    uint32_t number;
    int file;
    uint64_t salt;
    unsigned char store[16];
    enum segment_state state;
    uint64_t bytes;         /* of the file */
    uint64_t real_bytes;    /* what it counts for, against the ceiling */
    uint64_t used_bytes;    /* frames end here, those on their way included */
    uint64_t last_sequence; /* of its frames */
    sl_entry_ref list;      /* entries whose values lie here */
    uint32_t reads, frames; /* in flight: the file stays */
    bool settling;          /* found without a footer: not all of it may be durable yet */
    bool header_there;      /* written: a sync makes frames findable */
    bool failed;            /* some frame was given up: its footer comes before new frames */
    bool sealing;
    uint32_t seal_failures;
    uint64_t seal_at_ns;
    /* What was acknowledged here, in that order: the index of the footer to come. NULL when it is
     * sealed, or when there is no memory for it (records_lost: no footer, the frames are read). */
    unsigned char *records;
    uint64_t records_bytes, records_capacity;
    uint64_t records_planned_bytes; /* those of frames on their way included */
    uint32_t record_count;
    bool records_lost;
};

enum job_kind { JOB_WRITE, JOB_FORGET, JOB_READ };
enum job_phase { JOB_WAITING, JOB_WRITING, JOB_WRITTEN, JOB_SYNCING };

struct item {
    sl_err code;
    bool dead;    /* left out of the frame */
    bool present; /* dead, because it is on the disk already */
    struct sl_key_hash hash;
    struct sl_digest digest;
    uint64_t generation;
    uint64_t length_bytes;
    uint64_t arena_offset;
    uint64_t disk_offset;
    uint32_t segment;
    uint32_t arena;
    sl_ref ref;
    int32_t bounce; /* page of the bounce pool, -1: none */
    uint16_t part_index, part_count, key_length, group_length;
    const char *key, *group;
};

struct job {
    enum job_kind kind;
    struct sl_return back;
    struct job *next;
    struct item *items; /* with the texts behind them: one piece of memory */
    uint32_t item_count;
    uint32_t started; /* reads: items taken up so far */
    uint32_t ended;
    uint64_t value_bytes;
    uint64_t arrived_ns;
    bool answered; /* too early for the disk: what comes of it does not count */
    bool ahead;    /* reads: nobody waits for them */
    /* its frame, on its way to the disk */
    enum job_phase phase;
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

struct job_list {
    struct job *first, *last;
    uint32_t count;
};

/* A FENCE that waits for reads in flight. */
struct fence {
    struct sl_return back;
    uint64_t serial; /* answered when no older read is in flight */
};

enum io_kind {
    IO_FREE,
    IO_WRITE,
    IO_SYNC,
    IO_READ,
    IO_SEAL,
    IO_SEAL_SYNC,
    IO_PROBE,
    IO_SETTLE,
    IO_MEMBERS,
    IO_MEMBERS_SYNC
};

/* What goes to the disk first. Nothing starves: of IO_TURN_BEHIND requests one is of IO_BEHIND when
 * some wait, of IO_TURN_AHEAD one of IO_AHEAD. */
enum io_class { IO_DEMAND, IO_AHEAD, IO_BEHIND, IO_CLASSES };
#define IO_TURN_BEHIND 4u
#define IO_TURN_AHEAD  16u

struct io {
    enum io_kind kind;
    struct job *job;
    uint32_t item;
    struct sl_disk_request request;
    struct io *next; /* waiting to be submitted, or free */
    uint64_t started_ns;
    uint64_t serial;
};

/* The file of the next segment, made by a helper thread while the current one fills: allocating and
 * syncing take longer than writing a quarter of a segment. */
enum spare_state { SPARE_NONE, SPARE_MAKING, SPARE_READY };
struct spare {
    enum spare_state state;
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

/* A place whose read failed. It counts as a failure of the place when the probe after it shows that
 * the disk reads elsewhere; what a disk that is ill altogether fails to read says nothing. */
struct bad_place {
    struct sl_log_place place; /* segment 0: none */
    struct sl_key_hash hash;
    uint32_t failures;
    bool suspect; /* it failed since the last probe began */
    bool probed;  /* the probe that is under way decides */
};

/* Reads somewhere else: is it the place, or the disk? */
struct probe {
    unsigned char *page;
    bool busy;
    bool doubted; /* a read failed, and no probe has succeeded since */
    bool refused; /* the probe failed as well: no read is handed to the disk */
    uint32_t segment, turn;
    uint64_t at_ns; /* not before */
};

/* One footer on its way. */
struct seal {
    bool busy;
    uint32_t segment;
    unsigned char *footer;
    uint64_t footer_bytes, offset_bytes;
};

/* The file of members. */
struct members {
    bool there;                   /* a page was found, or written: the disk's name is that of it */
    int file;                     /* -1: there is none yet */
    struct sl_tier_members now;   /* the newest page that is durable */
    struct sl_tier_members *next; /* being written, aligned; NULL: none is */
    struct sl_tier_member told[1 + SL_TIER_MEMBERS_MAX];
    struct sl_return back;
    uint32_t ios;
    int os_code;
    bool emptied;             /* the disk has another name now: only a new start goes on */
    uint64_t unwritten_bytes; /* of the file that is still to be made, against the ceiling */
};

struct tierer {
    struct sl_env *env;
    struct sl_calls *calls;
    struct sl_disk *disk;
    struct sl_entries *entries;
    struct sl_index_view *index;
    struct sl_arena *arenas[ARENAS_MAX];
    uint64_t lent_bytes[ARENAS_MAX]; /* of each, registered with the disk so far */
    bool lending;                    /* the disk takes registered memory */
    struct segment *segments;        /* oldest first; the last one is open unless abandoned */
    uint32_t segment_count;
    uint64_t segment_bytes, disk_bytes_max;
    uint64_t foreign_bytes; /* other files in the directory count as well */
    unsigned char store[16];
    struct members members;
    uint32_t emptied_segments; /* at the start */
    uint64_t next_sequence;
    uint32_t next_number;

    struct job_list waiting; /* writes and tombstones */
    struct job_list active;  /* their frames are on the way, in log order */
    /* Writes and tombstones that were answered lately: a request that was sent again and overtook
     * its answer must not be carried out twice, since a second copy would lie behind a tombstone
     * that is meant for the value. */
    struct job_list answered;
    uint64_t active_bytes;
    uint64_t durable_sequence;
    uint64_t commit_delay_ns;
    struct {
        bool busy;
        uint32_t segment;
        uint64_t started_ns;
    } sync;
    struct seal seal;
    struct spare spare;
    bool settling;             /* what a life before this one wrote is being made durable */
    bool unsettled;            /* that failed: only a new start tells what is there */
    bool gone;                 /* the directory is not there any more: only a new start helps */
    uint64_t reclaim_at_ns;    /* not before */
    bool reclaiming;           /* the registrar was asked about the oldest segment */
    uint64_t blocked_until_ns; /* the disk failed: writes wait until then */
    bool degraded, stalled;    /* writes fail; nothing is answered */
    int degraded_os_code;
    struct probe probe;
    struct bad_place bad_places[BAD_PLACES_MAX];
    uint32_t bad_place_count, bad_place_next;

    struct job_list reads, reads_ahead;
    uint32_t reads_turn;
    struct sl_staging staging;
    uint32_t reads_in_flight;
    uint32_t ios_in_flight;
    unsigned char *bounce;
    uint64_t bounce_free[BOUNCE_PAGES / 64]; /* bit: free */
    uint32_t bounce_free_count;

    struct fence fences[FENCES_MAX];
    uint32_t fence_count;
    uint64_t floor_seq;   /* what was asked before a FENCE of everything is not taken up any more */
    uint64_t next_serial; /* of the requests to the disk */
    struct io *ios;
    struct io *io_free;
    struct {
        struct io *first, *last;
    } io_queues[IO_CLASSES]; /* not yet taken by the disk */
    uint32_t io_turn;

    uint64_t boot_generation; /* of the registrar that was told everything */
    bool scanning, scan_first;
    bool scan_paused;           /* all durable is told, or what is durable is not known yet */
    uint64_t scan_retry_ns;     /* the registrar was not ready for it: not before; 0: it was */
    uint32_t scan_refusals;     /* in a row */
    uint32_t scan_segment;      /* number */
    uint64_t scan_offset;       /* in its records */
    uint32_t scan_from_segment; /* where the batch that is with the registrar begins */
    uint64_t scan_from_offset;
    unsigned char *scan_records; /* of a segment that keeps none in memory */
    uint64_t scan_records_bytes;
    uint32_t scan_records_of; /* its number; 0: none */
    uint32_t scan_generation;
    unsigned char *scan_kept[FOUND_SEGMENTS_MAX];
    uint32_t scan_kept_count;
    uint64_t scan_started_ns;
    struct sl_item_found *scan_items;
    uint32_t scan_count;
    bool scan_last;
    unsigned char *frame_buffer;  /* SL_TIER_FRAME_HEADER_BYTES_MAX, aligned */
    unsigned char *search_buffer; /* SEARCH_BYTES, aligned */
    uint32_t read_pauses_left;    /* for reads that fail, in this start or scan */

    bool draining;
    struct {
        sl_metric bytes_written, bytes_read, values_written, values_read, corrupt, io_errors,
            segments, used_bytes, live_values, live_bytes, reclaimed_segments, tombstones, syncs,
            queue, sealed_segments, in_flight, buffers_bytes, unreadable, emptied_segments;
        sl_histogram write_ns, read_ns, sync_ns;
    } metrics;
};

/* segments.c: segments come, are closed with a footer, and go */
struct segment *log_segment(struct tierer *self, uint32_t number);
struct segment *log_newest(struct tierer *self);
/* The open segment with room for a frame and its records, made if need be (*fresh). NULL: not now
 * (reclaim asked, or the disk refuses). */
struct segment *segment_for(struct tierer *self, uint64_t frame_bytes, uint64_t records_bytes,
                            bool *fresh);
bool segment_note(struct segment *segment, const void *records, uint64_t bytes, uint32_t count);
void segment_header(const struct tierer *self, const struct segment *segment,
                    struct sl_tier_header *out);
/* Bytes of a footer with so many bytes of records. */
uint64_t segment_footer_bytes(uint64_t records_bytes);
void segments_seal(struct tierer *self); /* starts the next footer that is due */
void segments_seal_io(struct tierer *self, enum io_kind kind, uint64_t bytes, int os_code);
uint64_t segments_seal_at(const struct tierer *self); /* the next one that is tried again */
bool segments_all_sealed(const struct tierer *self);  /* or it was tried in vain */
void segments_prepare(struct tierer *self);           /* the next file, when it is time */
void segments_prepared(struct tierer *self, sl_err result);
void segments_gauges(struct tierer *self);
void log_reclaimed(struct tierer *self, const struct sl_msg *reply); /* NULL: no answer */

/* recover.c: what is there at the start */
sl_err log_open(struct tierer *self, struct sl_error *why);
void log_close(struct tierer *self);
/* Makes durable what a life before this one may have written and not synced: who hears that a value
 * is on disk relies on it. */
void log_settle(struct tierer *self);
void log_settled(struct tierer *self, uint32_t number, int os_code);
/* All records of a closed segment, from its footer or its frames, in log order. Gives *records
 * (free), NULL with *bytes 0 when there is none. */
sl_err segment_records_read(struct tierer *self, const struct segment *segment,
                            unsigned char **records, uint64_t *bytes, struct sl_error *why);
/* Whether the record can be one of this segment. */
bool record_plausible(const struct segment *segment, const struct sl_tier_record *record);
struct sl_digest page_digest(const void *bytes, uint64_t length);

/* Reads all of it; false: it cannot be read, or is not there. */
bool file_read(struct tierer *self, int file, void *memory, uint64_t offset, uint64_t length);

/* members.c: which disks have missed nothing */
sl_err members_open(struct tierer *self, struct sl_error *why);
void members_close(struct tierer *self);
void members_take(struct tierer *self, const struct sl_msg *msg); /* a DISK_MEMBERS */
void members_io(struct tierer *self, enum io_kind kind, uint64_t bytes, int os_code);
/* What a DISK_FOUND tells; borrowed until the next call. */
struct sl_bytes members_told(struct tierer *self);
/* Makes room for the file. False: there is none yet. */
bool segments_members_fit(struct tierer *self);

/* log.c: frames and their commits */
void log_pump(struct tierer *self);
void log_io_done(struct tierer *self, struct io *io, uint64_t bytes, int os_code);
/* Requests that waited too long for a disk that fails are told so. */
void log_refuse(struct tierer *self);
bool log_idle(const struct tierer *self);

/* health.c: is the disk well */
void health_failed(struct tierer *self, const char *what, int os_code); /* writes pause */
void health_fine(struct tierer *self);
void health_read_failed(struct tierer *self, const struct item *item, int os_code);
void health_read_fine(struct tierer *self, const struct item *item);
void health_probe(struct tierer *self); /* starts the next one that is due */
void health_probed(struct tierer *self, uint64_t bytes, int os_code);
void health_look(struct tierer *self);      /* for requests that the disk does not answer */
void health_directory(struct tierer *self); /* is it still there */
uint64_t health_next_ns(const struct tierer *self);

/* scan.c: telling the registrar */
void scan_start(struct tierer *self);
void scan_pump(struct tierer *self); /* goes on when nothing is under way any more */
void scan_answered(struct tierer *self, const struct sl_msg *reply);

/* reads.c */
void reads_pump(struct tierer *self);
void reads_raise(struct tierer *self, const struct sl_msg *msg);
void reads_fence(struct tierer *self, const struct sl_msg *msg);
void reads_fences_answer(struct tierer *self);
void reads_io_done(struct tierer *self, struct io *io, uint64_t bytes, int os_code);

/* tierer.c: jobs, i/o slots, memory */
void job_push(struct job_list *list, struct job *job);
struct job *job_pop(struct job_list *list);
void job_remove(struct job_list *list, struct job *job);
void job_answer(struct tierer *self, struct job *job); /* once */
void job_reply(struct tierer *self, struct job *job);  /* and frees */
bool io_start(struct tierer *self, enum io_kind kind, struct job *job, uint32_t item,
              const struct sl_disk_request *request);
unsigned char *tierer_arena_at(struct tierer *self, uint32_t arena, uint64_t offset,
                               uint64_t length);
void io_raise(struct tierer *self, const struct job *job); /* it is not read ahead any more */
int32_t bounce_take(struct tierer *self);
void bounce_give(struct tierer *self, int32_t page);
static inline unsigned char *bounce_at(struct tierer *self, int32_t page)
{
    return self->bounce + (uint64_t)(uint32_t)page * SL_PAGE_BYTES;
}

#endif
