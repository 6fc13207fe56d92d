/* actors/tierer/internal.h - what the tierer's files ask of each other. */
#ifndef SL_TIERER_INTERNAL_H
#define SL_TIERER_INTERNAL_H

#include "actors/tierer/state.h"

#include <errno.h>

/* segments.c: segments come, are closed with a footer, and go */
int ti_segment_compare(const void *a, const void *b); /* by number */
struct ti_segment *ti_log_segment(struct tierer *self, uint32_t number);
struct ti_segment *ti_log_newest(struct tierer *self);
/* The open segment with room for a frame and its records, made if need be (*fresh). NULL: not now
 * (reclaim asked, or the disk refuses). */
struct ti_segment *ti_segment_for(struct tierer *self, uint64_t frame_bytes, uint64_t records_bytes,
                                  bool *fresh);
/* Adds to the records, which are not lost. False: now they are, there is no memory. */
bool ti_segment_note(struct ti_segment *segment, const void *records, uint64_t bytes,
                     uint32_t count);
void ti_segment_records_free(struct ti_segment *segment);
void ti_segment_header(const struct tierer *self, const struct ti_segment *segment,
                       struct ti_header *out);
/* Bytes of a footer with so many bytes of records. */
uint64_t ti_segment_footer_bytes(uint64_t records_bytes);
void ti_segments_seal(struct tierer *self); /* starts the next footer that is due */
void ti_segments_seal_io(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
uint64_t ti_segments_seal_at(const struct tierer *self); /* the next one that is tried again */
bool ti_segments_all_sealed(const struct tierer *self);  /* or it was tried in vain */
void ti_segments_prepare(struct tierer *self);           /* the next file, when it is time */
void ti_segments_dead(struct tierer *self);              /* have no live value any more */
/* The file of a segment that was reclaimed is about to go: until then the next start would find it.
 */
bool ti_segment_goes(const struct tierer *self);
void ti_segments_prepared(struct tierer *self, sl_err result);
/* The file system has no room (ENOSPC, EDQUOT): the oldest segment is to go, as at the ceiling.
 * allocating: when the next segment is wanted, and without two of them the disk is full; else at
 * once, if there are two. */
void ti_segments_no_room(struct tierer *self, bool allocating);
/* A small file beside the segments could not be made or written. */
void ti_segments_failed(struct tierer *self, const char *what, int os_code);
static inline bool ti_is_no_room(int os_code)
{
    return os_code == ENOSPC || os_code == EDQUOT;
}
void ti_segments_gauges(struct tierer *self);
void ti_log_reclaimed(struct tierer *self, const struct sl_msg *reply); /* NULL: no answer */
void ti_segments_removed(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);

/* start.c, recover.c: what is there at the start */
/* What is there is listed, then read by a helper thread: LOCAL_JOB brings its result. */
sl_err ti_log_open(struct tierer *self, struct sl_error *why);
sl_err ti_log_read(struct tierer *self, struct sl_error *why);
/* False: the process ends, for the reason that env->ending has. */
bool ti_log_was_read(struct tierer *self, sl_err result);
void ti_log_close(struct tierer *self);
/* Makes durable what a life before this one may have written and not synced: who hears that a value
 * is on disk relies on it. */
void ti_log_settle(struct tierer *self);
void ti_log_settled(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
/* All records of a closed segment, from its footer or its frames, in log order. Gives *records
 * (free), NULL with *bytes 0 when there is none. SL_ERR_IO: the disk is out. */
sl_err ti_segment_records_read(struct tierer *self, const struct ti_segment *segment,
                               unsigned char **records, uint64_t *bytes, struct sl_error *why);
/* Whether the record can be one of this segment. */
bool ti_record_plausible(const struct ti_segment *segment, const struct ti_record *record);
struct sl_digest ti_page_digest(const void *bytes, uint64_t length);

/* Reads all of it; false: it cannot be read (which is noted in `unread`), or is not there. */
bool ti_file_read(struct tierer *self, int file, void *memory, uint64_t offset, uint64_t length);

/* members.c: which disks have missed nothing */
sl_err ti_members_open(struct tierer *self, struct sl_error *why);
void ti_members_close(struct tierer *self);
void ti_reads_begin(struct tierer *self); /* before a start or scan reads */
void ti_members_take(struct tierer *self, const struct sl_msg *msg); /* a DISK_MEMBERS */
/* Writes a page that names a frame of tombstones; ti_log_named() hears of the end. Not while
 * another page is on its way, or before the first list: it is called again. */
void ti_members_note(struct tierer *self, uint32_t segment, uint64_t sequence);
void ti_members_made(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
void ti_members_io(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
/* What a DISK_FOUND tells; borrowed until the next call. */
struct sl_bytes ti_members_told(struct tierer *self);
/* Makes room for the file. False: there is none yet. */
bool ti_segments_members_fit(struct tierer *self);

/* budget.c: what the disk may be written */
void ti_budget_begin(struct tierer *self);
/* For a page of members: what will have been spent when the next one comes; and that page's end. */
void ti_budget_note(struct tierer *self, struct ti_account *out);
void ti_budget_noted(struct tierer *self, int os_code);
void ti_budget_spend(struct tierer *self, uint64_t bytes);
int64_t ti_budget_left(struct tierer *self); /* now; negative: a debt */
/* Notes what was spent, ahead of need. */
void ti_budget_pump(struct tierer *self);
/* While it drains: what was really spent is noted. True: it is, or cannot be. */
bool ti_budget_settled(struct tierer *self);

/* Cookies of jobs */
enum { TI_COOKIE_SPARE, TI_COOKIE_START, TI_COOKIE_SCAN };

/* log.c: frames and their commits */
void ti_log_pump(struct tierer *self);
void ti_log_named(struct tierer *self, uint32_t segment, int os_code);
void ti_log_io_done(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
/* Requests that waited too long for a disk that fails are told so. */
void ti_log_refuse(struct tierer *self);
bool ti_log_idle(const struct tierer *self);

/* health.c: is the disk well */
void ti_health_tell(struct tierer *self); /* what the page says of it */
void ti_health_failed(struct tierer *self, const char *what, int os_code); /* writes pause */
void ti_health_fine(struct tierer *self);
void ti_health_read_failed(struct tierer *self, const struct ti_item *item, int os_code);
void ti_health_read_fine(struct tierer *self, const struct ti_item *item);
void ti_health_probe(struct tierer *self); /* starts the next one that is due */
void ti_health_probed(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
void ti_health_look(struct tierer *self);      /* for requests that the disk does not answer */
void ti_health_directory(struct tierer *self); /* is it still there */
uint64_t ti_health_next_ns(const struct tierer *self);

/* scan.c: telling the registrar */
#define TI_COOKIE_FOUND (UINT64_C(1) << 40) /* of a DISK_FOUND: this and its generation */
void ti_scan_start(struct tierer *self);
void ti_scan_again(struct tierer *self); /* from the beginning, if one is under way */
void ti_scan_pump(struct tierer *self);  /* a slice, when it is due */
void ti_scan_answered(struct tierer *self, const struct sl_msg *reply);
void ti_scan_was_read(struct tierer *self, sl_err result);
/* Gives the room of a sealed segment's values back, while its records stay. Not while others are
 * being read: it is called again. */
void ti_scan_empty(struct tierer *self, struct ti_segment *segment);

/* reads.c */
void ti_reads_pump(struct tierer *self);
void ti_reads_want(struct tierer *self, const struct ti_job *job); /* somebody waits for it */
void ti_reads_take(struct tierer *self, const struct sl_msg *msg);
void ti_reads_fence(struct tierer *self, const struct sl_msg *msg);
void ti_reads_fences_answer(struct tierer *self);
void ti_reads_io_done(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);

/* jobs.c: requests, and their answers */
void ti_job_push(struct ti_job_list *list, struct ti_job *job);
struct ti_job *ti_job_pop(struct ti_job_list *list);
void ti_job_remove(struct ti_job_list *list, struct ti_job *job);
void ti_job_take(struct tierer *self, const struct sl_msg *msg);
void ti_job_answer(struct tierer *self, struct ti_job *job); /* once */
void ti_job_reply(struct tierer *self, struct ti_job *job);  /* and frees */
uint32_t ti_jobs_waiting(const struct tierer *self);
void ti_jobs_free(struct tierer *self);

/* io.c: requests to the disk, and their memory */
bool ti_io_start(struct tierer *self, enum ti_io_kind kind, struct ti_job *job, uint32_t item,
                 const struct sl_disk_request *request);
/* Hands queued requests to the disk as far as it takes them. */
void ti_io_pump(struct tierer *self);
void ti_io_completed(struct tierer *self, const struct sl_msg *msg); /* a LOCAL_IO */
void ti_io_raise(struct tierer *self, const struct ti_job *job); /* it is not read ahead any more */
unsigned char *ti_arena_at(struct tierer *self, uint32_t arena, uint64_t offset, uint64_t length);
/* Registers the next piece of the arena with the disk, as far as they are populated: pages that
 * are there are pinned quickly, and a chunk of 1 GiB would hold everything up. */
void ti_arena_lend(struct tierer *self);
int32_t ti_bounce_take(struct tierer *self);
void ti_bounce_give(struct tierer *self, int32_t page);
static inline unsigned char *ti_bounce_at(struct tierer *self, int32_t page)
{
    return self->bounce + (uint64_t)(uint32_t)page * SL_PAGE_BYTES;
}

#endif
