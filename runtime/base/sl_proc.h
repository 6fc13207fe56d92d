/* runtime/base/sl_proc.h - identities of clients, and of processes despite the reuse of pids. */
#ifndef SL_PROC_H
#define SL_PROC_H

#include "runtime/base/sl_error.h"

#include <sys/types.h>

/* A process: pid and start time (field 22 of /proc/PID/stat, clock ticks since boot). pid 0: none.
 *
 * A client of a node: number and generation of its pin file (ipc/shm/sl_pins.h), whose lock shows
 * whether it lives. The number is the client's pid in its own pid namespace, for people. The
 * generation is a bit that no start time has, 20 bits that name its process, and random bits. So
 * nothing depends on the pid namespace. */
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
/* With the pid: the same only for clients of one process. 0 if id is not a client. */
static inline uint32_t sl_proc_id_process(struct sl_proc_id id)
{
    return (uint32_t)(id.start_time >> SL_PROC_RANDOM_BITS);
}
/* A new id that no other client has or had. */
struct sl_proc_id sl_proc_id_client(void);

/* Reads the start of a file, zero-terminated; does not follow a link or wait for a pipe. Returns
 * the number of bytes, or -1 with errno. */
ssize_t sl_proc_file_read(const char *path, char *out, size_t room);
/* Reads the start time of pid. Errors: SL_ERR_NOT_FOUND (no process, or a zombie), SL_ERR_OS. */
sl_err sl_proc_id_of(uint32_t pid, struct sl_proc_id *out, struct sl_error *why);
/* Whether exactly this process still runs. If the system cannot tell (no descriptors left, ...) it
 * counts as running: a dead process may wait, a living one must not lose its claims. */
bool sl_proc_alive(struct sl_proc_id id);
/* Whether a signal or a debugger has stopped the process. */
bool sl_proc_stopped(uint32_t pid);
/* This process. Errors: SL_ERR_OS (no descriptors left, ...). */
sl_err sl_proc_id_self(struct sl_proc_id *out, struct sl_error *why);
/* Identifies this process's pid namespace; in others pids are unrelated. 0: unknown. */
uint64_t sl_proc_pid_namespace(void);
/* Reads a line PID START_TIME from a file such as supervisor.pid; the process may be dead. Errors:
 * SL_ERR_NOT_FOUND (no such file), SL_ERR_INVALID (no such line: it may be being written),
 * SL_ERR_OS. */
sl_err sl_proc_id_read(const char *path, struct sl_proc_id *out, struct sl_error *why);
#define SL_BOOT_ID_BYTES 40
/* Id of the running boot, zero-padded; pids and start times are not valid after it. */
sl_err sl_boot_id(char out[SL_BOOT_ID_BYTES], struct sl_error *why);
/* Opens a pidfd of exactly this process (checked after the open), close-on-exec. Errors:
 * SL_ERR_NOT_FOUND (it is dead, or the pid is another process now), SL_ERR_OS. */
sl_err sl_proc_open(struct sl_proc_id id, int *fd, struct sl_error *why);
/* Raises this process's limit of descriptors to the highest that the system allows. */
void sl_proc_descriptors_raise(void);

#endif
