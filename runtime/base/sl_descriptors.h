/* runtime/base/sl_descriptors.h - hands over memory as file descriptors through a Unix socket of
 * the process that owns it. The receiver needs no right to trace that process, only access to the
 * runtime directory, and pids need not mean the same on both sides.
 *
 * The giver listens at RUNTIME_DIR/memory.PID.NUMBER (0600, in a directory of 0700), where NUMBER
 * is random, or PID and NUMBER are those of a client (struct sl_proc_id). A process that knows both
 * requests a piece of memory by an identifier of the giver's own. The reply is a sequence of
 * descriptors with their lengths, in the order of the addresses. Both sides check the other's uid
 * as the kernel reports it. A giver of device memory makes descriptors on request; one of a memfd
 * duplicates its descriptor. */
#ifndef SL_DESCRIPTORS_H
#define SL_DESCRIPTORS_H

#include "runtime/base/sl_error.h"

#define SL_DESCRIPTORS_BATCH 32u    /* per packet */
#define SL_DESCRIPTORS_MAX   65536u /* per piece of memory */

/* A request. Only the giver interprets the numbers. */
struct sl_descriptors_request {
    uint64_t address;
    uint64_t length_bytes; /* 0: a file of the giver, see sl_descriptors_file */
    uint64_t life;         /* number of the memory's life: later memory may have the same address */
};
/* A packet of the reply. */
struct sl_descriptors_part {
    uint32_t count;
    bool more; /* packets follow */
    int fds[SL_DESCRIPTORS_BATCH];
    uint64_t lengths[SL_DESCRIPTORS_BATCH];
};

/* Fills out with the descriptors from number `first` on: 1 to SL_DESCRIPTORS_BATCH, which the
 * caller closes. Runs on the server's thread. An error is sent to the requester with its text, and
 * out is ignored. */
typedef sl_err (*sl_descriptors_give_fn)(void *context, const struct sl_descriptors_request *ask,
                                         uint32_t first, struct sl_descriptors_part *out,
                                         struct sl_error *why);

/* For a give function: duplicates the giver's descriptor number `address` if it is the file with
 * inode `life` (0: any). Errors: SL_ERR_NOT_FOUND. */
sl_err sl_descriptors_file(const struct sl_descriptors_request *ask,
                           struct sl_descriptors_part *out, struct sl_error *why);

struct sl_descriptors; /* opaque: a server, with a thread of its own */

/* Starts to listen under this number, or a random one if it is 0, and removes sockets that dead
 * processes left in the directory. give is called until sl_descriptors_stop. Errors: SL_ERR_INVALID
 * (runtime_dir is too long for a socket), SL_ERR_NOT_FOUND (it does not exist), SL_ERR_NO_MEMORY,
 * SL_ERR_OS. */
sl_err sl_descriptors_serve(const char *runtime_dir, uint64_t number, sl_descriptors_give_fn give,
                            void *context, struct sl_descriptors **out, struct sl_error *why);
uint64_t sl_descriptors_number(const struct sl_descriptors *server);
/* Waits for the thread, and so for a running call of give. Accepts NULL. */
void sl_descriptors_stop(struct sl_descriptors **server);

/* Receives each part, whose descriptors are closed afterwards. An error ends the fetch with it. */
typedef sl_err (*sl_descriptors_take_fn)(void *context, const struct sl_descriptors_part *part,
                                         struct sl_error *why);
struct sl_descriptors_source {
    const char *runtime_dir;
    uint32_t pid;
    uint64_t number;
};
/* Requests memory from the source and waits for all of it until deadline_ns (monotonic). Errors:
 * SL_ERR_NOT_FOUND (no process listens: it is gone), SL_ERR_PERMISSION (of another uid),
 * SL_ERR_TIMEOUT, SL_ERR_PROTOCOL, SL_ERR_OS; those of give and take, with SL_ERR_IO for a giver
 * that has to restart (SL_ERR_DEVICE, SL_ERR_INTERNAL). */
sl_err sl_descriptors_fetch(const struct sl_descriptors_source *source,
                            const struct sl_descriptors_request *ask, sl_descriptors_take_fn take,
                            void *context, uint64_t deadline_ns, struct sl_error *why);
/* Fetches a file that the source has open (sl_descriptors_file). Gives *fd. */
sl_err sl_descriptors_fetch_file(const struct sl_descriptors_source *source, int number,
                                 uint64_t inode, uint64_t deadline_ns, int *fd,
                                 struct sl_error *why);

#endif
