/* runtime/base/sl_proc.h - the identity of a process that survives the reuse of its pid, and that
 * of a client. */
#ifndef SL_PROC_H
#define SL_PROC_H

#include "runtime/base/sl_error.h"

#include <sys/types.h>

/* pid and start time (field 22 of /proc/PID/stat, clock ticks since boot). pid 0 is nobody.
 *
 * Of a client of a node: number and generation of its pin file (ipc/shm/sl_pins.h), which says
 * whether it lives. The number is the pid that the client has where it lives, for people; the
 * generation is a bit that no start time has, 20 bits of its process, and random. So nothing
 * depends on whose process numbers these are. */
#define SL_PROC_CLIENT_BIT  (UINT64_C(1) << 63)
#define SL_PROC_RANDOM_BITS 43u /* of a generation */
struct sl_proc_id {
    uint64_t start_time;
    uint32_t pid;
    uint32_t reserved; /* 0; part of shared-memory layouts */
};

static inline bool sl_proc_id_equal(struct sl_proc_id a, struct sl_proc_id b)
{
    return a.pid == b.pid && a.start_time == b.start_time;
}

static inline bool sl_proc_id_is_client(struct sl_proc_id id)
{
    return (id.start_time & SL_PROC_CLIENT_BIT) != 0;
}
/* With the number: the same for clients of one process alone. 0 of what is no client. */
static inline uint32_t sl_proc_id_process(struct sl_proc_id id)
{
    return (uint32_t)(id.start_time >> SL_PROC_RANDOM_BITS);
}
/* One that no other client has or had. */
struct sl_proc_id sl_proc_id_client(void);

/* The beginning of a file, zero-terminated; a link is not followed, and a pipe not waited for.
 * Gives its bytes, -1 with errno. */
ssize_t sl_proc_text(const char *path, char *out, size_t room);
/* Reads the start time of pid. Errors: SL_ERR_NOT_FOUND (no such process, or a zombie), SL_ERR_OS.
 */
sl_err sl_proc_id_of(uint32_t pid, struct sl_proc_id *out, struct sl_error *why);
/* Whether exactly this process still runs. When the system cannot tell (no descriptors left, ...)
 * it counts as running: the dead may wait, the living must not lose their claims. */
bool sl_proc_alive(struct sl_proc_id id);
/* Whether a signal or a debugger has stopped it. */
bool sl_proc_stopped(uint32_t pid);
/* This process. Errors: SL_ERR_OS (no descriptors left, ...). */
sl_err sl_proc_id_self(struct sl_proc_id *out, struct sl_error *why);
/* Names the namespace of pids of this process: in another one pids mean something else. 0: the
 * system does not tell. */
uint64_t sl_proc_space(void);
/* Of a file with a line PID START_TIME, such as supervisor.pid: of whom nobody knows whether it
 * lives. Errors: SL_ERR_NOT_FOUND (no such file), SL_ERR_INVALID (no such line: it may be being
 * written), SL_ERR_OS. */
sl_err sl_proc_id_read(const char *path, struct sl_proc_id *out, struct sl_error *why);
#define SL_BOOT_ID_BYTES 40
/* Of the running system: pids and start times mean nothing to the next one. Zero-padded. */
sl_err sl_boot_id(char out[SL_BOOT_ID_BYTES], struct sl_error *why);
/* A pidfd of exactly this process (checked after the open). Gives a close-on-exec descriptor.
 * Errors: SL_ERR_NOT_FOUND (it is gone, or the pid is another process now), SL_ERR_OS. */
sl_err sl_proc_open(struct sl_proc_id id, int *fd, struct sl_error *why);
/* This process may have as many descriptors as the system lets it. */
void sl_proc_descriptors_raise(void);

#endif
