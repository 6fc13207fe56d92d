/* actors/tierer/internal.h - functions that the tierer's files share. */
#ifndef SL_TIERER_INTERNAL_H
#define SL_TIERER_INTERNAL_H

#include "actors/tierer/state.h"

#include <errno.h>

/* segments.c: log files are made, closed with a footer, and removed */
int ti_segment_compare(const void *a, const void *b); /* by number */
struct ti_segment *ti_log_segment(struct tierer *self, uint32_t number);
struct ti_segment *ti_log_newest(struct tierer *self);
/* Gives the open log file if it has room for a frame and its records, otherwise a new one (*fresh).
 * NULL: not now (a reclaim was requested, a footer is due, or the disk fails). */
struct ti_segment *ti_segment_for(struct tierer *self, uint64_t frame_bytes, uint64_t records_bytes,
                                  bool *fresh);
/* Appends to the records, which must not be lost. False: no memory, now they are. */
bool ti_segment_note(struct ti_segment *segment, const void *records, uint64_t bytes,
                     uint32_t count);
void ti_segment_records_free(struct ti_segment *segment);
void ti_segment_header(const struct tierer *self, const struct ti_segment *segment,
                       struct ti_header *out);
/* Size of a footer with records_bytes of records. */
uint64_t ti_segment_footer_bytes(uint64_t records_bytes);
void ti_segments_seal(struct tierer *self); /* starts the next footer that is due */
void ti_segments_seal_io(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
uint64_t ti_segments_seal_at(const struct tierer *self); /* when a footer is tried again */
bool ti_segments_all_sealed(const struct tierer *self);  /* or an attempt failed */
void ti_segments_prepare(struct tierer *self);           /* makes the next file in time */
void ti_segments_dead(struct tierer *self);              /* frees files without live values */
/* Whether the oldest file is being removed. Until it is gone, the next start would find it. */
bool ti_oldest_is_leaving(const struct tierer *self);
void ti_segments_prepared(struct tierer *self, sl_err result);
/* The file system is full (ENOSPC, EDQUOT): lowers the ceiling, so that the oldest file is
 * reclaimed. allocating: the next file could not be made; with fewer than two files the disk is
 * then full. Otherwise it needs two files to have an effect. */
void ti_segments_no_room(struct tierer *self, bool allocating);
/* A small file beside the log could not be made or written. */
void ti_segments_failed(struct tierer *self, const char *what, int os_code);
static inline bool ti_is_no_room(int os_code)
{
    return os_code == ENOSPC || os_code == EDQUOT;
}
void ti_segments_gauges(struct tierer *self);
void ti_log_reclaimed(struct tierer *self, const struct sl_msg *reply); /* NULL: no answer */
void ti_segments_removed(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);

/* start.c, recover.c: reading the log at the start */
/* ti_log_open lists the files; for ti_log_read a helper thread reads them, then sends LOCAL_JOB. */
sl_err ti_log_open(struct tierer *self, struct sl_error *why);
sl_err ti_log_read(struct tierer *self, struct sl_error *why);
/* False: the process must end; env->ending has the reason. */
bool ti_log_was_read(struct tierer *self, sl_err result);
void ti_log_close(struct tierer *self);
/* Syncs what an earlier process may have written without a sync: a value that the registrar knows
 * to be on disk must be durable. */
void ti_log_settle(struct tierer *self);
void ti_log_settled(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
/* Reads all records of a closed log file, from its footer or its frames, in log order. Gives
 * *records (free, also on failure). SL_ERR_IO: the disk is out. */
sl_err ti_segment_records_read(struct tierer *self, const struct ti_segment *segment,
                               unsigned char **records, uint64_t *bytes, struct sl_error *why);
/* Whether the record can belong to this log file. */
bool ti_record_plausible(const struct ti_segment *segment, const struct ti_record *record);
struct sl_digest ti_page_digest(const void *bytes, uint64_t length);

/* Reads the whole range. False: it cannot be read (noted in `unread`), or the file is shorter. */
bool ti_file_read(struct tierer *self, int file, void *memory, uint64_t offset, uint64_t length);

/* members.c: the disks that have missed no removal */
sl_err ti_members_open(struct tierer *self, struct sl_error *why);
void ti_members_close(struct tierer *self);
void ti_reads_begin(struct tierer *self); /* before a start or scan reads */
void ti_members_take(struct tierer *self, const struct sl_msg *msg); /* handles DISK_MEMBERS */
/* Writes a page that names a frame of tombstones; ti_log_frame_named() gets the result. Does
 * nothing while another page is being written, or before the first list: call it again. */
void ti_members_name_frame(struct tierer *self, uint32_t segment, uint64_t sequence);
void ti_members_made(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
void ti_members_io(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
/* The members for a DISK_FOUND; borrowed until the next call. */
struct sl_bytes ti_members_report(struct tierer *self);
/* Makes room for the members file. False: not yet. */
bool ti_segments_members_fit(struct tierer *self);

/* budget.c: disk_write_budget */
void ti_budget_begin(struct tierer *self);
/* Fills in the account of a page of members, with what may be spent until the next page.
 * ti_budget_noted gets the result of writing that page. */
void ti_budget_note(struct tierer *self, struct ti_account *out);
void ti_budget_noted(struct tierer *self, int os_code);
void ti_budget_spend(struct tierer *self, uint64_t bytes);
int64_t ti_budget_left(struct tierer *self); /* bytes now; negative: a debt */
/* Writes an account before spending passes the last one. */
void ti_budget_pump(struct tierer *self);
/* While draining: writes the exact account. True: written, or impossible. */
bool ti_budget_settled(struct tierer *self);

/* Cookies of jobs */
enum { TI_COOKIE_SPARE, TI_COOKIE_START, TI_COOKIE_SCAN };

/* log.c: frames and group commit */
void ti_log_pump(struct tierer *self);
/* The page that names the file's frame was written, or failed with os_code. */
void ti_log_frame_named(struct tierer *self, uint32_t segment, int os_code);
void ti_log_io_done(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
/* Answers requests that have waited too long for a failing disk. */
void ti_log_refuse(struct tierer *self);
bool ti_log_idle(const struct tierer *self);

/* health.c: the state of the disk */
void ti_health_publish(struct tierer *self); /* updates the health text */
void ti_health_failed(struct tierer *self, const char *what, int os_code); /* pauses writes */
void ti_health_write_ok(struct tierer *self);
void ti_health_read_failed(struct tierer *self, const struct ti_item *item, int os_code);
void ti_health_read_ok(struct tierer *self, const struct ti_item *item);
void ti_health_probe(struct tierer *self); /* if one is due */
void ti_health_probed(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);
void ti_health_check_stall(struct tierer *self);     /* checks for requests without answer */
void ti_health_check_directory(struct tierer *self); /* checks that it still exists */
uint64_t ti_health_next_ns(const struct tierer *self);

/* scan.c: reports the contents to the registrar */
#define TI_COOKIE_FOUND (UINT64_C(1) << 40) /* of DISK_FOUND: this and the scan's generation */
void ti_scan_start(struct tierer *self);
void ti_scan_again(struct tierer *self); /* restarts a running scan */
void ti_scan_pump(struct tierer *self);  /* one slice, if due */
void ti_scan_answered(struct tierer *self, const struct sl_msg *reply);
void ti_scan_was_read(struct tierer *self, sl_err result);
/* Frees the pages of a sealed file's values and keeps its records. Does nothing while another file
 * is being read: call it again. */
void ti_scan_empty(struct tierer *self, struct ti_segment *segment);

/* reads.c: reads into the arena */
void ti_reads_pump(struct tierer *self);
void ti_reads_want(struct tierer *self, const struct ti_job *job); /* counts its bytes as wanted */
void ti_reads_take(struct tierer *self, const struct sl_msg *msg);
void ti_reads_fence(struct tierer *self, const struct sl_msg *msg);
void ti_reads_fences_answer(struct tierer *self);
void ti_reads_io_done(struct tierer *self, const struct ti_io *io, uint64_t bytes, int os_code);

/* jobs.c: requests, and their answers */
void ti_job_push(struct ti_job_list *list, struct ti_job *job);
struct ti_job *ti_job_pop(struct ti_job_list *list);
void ti_job_remove(struct ti_job_list *list, struct ti_job *job);
void ti_job_take(struct tierer *self, const struct sl_msg *msg);
void ti_job_answer(struct tierer *self, struct ti_job *job); /* sends the reply, once */
void ti_job_reply(struct tierer *self, struct ti_job *job);  /* and keeps it for repeats */
uint32_t ti_jobs_waiting(const struct tierer *self);
void ti_jobs_free(struct tierer *self);

/* io.c: requests to the disk, and their memory */
bool ti_io_start(struct tierer *self, enum ti_io_kind kind, struct ti_job *job, uint32_t item,
                 const struct sl_disk_request *request);
/* Submits queued requests as long as the disk accepts them. */
void ti_io_pump(struct tierer *self);
void ti_io_completed(struct tierer *self, const struct sl_msg *msg); /* handles LOCAL_IO */
void ti_io_raise(struct tierer *self, const struct ti_job *job);     /* a prefetch became a load */
unsigned char *ti_arena_at(struct tierer *self, uint32_t arena, uint64_t offset, uint64_t length);
/* Registers the next piece of the arena with the disk, if it is populated: populated pages are
 * pinned quickly, a chunk of 1 GiB would delay everything else. */
void ti_arena_register(struct tierer *self);
int32_t ti_bounce_take(struct tierer *self);
void ti_bounce_give(struct tierer *self, int32_t page);
static inline unsigned char *ti_bounce_at(struct tierer *self, int32_t page)
{
    return self->bounce + (uint64_t)(uint32_t)page * SL_PAGE_BYTES;
}

#endif
