/* runtime/net/fabric/core/movers.h - threads that receive, digest and send the values of sockets,
 * so that one connection's copy runs beside another's.
 *
 * A slot is one operation at a time: started, perhaps cancelled, ended by exactly one
 * sl_mover_done without `more`. Memory, message, digests and steps are lent from start to end. A
 * slot's thread is fixed.
 *
 * All calls come from one thread, the owner's. Each mover has an io_uring of its own. */
#ifndef SL_FABRIC_CORE_MOVERS_H
#define SL_FABRIC_CORE_MOVERS_H

#include "runtime/base/sl_error.h"
#include "runtime/net/fabric/core/records.h"
#include "runtime/net/fabric/core/runs.h"

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* A ring for up to slot_count operations of this thread. Errors: SL_ERR_UNSUPPORTED. */
sl_err sl_ring_open(struct io_uring *ring, uint32_t slot_count, struct sl_error *why);
/* The next free submission; what is queued goes to the kernel first when there is none. */
struct io_uring_sqe *sl_ring_sqe(struct io_uring *ring);

#define SL_MOVER_STEPS_MAX 15u

struct sl_movers;

/* result: bytes moved (fewer than asked for only when it was cancelled or the peer closed), or
 * -errno when none were; of a send 1. */
struct sl_mover_done {
    uint32_t slot;
    int32_t result;
    bool more;    /* a whole value of a chain: the next one is being received */
    bool in_head; /* between two values of a chain: of the next one nothing was taken */
};

/* As many as are wanted, but no more than half of the processors that this process may use; both of
 * two: one mover alone sends no faster than the core that it fills. */
uint32_t sl_movers_count(uint32_t wanted);

/* count: 1 and up. wake_fd: an eventfd, borrowed, written when a done is there; for up to three
 * with `more` not before their mover has nothing else to do. Errors: SL_ERR_NO_MEMORY,
 * SL_ERR_UNSUPPORTED (no io_uring), SL_ERR_OS. */
sl_err sl_movers_open(uint32_t count, uint32_t slot_count, int wake_fd, struct sl_movers **out,
                      struct sl_error *why);
/* Nothing touches lent memory afterwards; what was under way is not answered. */
void sl_movers_close(struct sl_movers **movers);

/* SO_RCVLOWAT: the kernel wakes who receives when so much has arrived, instead of for every packet.
 * Never more than is still to come, or the end of the last value would wake nobody. */
struct sl_low_water {
    uint32_t bytes; /* in force; 0: not set */
};
void sl_low_water_set(struct sl_low_water *low, int fd, uint32_t bytes);

/* A value that follows in a chain, when exactly this head stands before it. */
struct sl_mover_step {
    struct sl_runs to;
    uint32_t length_bytes;
    struct sl_digest_stream *digest; /* NULL: none */
    unsigned char head[SL_WIRE_ANSWER_BYTES];
};

/* A receive. All that is pointed at is lent, the lists of runs too. What comes behind it stays in
 * the opener. */
struct sl_mover_receive {
    int fd;
    struct sl_runs to;
    uint32_t length_bytes;
    struct sl_low_water *low; /* of the socket */
    /* Fed with what arrives, in order, slice by slice while it is in the cache; NULL: none. */
    struct sl_digest_stream *digest;
    /* Values that are received in one go, with a done each, while their heads come as foretold.
     * What else comes ends the chain. */
    const struct sl_mover_step *steps;
    uint32_t step_count;       /* at most SL_MOVER_STEPS_MAX */
    struct sl_records *opener; /* of the connection, with what is in it already */
};
void sl_movers_receive(struct sl_movers *movers, uint32_t slot,
                       const struct sl_mover_receive *receive);
/* The message of the job, piece by piece; lent, and used up at the end. */
void sl_movers_send(struct sl_movers *movers, uint32_t slot, int fd,
                    const struct sl_seal_job *seal);
/* Ends the operation soon; nothing happens when it has ended. */
void sl_movers_cancel(struct sl_movers *movers, uint32_t slot);
/* Hands to the threads what was started and cancelled since. */
void sl_movers_flush(struct sl_movers *movers);
/* Takes at most count ends; returns how many. */
uint32_t sl_movers_take(struct sl_movers *movers, struct sl_mover_done *dones, uint32_t count);

#endif
