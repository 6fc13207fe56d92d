/* runtime/net/fabric/core/movers.h - threads that receive, digest and send values, so that
 * connections are served in parallel.
 *
 * A slot has one operation at a time: it is started, perhaps cancelled, and ended by exactly one
 * sl_mover_done without `more`. Memory, message, digests and steps are used until the end. A slot
 * always uses the same thread, which has its own io_uring. All calls must come from one thread, the
 * owner. */
#ifndef SL_FABRIC_CORE_MOVERS_H
#define SL_FABRIC_CORE_MOVERS_H

#include "runtime/base/sl_error.h"
#include "runtime/net/fabric/core/records.h"
#include "runtime/net/fabric/core/runs.h"

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Opens a ring for slot_count operations of this thread. Errors: SL_ERR_UNSUPPORTED. */
sl_err sl_ring_open(struct io_uring *ring, uint32_t slot_count, struct sl_error *why);
/* Gives a free submission entry; submits queued ones first if there is none. */
struct io_uring_sqe *sl_ring_sqe(struct io_uring *ring);

#define SL_MOVER_STEPS_MAX 15u

struct sl_movers;

/* result: bytes moved (fewer than requested only after a cancel or if the peer closed), or -errno
 * if there are none; of a send 1. */
struct sl_mover_done {
    uint32_t slot;
    int32_t result;
    bool more;    /* one value of a chain is complete; the next is being received */
    bool in_head; /* ended between values of a chain: nothing of the next was read */
};

/* Limits the wanted number to half of the processors of this process, or to 2 of 2: a single mover
 * sends no faster than the core that it fills. */
uint32_t sl_movers_count(uint32_t wanted);

/* count: at least 1. wake_fd: an eventfd, borrowed, written when results exist. Up to three results
 * with `more` are reported only when their mover has no other work. Errors: SL_ERR_NO_MEMORY,
 * SL_ERR_UNSUPPORTED (no io_uring), SL_ERR_OS. */
sl_err sl_movers_open(uint32_t count, uint32_t slot_count, int wake_fd, struct sl_movers **out,
                      struct sl_error *why);
/* Afterwards no memory is accessed. Operations in progress get no result. */
void sl_movers_close(struct sl_movers **movers);

/* SO_RCVLOWAT: the kernel wakes a receive only when this many bytes have arrived, not for every
 * packet. It must not exceed the bytes that are still expected, or the receive would not end. */
struct sl_low_water {
    uint32_t bytes; /* current value; 0: not set */
};
void sl_low_water_set(struct sl_low_water *low, int fd, uint32_t bytes);

/* A further value of a chain, which must begin with this head. */
struct sl_mover_step {
    struct sl_runs to;
    uint32_t length_bytes;
    struct sl_digest_stream *digest; /* NULL: none */
    unsigned char head[SL_WIRE_ANSWER_BYTES];
};

/* A receive. It uses everything that it points at until its end, including the lists of runs. Bytes
 * after it stay in the opener. */
struct sl_mover_receive {
    int fd;
    struct sl_runs to;
    uint32_t length_bytes;
    struct sl_low_water *low; /* of the socket */
    /* Fed with the bytes in order, in slices that are still in the cache; NULL: none. */
    struct sl_digest_stream *digest;
    /* More values to receive, each with its own result, while their heads are as expected. Any
     * other bytes end the chain. */
    const struct sl_mover_step *steps;
    uint32_t step_count;       /* at most SL_MOVER_STEPS_MAX */
    struct sl_records *opener; /* of the connection, with bytes that it already has */
};
void sl_movers_receive(struct sl_movers *movers, uint32_t slot,
                       const struct sl_mover_receive *receive);
/* Sends the message of the job piece by piece; uses it until the end, and consumes it. */
void sl_movers_send(struct sl_movers *movers, uint32_t slot, int fd,
                    const struct sl_seal_job *seal);
/* Ends the operation soon; no effect if it has ended. */
void sl_movers_cancel(struct sl_movers *movers, uint32_t slot);
/* Wakes the threads for operations and cancels since the last call. */
void sl_movers_flush(struct sl_movers *movers);
/* Takes at most count results; gives their number. */
uint32_t sl_movers_take(struct sl_movers *movers, struct sl_mover_done *dones, uint32_t count);

#endif
