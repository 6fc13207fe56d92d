/* runtime/sl_copier.h - a process copies from and to its own memory for another one, which the
 * kernel does not let reach in: it is not dumpable, or Yama forbids it.
 *
 * The copier listens at a door (runtime/sl_door.h) of kind "copier". Who asks hands over shared
 * memory: runs (addresses in the copier's process), and a file for their bytes, one run after the
 * other. A request says how many runs, and which way. So the copier sees nothing but that: what a
 * process that was stopped writes there when it goes on, long after it was given up, reaches no
 * extent.
 *
 * A request that writes to the copier's memory can be taken back: the file is cut off, so that not
 * even a process that goes on after hours writes any more of it. The kernel copies between file and
 * memory, in steps; memory that is not there is an error. A process that is stopped is in no such
 * call.
 *
 * Both sides check the other's uid by the kernel's word; who asks also checks pid and start time. */
#ifndef SL_COPIER_H
#define SL_COPIER_H

#include "runtime/sl_proc.h"

#define SL_COPIER_RANGES_MAX 65536u
#define SL_COPIER_STEP_BYTES (256 * SL_KIB)
#define SL_COPIER_AREA_MAX   (UINT64_C(2) << 30)

/* ---- the process that has the memory ---- */

struct sl_copier_range {
    uintptr_t address;
    uint64_t length_bytes; /* at least 1 */
};
struct sl_copier; /* opaque: a thread */

/* Starts a thread that copies from and to these ranges, and to nothing else; they are copied.
 * Requests for memory that was unmapped end with SL_ERR_STALE. Errors: SL_ERR_INVALID (a range of nothing, or none; runtime_dir is too long for a socket),
 * SL_ERR_LIMIT, SL_ERR_NOT_FOUND (runtime_dir is not there), SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_copier_start(const char *runtime_dir, const struct sl_copier_range *ranges,
                       uint32_t range_count, struct sl_copier **out, struct sl_error *why);
/* Of its door: who asks has to know it. */
uint64_t sl_copier_number(const struct sl_copier *copier);
/* Waits for the step that is under way; no byte of the ranges is touched afterwards. Accepts NULL. */
void sl_copier_stop(struct sl_copier **copier);

/* ---- who asks ---- */

struct sl_copier_run {
    uint64_t address, length_bytes;
};
struct sl_copier_room {
    uint64_t data_bytes; /* of all runs of a request; 1..SL_COPIER_AREA_MAX */
    uint32_t run_count;
};
struct sl_copier_link; /* opaque; one thread; one request at a time */

/* Connects within some milliseconds, without waiting for the copier's thread: one that is stopped
 * takes requests and answers none. Errors: SL_ERR_NOT_FOUND (nobody listens there, or another
 * process), SL_ERR_PERMISSION (of another uid), SL_ERR_TIMEOUT (too many have asked it), SL_ERR_OS,
 * SL_ERR_NO_MEMORY, SL_ERR_LIMIT (room). */
sl_err sl_copier_connect(const char *runtime_dir, struct sl_proc_id proc, uint64_t number,
                         const struct sl_copier_room *room, struct sl_copier_link **out,
                         struct sl_error *why);
/* To be filled before a request. The other side may write to both at any time. */
struct sl_copier_run *sl_copier_runs(struct sl_copier_link *link);
unsigned char *sl_copier_data(struct sl_copier_link *link);
/* Begins a request. to_process: from the data to the runs. Errors: SL_ERR_NOT_FOUND (it is gone),
 * SL_ERR_OS. */
sl_err sl_copier_ask(struct sl_copier_link *link, uint32_t run_count, bool to_process,
                     struct sl_error *why);
/* Whether the request is over, without waiting; when it is, how it ended. Errors of it:
 * SL_ERR_NOT_FOUND (the process is gone, or ended its copier), SL_ERR_STALE (a run is in no range,
 * or nothing is there),
 * SL_ERR_CANCELLED, SL_ERR_PROTOCOL. After all but STALE and CANCELLED the link is of no more use. */
sl_err sl_copier_poll(struct sl_copier_link *link, bool *over, struct sl_error *why);
/* The request shall end soon, by SL_ERR_CANCELLED, if it is not over by then. */
void sl_copier_cancel(struct sl_copier_link *link);
/* Takes the last request back, whose data the copier finds no more. After it only sl_copier_settled
 * and sl_copier_disconnect may be called. */
void sl_copier_revoke(struct sl_copier_link *link);
/* Whether none of the request that was taken back is written any more, ever: it was not begun, or
 * is over, or the copier's thread is stopped. Else it will be so in microseconds, unless that thread
 * hangs in the kernel or is frozen. */
bool sl_copier_settled(struct sl_copier_link *link);
/* Accepts NULL. Takes back what is not over, and does not wait. */
void sl_copier_disconnect(struct sl_copier_link **link);

#endif
