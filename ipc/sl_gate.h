/* ipc/sl_gate.h - a node's shared memory for a process that shares nothing with it but the runtime
 * directory: no /dev/shm, no process numbers, no network. Descriptors come over a socket.
 *
 * The node's program sluice-gate listens at RUNTIME_DIR/gate.attach. For each client it starts a process
 * of its own, the client's *stand-in*, which knows the client by a pidfd (of the socket, or one that the
 * client sends), opens the node's segments for it, and ends when the client does. To the node the
 * stand-in is the client: its number stands in claims and pins, and its descriptors are those that others
 * open. A stand-in outlives its gate.
 *
 * sl_gate_directory() stands for the shm directory in all calls that take one. */
#ifndef SL_GATE_H
#define SL_GATE_H

#include "runtime/sl_proc.h"

struct sl_gate; /* opaque; any number of threads: one request is under way at a time */

struct sl_gate_pins {
    const char *name; /* as sl_pins_options */
    uint32_t slot_count, access_count;
};

/* Whether a gate may be there: its socket is. */
bool sl_gate_there(const char *runtime_dir);
/* Asks for a stand-in for this process. Errors: SL_ERR_UNREACHABLE (nobody listens), SL_ERR_PERMISSION
 * (the node is another user's), SL_ERR_VERSION, SL_ERR_UNSUPPORTED (the kernel has no pidfds), SL_ERR_TIMEOUT, SL_ERR_OS. */
sl_err sl_gate_open(const char *runtime_dir, uint64_t deadline_ns, struct sl_gate **out,
                    struct sl_error *why);
/* Ends the stand-in, unless keeps: then it lives as long as this process. */
void sl_gate_close(struct sl_gate **gate, bool keeps);
/* Whether the stand-in lives; one system call. */
bool sl_gate_lives(struct sl_gate *gate);
/* As who the node knows this process. */
struct sl_proc_id sl_gate_self(struct sl_gate *gate);
const char *sl_gate_directory(const struct sl_gate *gate);
bool sl_gate_is_directory(const char *directory);
/* Another stand-in in the place of one that is gone, under the same directory. Descriptors are to be lent
 * again, segments opened again. Errors: those of open. */
sl_err sl_gate_renew(struct sl_gate *gate, const char *runtime_dir, uint64_t deadline_ns,
                     struct sl_error *why);
/* The stand-in takes a copy of the descriptor: *number is that of the copy, for others of the node. The
 * same memory has one copy, however often it is lent. *to: which stand-in has it. Errors:
 * SL_ERR_UNREACHABLE (it is gone), SL_ERR_LIMIT. */
sl_err sl_gate_lend(struct sl_gate *gate, int fd, int *number, struct sl_proc_id *to,
                    struct sl_error *why);
/* Once for each lend. What another stand-in had than that of now ended with it. */
void sl_gate_unlend(struct sl_gate *gate, int fd, struct sl_proc_id to);
/* Opens memory that a process of the node has under this number. Errors: SL_ERR_NOT_FOUND (it is gone,
 * or has none), SL_ERR_INVALID (it is no memory), SL_ERR_UNREACHABLE. */
sl_err sl_gate_fetch(struct sl_gate *gate, struct sl_proc_id holder, int number, int *fd,
                     struct sl_error *why);

/* ---- for segments: directory is that of a gate ---- */
sl_err sl_gate_segment_open(const char *directory, const char *name, bool writable, int *fd,
                            struct sl_error *why);
/* Which file has the name now. Errors: SL_ERR_NOT_FOUND (none, or the stand-in is gone). */
sl_err sl_gate_segment_look(const char *directory, const char *name, uint64_t *device,
                            uint64_t *inode);
sl_err sl_gate_segment_remove(const char *directory, const char *name, struct sl_error *why);
/* Makes a pin segment for this process, to be opened then. */
sl_err sl_gate_pins_make(const char *directory, const struct sl_gate_pins *pins,
                         struct sl_error *why);
/* That of the process numbers which the node uses; 0: directory is none of a gate. */
uint64_t sl_gate_pid_space(const char *directory);

#endif
