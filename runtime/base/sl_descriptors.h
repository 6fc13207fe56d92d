/* runtime/base/sl_descriptors.h - memory handed over as descriptors, over a socket of the process
 * that has it. No right to trace that process is wanted, no process number has to mean the same on
 * both sides, and the other side needs nothing of ours but the runtime directory.
 *
 * The giver listens at RUNTIME_DIR/memory.PID.NUMBER (0600, in a directory of 0700), with a random
 * number, or as who the node knows it (struct sl_proc_id). Whoever knows pid and number asks there
 * for a piece of memory by a name of the giver's own. The answer is a row of descriptors with their
 * lengths, in the order of the addresses. Both sides check the other's uid by the kernel's word. A
 * giver of device memory makes the descriptors as they are asked for; one of a memfd gives copies
 * of it. */
#ifndef SL_DESCRIPTORS_H
#define SL_DESCRIPTORS_H

#include "runtime/base/sl_error.h"

#define SL_DESCRIPTORS_BATCH 32u    /* in one packet */
#define SL_DESCRIPTORS_MAX   65536u /* of one piece of memory */

/* What is asked for. The giver alone knows what the numbers mean. */
struct sl_descriptors_ask {
    uint64_t address;
    uint64_t length_bytes; /* 0: a file of the giver, see sl_descriptors_file */
    uint64_t life;         /* of that memory: another one may have come to the same address */
};
/* A packet of the answer. */
struct sl_descriptors_part {
    uint32_t count;
    bool more; /* packets follow */
    int fds[SL_DESCRIPTORS_BATCH];
    uint64_t lengths[SL_DESCRIPTORS_BATCH];
};

/* Gives what comes from descriptor number `first` on: 1 to SL_DESCRIPTORS_BATCH, which the caller
 * closes. On the server's thread. An error, of any kind, is told to the asker with its text; then
 * out is not looked at. */
typedef sl_err (*sl_descriptors_give_fn)(void *context, const struct sl_descriptors_ask *ask,
                                         uint32_t first, struct sl_descriptors_part *out,
                                         struct sl_error *why);

/* For give: a copy of the giver's descriptor number `address`, if it is the file with inode `life`
 * (0: any). Errors: SL_ERR_NOT_FOUND. */
sl_err sl_descriptors_file(const struct sl_descriptors_ask *ask, struct sl_descriptors_part *out,
                           struct sl_error *why);

struct sl_descriptors; /* opaque: a server, with a thread of its own */

/* Starts to listen under this number, or a random one where it is 0; sockets that dead processes
 * left in the directory are removed. give is called until sl_descriptors_stop. Errors:
 * SL_ERR_INVALID (runtime_dir is too long for a socket), SL_ERR_NOT_FOUND (it is not there),
 * SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_descriptors_serve(const char *runtime_dir, uint64_t number, sl_descriptors_give_fn give,
                            void *context, struct sl_descriptors **out, struct sl_error *why);
uint64_t sl_descriptors_number(const struct sl_descriptors *server);
/* Waits for the thread, and with it for a call of give. Accepts NULL. */
void sl_descriptors_stop(struct sl_descriptors **server);

/* Takes each part: the descriptors are closed behind it. An error ends the fetch, which gives it.
 */
typedef sl_err (*sl_descriptors_take_fn)(void *context, const struct sl_descriptors_part *part,
                                         struct sl_error *why);
struct sl_descriptors_source {
    const char *runtime_dir;
    uint32_t pid;
    uint64_t number;
};
/* Asks the source, and waits for all of it until deadline_ns (monotonic). Errors: SL_ERR_NOT_FOUND
 * (nobody listens there: the process is gone), SL_ERR_PERMISSION (of another uid), SL_ERR_TIMEOUT,
 * SL_ERR_PROTOCOL, SL_ERR_OS; those of give and take. Of a giver that has to restart
 * (SL_ERR_DEVICE, SL_ERR_INTERNAL): SL_ERR_IO. */
sl_err sl_descriptors_fetch(const struct sl_descriptors_source *source,
                            const struct sl_descriptors_ask *ask, sl_descriptors_take_fn take,
                            void *context, uint64_t deadline_ns, struct sl_error *why);
/* A file of the source's: sl_descriptors_file. Gives *fd. */
sl_err sl_descriptors_fetch_file(const struct sl_descriptors_source *source, int number,
                                 uint64_t inode, uint64_t deadline_ns, int *fd,
                                 struct sl_error *why);

#endif
