/* actors/tierer/internal.h - state of the tierer, shared by its files. */
#ifndef SL_TIERER_INTERNAL_H
#define SL_TIERER_INTERNAL_H

#include "actors/tierer/entries.h"
#include "actors/tierer/segment_format.h"
#include "actors/tierer/staging.h"
#include "ipc/sl_index.h"
#include "ipc/sl_msg.h"
#include "runtime/sl_actor.h"

#define SEGMENTS_MAX        8192u
#define IOS_MAX             4096u
#define JOBS_MAX            1024u       /* requests that wait for their batch or their reads */
#define BATCH_BYTES_MAX     (16u << 20) /* written before one sync */
#define BOUNCE_PAGES        512u        /* for values that are no whole pages of the arena */
#define ARENAS_MAX          16u
#define FOUND_ITEMS_MAX     1024u /* one DISK_FOUND: no frame lists more */
#define HEALTH_RETRY_NS     (2 * SL_NS_PER_S)
#define ANSWERED_MAX        64u /* jobs; the registrar has 4 writes and a DISK_FORGET under way */
#define SEGMENT_NAME_FORMAT "segment.%010u"

struct segment {
    uint32_t number;
    int file;
    uint64_t salt;
    uint64_t bytes;         /* of the file */
    uint64_t used_bytes;    /* frames end here */
    uint64_t durable_bytes; /* frames up to here are durable */
    uint64_t previous;      /* low half of the last frame's digest, or the salt */
    sl_entry_ref list;      /* entries whose values lie here */
    uint32_t reads;         /* in flight: the file stays */
    bool abandoned;         /* a write failed: nothing is appended any more */
};

enum job_kind { JOB_WRITE, JOB_FORGET, JOB_READ };

struct item {
    sl_err code;
    bool dead; /* left out of the frame */
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
    /* its frame, while its batch is written */
    void *frame;
    uint64_t frame_header_bytes, frame_bytes, frame_offset;
};

struct job_list {
    struct job *first, *last;
    uint32_t count;
};

enum io_kind { IO_FREE, IO_WRITE, IO_SYNC, IO_READ };

struct io {
    enum io_kind kind;
    struct job *job;
    uint32_t item;
    struct sl_disk_request request;
    struct io *next; /* waiting to be submitted, or free */
    uint64_t started_ns;
};

enum batch_phase { BATCH_IDLE, BATCH_WRITING, BATCH_SYNCING };

struct tierer {
    struct sl_env *env;
    struct sl_calls *calls;
    struct sl_disk *disk;
    struct sl_entries *entries;
    struct sl_index_view *index;
    struct sl_arena *arenas[ARENAS_MAX];
    struct segment *segments; /* oldest first; the last one is open unless abandoned */
    uint32_t segment_count;
    uint64_t segment_bytes, disk_bytes_max;
    unsigned char store[16];
    uint64_t next_sequence;
    uint32_t next_number;

    struct job_list waiting; /* writes and tombstones */
    struct job_list batch;
    /* Writes and tombstones that were answered lately: a request that was sent again and overtook
     * its answer must not be carried out twice, since a second copy would lie behind a tombstone
     * that is meant for the value. */
    struct job_list answered;
    enum batch_phase phase;
    uint64_t batch_started_ns;
    uint32_t batch_ios;
    int batch_os_code;
    bool reclaiming;           /* the registrar was asked about the oldest segment */
    uint64_t blocked_until_ns; /* no new segment could be made: try again then */

    struct job_list reads;
    struct sl_staging staging;
    uint32_t reads_in_flight;
    unsigned char *bounce;
    uint64_t bounce_free[BOUNCE_PAGES / 64]; /* bit: free */
    uint32_t bounce_free_count;

    struct io *ios;
    struct io *io_free;
    struct io *io_first, *io_last; /* not yet taken by the disk */

    uint64_t boot_generation; /* of the registrar that was told everything */
    bool scanning, scan_first;
    bool scan_paused;      /* all durable is told, a batch is still under way */
    uint32_t scan_segment; /* number */
    uint64_t scan_offset;
    uint64_t scan_previous; /* digest that the next frame names */
    uint32_t scan_generation;
    struct sl_key_hash *scan_hashes; /* of the batch that is with the registrar */
    struct sl_log_place *scan_places;
    char *scan_texts; /* SL_TIER_FRAME_HEADER_BYTES_MAX */
    uint64_t scan_text_bytes;
    uint32_t scan_count;
    bool scan_last;
    unsigned char *frame_buffer; /* SL_TIER_FRAME_HEADER_BYTES_MAX, aligned */

    bool draining;
    struct {
        sl_metric bytes_written, bytes_read, values_written, values_read, corrupt, io_errors,
            segments, used_bytes, live_values, live_bytes, reclaimed_segments, tombstones, syncs,
            queue;
        sl_histogram write_ns, read_ns;
    } metrics;
};

/* log.c: segments, batches, frames */
sl_err log_open(struct tierer *self, struct sl_error *why); /* finds what is there */
void log_close(struct tierer *self);
struct segment *log_segment(struct tierer *self, uint32_t number);
void log_pump(struct tierer *self); /* starts a batch when there is work and it is due */
void log_io_done(struct tierer *self, struct io *io, uint64_t bytes, int os_code);
void log_reclaimed(struct tierer *self, const struct sl_msg *reply); /* NULL: no answer */
void log_degrade(struct tierer *self, const char *what, int os_code);
/* Reads the frame at offset into frame_buffer and checks it; NULL when none stands there. */
const struct sl_tier_frame *log_frame_at(struct tierer *self, const struct segment *segment,
                                         uint64_t offset, uint64_t previous);

/* scan.c: telling the registrar */
void scan_start(struct tierer *self);
void scan_pump(struct tierer *self); /* goes on when the batch it waited for is over */
void scan_answered(struct tierer *self, const struct sl_msg *reply);

/* reads.c */
void reads_pump(struct tierer *self);
void reads_io_done(struct tierer *self, struct io *io, uint64_t bytes, int os_code);

/* tierer.c: jobs, i/o slots, memory */
void job_push(struct job_list *list, struct job *job);
struct job *job_pop(struct job_list *list);
void job_reply(struct tierer *self, struct job *job);
bool io_start(struct tierer *self, enum io_kind kind, struct job *job, uint32_t item,
              const struct sl_disk_request *request);
unsigned char *tierer_arena_at(struct tierer *self, uint32_t arena, uint64_t offset,
                               uint64_t length);
int32_t bounce_take(struct tierer *self);
void bounce_give(struct tierer *self, int32_t page);
static inline unsigned char *bounce_at(struct tierer *self, int32_t page)
{
    return self->bounce + (uint64_t)(uint32_t)page * SL_PAGE_BYTES;
}

#endif
